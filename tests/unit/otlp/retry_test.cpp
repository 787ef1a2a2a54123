#include "daemon/otlp/retry.h"

#include <gtest/gtest.h>

#include <set>

#include "google/rpc/retry_info.pb.h"

namespace gpuperf::otlp {
namespace {

using std::chrono::milliseconds;

constexpr RetryTimes kRetryTimes{.first = milliseconds(1'000), .longest = milliseconds(30'000)};

grpc::Status make_throttled(grpc::StatusCode code, int64_t seconds, int32_t nanos) {
  google::rpc::RetryInfo info;
  info.mutable_retry_delay()->set_seconds(seconds);
  info.mutable_retry_delay()->set_nanos(nanos);
  google::rpc::Status details;
  details.add_details()->PackFrom(info);
  return {code, "busy", details.SerializeAsString()};
}

// The table of the OTLP specification; RESOURCE_EXHAUSTED stands here without RetryInfo.
TEST(OtlpRetryTest, KnowsWhichFailuresPass) {
  const std::set<int> again = {grpc::CANCELLED,    grpc::DEADLINE_EXCEEDED, grpc::ABORTED,
                               grpc::OUT_OF_RANGE, grpc::UNAVAILABLE,       grpc::DATA_LOSS};
  for (int code = grpc::CANCELLED; code <= grpc::UNAUTHENTICATED; ++code) {
    const grpc::Status status(static_cast<grpc::StatusCode>(code), "");
    EXPECT_EQ(find_retry_delay(status, 1, 0, kRetryTimes).has_value(), again.contains(code))
        << code;
  }
}

TEST(OtlpRetryTest, WaitsTwiceAsLongEachTimeUpToABound) {
  const grpc::Status away(grpc::StatusCode::UNAVAILABLE, "");

  EXPECT_EQ(find_retry_delay(away, 1, 1, kRetryTimes), milliseconds(1'000));
  EXPECT_EQ(find_retry_delay(away, 2, 1, kRetryTimes), milliseconds(2'000));
  EXPECT_EQ(find_retry_delay(away, 3, 1, kRetryTimes), milliseconds(4'000));
  EXPECT_EQ(find_retry_delay(away, 4'000'000'000, 1, kRetryTimes), milliseconds(30'000));
}

TEST(OtlpRetryTest, SpreadsThePauseOverItsUpperHalf) {
  const grpc::Status away(grpc::StatusCode::UNAVAILABLE, "");

  EXPECT_EQ(find_retry_delay(away, 1, 0, kRetryTimes), milliseconds(500));
  EXPECT_EQ(find_retry_delay(away, 1, 0.5, kRetryTimes), milliseconds(750));
}

TEST(OtlpRetryTest, KeepsThePauseThatTheReceiverAsksFor) {
  EXPECT_EQ(
      find_retry_delay(make_throttled(grpc::RESOURCE_EXHAUSTED, 7, 500'000'000), 1, 0, kRetryTimes),
      milliseconds(7'500));
  EXPECT_EQ(find_retry_delay(make_throttled(grpc::UNAVAILABLE, 90, 0), 1, 0, kRetryTimes),
            milliseconds(90'000));
}

TEST(OtlpRetryTest, TakesAPauseOfNothingForItsOwn) {
  EXPECT_EQ(find_retry_delay(make_throttled(grpc::UNAVAILABLE, 0, 0), 2, 1, kRetryTimes),
            milliseconds(2'000));
}

TEST(OtlpRetryTest, BoundsThePauseThatAReceiverAsksFor) {
  EXPECT_EQ(find_retry_delay(make_throttled(grpc::UNAVAILABLE, INT64_MAX, 999'999'999), 1, 0,
                             kRetryTimes),
            milliseconds(600'000));
  EXPECT_EQ(find_retry_delay(make_throttled(grpc::UNAVAILABLE, -5, -5), 1, 1, kRetryTimes),
            milliseconds(1'000));
}

TEST(OtlpRetryTest, DoesNotRetryForAPauseWhatIsRefusedForGood) {
  EXPECT_EQ(find_retry_delay(make_throttled(grpc::INVALID_ARGUMENT, 1, 0), 1, 0, kRetryTimes),
            std::nullopt);
}

TEST(OtlpRetryTest, ReadsPastDetailsItDoesNotKnow) {
  const grpc::Status broken(grpc::StatusCode::UNAVAILABLE, "", "\xff\xff no message");

  EXPECT_EQ(find_retry_delay(broken, 1, 1, kRetryTimes), milliseconds(1'000));
}

}  // namespace
}  // namespace gpuperf::otlp
