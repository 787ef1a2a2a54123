#include "daemon/web/query.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpuperf/v1/observe.pb.h"

namespace gpuperf {
namespace {

v1::ListSlowCallsRequest read(const HttpParameters& parameters) {
  v1::ListSlowCallsRequest request;
  const Result<std::string> json = make_request_json(parameters);
  EXPECT_TRUE(json.ok()) << json.status();
  EXPECT_TRUE(parse_json(json.value_or(""), request).ok()) << *json;
  return request;
}

TEST(QueryTest, IsAnEmptyRequestWithoutParameters) {
  EXPECT_EQ(read({}).DebugString(), v1::ListSlowCallsRequest().DebugString());
}

TEST(QueryTest, ReadsTextsAndNumbersOfInnerMessages) {
  const auto request = read({{"filter.function", "cuda\"Memcpy*"},
                             {"filter.pid", "71"},
                             {"filter.since_unix_ns", "18446744073709551615"},
                             {"page.limit", "20"},
                             {"sort", "start_unix_ns"}});

  v1::ListSlowCallsRequest expected;
  expected.mutable_filter()->set_function("cuda\"Memcpy*");
  expected.mutable_filter()->set_pid(71);
  expected.mutable_filter()->set_since_unix_ns(UINT64_MAX);
  expected.mutable_page()->set_limit(20);
  expected.set_sort("start_unix_ns");
  EXPECT_EQ(request.DebugString(), expected.DebugString());
}

TEST(QueryTest, ReadsSwitches) {
  v1::ListFunctionsRequest request;
  ASSERT_TRUE(parse_json(*make_request_json({{"per_process", "true"}}), request).ok());

  EXPECT_TRUE(request.per_process());
}

TEST(QueryTest, RefusesWhatIsNoFieldOfARequest) {
  for (const HttpParameters& parameters :
       {HttpParameters{{"", "1"}}, HttpParameters{{"a..b", "1"}}, HttpParameters{{".", "1"}},
        HttpParameters{{"a", "1"}, {"a", "2"}}, HttpParameters{{"a", "1"}, {"a.b", "2"}},
        HttpParameters{{"a.b.c.d.e", "1"}}}) {
    EXPECT_EQ(make_request_json(parameters).status().code(), absl::StatusCode::kInvalidArgument)
        << parameters.begin()->first;
  }
}

TEST(QueryTest, RefusesTextThatIsNotUtf8) {
  const Result<std::string> json = make_request_json({{"sort", "\xff\xfe"}});
  v1::ListSlowCallsRequest request;

  EXPECT_FALSE(json.ok() && parse_json(*json, request).ok());
}

TEST(QueryTest, RefusesANumberThatIsNone) {
  v1::ListSlowCallsRequest request;
  EXPECT_EQ(parse_json(*make_request_json({{"page.limit", "many"}}), request).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace gpuperf
