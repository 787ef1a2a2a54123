#include "daemon/slow/pipeline.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/state/session_registry.h"
#include "injector/session_abi.h"
#include "tests/unit/base/fake_clock.h"
#include "tests/unit/model/make_stack.h"
#include "tests/unit/slow/examples.h"

namespace gpuperf {
namespace {

// A pipeline whose symbolizer and store are answered by the test.
class SlowCallPipelineTest : public ::testing::Test {
 protected:
  SlowCallPipelineTest() {
    board_.publish(std::make_shared<Snapshot>());
    registry_.add_all({{.category = "cuda", .name = "cudaStreamSynchronize"}});
    make_pipeline(true);
  }
  void make_pipeline(bool with_store) {
    SlowCallPipeline::Parts parts{
        .sources = sources_,
        .functions = registry_,
        .kernel_names = kernel_names_,
        .post_resolve =
            [this](const ProcessKey&, std::vector<StackRequest>,
                   Symbolizer::OnResolved on_resolved) {
              if (has_room_) resolves_.push_back(std::move(on_resolved));
              return has_room_;
            },
        .on_named = [this](const SlowCall& call) { named_.push_back(call.function); },
        .on_call = [this](const SlowCallPipeline::CallPtr& call) { reported_.push_back(call); },
        .on_change = [] {}};
    if (with_store) {
      parts.post_write = [this](SlowCallPipeline::CallPtr call,
                                std::function<void(bool)> on_written) {
        if (has_room_) written_.emplace_back(std::move(call), std::move(on_written));
        return has_room_;
      };
    }
    sessions_.reset();
    pipeline_ = std::make_unique<SlowCallPipeline>(SlowCalls::Limits{}, std::move(parts));
    sessions_.emplace(SessionRegistry::Limits{}, drops_, memory_);
    recorder_.follow(*sessions_);
    pipeline_->follow(*sessions_);
  }
  // Of 100 ms until now, in the driver.
  SlowCallEvent make_event() {
    return {.process = kProcess,
            .tid = 72,
            .start_mono_ns = static_cast<uint64_t>(clock_.mono_ns()) - 100 * kMs,
            .duration_ns = 100 * kMs,
            .split = TimeSplit{}};
  }
  void find_in_flight(const SlowCallEvent& event) {
    SlowInFlightCalls found{.calls = {event}};
    pipeline_->take(found);
  }
  void answer_writes(bool is_stored) {
    for (const auto& [call, on_written] : std::exchange(written_, {})) on_written(is_stored);
    loop_->run_posted();
  }
  void open_session() {
    sessions_->apply(SessionOpened{.session_id = 1, .process = kProcess, .mono_ns = 10}, 10);
    sessions_->apply(
        SessionStatus{.session_id = 1,
                      .state = GPUPERF_SESSION_STATE_COLLECTING,
                      .level = GPUPERF_SESSION_LEVEL_KERNELS | GPUPERF_SESSION_LEVEL_COPIES,
                      .sample_every = 1},
        10);
  }
  void run_kernel(uint64_t start_mono_ns, uint64_t duration_ns) {
    SessionBatch batch{.session_id = 1};
    batch.names = {{.id = 1, .text = "flash"}};
    batch.places = {{.id = 1, .device_uuid = {7}}};
    batch.kernels = {{.start_mono_ns = start_mono_ns,
                      .duration_ns = duration_ns,
                      .correlation_id = 1,
                      .name_id = 1,
                      .place_id = 1}};
    sessions_->apply(batch, clock_.mono_ns());
  }
  void advance(std::chrono::milliseconds by) {
    clock_.advance(by);
    pipeline_->advance();
    std::promise<void> built;
    ASSERT_TRUE(builds_.post([&built] { built.set_value(); }));
    built.get_future().wait();
    loop_->run_posted();
  }
  SlowCallPipeline::CallPtr find_shown() const {
    Snapshot snapshot;
    pipeline_->fill(snapshot);
    return snapshot.slow_calls.empty() ? nullptr : snapshot.slow_calls.back();
  }

  const std::unique_ptr<TaskLoop> loop_ = *TaskLoop::make();
  FakeClock clock_;
  DropCounters drops_;
  Settings settings_;
  SnapshotBoard board_;
  FunctionRegistry registry_{8};
  KernelNames kernel_names_{drops_};
  TraceRecorder recorder_{{}, drops_};
  bool has_room_ = true;
  std::vector<Symbolizer::OnResolved> resolves_;
  std::vector<std::pair<SlowCallPipeline::CallPtr, std::function<void(bool)>>> written_;
  std::vector<std::string> named_;
  std::vector<SlowCallPipeline::CallPtr> reported_;
  std::unique_ptr<SlowCallPipeline> pipeline_;
  SessionMemory memory_{drops_};
  std::optional<SessionRegistry> sessions_;
  BuildThread builds_{
      {.board = board_, .functions = registry_, .proc = {}, .on_missing_stacks = [](const auto&) {
       }}};
  const TraceSources sources_{.loop = *loop_,
                              .clock = clock_,
                              .drops = drops_,
                              .settings = settings_,
                              .recorder = recorder_,
                              .builds = builds_};
};

TEST_F(SlowCallPipelineTest, NamesExplainsAndStoresACallBeforeItIsReported) {
  pipeline_->take(make_event());

  EXPECT_EQ(named_, std::vector<std::string>{"cudaStreamSynchronize"});
  ASSERT_EQ(written_.size(), 1u);
  const SlowCallPipeline::CallPtr call = written_[0].first;
  EXPECT_EQ(call->id, 1u);
  EXPECT_EQ(call->function, "cudaStreamSynchronize");
  EXPECT_TRUE(call->explanation.starts_with("Waited 100 ms for the GPU")) << call->explanation;
  EXPECT_TRUE(reported_.empty());
  answer_writes(true);
  EXPECT_EQ(reported_, std::vector{call});
  EXPECT_TRUE(call->is_stored);
}

TEST_F(SlowCallPipelineTest, ReportsACallThatCouldNotBeWritten) {
  pipeline_->take(make_event());

  answer_writes(false);

  ASSERT_EQ(reported_.size(), 1u);
  EXPECT_FALSE(reported_[0]->is_stored);
  EXPECT_EQ(find_shown(), reported_[0]);
  EXPECT_EQ(drops_.get(DropCause::kSlowStoreFailed), 1u);
}

TEST_F(SlowCallPipelineTest, ReportsACallWhenTheStoreIsFull) {
  has_room_ = false;

  pipeline_->take(make_event());

  ASSERT_EQ(reported_.size(), 1u);
  EXPECT_FALSE(reported_[0]->is_stored);
  EXPECT_EQ(drops_.get(DropCause::kSlowStoreQueueFull), 1u);
}

TEST_F(SlowCallPipelineTest, ReportsACallAtOnceWithoutAStore) {
  make_pipeline(false);

  pipeline_->take(make_event());

  ASSERT_EQ(reported_.size(), 1u);
  EXPECT_FALSE(reported_[0]->is_stored);
  EXPECT_EQ(drops_.get(DropCause::kSlowStoreQueueFull), 0u);
}

TEST_F(SlowCallPipelineTest, WaitsForTheNamesOfStacks) {
  SlowCallEvent event = make_event();
  event.stack_id = 5;
  pipeline_->take(event);
  EXPECT_TRUE(named_.empty());
  ASSERT_EQ(resolves_.size(), 1u);
  const StackPtr stack = testing::make_stack({{.symbol = "train"}});

  resolves_[0]({stack, nullptr});
  loop_->run_posted();

  ASSERT_EQ(written_.size(), 1u);
  EXPECT_EQ(written_[0].first->user_stack, stack);
}

TEST_F(SlowCallPipelineTest, GoesWithoutStacksWhenTooManyWaitForTheirNames) {
  has_room_ = false;
  SlowCallEvent event = make_event();
  event.stack_id = 5;

  pipeline_->take(event);

  ASSERT_EQ(reported_.size(), 1u);
  EXPECT_EQ(reported_[0]->user_stack, nullptr);
  EXPECT_EQ(drops_.get(DropCause::kSymbolsQueueFull), 1u);
}

TEST_F(SlowCallPipelineTest, ReportsACallInFlightOnceAndExplainsItAtEveryLook) {
  SlowCallEvent event = make_event();
  event.in_flight = ThreadState::kBlocked;
  find_in_flight(event);
  answer_writes(true);
  event.duration_ns += 50 * kMs;
  event.split = TimeSplit{.runnable_ns = 120 * kMs};

  find_in_flight(event);

  EXPECT_EQ(reported_.size(), 1u);
  EXPECT_TRUE(written_.empty());
  const std::string& explanation = find_shown()->explanation;
  EXPECT_TRUE(explanation.starts_with("Still in flight. The thread was ready to run for 120 ms"))
      << explanation;
}

TEST_F(SlowCallPipelineTest, StoresACallInFlightAnewWhenItReturnsOrHasGone) {
  SlowCallEvent returning = make_event();
  returning.in_flight = ThreadState::kBlocked;
  SlowCallEvent going = returning;
  going.tid = 73;
  find_in_flight(returning);
  find_in_flight(going);
  answer_writes(true);
  returning.in_flight.reset();

  pipeline_->take(returning);
  clock_.advance(std::chrono::nanoseconds(SlowCalls::kGoneAfterNs));
  SlowInFlightCalls none;
  pipeline_->take(none);
  answer_writes(true);

  ASSERT_EQ(reported_.size(), 4u);
  EXPECT_EQ(reported_[2]->id, 1u);
  EXPECT_FALSE(reported_[2]->event.in_flight);
  EXPECT_FALSE(reported_[2]->explanation.starts_with("Still in flight"));
  EXPECT_EQ(reported_[3]->id, 2u);
  EXPECT_TRUE(reported_[3]->is_gone);
}

TEST_F(SlowCallPipelineTest, ExplainsACallOfAnInjectedProcessByWhatItsGpuDid) {
  open_session();
  const SlowCallEvent event = make_event();
  run_kernel(event.start_mono_ns + 5 * kMs, 90 * kMs);
  pipeline_->take(event);
  advance(std::chrono::milliseconds(500));
  EXPECT_TRUE(written_.empty());

  advance(std::chrono::seconds(3));

  ASSERT_EQ(written_.size(), 1u);
  const SlowCall& call = *written_[0].first;
  ASSERT_NE(call.gpu, nullptr);
  EXPECT_EQ(call.gpu->busy_ns, 90 * kMs);
  EXPECT_NE(call.explanation.find("kernel flash"), std::string::npos) << call.explanation;
  EXPECT_EQ(drops_.get(DropCause::kSlowGpuSide), 0u);
}

TEST_F(SlowCallPipelineTest, ReportsACallWithoutTheGpuSideThatCannotBeRead) {
  open_session();
  pipeline_->take(make_event());
  builds_.stop();
  clock_.advance(std::chrono::seconds(3));

  pipeline_->advance();
  loop_->run_posted();

  ASSERT_EQ(written_.size(), 1u);
  EXPECT_EQ(written_[0].first->gpu->missing,
            std::vector<std::string>{"its records could not be read"});
  EXPECT_TRUE(written_[0].first->explanation.starts_with("Waited 100 ms for the GPU"));
  EXPECT_EQ(drops_.get(DropCause::kSlowGpuSide), 1u);
}

TEST_F(SlowCallPipelineTest, HoldsNoCallAfterItStopped) {
  open_session();
  pipeline_->take(make_event());

  pipeline_->stop_holding();
  pipeline_->take(make_event());

  ASSERT_EQ(written_.size(), 2u);
  EXPECT_EQ(written_[0].first->gpu->missing,
            std::vector<std::string>{"gpuperfd stopped before its records arrived"});
  EXPECT_EQ(written_[1].first->gpu, nullptr);
}

}  // namespace
}  // namespace gpuperf
