#include "daemon/state/busy_intervals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

namespace gpuperf {
namespace {

constexpr uint64_t kOneSecond = 1'000'000'000;
constexpr uint64_t kBegin = 1'000 * kOneSecond;

using Interval = std::pair<uint64_t, uint64_t>;

uint64_t measure_union(std::vector<Interval> intervals) {
  std::ranges::sort(intervals);
  uint64_t busy_ns = 0;
  uint64_t end_ns = 0;
  for (const auto& [from_ns, to_ns] : intervals) {
    if (to_ns <= end_ns) continue;
    busy_ns += to_ns - std::max(from_ns, end_ns);
    end_ns = to_ns;
  }
  return busy_ns;
}

TEST(BusyIntervalsTest, CountsTimeCoveredTwiceOnce) {
  BusyIntervals::Budget budget;
  BusyIntervals busy(budget);

  EXPECT_EQ(busy.add(kBegin, kBegin + 100), 0u);
  EXPECT_EQ(busy.add(kBegin + 50, kBegin + 150), 0u);
  EXPECT_EQ(busy.add(kBegin + 20, kBegin + 30), 0u);

  EXPECT_EQ(busy.busy_ns(), 150u);
}

TEST(BusyIntervalsTest, IgnoresWhatTookNoTime) {
  BusyIntervals::Budget budget;
  BusyIntervals busy(budget);

  EXPECT_EQ(busy.add(kBegin, kBegin), 0u);
  EXPECT_EQ(busy.add(kBegin + 10, kBegin), 0u);

  EXPECT_EQ(busy.busy_ns(), 0u);
}

// Against brute force: lengths from nothing to seconds, lateness up to what the horizon forgives.
TEST(BusyIntervalsTest, IsTheExactUnionInAnyOrderWithinTheHorizon) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 30; ++round) {
    BusyIntervals::Budget budget;
    BusyIntervals busy(budget);
    std::vector<Interval> all;
    uint64_t now_ns = kBegin;
    for (int i = 0; i < 3'000; ++i) {
      now_ns += random() % (1 << (8 + round % 16));
      const uint64_t length_ns = random() % (uint64_t{1} << (random() % 31));  // up to 1.07 s
      const uint64_t late_ns = random() % (3 * kOneSecond);
      const uint64_t end_ns = now_ns - late_ns;
      all.emplace_back(end_ns - length_ns, end_ns);
      ASSERT_EQ(busy.add(end_ns - length_ns, end_ns), 0u);
      if (i % 100 == 0) {
        ASSERT_EQ(busy.busy_ns(), measure_union(all));
      }
    }
    EXPECT_EQ(busy.busy_ns(), measure_union(all));
  }
}

TEST(BusyIntervalsTest, CountsAKernelOfAnHourWhole) {
  BusyIntervals::Budget budget;
  BusyIntervals busy(budget);
  (void)busy.add(kBegin, kBegin + 1'000);

  const uint64_t late_ns = busy.add(kBegin + 500, kBegin + 3'600 * kOneSecond);

  EXPECT_EQ(late_ns, 0u);
  EXPECT_EQ(busy.busy_ns(), 3'600 * kOneSecond);
}

TEST(BusyIntervalsTest, CountsAFirstIntervalLongerThanTheHorizonWhole) {
  BusyIntervals::Budget budget;
  BusyIntervals busy(budget);

  EXPECT_EQ(busy.add(0, 100 * kOneSecond), 0u);

  EXPECT_EQ(busy.busy_ns(), 100 * kOneSecond);
}

TEST(BusyIntervalsTest, SaysHowMuchCameTooLate) {
  BusyIntervals::Budget budget;
  BusyIntervals busy(budget);
  const uint64_t now_ns = kBegin + 60 * kOneSecond;
  (void)busy.add(now_ns, now_ns + 10);

  EXPECT_EQ(busy.add(kBegin, kBegin + 100), 100u);
  const uint64_t late_ns = busy.add(now_ns - 10 * kOneSecond, now_ns);

  // The horizon is 5 s and the rest of a bucket.
  EXPECT_GE(late_ns, 4'990'000'000u);
  EXPECT_LE(late_ns, 5 * kOneSecond);
  EXPECT_EQ(busy.busy_ns(), 10 + 10 * kOneSecond - late_ns);
}

TEST(BusyIntervalsTest, ClosesOldTimeEarlyWhenFull) {
  BusyIntervals::Budget budget{.max_pieces = 100};
  BusyIntervals busy(budget);

  for (uint64_t i = 0; i < 1'000; ++i) {
    (void)busy.add(kBegin + i * 1'000'000, kBegin + i * 1'000'000 + 10);
  }

  EXPECT_EQ(busy.busy_ns(), 10'000u);
  EXPECT_LE(budget.pieces, 102u);  // what the newest bucket holds may exceed it
  EXPECT_EQ(busy.add(kBegin, kBegin + 100), 100u);
}

TEST(BusyIntervalsTest, GivesBackWhatItTookOfTheBudget) {
  BusyIntervals::Budget budget;
  BusyIntervals busy(budget);
  for (uint64_t i = 0; i < 10'000; ++i) (void)busy.add(kBegin + i * 100, kBegin + i * 100 + 10);
  EXPECT_EQ(budget.pieces, 10'000u);

  (void)busy.add(kBegin, kBegin + 10 * kOneSecond);

  EXPECT_LE(budget.pieces, BusyIntervals::kHorizonNs / 2'000'000);
}

TEST(BusyIntervalsTest, ACopyGoesOnByItselfAndCountsInTheBudget) {
  BusyIntervals::Budget budget;
  BusyIntervals busy(budget);
  (void)busy.add(kBegin, kBegin + 10);
  (void)busy.add(kBegin + 20, kBegin + 30);

  BusyIntervals copy(busy);
  EXPECT_EQ(budget.pieces, 4u);
  (void)busy.add(kBegin + 5, kBegin + 25);
  (void)copy.add(kBegin + 28, kBegin + 32);

  EXPECT_EQ(busy.busy_ns(), 30u);
  EXPECT_EQ(copy.busy_ns(), 22u);
  copy.rest();
  EXPECT_EQ(budget.pieces, 1u);
}

}  // namespace
}  // namespace gpuperf
