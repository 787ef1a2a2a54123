#include "daemon/model/snapshot.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

namespace gpuperf {
namespace {

CellDelta sample_delta() {
  return {.calls = 10,
          .hooked = 6,
          .abandoned = 1,
          .total_ns = 5'000,
          .self_ns = 4'000,
          .min_ns = 300,
          .max_ns = 900,
          .slow_calls = 2,
          .untimed = 3,
          .other_errors = 1,
          .flops = 600,
          .bytes = {1, 2, 3, 4, 5, 6},
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
                                   .hooked = 6,
                                   .abandoned = 1,
                                   .untimed = 3,
                                   .total_ns = 5'000,
                                   .self_ns = 4'000,
                                   .min_ns = 300,
                                   .max_ns = 900,
                                   .slow_calls = 2,
                                   .other_errors = 1,
                                   .flops = 600,
                                   .bytes = {1, 2, 3, 4, 5, 6},
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
                           .flops = 40,
                           .bytes = {10, 20, 30, 40, 50, 60},
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
  merge_totals(merged, {.past_hooks = 3});
  merge_totals(merged, {.past_hooks = 4});
  EXPECT_EQ(merged.past_hooks, 7u);
}

TEST(SnapshotTest, FindsAProcessByItsWholeKey) {
  Snapshot snapshot;
  snapshot.processes = {{.process = {7, 100}}, {.process = {7, 200}}, {.process = {9, 50}}};

  EXPECT_EQ(find_process(snapshot, {7, 200}), &snapshot.processes[1]);
  EXPECT_EQ(find_process(snapshot, {9, 50}), &snapshot.processes[2]);
  EXPECT_EQ(find_process(snapshot, {7, 150}), nullptr);
  EXPECT_EQ(find_process(snapshot, {10, 1}), nullptr);
}

TEST(SnapshotTest, CoversAFunctionWhollyUnlessItSaysOtherwise) {
  Snapshot snapshot;
  snapshot.coverage = {1, 0.25};

  EXPECT_EQ(get_coverage(snapshot, 1), 0.25);
  EXPECT_EQ(get_coverage(snapshot, 2), 1);
}

TEST(SnapshotTest, ACallThatBeganDuringTheLookHasNoAge) {
  const InFlightCalls look{.look_mono_ns = 1'000};

  EXPECT_EQ(get_age_ns(look, {.start_mono_ns = 400}), 600u);
  EXPECT_EQ(get_age_ns(look, {.start_mono_ns = 1'001}), 0u);
}

TEST(SnapshotTest, CountsTheOperationsOfAllCallsOfAShape) {
  EXPECT_EQ(get_flops({.dimensions = {2, 3, 5, 7}, .calls = 11}), 2 * 2 * 3 * 5 * 7 * 11);
}

TEST(SnapshotTest, OperationsOfABusyGpuDoNotWrap) {
  FunctionTotals totals;
  add_delta(totals, {.flops = UINT64_MAX});
  const FunctionTotals first = totals;
  add_delta(totals, {.flops = UINT64_MAX});
  merge_totals(totals, first);

  EXPECT_EQ(totals.flops, 3 * static_cast<long double>(UINT64_MAX));
  EXPECT_EQ(get_flops({.dimensions = {8192, 8192, 8192, 1}, .calls = 1ull << 40}),
            0x1p80L);  // 2^(1 + 3 * 13 + 40)
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

TEST(OverheadRowTest, CostsOfOneProcessAreOneRowInWhateverOrderTheyCome) {
  const OverheadRow of_probes{.process = {.pid = 71, .start_boot_ns = 5'000'000'123},
                              .ratio = 0.01,
                              .hooks_ratio = 0.004,
                              .thread_ratio = 0.02,
                              .budget_ratio = 0.01,
                              .correction = 1.5};
  const OverheadRow of_cupti{.process = {.pid = 71, .start_boot_ns = 5'000'000'000},
                             .ratio = 0.002,
                             .cupti_ratio = 0.002,
                             .budget_ratio = 0.01};
  for (const bool cupti_first : {false, true}) {
    Snapshot snapshot;
    add_overhead(snapshot, cupti_first ? of_cupti : of_probes);
    add_overhead(snapshot, cupti_first ? of_probes : of_cupti);

    ASSERT_EQ(snapshot.overhead.size(), 1u);
    EXPECT_DOUBLE_EQ(snapshot.overhead[0].ratio, 0.012);
    EXPECT_EQ(snapshot.overhead[0].hooks_ratio, 0.004);
    EXPECT_EQ(snapshot.overhead[0].cupti_ratio, 0.002);
    EXPECT_EQ(snapshot.overhead[0].thread_ratio, 0.02);
    EXPECT_EQ(snapshot.overhead[0].correction, 1.5);
  }
}

}  // namespace
}  // namespace gpuperf
