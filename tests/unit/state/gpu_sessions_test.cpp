#include "daemon/state/gpu_sessions.h"

#include <gtest/gtest.h>

namespace gpuperf {
namespace {

constexpr int64_t kNowNs = 1'000'000'000'000;
constexpr uint64_t kStartNs = 999'000'000'000;

SessionOpened make_opened(uint64_t id) {
  return {.session_id = id, .process = {.pid = 71}, .mono_ns = kNowNs};
}

class GpuSessionsTest : public ::testing::Test {
 protected:
  void apply(const SessionEvent& event) { sessions_.apply(event, kNowNs); }
  GpuReport report() const {
    GpuReport report;
    sessions_.fill(report);
    return report;
  }

  DropCounters drops_;
  GpuSessions sessions_{{}, drops_};
};

TEST_F(GpuSessionsTest, HandsEachEventToThoseItConcerns) {
  apply(make_opened(1));
  apply(SessionStatus{.session_id = 1, .state = GPUPERF_SESSION_STATE_COLLECTING});
  SessionBatch batch{.session_id = 1};
  batch.names = {{.id = 1, .text = "add"}};
  batch.places = {{.id = 1}};
  batch.kernels = {{.start_mono_ns = kStartNs, .duration_ns = 5, .name_id = 1, .place_id = 1}};
  batch.gaps = {{.duration_ns = 7, .cause = GPUPERF_SESSION_CAUSE_CONTROL}};
  apply(batch);
  apply(ClockStepped{.step_ns = 9});

  const GpuReport report = this->report();
  ASSERT_EQ(report.sessions.size(), 1u);
  EXPECT_EQ(report.sessions[0]->status.state, GPUPERF_SESSION_STATE_COLLECTING);
  EXPECT_EQ(report.sessions[0]->gaps[GPUPERF_SESSION_CAUSE_CONTROL].total_ns, 7u);
  EXPECT_EQ(report.kernels.size(), 1u);
  EXPECT_EQ(report.processes.size(), 1u);
  EXPECT_EQ(report.clock_steps, 1u);
}

TEST_F(GpuSessionsTest, ShowsHowLaunchesWereJoined) {
  apply(make_opened(1));
  SessionBatch batch{.session_id = 1};
  batch.names = {{.id = 1, .text = "add"}};
  batch.places = {{.id = 1}};
  batch.apis = {{.start_mono_ns = kStartNs, .correlation_id = 3}};
  batch.kernels = {
      {.start_mono_ns = kStartNs + 9, .correlation_id = 3, .name_id = 1, .place_id = 1}};
  apply(batch);

  EXPECT_EQ(report().sessions[0]->join, JoinTotals{.joined = 1});
}

TEST_F(GpuSessionsTest, ShowsJoinsThatOnlyTimeSettles) {
  apply(make_opened(1));
  SessionBatch batch{.session_id = 1};
  batch.names = {{.id = 1, .text = "add"}};
  batch.places = {{.id = 1}};
  batch.apis = {{.start_mono_ns = kStartNs, .correlation_id = 3}};
  batch.kernels = {{.start_mono_ns = kStartNs + 9,
                    .correlation_id = 3,
                    .name_id = 1,
                    .place_id = 1,
                    .graph_id = 4}};
  apply(batch);

  sessions_.expire(kNowNs + 3'000'000'000);

  EXPECT_EQ(report().sessions[0]->join, JoinTotals{.joined = 1});
}

TEST_F(GpuSessionsTest, EndsWithItsSession) {
  apply(make_opened(1));
  apply(SessionClosed{.session_id = 1, .mono_ns = kNowNs});

  EXPECT_TRUE(sessions_.find_open(71, 0).empty());
  EXPECT_FALSE(report().sessions[0]->open);
  EXPECT_TRUE(report().processes[0]->exited);
}

}  // namespace
}  // namespace gpuperf
