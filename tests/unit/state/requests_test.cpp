#include "daemon/state/requests.h"

#include <memory>
#include <vector>

#include "tests/unit/matchers.h"
#include "tests/unit/state/examples.h"

namespace gpuperf {
namespace {

constexpr uint64_t kMsNs = 1'000'000;
constexpr uint64_t kGapMs = 10;
enum : uint32_t { kTurnCall };
constexpr ProcessKey kFrontEnd{.pid = 900, .start_boot_ns = 9};
constexpr uint32_t kSession = 70;

// What a step is of, without arguments.
FunctionList make_turn_function() {
  auto plan = std::make_shared<ArgumentPlan>();
  plan->step_role = StepRole::kBackward;
  return {{.id = kTurnCall, .arguments = std::move(plan)}};
}

class RequestsTest : public testing::Test {
 protected:
  // A step of the engine, kProcess.
  void take_step(uint64_t start_ms, uint64_t duration_ms) {
    const ReportedCall call{.start_mono_ns = start_ms * kMsNs,
                            .duration_ns = duration_ms * kMsNs,
                            .process = kProcess,
                            .function_id = kTurnCall,
                            .outermost_id = kTurnCall};
    steps_.apply(ReportedCalls{.calls = {call}}, functions_, {});
    steps_.expire(static_cast<int64_t>(1'000'000 * kMsNs));  // no wait for it is to come
  }
  // Of a request read at once.
  void begin(uint64_t connection, uint64_t read_ms, uint64_t at_ms) {
    take({.mono_ns = at_ms * kMsNs,
          .connection = connection,
          .request_start_mono_ns = (read_ms - 1) * kMsNs,
          .request_end_mono_ns = read_ms * kMsNs,
          .bytes = 100,
          .begins = true});
  }
  void write(uint64_t connection, uint64_t at_ms) {
    take({.mono_ns = at_ms * kMsNs, .connection = connection, .bytes = 20, .has_body = true});
  }
  void end(uint64_t connection, uint64_t at_ms) {
    take({.mono_ns = at_ms * kMsNs, .connection = connection, .bytes = 5, .ends = true});
  }
  void take(ResponsePart part) {
    part.process = process_;
    part.session = kSession;
    requests_.apply({part});
  }
  std::shared_ptr<const RequestProcess> find_row() const {
    Snapshot snapshot;
    requests_.fill(snapshot);
    return snapshot.requests.processes.empty() ? nullptr : snapshot.requests.processes[0];
  }

  const FunctionList functions_ = make_turn_function();
  DropCounters drops_;
  Steps steps_{{}, drops_, [](const Step&) {}};
  Requests requests_{std::chrono::seconds(10), steps_, drops_};
  ProcessKey process_ = kProcess;
};

TEST_F(RequestsTest, MeasuresTheFirstPartAndTheLongestGap) {
  begin(1, 100, 101);
  write(1, 130);
  write(1, 140);
  write(1, 170);
  write(1, 180);
  end(1, 181);

  const auto row = find_row();
  EXPECT_EQ(row->requests, 1u);
  EXPECT_TRUE(row->open.empty());
  ASSERT_EQ(row->recent.size(), 1u);
  const Request& request = row->recent[0];
  EXPECT_FALSE(request.is_open);
  EXPECT_EQ(request.start_mono_ns, 99 * kMsNs);
  EXPECT_EQ(request.last_mono_ns, 181 * kMsNs);
  EXPECT_EQ(request.bytes, 100u + 4 * 20 + 5);
  EXPECT_EQ(request.parts, 4u);
  EXPECT_EQ(get_duration_ns(request.first), 30 * kMsNs);
  EXPECT_EQ(get_duration_ns(request.longest_gap), 30 * kMsNs);
  EXPECT_EQ(request.longest_gap.start_mono_ns, 140 * kMsNs);
  EXPECT_EQ(row->totals.gaps.count(), 3u);
  EXPECT_EQ(row->totals.gaps_ns, 50 * kMsNs);
}

TEST_F(RequestsTest, PiecesOfOnePartAreOne) {
  begin(1, 100, 101);
  write(1, 110);
  take({.mono_ns = 110 * kMsNs + Requests::kJoinNs - 1, .connection = 1, .has_body = true});
  take({.mono_ns = 110 * kMsNs + 2 * Requests::kJoinNs, .connection = 1, .has_body = true});

  EXPECT_EQ(find_row()->open[0].parts, 2u);
  EXPECT_EQ(find_row()->totals.gaps.count(), 1u);
}

TEST_F(RequestsTest, FindsTheStepBeforeEachPartAndTheLongestWithinTheWait) {
  begin(1, 100, 101);
  take_step(90, 5);
  take_step(102, 8);
  write(1, 111);
  take_step(111, 60);
  take_step(172, 8);
  take_step(182, 8);  // complete after the part
  write(1, 181);

  const Request request = find_row()->open[0];
  EXPECT_EQ(request.first.last_step, 2u);
  EXPECT_EQ(request.first.steps, 1u);
  EXPECT_EQ(request.longest_gap.last_step, 4u);
  EXPECT_EQ(request.longest_gap.steps, 2u);
  EXPECT_EQ(request.longest_gap.longest_step, 3u);
  EXPECT_EQ(request.longest_gap.longest_ns, 60 * kMsNs);
  EXPECT_EQ(request.longest_gap.longest_phase, StepPhase::kTrain);
}

TEST_F(RequestsTest, AWaitWithoutAStepHasTheOneBefore) {
  take_step(90, 5);
  begin(1, 100, 101);
  write(1, 111);

  const RequestWait first = find_row()->open[0].first;
  EXPECT_EQ(first.last_step, 1u);
  EXPECT_EQ(first.steps, 0u);
  EXPECT_EQ(first.longest_step, 0u);
}

TEST_F(RequestsTest, AServerWithoutStepsHasThoseOfItsSession) {
  process_ = kFrontEnd;
  take_step(102, 8);
  begin(1, 100, 101);
  write(1, 111);
  EXPECT_EQ(find_row()->open[0].first.last_step, 0u);

  requests_.set_sessions({{kProcess, kSession}});
  begin(2, 100, 101);
  write(2, 111);
  EXPECT_EQ(find_row()->open[1].first.last_step, 1u);

  requests_.set_sessions({{kProcess, kSession + 1}});
  begin(3, 100, 101);
  write(3, 111);
  EXPECT_EQ(find_row()->open[2].first.last_step, 0u);
}

TEST_F(RequestsTest, TheNextRequestOfAConnectionEndsTheOneBefore) {
  begin(1, 100, 101);
  write(1, 102);
  begin(1, 200, 201);

  const auto row = find_row();
  ASSERT_EQ(row->recent.size(), 1u);
  EXPECT_EQ(row->recent[0].last_mono_ns, 102 * kMsNs);
  ASSERT_EQ(row->open.size(), 1u);
  EXPECT_EQ(row->open[0].id, 2u);
  EXPECT_EQ(row->open[0].parts, 0u);
}

TEST_F(RequestsTest, TheEndOfAConnectionEndsItsRequest) {
  begin(1, 100, 101);
  take({.mono_ns = 150 * kMsNs, .connection = 1, .is_closed = true});
  write(1, 160);

  const auto row = find_row();
  EXPECT_TRUE(row->open.empty());
  ASSERT_EQ(row->recent.size(), 1u);
  EXPECT_EQ(row->recent[0].last_mono_ns, 101 * kMsNs);
}

TEST_F(RequestsTest, PartsWhoseBeginningWasNotSeenAreNoRequest) {
  write(1, 102);
  EXPECT_EQ(find_row()->requests, 0u);
  EXPECT_TRUE(find_row()->open.empty());
}

TEST_F(RequestsTest, IsSlowFromTenTimesTheMedianOn) {
  for (uint64_t i = 0; i < Requests::kSlowMinWaits + 1; ++i) {
    const uint64_t at_ms = 100 + i * kGapMs;
    if (i == 0) begin(1, at_ms - 1, at_ms);
    write(1, at_ms + 1);
  }
  end(1, 2'000);
  EXPECT_EQ(find_row()->totals.slow, 0u);

  begin(2, 3'000, 3'000);
  write(2, 3'001);
  write(2, 3'001 + kGapMs * 9);
  write(2, 3'001 + kGapMs * 20);
  end(2, 4'000);

  const auto row = find_row();
  EXPECT_EQ(row->totals.slow, 1u);
  ASSERT_EQ(row->slow.size(), 1u);
  EXPECT_NEAR(static_cast<double>(row->slow[0].threshold_ns), 10e6 * kGapMs, 4e6);
}

TEST_F(RequestsTest, KeepsTheNewestAndTheOpenOnes) {
  for (uint64_t i = 0; i < Requests::kRecent + 10; ++i) {
    begin(1, 100 + i, 101 + i);
    end(1, 102 + i);
  }
  EXPECT_EQ(find_row()->recent.size(), Requests::kRecent);
  EXPECT_EQ(find_row()->recent.front().id, 11u);

  for (uint64_t i = 0; i < Requests::kMaxOpen + 3; ++i) begin(i, 900, 901);
  EXPECT_EQ(find_row()->open.size(), Requests::kMaxOpen);
  EXPECT_EQ(drops_.get(DropCause::kRequestsFull), 3u);
}

TEST_F(RequestsTest, CountsProcessesBeyondTheLimit) {
  for (uint32_t i = 0; i < Requests::kMaxProcesses + 2; ++i) {
    process_ = {.pid = i + 1, .start_boot_ns = 1};
    begin(1, 100, 101);
  }
  EXPECT_EQ(drops_.get(DropCause::kRequestsFull), 2u);

  requests_.apply(ProcessExited{{.pid = 1, .start_boot_ns = 1}}, 200 * kMsNs);
  begin(1, 100, 101);  // takes the place of the one that is gone
  EXPECT_EQ(drops_.get(DropCause::kRequestsFull), 2u);
}

TEST_F(RequestsTest, TheEndOfAProcessEndsItsRequestsAndItsRowLeavesLater) {
  begin(1, 100, 101);
  requests_.apply(ProcessExited{kProcess}, 200 * kMsNs);

  EXPECT_TRUE(find_row()->exited);
  EXPECT_TRUE(find_row()->open.empty());
  EXPECT_EQ(find_row()->recent.size(), 1u);
  requests_.expire(10'199 * kMsNs);
  EXPECT_NE(find_row(), nullptr);
  requests_.expire(10'200 * kMsNs);
  EXPECT_EQ(find_row(), nullptr);

  begin(1, 300, 301);  // told late: it is known to be gone
  EXPECT_TRUE(find_row()->exited);
}

TEST_F(RequestsTest, RowsThatWereHandedOutDoNotChange) {
  begin(1, 100, 101);
  const auto before = find_row();
  write(1, 110);
  EXPECT_EQ(before->open[0].parts, 0u);
  EXPECT_EQ(find_row()->open[0].parts, 1u);
}

TEST_F(RequestsTest, TotalsOutliveTheirProcesses) {
  begin(1, 100, 101);
  write(1, 110);
  requests_.apply(ProcessExited{kProcess}, 200 * kMsNs);
  requests_.expire(99'000 * kMsNs);

  Snapshot snapshot;
  requests_.fill(snapshot);
  EXPECT_EQ(snapshot.requests.totals.first.count(), 1u);
  EXPECT_EQ(snapshot.requests.totals.first_ns, 10 * kMsNs);
}

}  // namespace
}  // namespace gpuperf
