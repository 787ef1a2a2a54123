#include "daemon/rpc/request_list.h"

#include <memory>
#include <string>
#include <vector>

#include "tests/unit/base/fake_clock.h"
#include "tests/unit/export/snapshot_builder.h"
#include "tests/unit/matchers.h"
#include "tests/unit/proto_text.h"

namespace gpuperf {
namespace {

constexpr uint64_t kMs = 1'000'000;

Request make_request(uint64_t id, uint64_t start_ms, uint64_t gap_ms) {
  return {.id = id,
          .process = {.pid = 1, .start_boot_ns = 1},
          .tid = 10,
          .start_mono_ns = start_ms * kMs,
          .read_mono_ns = (start_ms + 1) * kMs,
          .last_mono_ns = (start_ms + 500) * kMs,
          .is_open = false,
          .parts = 20,
          .first = {.start_mono_ns = (start_ms + 1) * kMs,
                    .end_mono_ns = (start_ms + 31) * kMs,
                    .last_step = 4},
          .longest_gap = {.start_mono_ns = (start_ms + 100) * kMs,
                          .end_mono_ns = (start_ms + 100 + gap_ms) * kMs,
                          .last_step = 6,
                          .steps = 2,
                          .longest_step = 5,
                          .longest_ns = 60 * kMs,
                          .longest_tokens = 512,
                          .longest_phase = StepPhase::kPrefill}};
}

class RequestListTest : public ::testing::Test {
 protected:
  RequestListTest() {
    builder_.snapshot().taken_mono_ns = static_cast<int64_t>(20'000 * kMs);
    server_ = {.process = {.pid = 1, .start_boot_ns = 1},
               .owner = {.comm = "server", .container = "0123456789ab", .pod = "p"},
               .requests = 4};
  }
  std::shared_ptr<const Snapshot> build() {
    builder_.snapshot().requests.processes = {std::make_shared<const RequestProcess>(server_)};
    return builder_.build();
  }
  std::vector<uint64_t> list_ids(const std::string& filter, bool slow_only) {
    std::vector<uint64_t> ids;
    for (const v1::Request& request :
         list_requests(*build(), clock_, parse_text<v1::Filter>(filter), slow_only)) {
      ids.push_back(request.id());
    }
    return ids;
  }

  testing::SnapshotBuilder builder_;
  FakeClock clock_;
  RequestProcess server_;
};

TEST_F(RequestListTest, ListsNewestFirstAndSlowOnesByTheirLongestWait) {
  server_.slow = {make_request(1, 100, 300), make_request(3, 300, 200)};
  server_.recent = {make_request(2, 200, 10), make_request(3, 300, 200)};
  server_.open = {make_request(4, 400, 10)};

  EXPECT_THAT(list_ids("", false), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(list_ids("", true), ElementsAre(1, 3));
  EXPECT_THAT(list_ids("min_duration_ns: 250000000", false), ElementsAre(1));
  EXPECT_THAT(list_ids("pid: 2", false), IsEmpty());
  EXPECT_THAT(list_ids("container: '0123456789ab'", true), ElementsAre(1, 3));
  EXPECT_THAT(list_ids("container: 'other'", true), IsEmpty());
}

TEST_F(RequestListTest, TellsWaitsWithTheirSteps) {
  server_.recent = {make_request(2, 200, 100)};
  server_.recent[0].threshold_ns = 90 * kMs;

  const auto rows = list_requests(*build(), clock_, {}, false);

  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].comm(), "server");
  EXPECT_EQ(rows[0].pod(), "p");
  EXPECT_EQ(rows[0].read_ns(), kMs);
  EXPECT_EQ(rows[0].duration_ns(), 500 * kMs);
  EXPECT_EQ(rows[0].first().duration_ns(), 30 * kMs);
  EXPECT_EQ(rows[0].first().last_step_id(), 4u);
  EXPECT_EQ(rows[0].longest_gap().duration_ns(), 100 * kMs);
  EXPECT_EQ(rows[0].longest_gap().longest_step_id(), 5u);
  EXPECT_EQ(rows[0].longest_gap().longest_step_phase(), v1::STEP_PHASE_PREFILL);
  EXPECT_EQ(rows[0].longest_wait_ns(), 100 * kMs);
  EXPECT_TRUE(rows[0].slow());
  EXPECT_EQ(count_held_up(*build(), 5), 1u);
  EXPECT_EQ(count_held_up(*build(), 4), 0u);
}

TEST_F(RequestListTest, RatesAreOfTheLastTenSeconds) {
  server_.recent = {make_request(1, 5'000, 10)};
  for (uint64_t i = 0; i < 19; ++i) {
    server_.recent.push_back(make_request(2 + i, 11'000 + 100 * i, 10));
  }
  server_.open = {make_request(90, 19'000, 10)};

  const auto rows = list_request_processes(*build(), {});

  ASSERT_EQ(rows.size(), 1u);
  EXPECT_DOUBLE_EQ(rows[0].requests_per_second(), 2);
  EXPECT_EQ(rows[0].requests(), 4u);
  EXPECT_EQ(rows[0].open(), 1u);
}

TEST_F(RequestListTest, LeavesOutProcessesWhoseRequestsWereNotSeenFromTheirBeginning) {
  server_.requests = 0;
  EXPECT_THAT(list_request_processes(*build(), {}), IsEmpty());
}

}  // namespace
}  // namespace gpuperf
