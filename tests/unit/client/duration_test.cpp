#include "client/duration.h"

#include <string>

#include "tests/unit/client/example_calls.h"
#include "tests/unit/matchers.h"

namespace gpuperf::client {
namespace {

constexpr uint64_t kNowNs = 1'777'630'245 * kSecondNs;  // 2026-05-01T10:10:45Z

std::string find_error(const Result<uint64_t>& result) {
  return std::string(result.status().message());
}

TEST(DurationTest, ReadsEveryUnit) {
  EXPECT_EQ(*parse_duration_ns("7ns"), 7U);
  EXPECT_EQ(*parse_duration_ns("7us"), 7'000U);
  EXPECT_EQ(*parse_duration_ns("7µs"), 7'000U);
  EXPECT_EQ(*parse_duration_ns("7ms"), 7'000'000U);
  EXPECT_EQ(*parse_duration_ns("7s"), 7 * kSecondNs);
  EXPECT_EQ(*parse_duration_ns("10m"), 600 * kSecondNs);
  EXPECT_EQ(*parse_duration_ns("2h"), 7200 * kSecondNs);
  EXPECT_EQ(*parse_duration_ns("1d"), 86400 * kSecondNs);
  EXPECT_EQ(*parse_duration_ns("1w"), 604800 * kSecondNs);
  EXPECT_EQ(*parse_duration_ns("0s"), 0U);
}

TEST(DurationTest, ReadsFractionsAndSums) {
  EXPECT_EQ(*parse_duration_ns("2.5ms"), 2'500'000U);
  EXPECT_EQ(*parse_duration_ns("0.1s"), 100'000'000U);
  EXPECT_EQ(*parse_duration_ns("1h30m"), 5400 * kSecondNs);
  EXPECT_EQ(*parse_duration_ns("1.5h0.5m"), 5430 * kSecondNs);
}

TEST(DurationTest, RefusesANumberWithoutAUnit) {
  EXPECT_EQ(find_error(parse_duration_ns("5")),
            "\"5\": no unit; write a number with a unit, like 500ms, 10m, 1h30m or 2d");
}

TEST(DurationTest, RefusesWhatIsNotADuration) {
  EXPECT_THAT(find_error(parse_duration_ns("")), HasSubstr("empty"));
  EXPECT_THAT(find_error(parse_duration_ns("ms")), HasSubstr("not a duration"));
  EXPECT_THAT(find_error(parse_duration_ns("5 ms")), HasSubstr("unknown unit \" ms\""));
  EXPECT_THAT(find_error(parse_duration_ns("5y")), HasSubstr("unknown unit \"y\""));
  EXPECT_THAT(find_error(parse_duration_ns("5.ms")), HasSubstr("no unit"));
  EXPECT_THAT(find_error(parse_duration_ns(".5s")), HasSubstr("not a duration"));
  EXPECT_THAT(find_error(parse_duration_ns("-5s")), HasSubstr("not a duration"));
}

TEST(DurationTest, RefusesWhatDoesNotFit) {
  EXPECT_THAT(find_error(parse_duration_ns("99999999999999999999s")), HasSubstr("584 years"));
  EXPECT_THAT(find_error(parse_duration_ns("40000w")), HasSubstr("584 years"));
  EXPECT_THAT(find_error(parse_duration_ns("30000w30000w")), HasSubstr("584 years"));
}

TEST(SinceTest, CountsADurationBackFromNow) {
  EXPECT_EQ(*parse_since_unix_ns("10m", kNowNs), kNowNs - 600 * kSecondNs);
}

TEST(SinceTest, ReadsRfc3339) {
  EXPECT_EQ(*parse_since_unix_ns("2026-05-01T10:10:45Z", kNowNs), kNowNs);
  EXPECT_EQ(*parse_since_unix_ns("2026-05-01T12:10:45+02:00", kNowNs), kNowNs);
  EXPECT_EQ(*parse_since_unix_ns("2026-05-01T10:10:45.25Z", kNowNs), kNowNs + kSecondNs / 4);
}

TEST(SinceTest, RefusesOtherTimes) {
  EXPECT_THAT(find_error(parse_since_unix_ns("2026-05-01", kNowNs)), HasSubstr("not a time"));
  EXPECT_THAT(find_error(parse_since_unix_ns("2026-13-01T10:00:00Z", kNowNs)),
              HasSubstr("not a time"));
  EXPECT_THAT(find_error(parse_since_unix_ns("1969-01-01T10:00:00Z", kNowNs)),
              HasSubstr("outside 1970 to 2262"));
  EXPECT_THAT(find_error(parse_since_unix_ns("9999-01-01T10:00:00Z", kNowNs)),
              HasSubstr("outside 1970 to 2262"));
  EXPECT_THAT(find_error(parse_since_unix_ns("20000w", kNowNs)), HasSubstr("before 1970"));
}

}  // namespace
}  // namespace gpuperf::client
