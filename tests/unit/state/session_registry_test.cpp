#include "daemon/state/session_registry.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/state/examples.h"

namespace gpuperf {
namespace {

using std::chrono::seconds;

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

class SessionRegistryTest : public ::testing::Test {
 protected:
  GpuReport report() const {
    GpuReport report;
    sessions_.fill(report);
    return report;
  }

  void apply(const SessionEvent& event, int64_t now_mono_ns = 0) {
    sessions_.apply(event, now_mono_ns);
  }

  DropCounters drops_;
  SessionMemory memory_{drops_};
  SessionRegistry sessions_{{.keep_closed = seconds(600), .max_closed = 2}, drops_, memory_};
};

TEST_F(SessionRegistryTest, ShowsTheNewestStatus) {
  apply(make_opened(1, 71, 5));
  EXPECT_EQ(report().sessions[0]->status.state, 0u);

  apply(make_status(1, GPUPERF_SESSION_STATE_WAITING), 10);
  apply(make_status(1, GPUPERF_SESSION_STATE_COLLECTING), 20);
  apply(make_status(1, GPUPERF_SESSION_STATE_COLLECTING), 30);

  const SessionRow row = *report().sessions.at(0);
  EXPECT_EQ(row.facts, make_opened(1, 71, 5));
  EXPECT_EQ(row.status, make_status(1, GPUPERF_SESSION_STATE_COLLECTING));
  EXPECT_EQ(row.state_since_mono_ns, 20);
  EXPECT_TRUE(row.open);
}

TEST_F(SessionRegistryTest, ListsOpenOnesFirstAndNewestFirst) {
  for (uint64_t id = 1; id <= 4; ++id) apply(make_opened(id, 70 + id));
  apply(SessionClosed{.session_id = 4, .reason = "process ended", .mono_ns = 9});

  std::vector<uint64_t> ids;
  for (const auto& row : report().sessions) ids.push_back(row->facts.session_id);

  EXPECT_EQ(ids, (std::vector<uint64_t>{3, 2, 1, 4}));
  EXPECT_EQ(report().sessions[3]->closed_reason, "process ended");
  EXPECT_EQ(report().sessions[3]->closed_mono_ns, 9);
}

TEST_F(SessionRegistryTest, CountsLossesOnceAcrossTheSessionsOfAProcess) {
  apply(make_opened(1, 71));
  apply(make_status(1, GPUPERF_SESSION_STATE_COLLECTING, 5));
  apply(make_status(1, GPUPERF_SESSION_STATE_COLLECTING, 8));
  apply(SessionClosed{.session_id = 1});
  apply(make_opened(2, 71));
  apply(make_status(2, GPUPERF_SESSION_STATE_COLLECTING, 9));
  apply(make_opened(3, 72));
  apply(make_status(3, GPUPERF_SESSION_STATE_COLLECTING, 100));

  EXPECT_EQ(report().lost_records[GPUPERF_SESSION_LOSS_QUEUE_FULL], 109u);
}

TEST_F(SessionRegistryTest, KeepsTheLossesOfSessionsItForgot) {
  apply(make_opened(1, 71));
  apply(make_status(1, GPUPERF_SESSION_STATE_COLLECTING, 5));
  apply(SessionClosed{.session_id = 1, .mono_ns = 0});

  sessions_.expire(600 * kSecondNs);

  EXPECT_TRUE(report().sessions.empty());
  EXPECT_EQ(report().lost_records[GPUPERF_SESSION_LOSS_QUEUE_FULL], 5u);
}

TEST_F(SessionRegistryTest, KeepsABoundedNumberOfClosedOnes) {
  for (uint64_t id = 1; id <= 3; ++id) {
    apply(make_opened(id, 71));
    apply(SessionClosed{.session_id = id, .mono_ns = 0});
  }

  sessions_.expire(1);

  const GpuReport report = this->report();
  ASSERT_EQ(report.sessions.size(), 2u);
  EXPECT_EQ(report.sessions[1]->facts.session_id, 2u);
}

TEST_F(SessionRegistryTest, AddsUpGapsByCause) {
  apply(make_opened(1, 71));
  apply(SessionBatch{.session_id = 1,
                     .gaps = {{.duration_ns = 5, .cause = GPUPERF_SESSION_CAUSE_BURST},
                              {.duration_ns = 7, .cause = GPUPERF_SESSION_CAUSE_BURST},
                              {.duration_ns = 7, .cause = GPUPERF_SESSION_CAUSE_COUNT}}});

  EXPECT_EQ(report().sessions[0]->gaps[GPUPERF_SESSION_CAUSE_BURST],
            (GapTotals{.count = 2, .total_ns = 12}));
}

TEST_F(SessionRegistryTest, NeverChangesRowsItHandedOut) {
  apply(make_opened(1, 71));
  const GpuReport before = report();

  apply(SessionClosed{.session_id = 1});

  EXPECT_TRUE(before.sessions[0]->open);
  EXPECT_FALSE(report().sessions[0]->open);
}

TEST_F(SessionRegistryTest, IgnoresWhatComesAfterTheEnd) {
  apply(make_opened(1, 71));
  apply(SessionClosed{.session_id = 1, .reason = "first", .mono_ns = 1});

  apply(make_status(1, GPUPERF_SESSION_STATE_COLLECTING, 5));
  apply(SessionClosed{.session_id = 1, .reason = "second", .mono_ns = 2});
  apply(make_status(9, GPUPERF_SESSION_STATE_COLLECTING, 5));

  EXPECT_EQ(report().sessions[0]->closed_reason, "first");
  EXPECT_EQ(report().lost_records[GPUPERF_SESSION_LOSS_QUEUE_FULL], 0u);
}

// Writes down what it is given.
struct Diary final : SessionFollower {
  Diary(std::vector<std::string>& its_lines, const SessionEntry& entry) : lines(its_lines) {
    lines.push_back("opened " + std::to_string(entry.row().facts.session_id));
  }
  ~Diary() override { lines.push_back("gone"); }
  void take_batch(const SessionBatch& batch, int64_t now_mono_ns) override {
    lines.push_back("batch " + std::to_string(batch.session_id) + at(now_mono_ns));
  }
  void take_status(const SessionStatus& status, int64_t now_mono_ns) override {
    lines.push_back("status " + std::to_string(status.session_id) + at(now_mono_ns));
  }
  void close(const SessionClosed& closed) override {
    lines.push_back("closed " + std::to_string(closed.session_id));
  }
  void expire(int64_t now_mono_ns) override { lines.push_back("expired" + at(now_mono_ns)); }
  static std::string at(int64_t now_mono_ns) { return " at " + std::to_string(now_mono_ns); }

  std::vector<std::string>& lines;
};

TEST_F(SessionRegistryTest, HandsTheEventsOfOpenSessionsToTheirFollowers) {
  std::vector<std::string> lines;
  sessions_.add([&](SessionEntry& entry) { return std::make_unique<Diary>(lines, entry); });

  apply(SessionBatch{.session_id = 4}, 1);  // not open yet
  apply(make_opened(4, 71), 2);
  apply(make_opened(4, 72), 3);
  apply(SessionBatch{.session_id = 4}, 4);
  apply(make_status(4, GPUPERF_SESSION_STATE_COLLECTING), 5);
  apply(make_status(5, GPUPERF_SESSION_STATE_COLLECTING), 6);
  sessions_.expire(7);
  apply(SessionClosed{.session_id = 4});
  apply(SessionClosed{.session_id = 4});
  apply(SessionBatch{.session_id = 4}, 8);
  apply(make_opened(4, 71), 9);
  sessions_.expire(10);

  EXPECT_EQ(lines, (std::vector<std::string>{"opened 4", "batch 4 at 4", "status 4 at 5",
                                             "expired at 7", "closed 4", "gone"}));
  EXPECT_EQ(report().sessions.at(0)->facts.process.pid, 71u);
}

TEST_F(SessionRegistryTest, CountsTheRecordsOfSessionsThatAreNotOpen) {
  apply(SessionBatch{.session_id = 1, .kernels = {{}, {}}, .apis = {{}}});

  EXPECT_EQ(drops_.get(DropCause::kSessionUnknown), 3u);
}

TEST_F(SessionRegistryTest, CountsStepsOfTheWallClock) {
  apply(ClockStepped{.mono_ns = 1, .step_ns = 100});

  EXPECT_EQ(report().clock_steps, 1u);
}

}  // namespace
}  // namespace gpuperf
