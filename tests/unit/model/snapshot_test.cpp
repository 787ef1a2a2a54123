#include "daemon/model/snapshot.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

namespace gpuperf {
namespace {

CellDelta sample_delta() {
  return {.calls = 10,
          .abandoned = 1,
          .total_ns = 5'000,
          .self_ns = 4'000,
          .min_ns = 300,
          .max_ns = 900,
          .slow_calls = 2,
          .untimed = 3,
          .other_errors = 1,
          .errors = {{2, 4}, {700, 1}},
          .buckets = {{16, 3}, {20, 2}}};
}

FunctionTotals sample_totals() {
  FunctionTotals totals;
  add_delta(totals, sample_delta());
  return totals;
}

TEST(FunctionTotalsTest, TakeOverEveryFieldOfADelta) {
  Histogram histogram;
  histogram.add(16, 3);
  histogram.add(20, 2);
  const FunctionTotals expected = {.calls = 10,
                                   .abandoned = 1,
                                   .untimed = 3,
                                   .total_ns = 5'000,
                                   .self_ns = 4'000,
                                   .min_ns = 300,
                                   .max_ns = 900,
                                   .slow_calls = 2,
                                   .other_errors = 1,
                                   .errors = {{2, 4}, {700, 1}},
                                   .histogram = histogram};

  EXPECT_EQ(sample_totals(), expected);
  EXPECT_EQ(get_error_count(sample_totals()), 6u);
  EXPECT_EQ(get_in_flight(sample_totals()), 1u);
}

TEST(FunctionTotalsTest, KeepTheExtremesOfSeveralDeltas) {
  FunctionTotals totals = sample_totals();

  add_delta(totals, {.calls = 1, .min_ns = 0, .max_ns = 0});  // nothing completed: no minimum
  EXPECT_EQ(totals.min_ns, 300u);
  EXPECT_EQ(totals.max_ns, 900u);

  add_delta(totals, {.min_ns = 200, .max_ns = 800});
  EXPECT_EQ(totals.min_ns, 200u);
  EXPECT_EQ(totals.max_ns, 900u);
}

TEST(FunctionTotalsTest, TakeBackAnAbandonedCallThatReturned) {
  FunctionTotals totals = sample_totals();

  add_delta(totals, {.abandoned = -1, .buckets = {{30, 1}}});

  EXPECT_EQ(totals.abandoned, 0u);
  EXPECT_EQ(get_in_flight(totals), 1u);
}

TEST(SnapshotTest, AbandonedCallsThatComeBackElsewhereNeverCountBelowNothing) {
  FunctionTotals totals;

  add_delta(totals, {.abandoned = -3});
  add_delta(totals, {.calls = 1, .abandoned = 1});

  EXPECT_EQ(totals.abandoned, 1u);
  EXPECT_EQ(get_in_flight(totals), 0u);
}

TEST(FunctionTotalsTest, ShowNoCallsInFlightWhenMoreEndedThanBegan) {
  FunctionTotals totals;

  // An entry and its return can fall into two readings.
  add_delta(totals, {.calls = 1, .buckets = {{5, 2}}});

  EXPECT_EQ(get_in_flight(totals), 0u);
}

TEST(FunctionTotalsTest, MergeLikeTheDeltasOfBoth) {
  const CellDelta other = {.calls = 4,
                           .abandoned = 2,
                           .total_ns = 70,
                           .self_ns = 60,
                           .min_ns = 20,
                           .max_ns = 50,
                           .slow_calls = 1,
                           .untimed = 1,
                           .other_errors = 9,
                           .errors = {{2, 1}, {3, 1}},
                           .buckets = {{1, 1}}};
  FunctionTotals merged = sample_totals();
  FunctionTotals expected = sample_totals();
  add_delta(expected, other);
  FunctionTotals right;
  add_delta(right, other);

  merge_totals(merged, right);

  EXPECT_EQ(merged, expected);
  merge_totals(merged, FunctionTotals{});
  EXPECT_EQ(merged, expected);
}

TEST(SnapshotBoardTest, AlwaysHasASnapshotAndGivesTheNewest) {
  SnapshotBoard board;
  ASSERT_NE(board.get(), nullptr);

  const auto first = board.get();
  board.publish(std::make_shared<const Snapshot>(Snapshot{.taken_mono_ns = 7}));

  EXPECT_EQ(board.get()->taken_mono_ns, 7);
  EXPECT_EQ(first->taken_mono_ns, 0);  // a reader keeps what it took
}

TEST(SnapshotBoardTest, NeverGivesAnOlderSnapshotThanBefore) {
  SnapshotBoard board;
  std::jthread writer([&board] {
    for (int64_t i = 1; i <= 10'000; ++i) {
      board.publish(std::make_shared<const Snapshot>(Snapshot{.taken_mono_ns = i}));
    }
  });

  int64_t newest = 0;
  while (newest < 10'000) {
    const int64_t taken = board.get()->taken_mono_ns;
    ASSERT_GE(taken, newest);
    newest = taken;
  }
}

}  // namespace
}  // namespace gpuperf
