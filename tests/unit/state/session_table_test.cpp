#include "daemon/state/session_table.h"

#include <gtest/gtest.h>

#include <chrono>

namespace gpuperf {
namespace {

using std::chrono::seconds;

constexpr int64_t kSecondNs = 1'000'000'000;

SessionOpened make_opened(uint64_t id, uint32_t pid, int64_t mono_ns = 0) {
  return {.session_id = id,
          .process = {.pid = pid, .start_boot_ns = pid * 10ull},
          .owner = {.comm = "python"},
          .mono_ns = mono_ns};
}

SessionStatus make_status(uint64_t id, uint32_t state, uint64_t lost = 0) {
  SessionStatus status{.session_id = id, .state = state};
  status.losses[GPUPERF_SESSION_LOSS_QUEUE_FULL] = lost;
  return status;
}

class SessionTableTest : public ::testing::Test {
 protected:
  GpuReport report() const {
    GpuReport report;
    table_.fill(report);
    return report;
  }

  SessionTable table_{{.keep_closed = seconds(600), .max_closed = 2}};
};

TEST_F(SessionTableTest, ShowsTheNewestStatus) {
  table_.apply(make_opened(1, 71, 5));
  EXPECT_EQ(report().sessions[0]->status.state, 0u);

  table_.apply(make_status(1, GPUPERF_SESSION_STATE_WAITING), 10);
  table_.apply(make_status(1, GPUPERF_SESSION_STATE_COLLECTING), 20);
  table_.apply(make_status(1, GPUPERF_SESSION_STATE_COLLECTING), 30);

  const SessionRow row = *report().sessions.at(0);
  EXPECT_EQ(row.facts, make_opened(1, 71, 5));
  EXPECT_EQ(row.status, make_status(1, GPUPERF_SESSION_STATE_COLLECTING));
  EXPECT_EQ(row.state_since_mono_ns, 20);
  EXPECT_TRUE(row.open);
}

TEST_F(SessionTableTest, ListsOpenOnesFirstAndNewestFirst) {
  for (uint64_t id = 1; id <= 4; ++id) table_.apply(make_opened(id, 70 + id));
  table_.apply(SessionClosed{.session_id = 4, .reason = "process ended", .mono_ns = 9});

  std::vector<uint64_t> ids;
  for (const auto& row : report().sessions) ids.push_back(row->facts.session_id);

  EXPECT_EQ(ids, (std::vector<uint64_t>{3, 2, 1, 4}));
  EXPECT_EQ(report().sessions[3]->closed_reason, "process ended");
  EXPECT_EQ(report().sessions[3]->closed_mono_ns, 9);
}

TEST_F(SessionTableTest, CountsLossesOnceAcrossTheSessionsOfAProcess) {
  table_.apply(make_opened(1, 71));
  table_.apply(make_status(1, GPUPERF_SESSION_STATE_COLLECTING, 5), 0);
  table_.apply(make_status(1, GPUPERF_SESSION_STATE_COLLECTING, 8), 0);
  table_.apply(SessionClosed{.session_id = 1});
  table_.apply(make_opened(2, 71));
  table_.apply(make_status(2, GPUPERF_SESSION_STATE_COLLECTING, 9), 0);
  table_.apply(make_opened(3, 72));
  table_.apply(make_status(3, GPUPERF_SESSION_STATE_COLLECTING, 100), 0);

  EXPECT_EQ(report().lost_records[GPUPERF_SESSION_LOSS_QUEUE_FULL], 109u);
}

TEST_F(SessionTableTest, KeepsTheLossesOfSessionsItForgot) {
  table_.apply(make_opened(1, 71));
  table_.apply(make_status(1, GPUPERF_SESSION_STATE_COLLECTING, 5), 0);
  table_.apply(SessionClosed{.session_id = 1, .mono_ns = 0});

  table_.expire(600 * kSecondNs);

  EXPECT_TRUE(report().sessions.empty());
  EXPECT_EQ(report().lost_records[GPUPERF_SESSION_LOSS_QUEUE_FULL], 5u);
}

TEST_F(SessionTableTest, KeepsABoundedNumberOfClosedOnes) {
  for (uint64_t id = 1; id <= 3; ++id) {
    table_.apply(make_opened(id, 71));
    table_.apply(SessionClosed{.session_id = id, .mono_ns = 0});
  }

  table_.expire(1);

  const GpuReport report = this->report();
  ASSERT_EQ(report.sessions.size(), 2u);
  EXPECT_EQ(report.sessions[1]->facts.session_id, 2u);
}

TEST_F(SessionTableTest, AddsUpGapsByCause) {
  table_.apply(make_opened(1, 71));
  table_.add_gap(1, {.duration_ns = 5, .cause = GPUPERF_SESSION_CAUSE_BURST});
  table_.add_gap(1, {.duration_ns = 7, .cause = GPUPERF_SESSION_CAUSE_BURST});
  table_.add_gap(1, {.duration_ns = 7, .cause = GPUPERF_SESSION_CAUSE_COUNT});

  EXPECT_EQ(report().sessions[0]->gaps[GPUPERF_SESSION_CAUSE_BURST],
            (GapTotals{.count = 2, .total_ns = 12}));
}

TEST_F(SessionTableTest, NeverChangesRowsItHandedOut) {
  table_.apply(make_opened(1, 71));
  const GpuReport before = report();

  table_.apply(SessionClosed{.session_id = 1});

  EXPECT_TRUE(before.sessions[0]->open);
  EXPECT_FALSE(report().sessions[0]->open);
}

TEST_F(SessionTableTest, IgnoresWhatComesAfterTheEnd) {
  table_.apply(make_opened(1, 71));
  table_.apply(SessionClosed{.session_id = 1, .reason = "first", .mono_ns = 1});

  table_.apply(make_status(1, GPUPERF_SESSION_STATE_COLLECTING, 5), 0);
  table_.apply(SessionClosed{.session_id = 1, .reason = "second", .mono_ns = 2});
  table_.apply(make_status(9, GPUPERF_SESSION_STATE_COLLECTING, 5), 0);

  EXPECT_EQ(report().sessions[0]->closed_reason, "first");
  EXPECT_EQ(report().lost_records[GPUPERF_SESSION_LOSS_QUEUE_FULL], 0u);
}

TEST_F(SessionTableTest, FindsOpenOnesByPidOrId) {
  table_.apply(make_opened(1, 71));
  table_.apply(make_opened(2, 71));
  table_.apply(make_opened(3, 72));
  table_.apply(SessionClosed{.session_id = 1});

  EXPECT_EQ(table_.find_open(71, 0), std::vector<uint64_t>{2});
  EXPECT_EQ(table_.find_open(0, 3), std::vector<uint64_t>{3});
  EXPECT_TRUE(table_.find_open(71, 3).empty());
}

TEST_F(SessionTableTest, CountsStepsOfTheWallClock) {
  table_.apply(ClockStepped{.mono_ns = 1, .step_ns = 100});

  EXPECT_EQ(report().clock_steps, 1u);
}

}  // namespace
}  // namespace gpuperf
