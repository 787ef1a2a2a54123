#include "daemon/state/slow_calls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace gpuperf {
namespace {

SlowCall make_call(uint32_t pid, uint32_t function_id, uint64_t duration_ns) {
  SlowCall call;
  call.event.process = {.pid = pid, .start_boot_ns = pid};
  call.event.function_id = function_id;
  call.event.duration_ns = duration_ns;
  return call;
}

std::shared_ptr<const SlowCall> add(SlowCalls& slow_calls, SlowCall call, int64_t now_mono_ns = 0) {
  return slow_calls.add(std::move(call), now_mono_ns).call;
}

ProcessExited make_exit(uint32_t pid) { return {{.pid = pid, .start_boot_ns = pid}}; }

std::vector<uint64_t> get_ids(const SlowCalls& slow_calls) {
  Snapshot snapshot;
  slow_calls.fill(snapshot);
  std::vector<uint64_t> ids;
  for (const auto& call : snapshot.slow_calls) ids.push_back(call->id);
  return ids;
}

using Ids = std::vector<uint64_t>;

TEST(SlowCallsTest, GivesIdsInOrderOfArrivalAfterThoseOfTheStore) {
  DropCounters drops;
  SlowCalls fresh({}, drops);
  SlowCalls later({.last_id = 41}, drops);

  EXPECT_EQ(add(fresh, make_call(1, 1, 10))->id, 1u);
  EXPECT_EQ(add(fresh, make_call(1, 1, 10))->id, 2u);
  EXPECT_EQ(add(later, make_call(1, 1, 10))->id, 42u);
  EXPECT_EQ(get_ids(fresh), (Ids{1, 2}));
}

TEST(SlowCallsTest, KeepsTheWorstWheneverTheyCameAndTheMostRecent) {
  DropCounters drops;
  SlowCalls slow_calls({.worst_per_function = 2, .recent = 3}, drops);

  for (const uint64_t duration_ns : {90, 10, 95, 20, 30, 40, 50}) {
    add(slow_calls, make_call(1, 1, duration_ns));
  }

  EXPECT_EQ(get_ids(slow_calls), (Ids{1, 3, 5, 6, 7}));
}

TEST(SlowCallsTest, KeepsTheEarlierOfEquallyLongCalls) {
  DropCounters drops;
  SlowCalls slow_calls({.worst_per_function = 2, .recent = 0}, drops);

  for (int i = 0; i < 5; ++i) add(slow_calls, make_call(1, 1, 10));

  EXPECT_EQ(get_ids(slow_calls), (Ids{1, 2}));
}

TEST(SlowCallsTest, KeepsTheWorstOfEachFunctionAndProcessApart) {
  DropCounters drops;
  SlowCalls slow_calls({.worst_per_function = 1, .recent = 0}, drops);

  add(slow_calls, make_call(1, 1, 10));
  add(slow_calls, make_call(1, 2, 20));
  add(slow_calls, make_call(2, 1, 30));
  add(slow_calls, make_call(1, 1, 5));

  EXPECT_EQ(get_ids(slow_calls), (Ids{1, 2, 3}));
}

TEST(SlowCallsTest, KeepsTheWorstOfAnExitedProcessWhileItsLastCallIsRecent) {
  DropCounters drops;
  SlowCalls slow_calls({.worst_per_function = 2, .recent = 2}, drops);
  for (const uint64_t duration_ns : {90, 80, 10}) add(slow_calls, make_call(1, 1, duration_ns));
  slow_calls.apply(make_exit(1));

  add(slow_calls, make_call(2, 1, 1));
  EXPECT_EQ(get_ids(slow_calls), (Ids{1, 2, 3, 4}));
  add(slow_calls, make_call(2, 1, 1));
  EXPECT_EQ(get_ids(slow_calls), (Ids{4, 5}));
  EXPECT_EQ(drops.get(DropCause::kSlowListsFull), 0u);
}

TEST(SlowCallsTest, LetsTheWorstOfAProcessGoAtItsExitWhenItsLastCallIsNotRecent) {
  DropCounters drops;
  SlowCalls slow_calls({.worst_per_function = 2, .recent = 1}, drops);
  add(slow_calls, make_call(1, 1, 90));
  add(slow_calls, make_call(1, 2, 90));
  add(slow_calls, make_call(2, 1, 90));

  slow_calls.apply(make_exit(1));

  EXPECT_EQ(get_ids(slow_calls), (Ids{3}));
}

TEST(SlowCallsTest, LetsACallGoThatCameAfterTheExitOfItsProcess) {
  DropCounters drops;
  SlowCalls slow_calls({.worst_per_function = 2, .recent = 1}, drops);
  slow_calls.apply(make_exit(1));

  add(slow_calls, make_call(1, 1, 90));
  EXPECT_EQ(get_ids(slow_calls), (Ids{1}));
  add(slow_calls, make_call(2, 1, 90));
  EXPECT_EQ(get_ids(slow_calls), (Ids{2}));
}

TEST(RecentProcessesTest, RemembersTheLastOnesOnly) {
  RecentProcesses recent;
  for (uint32_t pid = 0; pid <= RecentProcesses::kMax; ++pid) {
    recent.add({.pid = pid});
    recent.add({.pid = pid});
  }

  EXPECT_FALSE(recent.contains({.pid = 0}));
  EXPECT_TRUE(recent.contains({.pid = 1}));
  EXPECT_TRUE(recent.contains({.pid = RecentProcesses::kMax}));
}

TEST(SlowCallsTest, DropsTheListThatWasSlowLeastRecentlyAndCountsItsCalls) {
  DropCounters drops;
  SlowCalls slow_calls({.worst_per_function = 2, .recent = 0, .max_worst_calls = 5}, drops);
  for (const uint32_t pid : {1, 1, 2, 2}) add(slow_calls, make_call(pid, 1, 50));
  add(slow_calls, make_call(1, 1, 1));  // not among the worst, but pid 1 was slow just now
  add(slow_calls, make_call(3, 1, 50));

  add(slow_calls, make_call(4, 1, 50));

  EXPECT_EQ(get_ids(slow_calls), (Ids{1, 2, 6, 7}));
  EXPECT_EQ(drops.get(DropCause::kSlowListsFull), 2u);
}

TEST(SlowCallsTest, KeepsNoMoreThanTheBoundForOneFunctionEither) {
  DropCounters drops;
  SlowCalls slow_calls({.worst_per_function = 100, .recent = 0, .max_worst_calls = 3}, drops);

  for (uint64_t duration_ns = 1; duration_ns <= 10; ++duration_ns) {
    add(slow_calls, make_call(1, 1, duration_ns));
  }

  EXPECT_EQ(get_ids(slow_calls), (Ids{8, 9, 10}));
}

TEST(SlowCallsTest, KeepsOnlyTheRecentWhenNoWorstAreAskedFor) {
  DropCounters drops;
  SlowCalls slow_calls({.worst_per_function = 0, .recent = 2}, drops);

  for (int i = 0; i < 4; ++i) add(slow_calls, make_call(1, 1, 10));

  EXPECT_EQ(get_ids(slow_calls), (Ids{3, 4}));
}

TEST(SlowCallsTest, AgreesWithSortingEverythingOnRandomCalls) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  DropCounters drops;
  SlowCalls slow_calls({.worst_per_function = 4, .recent = 10}, drops);
  std::vector<std::shared_ptr<const SlowCall>> all;

  for (int i = 0; i < 3000; ++i) {
    all.push_back(add(slow_calls, make_call(1 + random() % 5, random() % 3, 1 + random() % 500)));
  }

  std::set<uint64_t> expected;
  for (size_t i = all.size() - 10; i < all.size(); ++i) expected.insert(all[i]->id);
  std::ranges::stable_sort(all, std::greater{}, [](const auto& c) { return c->event.duration_ns; });
  std::map<std::pair<uint32_t, uint32_t>, int> taken;
  for (const auto& call : all) {
    if (taken[{call->event.process.pid, call->event.function_id}]++ < 4) expected.insert(call->id);
  }
  EXPECT_EQ(get_ids(slow_calls), Ids(expected.begin(), expected.end()));
}

}  // namespace
}  // namespace gpuperf
