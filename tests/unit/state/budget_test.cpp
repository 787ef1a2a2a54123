#include "daemon/state/budget.h"

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "tests/unit/matchers.h"
#include "tests/unit/state/examples.h"

namespace gpuperf {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int64_t kStartNs = 1000 * kSecondNs;
const ProcessKey kTrainer{.pid = 71, .start_boot_ns = 12'345'678};
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
    Budget::Decision decision = budget_.judge(now_ns_, [this](const ProcessKey& process) {
      asked_.push_back(process);
      return cpu_ns_[process];
    });
    if (decision.window) opened_ = decision.window;
    return decision;
  }
  // Since the last reading, or another early judgement.
  Budget::Decision judge_early(std::chrono::nanoseconds later) {
    now_ns_ += later.count();
    return budget_.judge_early(now_ns_,
                               [this](const ProcessKey& process) { return cpu_ns_[process]; });
  }
  Budget::Decision call_too_much(uint32_t function_id) {
    call(function_id, 500'000);
    return end_window();
  }
  // Over the budget while its calls cannot be seen, and out since kReportedNs.
  void suspend_function_1() {
    call_too_much(1);
    end_window();
    budget_.note_suspended(1, kReportedNs);
  }
  // When its next window begins.
  int64_t open_window_of(uint32_t function_id) {
    for (int reading = 0; reading < 300 && opened_ != function_id; ++reading) end_window();
    if (opened_ == function_id) return now_ns_;
    ADD_FAILURE() << "function " << function_id << " has no window within five minutes";
    return now_ns_;
  }
  // Of the 50 ms that begin now; what the gap before held.
  std::vector<Budget::Estimate> run_window(uint32_t function_id, uint64_t calls) {
    opened_.reset();
    call(function_id, calls);
    window_end_ns_ = now_ns_ + 50 * kSecondNs / 1000;
    budget_.end_window(function_id, now_ns_, window_end_ns_);
    end_window();
    return end_window().estimates;
  }
  Snapshot take() {
    Snapshot snapshot{.taken_mono_ns = now_ns_};
    budget_.fill(snapshot);
    return snapshot;
  }
  static constexpr int64_t kReportedNs = kStartNs + 2 * kSecondNs;

  int64_t now_ns_ = kStartNs;
  int64_t window_end_ns_ = 0;
  std::optional<uint32_t> opened_;  // and not run yet
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
                                                       .until_mono_ns = now_ns_ + 5 * kSecondNs,
                                                       .times = 1}));
  EXPECT_EQ(take().suspensions, decision.suspend);
}

TEST_F(BudgetTest, WhatHooksCostIsTakenFromTheBudgetButForAQuarter) {
  budget_.apply({.function_id = 2, .process = kTrainer, .calls = 20'000, .hooked = 20'000});
  call(1, 5'000);  // 4.2 + 5 of 10 ms
  EXPECT_THAT(end_window().suspend, IsEmpty());
  budget_.apply({.function_id = 2, .process = kTrainer, .calls = 500'000, .hooked = 500'000});
  call(1, 2'500);
  EXPECT_THAT(end_window().suspend, IsEmpty());
  budget_.apply({.function_id = 2, .process = kTrainer, .calls = 20'000, .hooked = 20'000});
  call(1, 6'000);
  EXPECT_THAT(get_ids(end_window().suspend), ElementsAre(1));
}

TEST_F(BudgetTest, AHookedCallCostsWhatItsProcessHasMeasured) {
  const auto get_hooks_ratio = [this](const ProcessKey& process) {
    budget_.apply({.function_id = 2, .process = process, .calls = 10'000, .hooked = 10'000});
    end_window();
    return budget_.overhead().front().hooks_ratio;
  };
  const ProcessKey as_session_knows_it{kTrainer.pid, 10'000'000};  // to a tick
  EXPECT_DOUBLE_EQ(get_hooks_ratio(kTrainer), 0.0021);
  budget_.set_hooked_call_cost(as_session_knows_it, 600);
  EXPECT_DOUBLE_EQ(get_hooks_ratio(kTrainer), 0.006);
  EXPECT_DOUBLE_EQ(get_hooks_ratio(kServer), 0.0021);
  budget_.set_hooked_call_cost(as_session_knows_it, std::nullopt);
  EXPECT_DOUBLE_EQ(get_hooks_ratio(kTrainer), 0.0021);
}

TEST_F(BudgetTest, HalfOfItIsForRecordsWhereTheyCostLaunchesSomething) {
  budget_.set_recorded({{kTrainer.pid, 10'000'000}});  // as its session knows it: to a tick
  call(1, 5'000);
  call(1, 10'000, kServer);
  EXPECT_THAT(end_window().suspend, IsEmpty());
  call(1, 5'100);
  EXPECT_THAT(get_ids(end_window().suspend), ElementsAre(1));
}

TEST_F(BudgetTest, ProcessesMayHaveABudgetOfTheirOwn) {
  budget_.set_limits({.percent = 1, .percent_by_comm = {{"se*", 0.1}, {"train", 0}}});
  call(1, 500'000, kTrainer);  // without a limit
  call(2, 1'000, kServer);
  EXPECT_THAT(end_window().suspend, IsEmpty());
  call(2, 1'100, kServer);
  const Budget::Decision decision = end_window();
  ASSERT_THAT(get_ids(decision.suspend), ElementsAre(2));
  EXPECT_EQ(decision.suspend[0].process, kServer);
}

TEST_F(BudgetTest, TimeInWhichNothingWasProbedOnDemandIsNotCovered) {
  suspend_function_1();
  end_window(seconds(8));
  budget_.set_standing_down(true, now_ns_);
  EXPECT_EQ(end_window(seconds(70)).window, std::nullopt);
  budget_.set_standing_down(false, now_ns_);
  end_window(seconds(20));

  const Snapshot snapshot = take();
  ASSERT_EQ(snapshot.coverage.size(), 5u);
  EXPECT_DOUBLE_EQ(snapshot.coverage[2], 0.3);
  EXPECT_LT(snapshot.coverage[1], 0.1);  // out all the time but for the first two seconds
}

TEST_F(BudgetTest, NeitherIsItWithoutABudget) {
  budget_.set_limits({.percent = 0});
  end_window(seconds(30));
  budget_.set_standing_down(true, now_ns_);
  budget_.set_sampled(2, false, now_ns_);  // a report of before
  end_window(seconds(60));
  end_window(seconds(10));
  budget_.set_standing_down(false, now_ns_);

  EXPECT_DOUBLE_EQ(take().coverage.at(2), 0.3);
}

TEST_F(BudgetTest, WhatWasSuspendedWhenTheDaemonLastRanBeginsInWindows) {
  const auto restored =
      budget_.restore({.function_id = 3, .comm = "train", .share_ratio = 0.2, .times = 4}, now_ns_);
  ASSERT_TRUE(restored);
  EXPECT_EQ(restored->until_mono_ns, now_ns_ + 9 * kSecondNs);  // 20 % of 90 ms is a fifth of 9 s
  EXPECT_EQ(take().suspensions, std::vector{*restored});
  EXPECT_EQ(budget_.restore(*restored, now_ns_), std::nullopt);
  call(3, 500'000);
  EXPECT_THAT(end_window().suspend, IsEmpty());
  open_window_of(3);

  budget_.set_limits({.percent = 0});
  end_window();
  EXPECT_EQ(budget_.restore(*restored, now_ns_), std::nullopt);
}

TEST_F(BudgetTest, NoThreadLosesMoreThanTheBudget) {
  cpu_ns_[kTrainer] = 100 * kSecondNs;  // eight busy threads, one of which makes all the calls
  const auto pay = [this](uint64_t cost_ns) {
    budget_.apply(ThreadCosts{.threads = {{.process = kTrainer, .tid = 1, .cost_ns = cost_ns},
                                          {.process = kTrainer, .tid = 2, .cost_ns = 5}},
                              .mono_ns = now_ns_ + kSecondNs});
  };
  call(1, 7'000);
  pay(7'000'000);  // until then: nobody knows since when
  cpu_ns_[kTrainer] += 8 * kSecondNs;
  EXPECT_THAT(end_window().suspend, IsEmpty());
  call(1, 9'000);
  pay(16'000'000);
  cpu_ns_[kTrainer] += 8 * kSecondNs;
  EXPECT_THAT(end_window().suspend, IsEmpty());
  EXPECT_DOUBLE_EQ(take().overhead.at(0).thread_ratio, 0.009);

  call(1, 11'000);
  call(2, 9'000);
  pay(36'000'000);
  cpu_ns_[kTrainer] += 8 * kSecondNs;
  EXPECT_THAT(get_ids(end_window().suspend), ElementsAre(1, 2));  // 9 of 20 ms are over 80 % too
  EXPECT_DOUBLE_EQ(take().overhead.at(0).thread_ratio, 0.02);
}

TEST_F(BudgetTest, AThreadThatPaidForWhatIsSuspendedByNowSuspendsNothingElse) {
  call(1, 5'000);
  budget_.apply(ThreadCosts{.threads = {{.process = kTrainer, .tid = 1, .cost_ns = 5'000'000}},
                            .mono_ns = now_ns_});
  call(1, 500'000);
  call(2, 1'000);
  EXPECT_THAT(get_ids(judge_early(milliseconds(900)).suspend), ElementsAre(1));
  budget_.apply(ThreadCosts{.threads = {{.process = kTrainer, .tid = 1, .cost_ns = 506'000'000}},
                            .mono_ns = now_ns_});
  EXPECT_THAT(end_window(milliseconds(100)).suspend, IsEmpty());
  call(2, 1'000);
  EXPECT_THAT(end_window().suspend, IsEmpty());
}

TEST_F(BudgetTest, ActsOnceTheBudgetOfASecondIsUsedUp) {
  call(1, 10'000);
  EXPECT_THAT(judge_early(milliseconds(50)).suspend, IsEmpty());
  call(1, 100);
  const Budget::Decision decision = judge_early(milliseconds(50));

  ASSERT_THAT(get_ids(decision.suspend), ElementsAre(1));
  EXPECT_DOUBLE_EQ(decision.suspend[0].share_ratio, 0.101);  // of the 100 ms
  EXPECT_THAT(end_window().suspend, IsEmpty());              // not once more
}

TEST_F(BudgetTest, AnEarlyJudgementTakesNothingFromTheReading) {
  cpu_ns_[kTrainer] = 100 * kSecondNs;
  call(1, 9'000);
  call(2, 40'000, kServer);
  EXPECT_THAT(get_ids(judge_early(milliseconds(400)).suspend), ElementsAre(2));
  call(1, 900);
  end_window(milliseconds(600));

  const Snapshot snapshot = take();
  ASSERT_EQ(snapshot.overhead.size(), 2u);
  EXPECT_DOUBLE_EQ(snapshot.overhead[0].ratio, 0.0099);
  EXPECT_DOUBLE_EQ(snapshot.overhead[1].ratio, 0.04);
}

TEST_F(BudgetTest, JudgesBusyThreadsEarlyByWhatTheyUsedSoFar) {
  cpu_ns_[kTrainer] = 8 * kStartNs;  // eight seconds a second, since it began
  call(1, 39'000);
  EXPECT_THAT(judge_early(milliseconds(500)).suspend, IsEmpty());  // 39 of 40 ms
  call(1, 2'000);
  EXPECT_THAT(get_ids(judge_early(milliseconds(0)).suspend), ElementsAre(1));
}

TEST_F(BudgetTest, RaisesNoAlarmForWhatTheBudgetAllows) {
  EXPECT_EQ(Budget::get_alarm_mask(1, 1000), 16'383u);  // after 16,384 calls: 10,000 are allowed
  EXPECT_EQ(Budget::get_alarm_mask(1, 12'500), 1023u);
  EXPECT_EQ(Budget::get_alarm_mask(1, 1'000'000'000), 1u);
  EXPECT_EQ(Budget::get_alarm_mask(100, 1), (1u << 30) - 1);
  EXPECT_EQ(Budget::get_alarm_mask(0, 1000), 0u);
  EXPECT_EQ(Budget::get_alarm_mask(1, 0), 0u);
}

TEST_F(BudgetTest, TakesNothingForCallsThatHooksCounted) {
  budget_.apply({.function_id = 2, .process = kTrainer, .calls = 500'000, .hooked = 500'000});
  budget_.apply({.function_id = 1, .process = kTrainer, .calls = 500'000, .hooked = 499'000});

  EXPECT_THAT(end_window().suspend, IsEmpty());
  const Snapshot snapshot = take();
  ASSERT_EQ(snapshot.overhead.size(), 1u);
  EXPECT_DOUBLE_EQ(snapshot.overhead[0].probes_ratio(), 0.001);
  EXPECT_DOUBLE_EQ(snapshot.overhead[0].hooks_ratio, 999'000 * 210e-9);
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

TEST_F(BudgetTest, WhatShowsStepsIsSuspendedOnlyWhereTheOthersAreNotEnough) {
  budget_.set_shows_steps(1, true);
  call(1, 6'000);
  call(2, 5'000);
  EXPECT_THAT(get_ids(end_window().suspend), ElementsAre(2));
  call(1, 11'000);
  call(3, 1'000);
  EXPECT_THAT(get_ids(end_window().suspend), ElementsAre(3, 1));
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

TEST_F(BudgetTest, ASuspendedFunctionIsCountedInShortWindowsThatCostAFifthOfTheBudget) {
  const Suspension first = call_too_much(1).suspend.at(0);  // half of the process's time
  // 50 % of 90 ms, once in 22.5 s: 0.2 %.
  EXPECT_EQ(first.until_mono_ns, now_ns_ + 22'500 * kSecondNs / 1000);

  for (int reading = 1; reading <= 22; ++reading) {
    EXPECT_EQ(end_window().window, std::nullopt) << reading;
  }
  EXPECT_EQ(end_window().window, 1u);
  run_window(1, 25'000);  // as before: 500,000 a second

  EXPECT_EQ(take().suspensions.at(0).until_mono_ns, now_ns_ + 22'500 * kSecondNs / 1000);
}

TEST_F(BudgetTest, OneWindowAtATimeTheLongestDueFirst) {
  call(1, 300'000);
  call(2, 200'000);
  end_window();
  std::vector<uint32_t> windows;
  for (int reading = 0; reading < 200; ++reading) {
    end_window();
    if (!opened_) continue;
    windows.push_back(*opened_);
    EXPECT_EQ(end_window().window, std::nullopt);  // it lasts
    run_window(*opened_, 10'000);
  }
  ASSERT_GE(windows.size(), 4u);
  EXPECT_THAT(std::vector(windows.begin(), windows.begin() + 4),
              ElementsAre(1, 2, 2, 1));  // 2 costs less
}

TEST_F(BudgetTest, EstimatesTheCallsOfTheGapsAndLeavesThemApart) {
  suspend_function_1();
  const int64_t gap_ns = open_window_of(1) - kReportedNs;
  const auto first = run_window(1, 5'000);  // in 50 ms: 100,000 a second
  const int64_t second_gap_ns = open_window_of(1) - window_end_ns_;
  const auto second = run_window(1, 5'000);

  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].function_id, 1u);
  EXPECT_EQ(first[0].process, kTrainer);
  // A process of unknown CPU time: half of what the probe took (10 %) is given back.
  const double rate = 100'000.0 * (1 + 1 / 0.9) / 2 / 1e9;
  EXPECT_NEAR(first[0].missed.calls, rate * static_cast<double>(gap_ns), 1);
  EXPECT_NEAR(second.at(0).missed.calls, rate * static_cast<double>(second_gap_ns), 1);
  EXPECT_NEAR(get_error_calls(second[0].missed) / second[0].missed.calls, 0.282, 0.002);
}

TEST_F(BudgetTest, WindowsThatDifferMakeTheErrorLarge) {
  suspend_function_1();
  open_window_of(1);
  run_window(1, 500);
  const int64_t gap_ns = open_window_of(1) - window_end_ns_;
  const auto estimate = run_window(1, 1'500).at(0).missed;

  const double gap_s = static_cast<double>(gap_ns) / kSecondNs;
  EXPECT_NEAR(estimate.calls, 20'300 * gap_s, 100 * gap_s);
  // By 1.96 times 20,000 / sqrt(2) a second, and by what the probe may have slowed it.
  EXPECT_NEAR(get_error_calls(estimate), 29'500 * gap_s, 300 * gap_s);
}

TEST_F(BudgetTest, AProcessThatDoesNothingButRunHasItsTimeBack) {
  suspend_function_1();
  const auto use_all_time = [this] {
    cpu_ns_[kTrainer] = static_cast<uint64_t>(now_ns_ + 2 * kSecondNs);
  };
  open_window_of(1);
  use_all_time();
  run_window(1, 25'000);  // half of the window is the probe's
  open_window_of(1);
  use_all_time();
  run_window(1, 25'000);
  const int64_t gap_ns = open_window_of(1) - window_end_ns_;
  use_all_time();

  const auto estimate = run_window(1, 25'000).at(0).missed;

  EXPECT_NEAR(estimate.calls / (static_cast<double>(gap_ns) / 1e9), 1'000'000, 100);
}

TEST_F(BudgetTest, EstimatesAlsoTheLastCallsOfAProcessThatEnds) {
  suspend_function_1();
  open_window_of(1);
  run_window(1, 5'000);
  const int64_t gap_ns = now_ns_ - window_end_ns_;
  budget_.apply(ProcessExited{kTrainer});

  const auto estimates = end_window().estimates;

  ASSERT_EQ(estimates.size(), 1u);
  EXPECT_NEAR(estimates[0].missed.calls, 105'556 * static_cast<double>(gap_ns) / 1e9, 10);
  open_window_of(1);
  EXPECT_THAT(run_window(1, 0), IsEmpty());
}

TEST_F(BudgetTest, IsProbedAgainAfterEightCheapWindowsTwiceAsManyTheNextTime) {
  for (const int needed : {8, 16, 32}) {
    call_too_much(1);
    int windows = 0;
    while (take().suspensions.size() == 1) {
      open_window_of(1);
      run_window(1, 300);  // 0.6 %
      ++windows;
    }
    EXPECT_EQ(windows, needed);
  }
}

TEST_F(BudgetTest, ALoadThatComesAndGoesIsNotProbedInBetween) {
  call_too_much(1);
  for (int window = 0; window < 40; ++window) {
    open_window_of(1);
    run_window(1, window % 4 == 0 ? 25'000 : 0);
  }
  EXPECT_EQ(take().suspensions.at(0).times, 1u);
}

TEST_F(BudgetTest, AWindowOfAFunctionThatIsInNoFileSaysNothing) {
  call_too_much(1);
  open_window_of(1);
  opened_.reset();
  budget_.end_window(1, now_ns_, now_ns_);
  end_window();
  EXPECT_THAT(end_window().estimates, IsEmpty());
  EXPECT_EQ(take().suspensions.size(), 1u);
  open_window_of(1);  // it is tried again
}

TEST_F(BudgetTest, AFunctionThatIsConfiguredToBeSampledStaysInWindowsWhateverItCosts) {
  budget_.set_sampled(3, true, now_ns_);
  budget_.note_suspended(3, now_ns_);
  for (int window = 0; window < 20; ++window) {
    open_window_of(3);
    run_window(3, 0);
  }
  EXPECT_THAT(take().suspensions, IsEmpty());
  EXPECT_LT(take().coverage.at(3), 0.02);

  budget_.set_limits({.percent = 0});
  EXPECT_THAT(end_window().resume, ElementsAre(3));
  budget_.set_limits({.percent = 1});
  open_window_of(3);

  budget_.set_sampled(3, false, now_ns_);  // the configuration was reloaded
  EXPECT_THAT(run_window(3, 100), IsEmpty());
  for (int reading = 0; reading < 60; ++reading) {
    EXPECT_EQ(end_window().window, std::nullopt);
  }
}

TEST_F(BudgetTest, OffTakesNothingOutAndBringsEverythingBack) {
  call_too_much(1);

  budget_.set_limits({.percent = 0});
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
  for (int reading = 1; reading < 10; ++reading) end_window();
  call_too_much(2);
  end_window();
  budget_.note_suspended(2, now_ns_);  // after 11 s
  for (int reading = 0; reading < 11; ++reading) end_window();

  ASSERT_EQ(take().coverage.size(), 3u);
  EXPECT_DOUBLE_EQ(take().coverage[2], 11.0 / 22);
  EXPECT_DOUBLE_EQ(take().coverage[1], 1);  // never out

  budget_.set_limits({.percent = 0});
  end_window();
  for (int reading = 0; reading < 22; ++reading) end_window();
  EXPECT_DOUBLE_EQ(take().coverage[2], 33.0 / 45);
}

TEST_F(BudgetTest, CoverageOfAFunctionNobodyAnnouncedBeginsWithItsFirstCalls) {
  for (int reading = 0; reading < 10; ++reading) end_window();
  call(7, 500'000);
  budget_.set_cost(7, 1000, now_ns_ + kSecondNs / 2);  // known only later
  end_window();
  budget_.note_suspended(7, now_ns_);
  for (int reading = 0; reading < 3; ++reading) end_window();

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

TEST_F(BudgetTest, TakesAMeasuredCostInPlaceOfTheCalibratedOneWhereTheyDisagree) {
  const auto run_second = [&] {
    call(1, 4'000);
    end_window();
    return take().overhead.at(0);
  };
  EXPECT_NEAR(run_second().ratio, 0.004, 1e-9);
  OverheadMeasurement measured{.process = kTrainer,
                               .ratio = 0.006,
                               .low_ratio = 0.003,
                               .high_ratio = 0.009,
                               .estimated_ratio = 0.004};
  budget_.correct(measured);
  EXPECT_EQ(run_second().correction, 1) << "the estimate is within the interval";
  measured.low_ratio = 0.005;
  end_window();                      // its last second was one without us: nothing was counted
  ++measured.process.start_boot_ns;  // as its session knows it
  budget_.correct(measured);
  EXPECT_NEAR(run_second().correction, 1.5, 1e-9);
  EXPECT_NEAR(run_second().ratio, 0.006, 1e-9);
  measured = {.process = kTrainer,
              .ratio = 0.9,
              .low_ratio = 0.8,
              .high_ratio = 0.95,
              .estimated_ratio = 0.006};
  budget_.correct(measured);
  EXPECT_EQ(run_second().correction, Budget::kCorrectionMax);
  EXPECT_THAT(get_ids(budget_.list_suspensions()), ElementsAre(1)) << "so it is over the budget";
  measured = {.process = kTrainer, .ratio = -1, .low_ratio = -2, .estimated_ratio = 0.1};
  budget_.correct(measured);
  EXPECT_EQ(run_second().correction, Budget::kCorrectionMin);
  call(1, 4'000, kServer);
  end_window();
  EXPECT_EQ(take().overhead.at(0).correction, 1) << "of another process";
  budget_.apply(ProcessExited{.process = kTrainer});
  EXPECT_EQ(run_second().correction, 1) << "of another with the same id";
}

}  // namespace
}  // namespace gpuperf
