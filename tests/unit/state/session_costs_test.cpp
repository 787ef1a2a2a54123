#include "daemon/state/session_costs.h"

#include <gtest/gtest.h>

#include "injector/session_abi.h"

namespace gpuperf {
namespace {

class SessionCostsTest : public ::testing::Test {
 protected:
  static constexpr int64_t kSecond = 1'000'000'000;
  static constexpr ProcessKey kProcess{.pid = 70, .start_boot_ns = 20'000'000};

  SessionCostsTest() {
    costs_.follow(sessions_);
    costs_.advance(kSecond);
    sessions_.apply(SessionOpened{.session_id = 7, .process = kProcess}, kSecond);
  }

  // A second with so many launches, each of which keeps the GPU busy for so long.
  void run(size_t launches, uint64_t kernel_ns, uint64_t graph_id = 0) {
    SessionBatch batch{.session_id = 7};
    batch.kernels.resize(launches);
    for (KernelRecord& kernel : batch.kernels) {
      kernel.duration_ns = kernel_ns;
      kernel.graph_id = graph_id;
    }
    if (graph_id != 0) batch.graphs.resize(1);
    sessions_.apply(batch, now_);
    now_ += kSecond;
    costs_.advance(now_);
  }
  double get_ratio() const {
    Snapshot snapshot;
    costs_.fill(snapshot);
    return snapshot.overhead.empty() ? 0 : snapshot.overhead[0].cupti_ratio;
  }

  DropCounters drops_;
  SessionMemory memory_{drops_, 1 << 20};
  LaunchCosts launch_costs_;
  SessionCosts costs_{launch_costs_};
  SessionRegistry sessions_{{}, drops_, memory_};
  int64_t now_ = kSecond;
};

TEST_F(SessionCostsTest, LaunchesThatTheProcessWaitsForCostTwoMicroseconds) {
  run(10'000, 5'000);
  EXPECT_DOUBLE_EQ(get_ratio(), 0.02);
  run(0, 0);
  EXPECT_EQ(get_ratio(), 0);
}

TEST_F(SessionCostsTest, LaunchesAheadOfABusyGpuCostNothing) {
  run(10'000, 90'000);
  EXPECT_EQ(get_ratio(), 0);
}

TEST_F(SessionCostsTest, LaunchesCostWhatWasMeasuredInTheirProcess) {
  launch_costs_.end_reading(kSecond);
  for (int64_t second = 2; second < 20; ++second) {
    launch_costs_.apply(kProcess, 10'000);
    launch_costs_.end_reading(second * kSecond);
    if (second % 5 != 0) continue;
    launch_costs_.add_window(kProcess, {.begin_mono_ns = second * kSecond,
                                        .end_mono_ns = second * kSecond + 1,
                                        .launches = 1'001,
                                        .first_mono_ns = 1,
                                        .last_mono_ns = 1 + 1'000 * 100'700});
  }
  run(10'000, 90'000);  // whatever the GPU does
  EXPECT_NEAR(get_ratio(), 0.007, 1e-9);
  GpuReport report;
  sessions_.fill(report);
  EXPECT_EQ(report.sessions.at(0)->launch_cost.windows, 3u);
}

TEST_F(SessionCostsTest, CuptiCostsLaunchesThatItDoesNotRecordTooWhileItIsAttached) {
  launch_costs_.end_reading(kSecond);
  launch_costs_.apply(kProcess, 10'000);
  launch_costs_.end_reading(2 * kSecond);
  SessionStatus status{.session_id = 7, .state = GPUPERF_SESSION_STATE_PAUSED};
  sessions_.apply(status, now_);
  run(0, 0);
  EXPECT_EQ(get_ratio(), 0);
  status.level = GPUPERF_SESSION_LEVEL_CUPTI;
  sessions_.apply(status, now_);
  run(0, 0);
  EXPECT_DOUBLE_EQ(get_ratio(), 0.015);
}

TEST_F(SessionCostsTest, AGraphIsOneLaunch) {
  run(1'000, 5'000, 3);
  EXPECT_DOUBLE_EQ(get_ratio(), 2e-6);
}

TEST_F(SessionCostsTest, LaunchesHeldForAWindowCostWhatTheyWaited) {
  SessionBatch batch{.session_id = 7};
  batch.overheads = {{.duration_ns = 4'000'000, .type = GPUPERF_OVERHEAD_WINDOW},
                     {.duration_ns = 9'000'000, .type = GPUPERF_OVERHEAD_RESOURCE}};
  sessions_.apply(batch, now_);
  run(0, 0);
  EXPECT_DOUBLE_EQ(get_ratio(), 0.004);
}

TEST_F(SessionCostsTest, GoesWithItsSession) {
  run(10'000, 5'000);
  sessions_.apply(SessionClosed{.session_id = 7}, now_);
  EXPECT_EQ(get_ratio(), 0);
}

// The probes know its start in ns, the session in clock ticks.
TEST_F(SessionCostsTest, IsAddedToWhatTheProbesCost) {
  run(10'000, 5'000);
  Snapshot snapshot;
  snapshot.overhead = {{.process = {.pid = 70, .start_boot_ns = 20'000'123}, .ratio = 0.01}};

  costs_.fill(snapshot);

  ASSERT_EQ(snapshot.overhead.size(), 1u);
  EXPECT_DOUBLE_EQ(snapshot.overhead[0].ratio, 0.03);
  EXPECT_DOUBLE_EQ(snapshot.overhead[0].probes_ratio(), 0.01);
}

}  // namespace
}  // namespace gpuperf
