#include "daemon/state/budget.h"

#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "tests/unit/matchers.h"
#include "tests/unit/state/examples.h"

namespace gpuperf {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int64_t kStartNs = 1000 * kSecondNs;
const ProcessKey kTrainer{.pid = 71, .start_boot_ns = 5};
const ProcessKey kServer{.pid = 72, .start_boot_ns = 6};

std::vector<uint32_t> get_ids(const std::vector<Suspension>& suspensions) {
  std::vector<uint32_t> ids;
  for (const Suspension& suspension : suspensions) ids.push_back(suspension.function_id);
  return ids;
}

// Functions 1 to 4 cost 1,000 ns a call; a window is one second, so 10,000 calls are the budget of
// 1 % of one busy thread.
class BudgetTest : public testing::Test {
 protected:
  BudgetTest() {
    for (uint32_t id = 1; id <= 4; ++id) budget_.set_cost(id, 1000, now_ns_);
  }

  void call(uint32_t function_id, uint64_t calls, ProcessKey process = kTrainer) {
    budget_.apply({.function_id = function_id,
                   .process = process,
                   .owner = {.comm = process == kTrainer ? "train" : "serve"},
                   .calls = calls});
  }
  Budget::Decision end_window(std::chrono::nanoseconds length = seconds(1)) {
    now_ns_ += length.count();
    return budget_.judge(now_ns_, [this](const ProcessKey& process) {
      asked_.push_back(process);
      return cpu_ns_[process];
    });
  }
  Budget::Decision call_too_much(uint32_t function_id) {
    call(function_id, 500'000);
    return end_window();
  }
  // Nothing happens until the function comes back.
  void wait_for_return(uint32_t function_id) {
    for (int window = 0; window < 3600; ++window) {
      if (end_window().resume == std::vector{function_id}) return;
    }
    FAIL() << "function " << function_id << " did not come back within an hour";
  }
  Snapshot take() {
    Snapshot snapshot{.taken_mono_ns = now_ns_};
    budget_.fill(snapshot);
    return snapshot;
  }
  int64_t get_pause_ns(const Budget::Decision& decision) const {
    return decision.suspend.empty() ? 0 : decision.suspend[0].until_mono_ns - now_ns_;
  }

  int64_t now_ns_ = kStartNs;
  std::map<ProcessKey, uint64_t> cpu_ns_;
  std::vector<ProcessKey> asked_;
  Budget budget_{{}, kStartNs};
};

TEST_F(BudgetTest, LeavesWhatIsAtTheBudget) {
  call(1, 10'000);

  const Budget::Decision decision = end_window();

  EXPECT_THAT(decision.suspend, IsEmpty());
  const Snapshot snapshot = take();
  ASSERT_EQ(snapshot.overhead.size(), 1u);
  EXPECT_EQ(snapshot.overhead[0].process, kTrainer);
  EXPECT_EQ(snapshot.overhead[0].owner.comm, "train");
  EXPECT_DOUBLE_EQ(snapshot.overhead[0].ratio, 0.01);
}

TEST_F(BudgetTest, TakesOutWhatIsOverTheBudgetAndSaysWhy) {
  call(2, 10'100);

  const Budget::Decision decision = end_window();

  EXPECT_THAT(decision.suspend, ElementsAre(Suspension{.function_id = 2,
                                                       .process = kTrainer,
                                                       .comm = "train",
                                                       .share_ratio = 0.0101,
                                                       .until_mono_ns = now_ns_ + 60 * kSecondNs,
                                                       .times = 1}));
  EXPECT_EQ(take().suspensions, decision.suspend);
}

TEST_F(BudgetTest, TakesNothingForCallsThatHooksCounted) {
  budget_.apply({.function_id = 2, .process = kTrainer, .calls = 500'000, .hooked = 500'000});
  budget_.apply({.function_id = 1, .process = kTrainer, .calls = 500'000, .hooked = 499'000});

  EXPECT_THAT(end_window().suspend, IsEmpty());
  const Snapshot snapshot = take();
  ASSERT_EQ(snapshot.overhead.size(), 1u);
  EXPECT_DOUBLE_EQ(snapshot.overhead[0].ratio, 0.001);
}

TEST_F(BudgetTest, TakesOutTheCostliestUntilTheRestIsWellBelow) {
  budget_.set_cost(4, 9000, now_ns_);
  call(1, 5000);  // 0.50 %
  call(2, 2900);  // 0.29 %
  call(3, 4000);  // 0.40 %
  call(4, 1000);  // 0.90 %, the costliest though the least called

  // 2.09 % - 0.90 % - 0.50 % = 0.69 %, the first below 0.8 %.
  EXPECT_THAT(get_ids(end_window().suspend), ElementsAre(4, 1));
}

TEST_F(BudgetTest, GoesBelowEightyPercentOfTheBudgetNotJustBelowIt) {
  call(1, 9000);  // what is left without function 2: 0.9 %
  call(2, 9500);

  EXPECT_THAT(get_ids(end_window().suspend), ElementsAre(2, 1));
}

TEST_F(BudgetTest, JudgesBusyThreadsByAllTheirTime) {
  cpu_ns_[kTrainer] = 100 * kSecondNs;  // used before: a bound too wide to judge by
  call(1, 60'000);
  EXPECT_THAT(end_window().suspend, IsEmpty());

  cpu_ns_[kTrainer] += 8 * kSecondNs;
  call(1, 60'000);  // 6 % of a second, 0.75 % of eight
  EXPECT_THAT(end_window().suspend, IsEmpty());
  EXPECT_DOUBLE_EQ(take().overhead.at(0).ratio, 0.0075);

  cpu_ns_[kTrainer] += 4 * kSecondNs;
  call(1, 60'000);  // 1.5 % of four
  const Budget::Decision decision = end_window();
  ASSERT_THAT(get_ids(decision.suspend), ElementsAre(1));
  EXPECT_DOUBLE_EQ(decision.suspend[0].share_ratio, 0.015);
}

TEST_F(BudgetTest, TakesOutAtOnceWhatIsTooMuchOfAllCpuTimeEver) {
  cpu_ns_[kTrainer] = 2 * kSecondNs;

  call(1, 500'000);  // 25 % of all the time the process ever used

  EXPECT_THAT(get_ids(end_window().suspend), ElementsAre(1));
}

TEST_F(BudgetTest, MeasuresBurstsBetweenQuietWindowsByTheReadingBefore) {
  cpu_ns_[kTrainer] = 100 * kSecondNs;
  call(1, 50'000);
  EXPECT_THAT(end_window().suspend, IsEmpty());
  end_window();

  cpu_ns_[kTrainer] += 2 * kSecondNs;
  call(1, 50'000);

  EXPECT_THAT(get_ids(end_window().suspend), ElementsAre(1));
}

TEST_F(BudgetTest, AsksForCpuTimeOnlyWhereTheWindowAloneIsNotEnough) {
  call(1, 10'000, kServer);
  call(1, 10'001, kTrainer);

  end_window();

  EXPECT_THAT(asked_, ElementsAre(kTrainer));
}

TEST_F(BudgetTest, AProcessThatHasGoneIsJudgedByTheWindow) {
  cpu_ns_[kTrainer] = 100 * kSecondNs;
  call(1, 500'000);
  EXPECT_THAT(end_window().suspend, IsEmpty());

  cpu_ns_[kTrainer] = 0;
  call(1, 500'000);

  EXPECT_THAT(get_ids(end_window().suspend), ElementsAre(1));
}

TEST_F(BudgetTest, WhatOneProcessLosesAnotherNeedNotLose) {
  call(1, 900'000, kServer);  // 90 %: the worse one, and function 1 is taken from both
  call(1, 9'000, kTrainer);
  call(2, 4'000, kTrainer);  // 1.3 % with function 1, 0.4 % without

  const Budget::Decision decision = end_window();

  ASSERT_THAT(get_ids(decision.suspend), ElementsAre(1));
  EXPECT_EQ(decision.suspend[0].process, kServer);
}

TEST_F(BudgetTest, CallsMadeBeforeTheProbeWasOutAreNotHeldAgainstOthers) {
  call_too_much(1);

  call(1, 50'000);
  call(2, 5'000);

  EXPECT_THAT(end_window().suspend, IsEmpty());
  EXPECT_DOUBLE_EQ(take().overhead.at(0).ratio, 0.055);  // but they did cost
}

TEST_F(BudgetTest, ComesBackAfterAMinute) {
  call_too_much(1);

  for (int window = 1; window < 60; ++window) EXPECT_THAT(end_window().resume, IsEmpty());
  EXPECT_THAT(end_window().resume, ElementsAre(1));

  EXPECT_THAT(take().suspensions, IsEmpty());
}

TEST_F(BudgetTest, PausesTwiceAsLongWhenTakenOutAgainOnTrialUpToTenMinutes) {
  std::vector<int64_t> pauses_s;
  std::vector<uint32_t> times;
  for (int round = 0; round < 6; ++round) {
    const Budget::Decision decision = call_too_much(1);
    pauses_s.push_back(get_pause_ns(decision) / kSecondNs);
    times.push_back(decision.suspend.at(0).times);
    wait_for_return(1);
  }

  EXPECT_THAT(pauses_s, ElementsAre(60, 120, 240, 480, 600, 600));
  EXPECT_THAT(times, ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST_F(BudgetTest, AFirstWindowCutShortIsNotTheWholeTrial) {
  call_too_much(1);
  wait_for_return(1);
  call(1, 5'000);  // its probe came in at the window's end
  EXPECT_THAT(end_window().suspend, IsEmpty());

  EXPECT_EQ(get_pause_ns(call_too_much(1)), 120 * kSecondNs);
}

TEST_F(BudgetTest, WindowsWithoutACallAreNoTrial) {
  call_too_much(1);
  wait_for_return(1);
  for (int window = 0; window < 30; ++window) end_window();

  EXPECT_EQ(get_pause_ns(call_too_much(1)), 120 * kSecondNs);
}

TEST_F(BudgetTest, PausesAsLongAsBeforeOnceTheTrialIsPassed) {
  call_too_much(1);
  wait_for_return(1);
  call_too_much(1);
  wait_for_return(1);  // after 120 s
  for (int window = 0; window < 2; ++window) {
    call(1, 100);
    end_window();
  }

  EXPECT_EQ(get_pause_ns(call_too_much(1)), 120 * kSecondNs);
}

TEST_F(BudgetTest, StartsAnewAfterTenQuietMinutes) {
  call_too_much(1);
  wait_for_return(1);
  call_too_much(1);
  wait_for_return(1);

  for (int window = 0; window < 600; ++window) end_window();

  EXPECT_EQ(get_pause_ns(call_too_much(1)), 60 * kSecondNs);
}

TEST_F(BudgetTest, OffTakesNothingOutAndBringsEverythingBack) {
  call_too_much(1);

  budget_.set_percent(0);
  call(2, 900'000);
  const Budget::Decision decision = end_window();

  EXPECT_THAT(decision.suspend, IsEmpty());
  EXPECT_THAT(decision.resume, ElementsAre(1));
  EXPECT_DOUBLE_EQ(take().overhead.at(0).ratio, 0.9);  // still said
}

TEST_F(BudgetTest, AFunctionOfUnknownCostIsFree) {
  call(9, 1'000'000);
  call(8, 1'000'000, kServer);
  call(1, 1);

  const Budget::Decision decision = end_window();

  EXPECT_THAT(decision.suspend, IsEmpty());
}

TEST_F(BudgetTest, AWindowOfAnyLengthIsJudgedByItsLength) {
  call(1, 2'500);
  EXPECT_THAT(end_window(milliseconds(250)).suspend, IsEmpty());

  call(1, 2'501);
  EXPECT_THAT(get_ids(end_window(milliseconds(250)).suspend), ElementsAre(1));
}

TEST_F(BudgetTest, AWindowWithoutTimeIsNotJudged) {
  call(1, 5'000);
  EXPECT_THAT(end_window(seconds(0)).suspend, IsEmpty());

  call(1, 5'001);  // in the same window as the calls before
  EXPECT_THAT(get_ids(end_window().suspend), ElementsAre(1));
}

TEST_F(BudgetTest, CoverageIsTheShareOfTimeSinceTheFirstProbe) {
  for (int window = 1; window < 100; ++window) end_window();
  call_too_much(2);  // out from second 100 to 160

  wait_for_return(2);
  ASSERT_EQ(take().coverage.size(), 3u);
  EXPECT_DOUBLE_EQ(take().coverage[2], 100.0 / 160);
  EXPECT_DOUBLE_EQ(take().coverage[1], 1);  // never out

  for (int window = 0; window < 240; ++window) end_window();
  EXPECT_DOUBLE_EQ(take().coverage[2], 340.0 / 400);
}

TEST_F(BudgetTest, CoverageFallsWhileAFunctionIsOut) {
  for (int window = 1; window < 10; ++window) end_window();
  call_too_much(2);
  for (int window = 0; window < 30; ++window) end_window();

  EXPECT_DOUBLE_EQ(take().coverage.at(2), 10.0 / 40);
}

TEST_F(BudgetTest, CoverageOfAFunctionNobodyAnnouncedBeginsWithItsFirstCalls) {
  for (int window = 0; window < 10; ++window) end_window();
  call(7, 500'000);
  budget_.set_cost(7, 1000, now_ns_ + kSecondNs / 2);  // known only later
  end_window();
  for (int window = 0; window < 3; ++window) end_window();

  EXPECT_DOUBLE_EQ(take().coverage.at(7), 1.0 / 4);
}

TEST_F(BudgetTest, ANewWindowForgetsTheOneBefore) {
  call(1, 9'000);
  end_window();
  call(1, 9'000, kServer);
  EXPECT_THAT(end_window().suspend, IsEmpty());

  ASSERT_EQ(take().overhead.size(), 1u);
  EXPECT_EQ(take().overhead[0].process, kServer);
}

TEST_F(BudgetTest, ExtremeCountsAreJudgedAsAnyOther) {
  budget_.set_cost(1, std::numeric_limits<uint64_t>::max(), now_ns_);
  call(1, std::numeric_limits<uint64_t>::max());

  EXPECT_THAT(get_ids(end_window().suspend), ElementsAre(1));
}

}  // namespace
}  // namespace gpuperf
