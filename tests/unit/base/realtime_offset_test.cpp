#include "daemon/base/realtime_offset.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "daemon/base/token_bucket.h"
#include "tests/unit/base/fake_clock.h"

namespace gpuperf {
namespace {

constexpr int64_t kMono = 1'000'000'000'000;
constexpr int64_t kOffset = 1'700'000'000'000'000'000;
constexpr int64_t kSecond = 1'000'000'000;

class RealtimeOffsetTest : public testing::Test {
 protected:
  FakeClock clock_{kMono, kMono + kOffset};
  RealtimeOffset offset_{clock_};
};

TEST_F(RealtimeOffsetTest, ConvertsByTheConstantBetweenTheClocks) {
  EXPECT_EQ(offset_.mono_from_unix_ns(kOffset + 5), (RealtimeOffset::Moment{5, false}));
  EXPECT_EQ(offset_.sample(), std::nullopt);
  EXPECT_EQ(offset_.error_ns(), 0);
}

TEST(RealtimeOffsetErrorTest, IsWhatSlowReadsLeaveOpenAndShrinks) {
  FakeClock clock{kMono, kMono + kOffset};
  clock.per_read_ns = 400;
  RealtimeOffset offset(clock);
  const int64_t first_error_ns = offset.error_ns();

  clock.per_read_ns = 20;
  EXPECT_EQ(offset.sample(), std::nullopt);

  EXPECT_EQ(first_error_ns, 400);
  EXPECT_EQ(offset.error_ns(), 20);
  const int64_t off_ns = offset.mono_from_unix_ns(kMono + kOffset).mono_ns - kMono;
  EXPECT_LE(std::abs(off_ns), offset.error_ns());
}

TEST_F(RealtimeOffsetTest, TellsAStepForwardOnceAndConvertsBothSides) {
  clock_.advance(std::chrono::nanoseconds(kSecond));
  clock_.step(10 * kSecond);

  const auto step = offset_.sample();

  EXPECT_EQ(step, (RealtimeOffset::Step{kMono + kSecond, 10 * kSecond}));
  EXPECT_EQ(offset_.sample(), std::nullopt);
  const int64_t before = kMono + kOffset - 5;
  EXPECT_EQ(offset_.mono_from_unix_ns(before), (RealtimeOffset::Moment{kMono - 5, false}));
  const int64_t after = clock_.unix_ns() + 7;
  EXPECT_EQ(offset_.mono_from_unix_ns(after), (RealtimeOffset::Moment{kMono + kSecond + 7, false}));
}

TEST_F(RealtimeOffsetTest, FlagsTimesThatTheWallClockNeverShowed) {
  clock_.advance(std::chrono::nanoseconds(kSecond));
  clock_.step(10 * kSecond);
  (void)offset_.sample();

  EXPECT_EQ(offset_.mono_from_unix_ns(kMono + kOffset + 5 * kSecond),
            (RealtimeOffset::Moment{kMono + kSecond, true}));
  EXPECT_TRUE(offset_.mono_from_unix_ns(kMono + kOffset + kSecond / 2).is_near_step);
}

TEST_F(RealtimeOffsetTest, FlagsTimesThatTheWallClockShowedTwice) {
  clock_.advance(std::chrono::nanoseconds(60 * kSecond));
  (void)offset_.sample();
  clock_.step(-10 * kSecond);

  EXPECT_EQ(offset_.sample(), (RealtimeOffset::Step{kMono + 60 * kSecond, -10 * kSecond}));

  // Shown at 55 s by the old offset, at 65 s by the new one.
  EXPECT_TRUE(offset_.mono_from_unix_ns(kMono + kOffset + 55 * kSecond).is_near_step);
  EXPECT_EQ(offset_.mono_from_unix_ns(kMono + kOffset + 40 * kSecond),
            (RealtimeOffset::Moment{kMono + 40 * kSecond, false}));
  EXPECT_EQ(offset_.mono_from_unix_ns(kMono + kOffset + 61 * kSecond),
            (RealtimeOffset::Moment{kMono + 71 * kSecond, false}));
}

TEST_F(RealtimeOffsetTest, TakesRoundingForNoStep) {
  clock_.step(1);
  EXPECT_EQ(offset_.sample(), std::nullopt);
  EXPECT_EQ(offset_.error_ns(), 1);
}

TEST_F(RealtimeOffsetTest, ForgetsTheOldestOfTooManySteps) {
  for (size_t i = 0; i < 3 * RealtimeOffset::kMaxSegments; ++i) {
    clock_.advance(std::chrono::nanoseconds(kSecond));
    clock_.step(kSecond);
    ASSERT_NE(offset_.sample(), std::nullopt);
  }

  EXPECT_EQ(offset_.mono_from_unix_ns(clock_.unix_ns()).mono_ns, clock_.mono_ns());
  EXPECT_LT(offset_.mono_from_unix_ns(kMono + kOffset).mono_ns, clock_.mono_ns());
}

TEST(TokenBucketTest, LetsASecondsWorthThroughAtOnceAndThenWaits) {
  TokenBucket bucket(1'000);
  const int64_t now_ns = 100 * kSecond;

  bucket.take(1'000, now_ns);
  EXPECT_LE(bucket.ready_mono_ns(), now_ns);
  bucket.take(500, now_ns);

  EXPECT_EQ(bucket.ready_mono_ns(), now_ns + kSecond / 2);
}

TEST(TokenBucketTest, SavesNoMoreThanASecondsWorth) {
  TokenBucket bucket(1'000);
  bucket.take(1, 100 * kSecond);

  bucket.take(2'000, 500 * kSecond);

  EXPECT_EQ(bucket.ready_mono_ns(), 501 * kSecond);
}

}  // namespace
}  // namespace gpuperf
