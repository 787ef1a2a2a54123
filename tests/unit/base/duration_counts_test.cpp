#include "daemon/base/duration_counts.h"

#include <gtest/gtest.h>

#include "daemon/base/high_mark.h"

namespace gpuperf {
namespace {

using std::chrono::nanoseconds;

TEST(DurationCountsTest, CountsByPowersOfTwo) {
  DurationCounts counts;
  for (const int ns : {0, 1, 2, 3, 1023, 1024}) counts.add(nanoseconds(ns));

  const DurationCounts::Totals totals = counts.get();

  EXPECT_EQ(totals.count(), 6u);
  EXPECT_EQ(totals.total_ns, 2053u);
  EXPECT_EQ(totals.longest_ns, 1024u);
  EXPECT_EQ(totals.counts[0], 1u);
  EXPECT_EQ(totals.counts[1], 1u);
  EXPECT_EQ(totals.counts[2], 2u);
  EXPECT_EQ(totals.counts[10], 1u);
  EXPECT_EQ(totals.counts[11], 1u);
}

TEST(DurationCountsTest, TellsQuantilesByTheUpperEdgeOfTheirBucket) {
  DurationCounts counts;
  for (int i = 0; i < 99; ++i) counts.add(nanoseconds(1'000));
  counts.add(nanoseconds(5'000'000));

  const DurationCounts::Totals totals = counts.get();

  EXPECT_EQ(totals.quantile_ns(0.5), 1'024u);
  EXPECT_EQ(totals.quantile_ns(0.99), 1'024u);
  EXPECT_EQ(totals.quantile_ns(1), 5'000'000u);
  EXPECT_EQ(DurationCounts().get().quantile_ns(0.5), 0u);
}

TEST(DurationCountsTest, HasRoomForTheShortestAndTheLongest) {
  DurationCounts counts;
  counts.add(nanoseconds(-5));
  counts.add(nanoseconds::max());

  const DurationCounts::Totals totals = counts.get();

  EXPECT_EQ(totals.counts.front(), 1u);
  EXPECT_EQ(totals.counts.back(), 1u);
  EXPECT_EQ(totals.quantile_ns(1), static_cast<uint64_t>(nanoseconds::max().count()));
}

TEST(DurationCountsTest, MergesTotals) {
  DurationCounts counts;
  counts.add(nanoseconds(7));
  DurationCounts::Totals totals = counts.get();
  counts.add(nanoseconds(100));

  totals.merge(counts.get());

  EXPECT_EQ(totals.count(), 3u);
  EXPECT_EQ(totals.total_ns, 114u);
  EXPECT_EQ(totals.longest_ns, 100u);
}

TEST(HighMarkTest, RemembersTheHighestUntilItIsAskedFor) {
  HighMark mark;
  for (const uint64_t level : {3, 9, 4}) mark.note(level);

  EXPECT_EQ(mark.take(), 9u);
  EXPECT_EQ(mark.take(), 4u);
  mark.note(5);
  mark.note(0);
  EXPECT_EQ(mark.take(), 5u);
  EXPECT_EQ(mark.take(), 0u);
}

}  // namespace
}  // namespace gpuperf
