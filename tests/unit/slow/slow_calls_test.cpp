#include "daemon/slow/slow_calls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <ranges>
#include <set>

#include "tests/unit/model/make_stack.h"

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

// The call of a thread of pid 1 that began at `start_mono_ns`, found in flight at this age.
SlowCall make_open_call(uint64_t start_mono_ns, uint64_t age_ns) {
  SlowCall call = make_call(1, 1, age_ns);
  call.event.start_mono_ns = start_mono_ns;
  call.event.in_flight = ThreadState::kBlocked;
  return call;
}

// The same call once it has returned.
SlowCall make_returned_call(uint64_t start_mono_ns, uint64_t duration_ns) {
  SlowCall call = make_open_call(start_mono_ns, duration_ns);
  call.event.in_flight.reset();
  return call;
}

// A look finds the call in flight. False = it is to be named and added.
bool see(SlowCalls& slow_calls, const SlowCallEvent& event, int64_t now_mono_ns = 0) {
  auto known = slow_calls.see_in_flight(event, now_mono_ns);
  if (known) slow_calls.refresh(*known);
  return known.has_value();
}

std::vector<std::shared_ptr<const SlowCall>> list_calls(const SlowCalls& slow_calls) {
  Snapshot snapshot;
  slow_calls.fill(snapshot);
  return snapshot.slow_calls;
}

WaitStacks make_stacks(const std::string& symbol) {
  return {.kernel = testing::make_stack({{.symbol = symbol}}),
          .waker = testing::make_stack({{.symbol = symbol + "_waker"}})};
}

constexpr int64_t kGoneAfterNs = SlowCalls::kGoneAfterNs;

TEST(SlowCallsTest, GivesIdsInOrderOfArrivalAfterThoseOfTheStore) {
  DropCounters drops;
  SlowCalls fresh({}, drops);
  SlowCalls later({.last_id = 41}, drops);

  EXPECT_EQ(add(fresh, make_call(1, 1, 10))->id, 1u);
  EXPECT_EQ(add(fresh, make_call(1, 1, 10))->id, 2u);
  EXPECT_EQ(add(later, make_call(1, 1, 10))->id, 42u);
  EXPECT_EQ(get_ids(fresh), (Ids{1, 2}));
}

TEST(SlowCallsTest, TellsTheHighestIdGivenAlsoWhenItsCallIsNotKept) {
  DropCounters drops;
  SlowCalls slow_calls({.worst_per_function = 1, .recent = 0, .last_id = 41}, drops);
  Snapshot before;
  slow_calls.fill(before);

  add(slow_calls, make_call(1, 1, 20));
  add(slow_calls, make_call(1, 1, 10));

  Snapshot after;
  slow_calls.fill(after);
  EXPECT_EQ(before.last_slow_call_id, 41u);
  EXPECT_EQ(after.last_slow_call_id, 43u);
  EXPECT_EQ(get_ids(slow_calls), (Ids{42}));
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

TEST(SlowCallsTest, AFloodOfOneProcessLeavesTheRecentCallsOfOthers) {
  DropCounters drops;
  SlowCalls slow_calls({.worst_per_function = 0, .recent = 6}, drops);
  for (int i = 0; i < 2; ++i) add(slow_calls, make_call(1, 1, 10));
  for (int i = 0; i < 1'000; ++i) add(slow_calls, make_call(2, 1, 10));

  EXPECT_EQ(get_ids(slow_calls), (Ids{1, 2, 999, 1000, 1001, 1002}));
  for (int i = 0; i < 3; ++i) add(slow_calls, make_call(1, 1, 10));
  EXPECT_EQ(get_ids(slow_calls), (Ids{1000, 1001, 1002, 1003, 1004, 1005}));
}

TEST(SlowCallsTest, RecentCallsOfExitedProcessesLeaveFirst) {
  DropCounters drops;
  SlowCalls slow_calls({.worst_per_function = 0, .recent = 4}, drops);
  for (const uint32_t pid : {1, 2, 3, 3}) add(slow_calls, make_call(pid, 1, 10));
  slow_calls.apply(make_exit(2));
  slow_calls.apply(make_exit(1));

  add(slow_calls, make_call(3, 1, 10));
  EXPECT_EQ(get_ids(slow_calls), (Ids{2, 3, 4, 5}));
  add(slow_calls, make_call(2, 1, 10));  // took long to be named
  EXPECT_EQ(get_ids(slow_calls), (Ids{3, 4, 5, 6}));
}

// The id of its last call is lower than those of calls that ended before.
TEST(SlowCallsTest, KeepsTheWorstOfAnExitedProcessWhoseRecentCallHadBeenInFlight) {
  DropCounters drops;
  SlowCalls slow_calls({.worst_per_function = 2, .recent = 2}, drops);
  add(slow_calls, make_call(1, 1, 90));
  add(slow_calls, make_open_call(100, 50));
  for (const uint32_t pid : {2, 3}) add(slow_calls, make_call(pid, 1, 10));
  add(slow_calls, make_returned_call(100, 60));

  slow_calls.apply(make_exit(1));

  EXPECT_EQ(get_ids(slow_calls), (Ids{1, 2, 3, 4}));
  for (const uint32_t pid : {2, 3}) add(slow_calls, make_call(pid, 1, 10));
  EXPECT_EQ(get_ids(slow_calls), (Ids{3, 4, 5, 6}));
}

TEST(SlowCallsTest, KeepsTheIdOfACallInFlightWhenItReturns) {
  DropCounters drops;
  SlowCalls slow_calls({}, drops);
  const SlowCalls::Kept open = slow_calls.add(make_open_call(100, 50), 0);
  add(slow_calls, make_call(2, 1, 10));

  const SlowCalls::Kept returned = slow_calls.add(make_returned_call(100, 70), 0);

  EXPECT_EQ(open.call->id, 1u);
  EXPECT_EQ(returned.call->id, 1u);
  EXPECT_TRUE(open.is_news);
  EXPECT_TRUE(returned.is_news);
  EXPECT_EQ(get_ids(slow_calls), (Ids{1, 2}));
  EXPECT_EQ(list_calls(slow_calls)[0], returned.call);
}

TEST(SlowCallsTest, TellsCallsInFlightApartByThreadFunctionAndStart) {
  DropCounters drops;
  SlowCalls slow_calls({}, drops);
  SlowCall other_thread = make_open_call(100, 50);
  other_thread.event.tid = 9;
  SlowCall other_function = make_open_call(100, 50);
  other_function.event.function_id = 2;
  SlowCall other_process = make_open_call(100, 50);
  other_process.event.process.start_boot_ns = 9;

  add(slow_calls, make_open_call(100, 50));
  add(slow_calls, make_open_call(101, 50));
  add(slow_calls, other_thread);
  add(slow_calls, other_function);
  add(slow_calls, other_process);

  EXPECT_EQ(get_ids(slow_calls), (Ids{1, 2, 3, 4, 5}));
}

TEST(SlowCallsTest, TellsOfACallInFlightOnceUntilItReturns) {
  DropCounters drops;
  SlowCalls slow_calls({}, drops);
  (void)slow_calls.add(make_open_call(100, 50), 0);

  const SlowCalls::Kept again = slow_calls.add(make_open_call(100, 100), 0);

  EXPECT_FALSE(again.is_news);
  EXPECT_EQ(again.call->id, 1u);
  EXPECT_EQ(list_calls(slow_calls), std::vector{again.call});
}

TEST(SlowCallsTest, AsksToNameACallInFlightUntilItIsAdded) {
  DropCounters drops;
  SlowCalls slow_calls({}, drops);
  const SlowCallEvent event = make_open_call(100, 50).event;

  EXPECT_FALSE(see(slow_calls, event));
  EXPECT_FALSE(see(slow_calls, event));
  add(slow_calls, make_open_call(100, 50));
  EXPECT_TRUE(see(slow_calls, event));
}

TEST(SlowCallsTest, AsksToNameACallInFlightAgainEachTimeItHasLastedTwiceAsLong) {
  DropCounters drops;
  SlowCalls slow_calls({}, drops);
  const auto see_at = [&](uint64_t age_ns) {
    return see(slow_calls, make_open_call(100, age_ns).event);
  };
  add(slow_calls, make_open_call(100, 50));

  EXPECT_TRUE(see_at(99));
  EXPECT_FALSE(see_at(100));
  add(slow_calls, make_open_call(100, 100));
  EXPECT_TRUE(see_at(199));
  EXPECT_FALSE(see_at(200));
}

TEST(SlowCallsTest, KeepsTheAgeAndTheStateOfACallThatIsStillInFlight) {
  DropCounters drops;
  SlowCalls slow_calls({}, drops);
  SlowCall named = make_open_call(100, 50);
  named.function = "f";
  add(slow_calls, named);
  SlowCallEvent later = make_open_call(100, 90).event;
  later.in_flight = ThreadState::kRunning;

  see(slow_calls, later);

  const auto calls = list_calls(slow_calls);
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0]->event, later);
  EXPECT_EQ(calls[0]->function, "f");
  EXPECT_EQ(calls[0]->id, 1u);
}

TEST(SlowCallsTest, KeepsTheNamedStacksOfWaitsByTheirStart) {
  DropCounters drops;
  SlowCalls slow_calls({}, drops);
  SlowCall named = make_open_call(100, 50);
  named.event.waits = {{.start_mono_ns = 110, .duration_ns = 20},
                       {.start_mono_ns = 140, .duration_ns = 10}};
  const WaitStacks first = make_stacks("first");
  const WaitStacks second = make_stacks("second");
  named.wait_stacks = {first, second};
  add(slow_calls, named);
  SlowCallEvent later = make_open_call(100, 90).event;
  later.waits = {{.start_mono_ns = 140, .duration_ns = 40},
                 {.start_mono_ns = 170, .duration_ns = 30},
                 {.start_mono_ns = 110, .duration_ns = 20}};

  see(slow_calls, later);

  const auto stacks = list_calls(slow_calls).at(0)->wait_stacks;
  ASSERT_EQ(stacks.size(), 3u);
  EXPECT_EQ(stacks[0].kernel, second.kernel);
  EXPECT_EQ(stacks[0].waker, second.waker);
  EXPECT_TRUE(stacks[1].kernel == nullptr && stacks[1].waker == nullptr);
  EXPECT_EQ(stacks[2].kernel, first.kernel);
}

TEST(SlowCallsTest, NeverChangesACallThatWasHandedOut) {
  DropCounters drops;
  SlowCalls slow_calls({}, drops);
  const auto handed_out = add(slow_calls, make_open_call(100, 50));

  see(slow_calls, make_open_call(100, 90).event);
  (void)slow_calls.mark_unstored(handed_out);
  (void)slow_calls.collect_gone(kGoneAfterNs);

  EXPECT_EQ(handed_out->event.duration_ns, 50u);
  EXPECT_FALSE(handed_out->is_gone);
}

TEST(SlowCallsTest, TakesACallForGoneThatWasNotSeenForSoLong) {
  DropCounters drops;
  SlowCalls slow_calls({}, drops);
  add(slow_calls, make_open_call(100, 50), 1'000);
  see(slow_calls, make_open_call(100, 60).event, 2'000);

  EXPECT_TRUE(slow_calls.collect_gone(2'000 + kGoneAfterNs - 1).empty());
  const auto gone = slow_calls.collect_gone(2'000 + kGoneAfterNs);

  ASSERT_EQ(gone.size(), 1u);
  EXPECT_EQ(gone[0]->id, 1u);
  EXPECT_EQ(gone[0]->event.duration_ns, 60u);
  EXPECT_TRUE(gone[0]->is_gone);
}

TEST(SlowCallsTest, SeesACallThatIsToBeNamedAgainToo) {
  DropCounters drops;
  SlowCalls slow_calls({}, drops);
  add(slow_calls, make_open_call(100, 50), 1'000);

  see(slow_calls, make_open_call(100, 200).event, kGoneAfterNs);

  EXPECT_TRUE(slow_calls.collect_gone(2 * kGoneAfterNs - 1).empty());
}

TEST(SlowCallsTest, KeepsAGoneCallOnce) {
  DropCounters drops;
  SlowCalls slow_calls({}, drops);
  add(slow_calls, make_open_call(100, 50), 0);

  const auto gone = slow_calls.collect_gone(kGoneAfterNs);
  const auto gone_again = slow_calls.collect_gone(3 * kGoneAfterNs);

  EXPECT_TRUE(gone_again.empty());
  EXPECT_EQ(list_calls(slow_calls), gone);
}

TEST(SlowCallsTest, KeepsAGoneCallAmongTheWorst) {
  DropCounters drops;
  SlowCalls slow_calls({.worst_per_function = 1, .recent = 0}, drops);
  add(slow_calls, make_call(1, 1, 40));
  add(slow_calls, make_open_call(100, 50), 0);

  const auto gone = slow_calls.collect_gone(kGoneAfterNs);

  EXPECT_EQ(list_calls(slow_calls), gone);
}

TEST(SlowCallsTest, GivesACallThatReturnsAfterItWasTakenForGoneANewId) {
  DropCounters drops;
  SlowCalls slow_calls({}, drops);
  add(slow_calls, make_open_call(100, 50), 0);
  (void)slow_calls.collect_gone(kGoneAfterNs);

  EXPECT_EQ(add(slow_calls, make_returned_call(100, 70))->id, 2u);
}

TEST(SlowCallsTest, CountsCallsInFlightBeyondTheBoundAndTellsOfThemWhenTheyReturn) {
  DropCounters drops;
  SlowCalls slow_calls({.max_open = 2}, drops);
  add(slow_calls, make_open_call(100, 50));
  add(slow_calls, make_open_call(200, 50));

  const SlowCalls::Kept refused = slow_calls.add(make_open_call(300, 50), 0);
  const SlowCalls::Kept refreshed = slow_calls.add(make_open_call(200, 90), 0);
  const SlowCalls::Kept returned = slow_calls.add(make_returned_call(300, 60), 0);

  EXPECT_EQ(refused.call, nullptr);
  ASSERT_NE(refreshed.call, nullptr);
  EXPECT_EQ(refreshed.call->id, 2u);
  EXPECT_EQ(returned.call->id, 3u);
  EXPECT_EQ(drops.get(DropCause::kInFlightFull), 1u);
  EXPECT_EQ(get_ids(slow_calls), (Ids{1, 2, 3}));
}

TEST(SlowCallsTest, HasRoomForAnotherCallInFlightWhenOneReturnsOrGoes) {
  DropCounters drops;
  SlowCalls slow_calls({.max_open = 1}, drops);
  add(slow_calls, make_open_call(100, 50), 0);
  add(slow_calls, make_returned_call(100, 60), 0);
  EXPECT_NE(add(slow_calls, make_open_call(200, 50), 0), nullptr);

  (void)slow_calls.collect_gone(kGoneAfterNs);

  EXPECT_NE(add(slow_calls, make_open_call(300, 50), 0), nullptr);
  EXPECT_EQ(drops.get(DropCause::kInFlightFull), 0u);
}

SlowCall as_stored(SlowCall call) {
  call.is_stored = true;
  return call;
}

TEST(SlowCallsTest, MarksAnUnstoredCallAmongTheRecent) {
  DropCounters drops;
  SlowCalls slow_calls({.worst_per_function = 0}, drops);
  const auto other = add(slow_calls, as_stored(make_call(1, 1, 10)));
  const auto call = add(slow_calls, as_stored(make_call(1, 1, 20)));

  const auto unstored = slow_calls.mark_unstored(call);

  EXPECT_FALSE(unstored->is_stored);
  EXPECT_EQ(unstored->id, call->id);
  EXPECT_EQ(list_calls(slow_calls), (std::vector{other, unstored}));
}

TEST(SlowCallsTest, MarksAnUnstoredCallAmongTheWorst) {
  DropCounters drops;
  SlowCalls slow_calls({.recent = 0}, drops);
  const auto call = add(slow_calls, as_stored(make_call(1, 1, 20)));
  const auto other = add(slow_calls, as_stored(make_call(1, 1, 10)));

  const auto unstored = slow_calls.mark_unstored(call);

  EXPECT_EQ(list_calls(slow_calls), (std::vector{unstored, other}));
}

TEST(SlowCallsTest, ShowsAnUnstoredCallThatIsRecentAndAmongTheWorstOnce) {
  DropCounters drops;
  SlowCalls slow_calls({}, drops);
  const auto call = add(slow_calls, as_stored(make_call(1, 1, 20)));

  const auto unstored = slow_calls.mark_unstored(call);

  EXPECT_EQ(list_calls(slow_calls), std::vector{unstored});
}

TEST(SlowCallsTest, MarksAnUnstoredCallInFlight) {
  DropCounters drops;
  SlowCalls slow_calls({}, drops);
  const auto call = add(slow_calls, as_stored(make_open_call(100, 50)));

  const auto unstored = slow_calls.mark_unstored(call);

  EXPECT_FALSE(unstored->is_stored);
  EXPECT_EQ(list_calls(slow_calls), std::vector{unstored});
}

TEST(SlowCallsTest, MarksAnUnstoredCallInFlightThatWasSeenAgainMeanwhile) {
  DropCounters drops;
  SlowCalls slow_calls({}, drops);
  const auto call = add(slow_calls, as_stored(make_open_call(100, 50)));
  see(slow_calls, make_open_call(100, 90).event);

  const auto unstored = slow_calls.mark_unstored(call);

  const auto calls = list_calls(slow_calls);
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_FALSE(calls[0]->is_stored);
  EXPECT_EQ(calls[0]->event.duration_ns, 90u);
  EXPECT_EQ(unstored, calls[0]);
}

TEST(SlowCallsTest, LeavesACallInFlightStoredWhoseEarlierVersionWasNot) {
  DropCounters drops;
  SlowCalls slow_calls({}, drops);
  const auto earlier = add(slow_calls, as_stored(make_open_call(100, 50)));
  const auto later = add(slow_calls, as_stored(make_open_call(100, 100)));

  (void)slow_calls.mark_unstored(earlier);

  EXPECT_EQ(list_calls(slow_calls), std::vector{later});
}

TEST(SlowCallsTest, MarksACallThatIsNoLongerKept) {
  DropCounters drops;
  SlowCalls slow_calls({.worst_per_function = 0, .recent = 1}, drops);
  const auto call = add(slow_calls, as_stored(make_call(1, 1, 20)));
  const auto last = add(slow_calls, as_stored(make_call(1, 1, 20)));

  const auto unstored = slow_calls.mark_unstored(call);

  EXPECT_FALSE(unstored->is_stored);
  EXPECT_EQ(list_calls(slow_calls), std::vector{last});
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
  std::map<uint32_t, int> recent;  // of each of the five processes its share
  for (const auto& call : std::views::reverse(all)) {
    if (recent[call->event.process.pid]++ < 2) expected.insert(call->id);
  }
  std::ranges::stable_sort(all, std::greater{}, [](const auto& c) { return c->event.duration_ns; });
  std::map<std::pair<uint32_t, uint32_t>, int> taken;
  for (const auto& call : all) {
    if (taken[{call->event.process.pid, call->event.function_id}]++ < 4) expected.insert(call->id);
  }
  EXPECT_EQ(get_ids(slow_calls), Ids(expected.begin(), expected.end()));
}

}  // namespace
}  // namespace gpuperf
