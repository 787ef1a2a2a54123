#include "daemon/state/function_stats.h"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <random>

#include "tests/unit/state/examples.h"

namespace gpuperf {
namespace {

using std::chrono::seconds;

// `completed` calls of `duration_ns` each, `calls` begun.
CellDelta make_delta(uint32_t function_id, ProcessKey process, uint64_t calls, uint32_t completed,
                     uint64_t duration_ns = 1000) {
  CellDelta delta{.function_id = function_id, .process = process, .owner = kPython, .calls = calls};
  delta.total_ns = delta.self_ns = completed * duration_ns;
  if (completed == 0) return delta;
  delta.min_ns = delta.max_ns = duration_ns;
  delta.buckets = {{static_cast<uint16_t>(bucket_of(duration_ns)), completed}};
  return delta;
}

Snapshot take(const FunctionStats& stats) {
  Snapshot snapshot;
  stats.fill(snapshot);
  return snapshot;
}

std::vector<uint32_t> get_pids(const Snapshot& snapshot) {
  std::vector<uint32_t> pids;
  for (const ProcessRow& row : snapshot.processes) pids.push_back(row.process.pid);
  return pids;
}

class FunctionStatsTest : public testing::Test {
 protected:
  DropCounters drops_;
  FunctionStats stats_{{.keep_exited = seconds(600), .max_exited_processes = 1000}, drops_};
};

TEST_F(FunctionStatsTest, AddsDeltasToRowAndSeriesAndProcess) {
  CellDelta second = make_delta(3, kProcess, 2, 2, 50'000);
  second.slow_calls = 1;
  second.errors = {{2, 1}};

  stats_.apply(make_delta(3, kProcess, 5, 4));
  stats_.apply(second);
  stats_.apply(make_delta(4, kProcess, 1, 1));

  const Snapshot snapshot = take(stats_);
  FunctionTotals expected;
  add_delta(expected, make_delta(3, kProcess, 5, 4));
  add_delta(expected, second);
  ASSERT_EQ(snapshot.rows.size(), 2u);
  EXPECT_EQ(snapshot.rows[0]->function_id, 3u);
  EXPECT_EQ(snapshot.rows[0]->process, kProcess);
  EXPECT_EQ(snapshot.rows[0]->owner, kPython);
  EXPECT_EQ(snapshot.rows[0]->totals, expected);
  ASSERT_EQ(snapshot.series.size(), 2u);
  EXPECT_EQ(snapshot.series[0]->totals, expected);
  ASSERT_EQ(snapshot.processes.size(), 1u);
  EXPECT_EQ(snapshot.processes[0].functions, 2u);
  EXPECT_EQ(snapshot.processes[0].calls, 8u);
  EXPECT_EQ(snapshot.processes[0].slow_calls, 1u);
}

TEST_F(FunctionStatsTest, SumsProcessesOfOneOwnerInOneSeries) {
  stats_.apply(make_delta(3, make_process(1), 5, 5));
  stats_.apply(make_delta(3, make_process(2), 7, 7));

  const Snapshot snapshot = take(stats_);
  EXPECT_EQ(snapshot.rows.size(), 2u);
  ASSERT_EQ(snapshot.series.size(), 1u);
  EXPECT_EQ(snapshot.series[0]->totals.calls, 12u);
  EXPECT_EQ(snapshot.series[0]->totals.histogram.count(), 12u);
}

TEST_F(FunctionStatsTest, KeepsARowInTheSeriesOfItsFirstOwner) {
  CellDelta renamed = make_delta(3, kProcess, 0, 1);
  renamed.owner.comm = "renamed";

  stats_.apply(make_delta(3, kProcess, 1, 0));
  stats_.apply(renamed);

  const Snapshot snapshot = take(stats_);
  ASSERT_EQ(snapshot.series.size(), 1u);
  EXPECT_EQ(snapshot.series[0]->owner, kPython);
  EXPECT_EQ(get_in_flight(snapshot.series[0]->totals), 0u);
}

TEST_F(FunctionStatsTest, ReusesRowsThatDidNotChangeAndNeverChangesThoseHandedOut) {
  stats_.apply(make_delta(3, make_process(1), 5, 5));
  stats_.apply(make_delta(4, make_process(1), 5, 5));
  const Snapshot before = take(stats_);

  stats_.apply(make_delta(4, make_process(1), 1, 1));
  const Snapshot after = take(stats_);

  EXPECT_EQ(before.rows[0], after.rows[0]);
  EXPECT_EQ(before.series[0], after.series[0]);
  EXPECT_NE(before.rows[1], after.rows[1]);
  EXPECT_NE(before.series[1], after.series[1]);
  EXPECT_EQ(before.rows[1]->totals.calls, 5u);
  EXPECT_EQ(before.series[1]->totals.calls, 5u);
  EXPECT_EQ(after.rows[1]->totals.calls, 6u);
}

TEST_F(FunctionStatsTest, AbandonsInFlightCallsWhenTheProcessExits) {
  stats_.apply(make_delta(3, kProcess, 5, 3));
  const Snapshot before = take(stats_);

  stats_.apply(ProcessExited{kProcess}, 0);

  const Snapshot after = take(stats_);
  EXPECT_FALSE(before.rows[0]->exited);
  EXPECT_EQ(get_in_flight(before.rows[0]->totals), 2u);
  EXPECT_TRUE(after.rows[0]->exited);
  EXPECT_TRUE(after.processes[0].exited);
  EXPECT_EQ(after.rows[0]->totals.abandoned, 2u);
  EXPECT_EQ(get_in_flight(after.rows[0]->totals), 0u);
  EXPECT_EQ(after.series[0]->totals.abandoned, 2u);
  EXPECT_EQ(get_in_flight(after.series[0]->totals), 0u);
}

TEST_F(FunctionStatsTest, LeavesInFlightCallsOfOtherProcessesInTheSeries) {
  stats_.apply(make_delta(3, make_process(1), 4, 3));
  stats_.apply(make_delta(3, make_process(2), 9, 2));

  stats_.apply(ProcessExited{make_process(1)}, 0);

  EXPECT_EQ(get_in_flight(take(stats_).series[0]->totals), 7u);
}

TEST_F(FunctionStatsTest, CountsALateDeltaOfAnExitedProcess) {
  stats_.apply(make_delta(3, kProcess, 5, 3));
  stats_.apply(ProcessExited{kProcess}, 0);

  stats_.apply(make_delta(3, kProcess, 1, 2));  // one of the two open calls had ended after all

  const Snapshot snapshot = take(stats_);
  EXPECT_EQ(snapshot.rows[0]->totals.calls, 6u);
  EXPECT_EQ(snapshot.rows[0]->totals.histogram.count(), 5u);
  EXPECT_EQ(snapshot.rows[0]->totals.abandoned, 1u);
  EXPECT_EQ(get_in_flight(snapshot.rows[0]->totals), 0u);
  EXPECT_EQ(snapshot.series[0]->totals, snapshot.rows[0]->totals);
}

TEST_F(FunctionStatsTest, CountsALateDeltaOfANewFunctionOfAnExitedProcess) {
  stats_.apply(make_delta(3, kProcess, 1, 1));
  stats_.apply(ProcessExited{kProcess}, 0);

  stats_.apply(make_delta(4, kProcess, 2, 1));

  const Snapshot snapshot = take(stats_);
  ASSERT_EQ(snapshot.rows.size(), 2u);
  EXPECT_TRUE(snapshot.rows[1]->exited);
  EXPECT_EQ(snapshot.rows[1]->totals.abandoned, 1u);
}

TEST_F(FunctionStatsTest, IgnoresExitsOfUnknownProcessesAndSecondNotices) {
  stats_.apply(make_delta(3, kProcess, 5, 3));
  stats_.apply(ProcessExited{make_process(9)}, 0);
  stats_.apply(ProcessExited{kProcess}, 0);
  stats_.apply(ProcessExited{kProcess}, 500 * kSecondNs);

  stats_.expire(600 * kSecondNs);

  EXPECT_TRUE(take(stats_).processes.empty());
}

TEST_F(FunctionStatsTest, NeverExitsTheOverflowProcess) {
  CellDelta overflow = make_delta(3, {}, 5, 3);
  overflow.owner = {.comm = "other"};
  stats_.apply(overflow);

  stats_.apply(ProcessExited{}, 0);
  stats_.expire(10'000 * kSecondNs);

  const Snapshot snapshot = take(stats_);
  ASSERT_EQ(snapshot.rows.size(), 1u);
  EXPECT_FALSE(snapshot.rows[0]->exited);
  EXPECT_EQ(get_in_flight(snapshot.rows[0]->totals), 2u);
}

TEST_F(FunctionStatsTest, TellsTwoProcessesWithOnePidApart) {
  stats_.apply(make_delta(3, {.pid = 71, .start_boot_ns = 5}, 5, 5));
  stats_.apply(ProcessExited{{.pid = 71, .start_boot_ns = 5}}, 0);
  stats_.apply(make_delta(3, {.pid = 71, .start_boot_ns = 6}, 1, 1));

  const Snapshot snapshot = take(stats_);
  ASSERT_EQ(snapshot.rows.size(), 2u);
  EXPECT_TRUE(snapshot.rows[0]->exited);
  EXPECT_FALSE(snapshot.rows[1]->exited);
}

TEST_F(FunctionStatsTest, KeepsTheSeriesWhenTheExitedRowsTimeIsOver) {
  stats_.apply(make_delta(3, make_process(1), 5, 5));
  stats_.apply(make_delta(3, make_process(2), 2, 2));
  stats_.apply(ProcessExited{make_process(1)}, kSecondNs);
  stats_.apply(ProcessExited{make_process(2)}, 2 * kSecondNs);

  stats_.expire(601 * kSecondNs);

  const Snapshot snapshot = take(stats_);
  EXPECT_EQ(get_pids(snapshot), std::vector<uint32_t>{2});
  EXPECT_EQ(snapshot.series[0]->totals.calls, 7u);
  EXPECT_EQ(drops_.get(DropCause::kStatsProcessesFull), 0u);
}

TEST_F(FunctionStatsTest, CountsALateDeltaOfAForgottenProcessInTheSeriesOnly) {
  stats_.apply(make_delta(3, make_process(1), 5, 3));  // 2 in flight, abandoned at the exit
  stats_.apply(make_delta(3, make_process(2), 4, 1));  // 3 in flight, and they stay
  stats_.apply(ProcessExited{make_process(1)}, 0);
  stats_.expire(600 * kSecondNs);

  stats_.apply(make_delta(3, make_process(1), 1, 2));
  stats_.apply(make_delta(3, make_process(1), 4, 0));

  const Snapshot snapshot = take(stats_);
  EXPECT_EQ(get_pids(snapshot), std::vector<uint32_t>{2});
  EXPECT_EQ(snapshot.series[0]->totals.calls, 14u);
  EXPECT_EQ(snapshot.series[0]->totals.abandoned, 5u);
  EXPECT_EQ(get_in_flight(snapshot.series[0]->totals), 3u);
  EXPECT_EQ(drops_.get(DropCause::kStatsProcessesFull), 2u);
}

TEST(FunctionStatsBoundsTest, ForgetsTheOldestExitedProcessesFirstAndCountsTheirRows) {
  DropCounters drops;
  FunctionStats stats({.max_exited_processes = 2}, drops);
  for (uint32_t pid = 1; pid <= 5; ++pid) {
    stats.apply(make_delta(3, make_process(pid), 1, 1));
    stats.apply(make_delta(4, make_process(pid), 1, 1));
  }

  for (const uint32_t pid : {4, 2, 1}) stats.apply(ProcessExited{make_process(pid)}, 0);

  EXPECT_EQ(get_pids(take(stats)), (std::vector<uint32_t>{1, 2, 3, 5}));
  EXPECT_EQ(drops.get(DropCause::kStatsProcessesFull), 2u);
  EXPECT_EQ(take(stats).series[0]->totals.calls, 5u);
}

TEST(FunctionStatsBoundsTest, BoundsTheRowsOfExitedProcesses) {
  DropCounters drops;
  FunctionStats stats({.max_exited_rows = 10}, drops);
  for (uint32_t pid = 1; pid <= 3; ++pid) {
    for (uint32_t function = 0; function < 5; ++function) {
      stats.apply(make_delta(function, make_process(pid), 1, 1));
    }
    stats.apply(ProcessExited{make_process(pid)}, 0);
  }

  EXPECT_EQ(get_pids(take(stats)), (std::vector<uint32_t>{2, 3}));
  EXPECT_EQ(drops.get(DropCause::kStatsProcessesFull), 5u);
}

TEST(FunctionStatsBoundsTest, FoldsSeriesBeyondTheBoundIntoOther) {
  DropCounters drops;
  FunctionStats stats({.max_series = 2}, drops);
  for (const char* comm : {"a", "b", "c", "d", "c"}) {
    CellDelta delta = make_delta(3, make_process(static_cast<uint32_t>(comm[0])), 2, 1);
    delta.owner = {.comm = comm};
    stats.apply(delta);
  }

  const Snapshot snapshot = take(stats);
  std::map<std::string, uint64_t> calls;
  for (const auto& series : snapshot.series) calls[series->owner.comm] = series->totals.calls;
  EXPECT_EQ(calls, (std::map<std::string, uint64_t>{{"a", 2}, {"b", 2}, {"other", 6}}));
  EXPECT_EQ(snapshot.rows[2]->owner.comm, "c");
  EXPECT_EQ(drops.get(DropCause::kStatsSeriesFull), 2u);
}

TEST(FunctionStatsBoundsTest, FoldsErrorCodesBeyondTheBoundAndKeepsTheKnownOnes) {
  DropCounters drops;
  FunctionStats stats({}, drops);
  for (int32_t code = 1; code <= 100; ++code) {
    CellDelta delta = make_delta(3, kProcess, 2, 2);
    delta.errors = {{code, 1}, {1, 1}};
    stats.apply(delta);
  }

  const FunctionTotals totals = take(stats).rows[0]->totals;
  EXPECT_EQ(totals.errors.size(), FunctionStats::kMaxErrorCodes);
  EXPECT_EQ(totals.errors.at(1), 101u);
  EXPECT_EQ(get_error_count(totals), 200u);
}

// Whatever comes in whatever order, nothing is lost and what is in flight is what living processes
// have open.
TEST_F(FunctionStatsTest, KeepsWhatWasMissedBesideWhatWasCounted) {
  stats_.apply(make_delta(3, kProcess, 5, 5));
  const Snapshot before = take(stats_);

  stats_.add_missed(kProcess, 3, {.calls = 70, .variance = 4});
  stats_.add_missed(kProcess, 3, {.calls = 30, .variance = 5});
  stats_.add_missed(kProcess, 4, {.calls = 9});

  const Snapshot snapshot = take(stats_);
  EXPECT_EQ(snapshot.rows.at(0)->totals.calls, 5u);
  EXPECT_EQ(snapshot.rows[0]->totals.missed, (CallsEstimate{.calls = 100, .variance = 9}));
  EXPECT_EQ(snapshot.series.at(0)->totals.missed, snapshot.rows[0]->totals.missed);
  EXPECT_EQ(snapshot.rows.size(), 1u);
  EXPECT_EQ(before.rows[0]->totals.missed, CallsEstimate());
}

TEST(FunctionStatsBoundsTest, KeepsTheBooksThroughRandomLives) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  DropCounters drops;
  FunctionStats stats({.keep_exited = seconds(3), .max_exited_processes = 4}, drops);
  std::map<uint32_t, uint64_t> open;  // pid -> calls in flight while it lives
  uint64_t calls = 0;

  for (int step = 0; step < 5000; ++step) {
    const uint32_t pid = 1 + random() % 40 + step / 500 * 40;
    const uint64_t begun = random() % 4;
    const uint64_t ended = random() % (open[pid] + begun + 1);
    stats.apply(make_delta(3, make_process(pid), begun, static_cast<uint32_t>(ended)));
    open[pid] += begun - ended;
    calls += begun;
    stats.expire(step * kSecondNs / 10);
    if (step % 500 != 499) continue;
    for (auto& [open_pid, count] : open) {
      stats.apply(ProcessExited{make_process(open_pid)}, step * kSecondNs / 10);
    }
    open.clear();
  }
  for (uint32_t pid = 1000; pid < 1004; ++pid) {
    stats.apply(make_delta(3, make_process(pid), 3, 1));
    calls += 3;
  }

  const Snapshot snapshot = take(stats);
  ASSERT_EQ(snapshot.series.size(), 1u);
  EXPECT_EQ(snapshot.series[0]->totals.calls, calls);
  EXPECT_EQ(get_in_flight(snapshot.series[0]->totals), 8u);
}

}  // namespace
}  // namespace gpuperf
