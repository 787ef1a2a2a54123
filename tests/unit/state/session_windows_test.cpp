#include "daemon/state/session_windows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/state/session_costs.h"
#include "injector/session_abi.h"

namespace gpuperf {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kStep = kSecond / 4;
using Mode = SessionOrder::Mode;

// A process whose session collects as it is told to, with so many launches a second.
class SessionWindowsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    windows_.follow(sessions_);
    sessions_.apply(SessionOpened{.session_id = 7, .process = kProcess}, 0);
    report(Mode::kRun);
  }

  void report(Mode mode) {
    is_collecting_ = mode == Mode::kRun;
    SessionStatus status{
        .session_id = 7,
        .state = is_collecting_ ? GPUPERF_SESSION_STATE_COLLECTING : GPUPERF_SESSION_STATE_PAUSED};
    if (is_collecting_ && are_calls_hooked_) status.level = GPUPERF_SESSION_LEVEL_HOOKED;
    sessions_.apply(status, now_);
  }

  void run(int64_t seconds) {
    for (const int64_t end = now_ + seconds * kSecond; now_ < end;) {
      now_ += kStep;
      if (is_collecting_) {
        SessionBatch batch{.session_id = 7};
        const int64_t apart_ns =
            kSecond / std::max<int64_t>(launches_per_second_, 1) + launch_cost_ns_;
        batch.kernels.resize(static_cast<size_t>(kStep / apart_ns));
        int64_t start_ns = now_ - kStep;
        for (KernelRecord& kernel : batch.kernels) {
          kernel.duration_ns = kernel_ns_;
          kernel.start_mono_ns = static_cast<uint64_t>(start_ns += apart_ns);
        }
        batch.graphs.resize(graphs_);
        batch.overheads = {{.duration_ns = window_cost_ns_, .type = GPUPERF_OVERHEAD_WINDOW}};
        weighed_ += batch.kernels.size() * row().window_weight;
        sessions_.apply(batch, now_);
        collected_ += kStep;
      }
      launch_costs_.apply(kProcess, static_cast<uint64_t>(launches_per_second_ / 4));
      if (now_ % kSecond == 0) launch_costs_.end_reading(now_);
      if (now_ % kSecond == 0) report(is_collecting_ ? Mode::kRun : Mode::kPause);
      windows_.advance(now_);
      for (const Mode mode : std::exchange(told_, {})) {
        all_.push_back(mode);
        report(mode);
      }
    }
  }
  SessionRow row() const {
    GpuReport report;
    sessions_.fill(report);
    return *report.sessions.at(0);
  }
  bool is_in_windows() const { return row().is_in_windows; }
  // Share of the time that the session collected in the next seconds.
  double measure(int64_t seconds) {
    collected_ = 0;
    run(seconds);
    return static_cast<double>(collected_) / static_cast<double>(seconds * kSecond);
  }

  static constexpr ProcessKey kProcess{.pid = 70, .start_boot_ns = 1};

  int64_t now_ = kSecond;
  int64_t collected_ = 0;
  uint64_t weighed_ = 0;  // launches, each by what it stands for
  bool is_collecting_ = false;
  bool are_calls_hooked_ = true;
  size_t graphs_ = 0;
  int64_t launches_per_second_ = 40'000;
  int64_t launch_cost_ns_ = SessionCosts::kLaunchCostNs;
  uint64_t kernel_ns_ = 3'000;
  uint64_t window_cost_ns_ = 0;  // as each batch has it
  std::vector<Mode> told_, all_;
  DropCounters drops_;
  SessionMemory memory_{drops_};
  LaunchCosts launch_costs_;
  SessionWindows windows_{{.percent = 2}, launch_costs_, [this](uint64_t id, Mode mode) {
                            EXPECT_EQ(id, 7u);
                            told_.push_back(mode);
                          }};
  SessionRegistry sessions_{{}, drops_, memory_};
};

TEST_F(SessionWindowsTest, ALaunchBoundProcessIsRecordedInWindowsFromItsFirstSecond) {
  EXPECT_LE(measure(120), 0.035) << "windows at 0, 6, 11, 22, 42 and 83 s";
  EXPECT_LT(measure(3'600), 0.01);
  EXPECT_GT(all_.size(), 20u) << "windows go on";
  // Each stands for the launches since the last, at the rate in the window.
  const double expected = 3'715.0 * 1e9 / (25'000 + launch_cost_ns_);
  EXPECT_NEAR(static_cast<double>(weighed_), expected, 0.05 * expected);
  EXPECT_TRUE(is_in_windows());
}

TEST_F(SessionWindowsTest, WhoSaysThatWindowsTookForEverRestsLongest) {
  window_cost_ns_ = UINT64_MAX / 2;
  run(2'000);
  EXPECT_LT(measure(6'000), 0.0015) << "half a second in 600 s";
}

// A session that was told to wait: the library says that it is paused.
class WaitingSessionTest : public SessionWindowsTest {
 protected:
  void SetUp() override {
    windows_.follow(sessions_);
    sessions_.apply(SessionOpened{.session_id = 7, .process = kProcess}, 0);
    report(Mode::kPause);
    launch_costs_.end_reading(now_);
  }
};

TEST_F(WaitingSessionTest, LaunchesThatWouldPayWaitUntilCuptiCanBeEnded) {
  EXPECT_EQ(measure(115), 0);
  EXPECT_TRUE(all_.empty());
  run(10);
  ASSERT_FALSE(all_.empty());
  EXPECT_EQ(all_.front(), Mode::kRun);
  EXPECT_EQ(row().window_weight, 1u) << "what was before is not estimated";
  EXPECT_LE(measure(120), 0.035);
}

TEST_F(WaitingSessionTest, FewLaunchesAreRecordedAfterThreeSecondsOfThem) {
  launches_per_second_ = 0;
  EXPECT_EQ(measure(30), 0) << "nothing is known of its launches yet";
  launches_per_second_ = 1'000;
  EXPECT_EQ(measure(3), 0);
  run(2);
  EXPECT_EQ(measure(600), 1);
  EXPECT_FALSE(is_in_windows());
}

TEST_F(WaitingSessionTest, ManyLaunchesInBetweenMakeItWaitAnew) {
  launches_per_second_ = 1'000;
  run(2);
  launches_per_second_ = 40'000;
  run(2);
  launches_per_second_ = 1'000;
  EXPECT_EQ(measure(3), 0);
  run(2);
  EXPECT_EQ(measure(10), 1);
}

TEST_F(WaitingSessionTest, OneWithGraphsPaysAnyway) {
  run(5);
  ASSERT_FALSE(is_collecting_);
  sessions_.apply(SessionStatus{.session_id = 7,
                                .state = GPUPERF_SESSION_STATE_PAUSED,
                                .level = GPUPERF_SESSION_LEVEL_GRAPHS},
                  now_);
  windows_.advance(now_);
  EXPECT_EQ(told_, std::vector{Mode::kRun});
}

TEST_F(WaitingSessionTest, ACaptureDoesNotWait) {
  EXPECT_TRUE(windows_.open({}, now_));
  EXPECT_TRUE(windows_.is_opening({}));
  EXPECT_EQ(told_, std::vector{Mode::kRun});
}

TEST_F(WaitingSessionTest, NothingNewWaitsWhileACaptureRuns) {
  EXPECT_TRUE(windows_.may_wait());
  windows_.hold_open({{.all_processes = false, .processes = {}}}, now_);
  EXPECT_FALSE(windows_.may_wait());
  windows_.hold_open({}, now_);
  EXPECT_TRUE(windows_.may_wait());
}

TEST_F(WaitingSessionTest, NorOneWithoutABudget) {
  windows_.set_limits({.percent = 0});
  run(1);
  EXPECT_EQ(all_, std::vector{Mode::kRun});
}

TEST_F(SessionWindowsTest, WhereTheGpuIsBusyOrLaunchesAreFewItCollectsAllTheTime) {
  kernel_ns_ = 22'000;  // 88 % of the time
  EXPECT_EQ(measure(600), 1);
  kernel_ns_ = 3'000;
  launches_per_second_ = 4'000;
  EXPECT_EQ(measure(600), 1);
  EXPECT_TRUE(all_.empty());
}

TEST_F(SessionWindowsTest, NeitherGraphsNorCallsThatCuptiRecordsGetWindows) {
  graphs_ = 1;
  EXPECT_EQ(measure(300), 1);
  graphs_ = 0;
  EXPECT_EQ(measure(300), 1) << "once seen";
}

TEST_F(SessionWindowsTest, WithoutHooksThereAreNoWindows) {
  are_calls_hooked_ = false;
  report(Mode::kRun);
  EXPECT_EQ(measure(600), 1);
}

TEST_F(SessionWindowsTest, AWindowThatShowsAnotherLoadStaysOpen) {
  run(200);
  launches_per_second_ = 100;
  run(120);
  EXPECT_EQ(measure(300), 1);
  EXPECT_FALSE(is_in_windows());
  launches_per_second_ = 40'000;
  EXPECT_LT(measure(600), 0.05);
}

TEST_F(SessionWindowsTest, CapturesOpenAndHoldIt) {
  run(200);
  ASSERT_FALSE(is_collecting_);
  EXPECT_FALSE(windows_.open({.all_processes = false, .processes = {{.pid = 71}}}, now_));
  EXPECT_TRUE(windows_.open(
      {.all_processes = false, .processes = {{.pid = 70, .start_boot_ns = 1}}}, now_));
  EXPECT_TRUE(windows_.is_opening({})) << "it has not said so yet";
  windows_.hold_open({{}}, now_);
  run(1);
  EXPECT_FALSE(windows_.is_opening({}));
  EXPECT_EQ(measure(100), 1);
  windows_.hold_open({}, now_);
  EXPECT_LT(measure(600), 0.05);
}

TEST_F(SessionWindowsTest, WhatSomebodyHasPausedStaysPaused) {
  windows_.note_order({.pid = 70}, Mode::kPause);
  report(Mode::kPause);
  EXPECT_EQ(measure(600), 0);
  windows_.note_order({.pid = 70}, Mode::kRun);
  report(Mode::kRun);
  EXPECT_GT(measure(600), 0);
  EXPECT_FALSE(is_collecting_) << "in windows again";
}

TEST_F(SessionWindowsTest, WithoutABudgetItIsOpenedAtOnce) {
  run(200);
  windows_.set_limits({.percent = 0});
  run(1);
  EXPECT_EQ(measure(100), 1);
}

TEST_F(SessionWindowsTest, EachWindowMeasuresWhatALaunchCosts) {
  launch_cost_ns_ = 700;
  run(500);
  const auto cost = launch_costs_.find(kProcess);
  ASSERT_TRUE(cost);
  EXPECT_GE(cost->windows, LaunchCosts::kWindowsMin);
  EXPECT_NEAR(cost->ns, 700, 1);
}

TEST_F(SessionWindowsTest, WhereWindowsCostLaunchesNothingItCollectsAllTheTime) {
  launch_cost_ns_ = 0;
  run(500);
  EXPECT_EQ(measure(100), 1);
}

TEST_F(SessionWindowsTest, CollectsNothingWhileADemandSaysSo) {
  run(3);
  windows_.set_standing_down(true, now_);
  run(2);
  windows_.hold_open({{}}, now_);
  EXPECT_EQ(measure(100), 0);
  windows_.set_standing_down(false, now_);
  run(1);
  EXPECT_TRUE(is_collecting_);
}

TEST_F(SessionWindowsTest, WhatSomebodyHasPausedIsNotResumedByTheEndOfADemand) {
  windows_.note_order({.session_id = 7}, Mode::kPause);
  windows_.set_standing_down(true, now_);
  run(2);
  windows_.set_standing_down(false, now_);
  run(2);
  EXPECT_EQ(all_, std::vector<Mode>());
}

TEST_F(SessionWindowsTest, CollectsAllTheTimeOnceThereIsNoLimit) {
  run(200);
  windows_.set_limits({.percent = 0});
  run(1);
  EXPECT_EQ(measure(100), 1);
}

TEST_F(SessionWindowsTest, TellsWhoseBudgetIsShared) {
  EXPECT_TRUE(windows_.list_in_windows().empty());
  run(200);
  const std::set<ProcessKey, ProcessOrder> its{row().facts.process};
  EXPECT_EQ(windows_.list_in_windows(), its);
}

TEST_F(SessionWindowsTest, ForgetsASessionThatCloses) {
  run(200);
  sessions_.apply(SessionClosed{.session_id = 7}, now_);
  windows_.hold_open({{}}, now_);
  windows_.advance(now_ + 1'000 * kSecond);
  EXPECT_TRUE(told_.empty());
}

}  // namespace
}  // namespace gpuperf
