#include "daemon/slow/slow_call_hold.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "daemon/slow/other_gpu_work.h"
#include "injector/session_abi.h"
#include "tests/unit/slow/examples.h"

namespace gpuperf {
namespace {

constexpr uint64_t kSettleNs = 2'000 * kMs;
constexpr ProcessKey kByItsSession = {.pid = 71, .start_boot_ns = 5'000'000'000};
constexpr ProcessKey kOther = {.pid = 90, .start_boot_ns = 6'000'000'000};

class SlowCallHoldTest : public ::testing::Test {
 protected:
  SlowCallHoldTest() {
    recorder_.follow(sessions_);
    hold_.follow(sessions_);
  }

  void apply(const SessionEvent& event) { sessions_.apply(event, 0); }
  void open(uint64_t session = 1, const ProcessKey& process = kByItsSession, int64_t at_ms = 10) {
    apply(
        SessionOpened{.session_id = session, .process = process, .mono_ns = at_ms * int64_t{kMs}});
    tell(session);
  }
  void tell(uint64_t session, uint32_t state = GPUPERF_SESSION_STATE_COLLECTING,
            uint32_t level = GPUPERF_SESSION_LEVEL_KERNELS | GPUPERF_SESSION_LEVEL_COPIES,
            uint32_t sample_every = 1) {
    apply(SessionStatus{.session_id = session,
                        .state = state,
                        .cause = GPUPERF_SESSION_CAUSE_CONTROL,
                        .level = level,
                        .sample_every = sample_every});
  }
  static SlowCall make_call(uint64_t start_ms, uint64_t duration_ms,
                            const ProcessKey& process = kProcess) {
    SlowCall call{.category = "cuda", .function = "cudaStreamSynchronize"};
    call.event.process = process;
    call.event.tid = 72;
    call.event.start_mono_ns = start_ms * kMs;
    call.event.duration_ns = duration_ms * kMs;
    return call;
  }
  // Held as it returns.
  bool add(SlowCall call) {
    const uint64_t end_ns = call.event.start_mono_ns + call.event.duration_ns;
    return hold_.add(call, end_ns, kSettleNs);
  }
  void kernel(uint64_t session, uint64_t start_ms, uint64_t duration_ms) {
    SessionBatch batch{.session_id = session};
    batch.places = {{.id = 1, .device_uuid = {7}}};
    batch.kernels = {{.start_mono_ns = start_ms * kMs,
                      .duration_ns = duration_ms * kMs,
                      .correlation_id = 1,
                      .place_id = 1}};
    apply(batch);
  }
  static std::vector<uint64_t> list_starts(const std::vector<SlowCall>& calls) {
    std::vector<uint64_t> starts;
    for (const SlowCall& call : calls) starts.push_back(call.event.start_mono_ns / kMs);
    return starts;
  }
  // Of the call alone.
  std::vector<std::string> read_missing(SlowCall call) {
    EXPECT_TRUE(add(std::move(call)));
    const auto batch = hold_.take_due(60'000 * kMs);
    return batch ? batch->calls.at(0).missing : std::vector<std::string>{"no batch"};
  }

  DropCounters drops_;
  SessionMemory memory_{drops_};
  SessionRegistry sessions_{{}, drops_, memory_};
  TraceRecorder recorder_{{}, drops_};
  SlowCallHold hold_{recorder_, drops_};
};

TEST_F(SlowCallHoldTest, LetsCallsOfOtherProcessesAndThoseInFlightGoOn) {
  SlowCall call = make_call(1'000, 100);
  EXPECT_FALSE(hold_.add(call, 1'100 * kMs, kSettleNs));
  EXPECT_EQ(call.gpu, nullptr);
  open();
  call.event.in_flight = ThreadState{};

  EXPECT_FALSE(hold_.add(call, 1'100 * kMs, kSettleNs));
  EXPECT_EQ(call.gpu, nullptr);
}

TEST_F(SlowCallHoldTest, HoldsACallUntilItsTimeIsKnownAndGivesItBackWithWhatWasFound) {
  open();
  ASSERT_TRUE(add(make_call(1'000, 100)));

  EXPECT_FALSE(hold_.take_due(3'099 * kMs));
  const auto batch = hold_.take_due(3'100 * kMs);
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->process, kProcess);
  EXPECT_EQ(batch->from_mono_ns, 1'000 * kMs);
  EXPECT_EQ(batch->to_mono_ns, 2'100 * kMs);
  ASSERT_EQ(batch->calls.size(), 1);
  EXPECT_EQ(batch->calls[0].tid, 72);
  EXPECT_TRUE(batch->calls[0].waits_for_gpu);
  EXPECT_EQ(batch->calls[0].missing, std::vector<std::string>());
  const auto calls = hold_.finish(batch->id, {GpuDuringCall{.busy_ns = 60, .idle_ns = 40}});

  ASSERT_EQ(calls.size(), 1);
  EXPECT_EQ(*calls[0].gpu, (GpuDuringCall{.busy_ns = 60, .idle_ns = 40}));
  EXPECT_TRUE(hold_.release_all().empty());
  EXPECT_EQ(drops_.get(DropCause::kSlowGpuSide), 0);
}

TEST_F(SlowCallHoldTest, TakesWhatIsDueOfOneProcessAtOnceAndOneBatchAtATime) {
  open();
  open(2, kOther);
  ASSERT_TRUE(add(make_call(1'000, 100)));
  ASSERT_TRUE(add(make_call(1'010, 20, kOther)));
  ASSERT_TRUE(add(make_call(1'200, 300)));
  ASSERT_TRUE(add(make_call(1'600, 100)));

  const auto first = hold_.take_due(3'600 * kMs);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->calls.size(), 2);
  EXPECT_EQ(first->to_mono_ns, 2'500 * kMs);
  EXPECT_FALSE(hold_.take_due(3'700 * kMs));
  EXPECT_EQ(list_starts(hold_.finish(first->id, {GpuDuringCall{}, GpuDuringCall{}})),
            (std::vector<uint64_t>{1'000, 1'200}));

  const auto second = hold_.take_due(3'700 * kMs);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->process, kOther);
  EXPECT_EQ(hold_.release_all().size(), 2);
}

TEST_F(SlowCallHoldTest, HoldsSoManyCallsAndSaysOfTheNextThatTheyGoWithout) {
  open();
  for (size_t i = 0; i < SlowCallHold::kMaxHeld; ++i) ASSERT_TRUE(add(make_call(1'000 + i, 1)));
  SlowCall call = make_call(2'000, 1);

  EXPECT_FALSE(hold_.add(call, 2'001 * kMs, kSettleNs));

  ASSERT_NE(call.gpu, nullptr);
  EXPECT_EQ(call.gpu->missing,
            std::vector<std::string>{"too many calls were slow at the same time"});
  EXPECT_FALSE(is_known(*call.gpu));
  EXPECT_EQ(drops_.get(DropCause::kSlowGpuSide), 1);
}

TEST_F(SlowCallHoldTest, GivesUpWhatWasNotReadInTimeAndForgetsItsBatch) {
  open();
  ASSERT_TRUE(add(make_call(1'000, 100)));
  const auto batch = hold_.take_due(3'100 * kMs);
  ASSERT_TRUE(batch);
  const uint64_t last_ns = 3'100 * kMs + SlowCallHold::kMaxWaitNs;

  EXPECT_EQ(hold_.give_up(last_ns).size(), 0);
  const auto late = hold_.give_up(last_ns + 1);

  ASSERT_EQ(late.size(), 1);
  EXPECT_EQ(late[0].gpu->missing, std::vector<std::string>{"reading its records took too long"});
  EXPECT_EQ(drops_.get(DropCause::kSlowGpuSide), 1);
  EXPECT_EQ(hold_.finish(batch->id, {GpuDuringCall{}}).size(), 0);
  ASSERT_TRUE(add(make_call(9'000, 100)));
  EXPECT_TRUE(hold_.take_due(60'000 * kMs));  // the next one may go out
}

TEST_F(SlowCallHoldTest, GivesABatchBackThatCouldNotBeRead) {
  open();
  ASSERT_TRUE(add(make_call(1'000, 100)));
  const auto batch = hold_.take_due(3'100 * kMs);

  const auto calls = hold_.finish(batch->id, {});

  ASSERT_EQ(calls.size(), 1);
  EXPECT_EQ(calls[0].gpu->missing, std::vector<std::string>{"its records could not be read"});
  EXPECT_EQ(drops_.get(DropCause::kSlowGpuSide), 1);
}

TEST_F(SlowCallHoldTest, ReleasesAllAtTheEnd) {
  open();
  ASSERT_TRUE(add(make_call(1'000, 100)));
  ASSERT_TRUE(hold_.take_due(3'100 * kMs));
  ASSERT_TRUE(add(make_call(2'000, 100)));

  const auto calls = hold_.release_all();

  EXPECT_EQ(list_starts(calls), (std::vector<uint64_t>{1'000, 2'000}));
  EXPECT_FALSE(calls[0].gpu->missing.empty());
  EXPECT_TRUE(hold_.release_all().empty());
}

TEST_F(SlowCallHoldTest, KeepsWhatTheRecorderWouldForgetMeanwhile) {
  TraceRecorder small({.max_bytes = 1}, drops_);  // one chunk
  SlowCallHold hold(small, drops_);
  hold.follow(sessions_);
  open();
  const auto launch = [&small](uint64_t mono_ns) {
    TraceBatch batch;
    batch.launches = {{.mono_ns = mono_ns, .process = kProcess, .tid = 72}};
    small.apply(batch);
  };
  launch(1'050 * kMs);
  SlowCall call = make_call(1'000, 100);
  ASSERT_TRUE(hold.add(call, 1'100 * kMs, kSettleNs));
  for (size_t i = 0; i < 3 * TraceRecorder::kChunkEvents; ++i) launch(1'200 * kMs);

  const auto batch = hold.take_due(60'000 * kMs);

  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->window.parts.front().events->front().start_mono_ns, 1'050 * kMs);
  SlowCall next = make_call(1'150, 60);
  ASSERT_TRUE(hold.add(next, 1'210 * kMs, kSettleNs));
  (void)hold.finish(batch->id, {});
  const auto later = hold.take_due(60'000 * kMs);
  EXPECT_NE(std::ranges::find(later->calls.at(0).missing,
                              "the flight recorder does not reach back to its start"),
            later->calls[0].missing.end());
}

TEST_F(SlowCallHoldTest, SaysWhatTheSessionDidNotTell) {
  using Texts = std::vector<std::string>;
  apply(SessionOpened{.session_id = 1, .process = kByItsSession, .mono_ns = 1'050 * kMs});
  EXPECT_EQ(read_missing(make_call(1'000, 100)),
            (Texts{"its session began after the call",
                   "its session has not reported yet what it collects"}));
}

TEST_F(SlowCallHoldTest, SaysThatASessionWasPaused) {
  open();
  tell(1, GPUPERF_SESSION_STATE_PAUSED);

  EXPECT_EQ(read_missing(make_call(1'000, 100)),
            std::vector<std::string>{"its session is paused (control)"});
}

TEST_F(SlowCallHoldTest, SaysWhichKindsAreNotCollectedAndThatItSamples) {
  open();
  tell(1, GPUPERF_SESSION_STATE_COLLECTING, GPUPERF_SESSION_LEVEL_KERNELS, 8);

  EXPECT_EQ(read_missing(make_call(1'000, 100)),
            (std::vector<std::string>{"copies and memsets are not collected (control)",
                                      "one launch of 8 is recorded"}));
}

TEST_F(SlowCallHoldTest, KnowsASessionForAWhileAfterItsEnd) {
  open();
  apply(SessionClosed{.session_id = 1, .mono_ns = 1'050 * kMs});

  EXPECT_EQ(read_missing(make_call(1'000, 20)), std::vector<std::string>());
}

TEST_F(SlowCallHoldTest, SaysThatTheSessionEndedBefore) {
  open();
  apply(SessionClosed{.session_id = 1, .mono_ns = 1'050 * kMs});

  EXPECT_EQ(read_missing(make_call(1'000, 100)),
            std::vector<std::string>{"its session ended before the call"});
}

TEST_F(SlowCallHoldTest, SaysSoWhereTheRecorderIsOff) {
  TraceRecorder off({.max_bytes = 0}, drops_);
  SlowCallHold hold(off, drops_);
  hold.follow(sessions_);
  open();
  SlowCall call = make_call(1'000, 100);

  EXPECT_FALSE(hold.add(call, 1'100 * kMs, kSettleNs));

  EXPECT_EQ(call.gpu->missing,
            std::vector<std::string>{"the flight recorder is off (trace.recorder)"});
}

TEST_F(SlowCallHoldTest, GivesTheWorkOfOtherProcessesMerged) {
  open();
  open(2, kOther);
  kernel(1, 1'000, 500);
  kernel(2, 1'100, 100);
  kernel(2, 1'150, 100);
  kernel(2, 1'400, 900);
  kernel(2, 100, 200);    // before
  kernel(2, 3'000, 200);  // behind
  ASSERT_TRUE(add(make_call(1'000, 1'000)));
  const auto batch = hold_.take_due(60'000 * kMs);

  const auto others = list_other_gpu_work(batch->window, batch->process, 1'000 * kMs, 2'000 * kMs,
                                          [](const ProcessKey&) { return Owner{.comm = "b"}; });

  EXPECT_EQ(others,
            (std::vector<OtherGpuWork>{
                {.pid = 90,
                 .comm = "b",
                 .device_uuid = {7},
                 .stretches_mono_ns = {{1'100 * kMs, 1'250 * kMs}, {1'400 * kMs, 2'300 * kMs}}}}));
}

}  // namespace
}  // namespace gpuperf
