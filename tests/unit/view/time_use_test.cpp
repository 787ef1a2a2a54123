#include "daemon/view/time_use.h"

#include <fmt/format.h>

#include <numeric>

#include "daemon/view/formats.h"
#include "daemon/view/time_words.h"
#include "tests/unit/matchers.h"
#include "tests/unit/store/random_capture.h"
#include "tests/unit/view/capture_builder.h"

namespace gpuperf {
namespace {

using testing::CaptureBuilder;
using testing::CaptureSizes;
using testing::RandomCapture;

constexpr uint64_t kMs = 1'000'000;

// One process with one launching thread on one GPU. Times are milliseconds from the window's begin;
// the window is 100 ms. The GPU computes from 0 to 10 and from 90 to 100; the launch of the latter
// is at 80, for 1 ms: 70 ms of the gap are the host's, the call takes 1 and the way to the GPU 9.
class PlantedGap : public CaptureBuilder {
 public:
  PlantedGap() {
    made.duration_ns = 100 * kMs;
    made.processes[0].is_injected = true;
    launch_function = add_function("cuLaunchKernel");
    kernel = add_kernel("step");
    const uint32_t first = add_launch({.start_mono_ns = at(0) - kMs,
                                       .duration_ns = kMs / 2,
                                       .thread = 0,
                                       .function = launch_function});
    add_launch(
        {.start_mono_ns = at(80), .duration_ns = kMs, .thread = 0, .function = launch_function});
    add_work(0, 10, first);
    add_work(90, 10, 1);
  }

  uint64_t at(uint64_t ms) const { return made.start_mono_ns + ms * kMs; }
  void add_work(uint64_t from_ms, uint64_t for_ms, uint32_t launch) {
    made.work.push_back({.start_mono_ns = at(from_ms),
                         .duration_ns = for_ms * kMs,
                         .kernel = kernel,
                         .stream = 0,
                         .launch = launch});
  }
  void add_call(uint64_t from_ms, uint64_t for_ms, uint32_t function, uint32_t stack = kNoIndex,
                uint32_t depth = 0) {
    made.calls.push_back({.start_mono_ns = at(from_ms),
                          .duration_ns = for_ms * kMs,
                          .thread = 0,
                          .function = function,
                          .stack = stack,
                          .depth = depth});
  }
  void add_state(uint64_t from_ms, uint64_t for_ms, HostState state, uint32_t stack = kNoIndex,
                 uint32_t waker = 0) {
    made.thread_times.push_back({.start_mono_ns = at(from_ms),
                                 .duration_ns = for_ms * kMs,
                                 .thread = 0,
                                 .state = state,
                                 .stack = stack,
                                 .waker_pid = waker == 0 ? 0u : 42u,
                                 .waker_tid = waker});
  }
  ProcessTimeUse explain(std::optional<uint64_t> step_mono_ns = std::nullopt) const {
    const std::vector<ProcessTimeUse> uses = explain_time(made, step_mono_ns);
    EXPECT_EQ(uses.size(), 1u);
    EXPECT_EQ(std::accumulate(uses[0].parts_ns.begin(), uses[0].parts_ns.end(), uint64_t{0}),
              made.duration_ns);
    return uses.at(0);
  }

  uint32_t launch_function = 0;
  uint32_t kernel = 0;
};

uint64_t get_part(const ProcessTimeUse& use, TimeCause cause) {
  return use.parts_ns[static_cast<size_t>(cause)] / kMs;
}

TEST(TimeUseTest, ACallBetweenLaunchesIsTheFirstLineWithItsTimeAndStack) {
  PlantedGap gap;
  const uint32_t finalize = gap.add_function("cudnnBackendFinalize", "cudnn");
  const uint32_t stack =
      gap.add_stack({CaptureBuilder::native("main"), CaptureBuilder::python("plan")});
  gap.add_call(20, 50, finalize, stack);

  const ProcessTimeUse use = gap.explain();

  EXPECT_EQ(use.findings[0].reason, TimeReason::kCall);
  EXPECT_EQ(use.findings[0].subject, "cudnnBackendFinalize");
  EXPECT_EQ(use.findings[0].time_ns, 50 * kMs);
  EXPECT_EQ(use.findings[0].stretches, 1u);
  EXPECT_EQ(use.findings[0].estimated_ns, 0u);
  EXPECT_THAT(use.findings[0].stack,
              ElementsAre("main", "plan (model.py)", "cudnnBackendFinalize"));
  EXPECT_EQ(describe_finding(use.findings[0]), "in cudnnBackendFinalize, on the CPU");
  EXPECT_EQ(use.verdict, TimeVerdict::kLaunchBound);
  EXPECT_EQ(get_part(use, TimeCause::kGpuComputing), 20u);
  EXPECT_EQ(get_part(use, TimeCause::kHostComputing), 70u);
  EXPECT_EQ(get_part(use, TimeCause::kLaunching), 10u);
}

TEST(TimeUseTest, AnInterruptedCallIsOneStretch) {
  PlantedGap gap;
  gap.add_call(20, 50, gap.add_function("cudnnBackendFinalize", "cudnn"));
  gap.add_state(30, 5, HostState::kRunnable);
  gap.add_state(50, 5, HostState::kRunnable);

  const ProcessTimeUse use = gap.explain();

  EXPECT_EQ(use.findings[0].time_ns, 40 * kMs);
  EXPECT_EQ(use.findings[0].stretches, 1u);
  EXPECT_EQ(use.findings[0].longest_ns, 40 * kMs);
  EXPECT_EQ(get_part(use, TimeCause::kNoCpu), 10u);
}

TEST(TimeUseTest, ALibraryCallIsKnownByWhatTheProgramCalled) {
  PlantedGap gap;
  const uint32_t forward = gap.add_function("convolution", "libtorch");
  const uint32_t finalize = gap.add_function("cudnnBackendFinalize", "cudnn");
  const uint32_t load = gap.add_function("cuModuleLoadData");
  gap.add_call(15, 60, forward);
  gap.add_call(20, 50, finalize, kNoIndex, 1);
  gap.add_call(25, 40, load, kNoIndex, 2);

  const ProcessTimeUse use = gap.explain();

  EXPECT_EQ(use.findings[0].subject, "cudnnBackendFinalize");
  EXPECT_EQ(use.findings[0].time_ns, 50 * kMs);
}

TEST(TimeUseTest, TimeOutsideOfCallsIsTheFunctionThatStacksBeforeAndAfterShare) {
  PlantedGap gap;
  const auto main = CaptureBuilder::native("main");
  const auto step = CaptureBuilder::python("step", "/app/train.py");
  const uint32_t before = gap.add_stack({main, step, CaptureBuilder::python("forward")});
  const uint32_t after = gap.add_stack({main, step, CaptureBuilder::python("backward")});
  gap.made.launches[0].stack = before;
  gap.made.launches[1].stack = after;

  const ProcessTimeUse use = gap.explain();

  // Nobody followed the thread.
  EXPECT_EQ(describe_finding(use.findings[0]), "in step (train.py), computing or blocked");
  EXPECT_EQ(use.findings[0].time_ns, 70 * kMs);
  EXPECT_EQ(use.findings[0].estimated_ns, 70 * kMs);
}

TEST(TimeUseTest, SamplesSayWhereAThreadWasOnTheCpu) {
  PlantedGap gap;
  const uint32_t encode = gap.add_stack({CaptureBuilder::python("encode", "/app/tokenizer.py")});
  const uint32_t other = gap.add_stack({CaptureBuilder::python("other")});
  for (uint64_t ms = 12; ms < 60; ms += 4) gap.add_state(ms, 0, HostState::kOnCpuUser, encode);
  for (uint64_t ms = 60; ms < 80; ms += 4) gap.add_state(ms, 0, HostState::kOnCpuFault, other);

  const ProcessTimeUse use = gap.explain();

  EXPECT_EQ(use.findings[0].subject, "encode (tokenizer.py)");
  EXPECT_EQ(use.findings[0].time_ns, 48 * kMs);  // until the middle of 56 and 60
  EXPECT_EQ(use.findings[1].reason, TimeReason::kPageFaults);
  EXPECT_EQ(use.findings[1].time_ns, 22 * kMs);
}

class StepUseTest : public ::testing::Test {
 protected:
  void add_step(uint64_t from_ms, uint64_t to_ms, StepPhase phase = StepPhase::kDecode,
                uint64_t tokens = 0) {
    gap_.made.steps.push_back({.start_mono_ns = gap_.at(0) + from_ms * kMs,
                               .duration_ns = (to_ms - from_ms) * kMs,
                               .thread = 0,
                               .function = decode_,
                               .phase = phase,
                               .tokens = {tokens, StepQuality::kExact}});
  }
  static uint64_t get_part(const StepUse& use, TimeCause cause) {
    return use.parts_ns[static_cast<size_t>(cause)] / kMs;
  }

  PlantedGap gap_;
  uint32_t decode_ = gap_.add_function("llama_decode", "llama");
};

TEST_F(StepUseTest, TheTimeOfStepsAddsUpAndTheLongestIsComparedWithTheOthers) {
  gap_.add_call(20, 50, gap_.add_function("cudnnBackendFinalize", "cudnn"));
  add_step(0, 30, StepPhase::kDecode, 8);
  add_step(30, 75, StepPhase::kDecode, 64);
  add_step(75, 100, StepPhase::kDecode, 10);

  const ProcessTimeUse whole = gap_.explain();

  ASSERT_EQ(whole.steps.size(), 1u);
  const StepUse& use = whole.steps[0];
  EXPECT_EQ(use.function, decode_);
  EXPECT_EQ(use.steps, 3u);
  EXPECT_EQ(use.total_ns, 100 * kMs);
  EXPECT_EQ(use.median_ns, 30 * kMs);
  EXPECT_EQ(use.parts_ns, whole.parts_ns) << "they are all of the window";
  EXPECT_EQ(use.longest_ns, 45 * kMs);
  EXPECT_EQ(use.longest_start_mono_ns, gap_.at(30));
  EXPECT_FALSE(use.is_asked);
  EXPECT_EQ(std::reduce(use.longest_parts_ns.begin(), use.longest_parts_ns.end()), 45 * kMs);
  ASSERT_EQ(use.differences.size(), 1u) << "of 5 ms of code there were 10 and 5 in the others";
  EXPECT_EQ(use.differences[0].finding.subject, "cudnnBackendFinalize");
  EXPECT_EQ(use.differences[0].finding.time_ns, 40 * kMs);
  EXPECT_EQ(use.differences[0].usual_ns, 5 * kMs);
  EXPECT_EQ(summarise_steps(gap_.made, use),
            "3 decode steps (llama_decode): half of them took at most 30.000 ms.");
  EXPECT_EQ(describe_longest(gap_.made, use),
            "The longest took 45.000 ms, 30.000 ms after the capture began, with 64 tokens (the "
            "others: 9 on average).");
}

TEST_F(StepUseTest, StepsMayOverlapAndThoseBeyondTheWindowDoNotCount) {
  gap_.made.steps.push_back({.start_mono_ns = gap_.at(0) - 1,
                             .duration_ns = 50 * kMs,
                             .thread = 0,
                             .function = decode_,
                             .phase = StepPhase::kDecode});
  add_step(5, 15);
  add_step(8, 12);
  add_step(99, 101);

  const StepUse use = gap_.explain().steps.at(0);

  EXPECT_EQ(use.steps, 2u);
  EXPECT_EQ(use.total_ns, 14 * kMs);
  EXPECT_EQ(get_part(use, TimeCause::kGpuComputing), 7u);
  EXPECT_EQ(get_part(use, TimeCause::kHostComputing), 7u);
}

TEST_F(StepUseTest, TrainingIsToldByTurnsFromOneBackwardPassToTheNext) {
  add_step(10, 15, StepPhase::kTrain);
  add_step(16, 18, StepPhase::kOptimizer);
  add_step(40, 45, StepPhase::kTrain);
  add_step(80, 85, StepPhase::kTrain);

  const ProcessTimeUse whole = gap_.explain();

  ASSERT_EQ(whole.steps.size(), 1u) << "the optimizer's steps are parts of the turns";
  EXPECT_EQ(whole.steps[0].steps, 2u);
  EXPECT_EQ(whole.steps[0].total_ns, 70 * kMs);
  EXPECT_EQ(summarise_steps(gap_.made, whole.steps[0]),
            "2 turns of a training loop (from llama_decode to llama_decode): half of them took at "
            "most 30.000 ms.");
}

TEST_F(StepUseTest, TheStepAskedForStandsInPlaceOfTheLongest) {
  gap_.add_call(20, 50, gap_.add_function("cudnnBackendFinalize", "cudnn"));
  add_step(0, 30, StepPhase::kDecode, 8);
  add_step(30, 75, StepPhase::kDecode, 64);
  add_step(75, 100, StepPhase::kDecode, 10);

  const StepUse use = gap_.explain(gap_.at(0) + kStepSlackNs).steps.at(0);

  EXPECT_TRUE(use.is_asked);
  EXPECT_EQ(use.longest_ns, 30 * kMs);
  EXPECT_EQ(std::reduce(use.longest_parts_ns.begin(), use.longest_parts_ns.end()), 30 * kMs);
  EXPECT_EQ(use.parts_ns, gap_.explain().parts_ns) << "of all steps, as ever";
  ASSERT_FALSE(use.differences.empty());
  EXPECT_EQ(
      describe_longest(gap_.made, use),
      "The one asked for took 30.000 ms, 0.000 µs after the capture began, with 8 tokens (the "
      "others: 37 on average).");
  EXPECT_FALSE(gap_.explain(gap_.at(0) + kStepSlackNs + 1).steps.at(0).is_asked);
  EXPECT_FALSE(gap_.explain(gap_.at(40)).steps.at(0).is_asked) << "none begins within a step";
}

TEST_F(StepUseTest, TheOnlyStepOfItsKindSaysWhatItSpentItsTimeOn) {
  add_step(10, 30, StepPhase::kPrefill);
  add_step(40, 45, StepPhase::kDecode);

  const std::vector<StepUse> uses = gap_.explain(gap_.at(10)).steps;

  ASSERT_EQ(uses.size(), 2u);
  EXPECT_TRUE(uses[0].is_asked);
  EXPECT_FALSE(uses[1].is_asked);
  uint64_t told_ns = 0;
  for (const StepDifference& difference : uses[0].differences) {
    told_ns += difference.finding.time_ns;
    EXPECT_EQ(difference.usual_ns, 0u);
  }
  EXPECT_EQ(told_ns, 20 * kMs);
  EXPECT_EQ(describe_longest(gap_.made, uses[0]),
            "It is the only one of its kind in the capture as a whole.");
}

TEST_F(StepUseTest, AnOptimizersStepIsAskedForByTheTurnThatItIsPartOf) {
  add_step(10, 15, StepPhase::kTrain);
  add_step(36, 38, StepPhase::kOptimizer);
  add_step(40, 45, StepPhase::kTrain);
  add_step(80, 85, StepPhase::kTrain);

  const StepUse use = gap_.explain(gap_.at(36)).steps.at(0);

  EXPECT_TRUE(use.is_asked);
  EXPECT_EQ(use.longest_start_mono_ns, gap_.at(10));
}

TEST_F(StepUseTest, OneStepIsComparedWithNone) {
  add_step(0, 30);

  const StepUse use = gap_.explain().steps.at(0);

  EXPECT_TRUE(use.differences.empty());
  EXPECT_EQ(summarise_steps(gap_.made, use), "1 decode step (llama_decode), 30.000 ms.");
  EXPECT_EQ(describe_longest(gap_.made, use), "");
}

TEST_F(StepUseTest, WithinAStepItIsItsCodeThatTakesTheTime) {
  const uint32_t encode = gap_.add_stack({CaptureBuilder::python("encode", "/app/tokenizer.py")});
  for (uint64_t ms = 12; ms < 80; ms += 4) gap_.add_state(ms, 0, HostState::kOnCpuUser, encode);
  gap_.add_call(10, 75, decode_);
  add_step(10, 85);

  const ProcessTimeUse use = gap_.explain();

  EXPECT_EQ(use.findings[0].reason, TimeReason::kCode);
  EXPECT_EQ(use.findings[0].subject, "encode (tokenizer.py)");
}

struct PlantedState {
  HostState state;
  std::vector<StackFrame> frames;
  TimeReason reason;
  TimeCause cause;
};

class TimeUseStateTest : public ::testing::TestWithParam<PlantedState> {};

TEST_P(TimeUseStateTest, TimeOffTheCpuOutsideOfCallsHasItsCause) {
  PlantedGap gap;
  const uint32_t stack = gap.add_stack(GetParam().frames);
  gap.add_state(15, 60, GetParam().state, stack, 43);

  const ProcessTimeUse use = gap.explain();

  EXPECT_EQ(use.findings[0].reason, GetParam().reason);
  EXPECT_EQ(use.findings[0].time_ns, 60 * kMs);
  EXPECT_EQ(use.findings[0].estimated_ns, 0u);
  EXPECT_EQ(get_part(use, GetParam().cause), 60u);
  if (is_blocked(GetParam().state)) {
    EXPECT_EQ(describe_detail(gap.made, use.findings[0]),
              "Most waits were ended by thread 43 (main loop).");
  }
}

const StackFrame kLibc = CaptureBuilder::native("pthread_cond_wait", "/lib/libc.so.6");
const StackFrame kLoop = CaptureBuilder::python("loop", "/app/train.py");

INSTANTIATE_TEST_SUITE_P(
    All, TimeUseStateTest,
    ::testing::Values(
        PlantedState{make_blocked_state(WaitKind::kFutex),
                     {kLoop, kLibc},
                     TimeReason::kLock,
                     TimeCause::kHostBlocked},
        PlantedState{
            make_blocked_state(WaitKind::kFutex),
            {kLoop, CaptureBuilder::native("PyEval_RestoreThread", "/usr/bin/python3.11"), kLibc},
            TimeReason::kGil,
            TimeCause::kHostBlocked},
        PlantedState{
            make_blocked_state(WaitKind::kFutex),
            {CaptureBuilder::python("_get_data", "/lib/torch/utils/data/dataloader.py"), kLibc},
            TimeReason::kDataLoader,
            TimeCause::kInput},
        PlantedState{make_blocked_state(WaitKind::kIo),
                     {kLoop, kLibc},
                     TimeReason::kInput,
                     TimeCause::kInput},
        PlantedState{make_blocked_state(WaitKind::kPoll),
                     {kLoop, kLibc},
                     TimeReason::kInput,
                     TimeCause::kInput},
        PlantedState{make_blocked_state(WaitKind::kSleep),
                     {kLoop, kLibc},
                     TimeReason::kSleep,
                     TimeCause::kHostBlocked},
        PlantedState{make_blocked_state(WaitKind::kFault),
                     {kLoop, kLibc},
                     TimeReason::kBlocked,
                     TimeCause::kHostBlocked},
        PlantedState{HostState::kRunnable, {}, TimeReason::kNoCpu, TimeCause::kNoCpu},
        PlantedState{HostState::kThrottled, {}, TimeReason::kThrottled, TimeCause::kNoCpu}));

struct PlantedCall {
  const char* category;
  const char* name;
  bool is_blocked;
  TimeReason reason;
  TimeCause cause;
};

class TimeUseCallTest : public ::testing::TestWithParam<PlantedCall> {};

TEST_P(TimeUseCallTest, TimeInACallHasTheCauseOfItsKind) {
  PlantedGap gap;
  const uint32_t function = gap.add_function(GetParam().name, GetParam().category);
  gap.add_call(20, 50, function);
  if (GetParam().is_blocked) gap.add_state(20, 50, make_blocked_state(WaitKind::kPoll));

  const ProcessTimeUse use = gap.explain();

  EXPECT_EQ(use.findings[0].reason, GetParam().reason);
  EXPECT_EQ(use.findings[0].subject, GetParam().name);
  EXPECT_EQ(use.findings[0].time_ns, 50 * kMs);
  EXPECT_GE(get_part(use, GetParam().cause), 50u);
}

INSTANTIATE_TEST_SUITE_P(
    All, TimeUseCallTest,
    ::testing::Values(
        PlantedCall{"cublas", "cublasCreate", true, TimeReason::kBlockedCall,
                    TimeCause::kHostBlocked},
        PlantedCall{"cuda", "cudaMemcpy", false, TimeReason::kCopyCall, TimeCause::kInput},
        PlantedCall{"cuda", "cudaStreamSynchronize", true, TimeReason::kSyncCall,
                    TimeCause::kLaunching},
        PlantedCall{"nccl", "ncclCommInitRank", true, TimeReason::kPeerCall, TimeCause::kPeer},
        PlantedCall{"nccl", "ncclCommInitRank", false, TimeReason::kCall,
                    TimeCause::kHostComputing}));

TEST(TimeUseTest, ShortGapsAfterASynchronisationAreThatCalls) {
  PlantedGap gap;
  gap.made.work.clear();
  gap.made.launches.clear();
  const uint32_t sync = gap.add_function("cudaStreamSynchronize");
  // Every 10 ms: 9.5 of work, the call that waits for it, and the next launch 0.4 ms later.
  for (uint64_t i = 0; i < 10; ++i) {
    const uint64_t begin_ns = gap.at(10 * i);
    gap.add_launch({.start_mono_ns = begin_ns - kMs / 10,
                    .duration_ns = kMs / 20,
                    .thread = 0,
                    .function = gap.launch_function});
    gap.made.work.push_back({.start_mono_ns = begin_ns,
                             .duration_ns = 19 * kMs / 2,
                             .kernel = gap.kernel,
                             .stream = 0,
                             .launch = static_cast<uint32_t>(i)});
    gap.made.calls.push_back({.start_mono_ns = begin_ns + kMs,
                              .duration_ns = 17 * kMs / 2 + 10'000,
                              .thread = 0,
                              .function = sync});
  }

  const ProcessTimeUse use = gap.explain();

  EXPECT_EQ(use.verdict, TimeVerdict::kGpuBound);
  EXPECT_EQ(use.findings[0].reason, TimeReason::kKernel);
  EXPECT_EQ(use.findings[1].reason, TimeReason::kAfterSync);
  EXPECT_EQ(use.findings[1].subject, "cudaStreamSynchronize");
  EXPECT_EQ(use.findings[1].stretches, 10u);
  // All of 0.5 ms but the way to the GPU, 50 us. In the last gap nothing is launched.
  EXPECT_EQ(use.findings[1].time_ns, 9 * 9 * kMs / 20 + kMs / 2);
}

TEST(TimeUseTest, GraphsWithoutTheirKernelsAreNamedAsGraphs) {
  PlantedGap gap;
  for (CaptureWork& work : gap.made.work) {
    work.kind = WorkKind::kGraph;
    work.kernel = kNoIndex;
  }

  const ProcessTimeUse use = gap.explain();

  const auto found = std::ranges::find(use.findings, TimeReason::kGraph, &TimeFinding::reason);
  ASSERT_NE(found, use.findings.end());
  EXPECT_EQ(describe_finding(*found), "the GPU ran CUDA graphs, each recorded as a whole");
  EXPECT_EQ(make_command(gap.made, use, *found),
            fmt::format("gpuperfctl trace start --pid {} --nodes --duration 5s",
                        gap.made.processes[0].process.pid));
  EXPECT_EQ(get_cause(found->reason), TimeCause::kGpuComputing);
}

TEST(TimeUseTest, WorkOnItsWayWhileTheGpuRunsOthersIsTheirs) {
  PlantedGap gap;
  gap.made.processes.push_back({.process = {50, 1}, .owner = {.comm = "other"}});
  gap.made.streams.push_back({.process = 1, .device = 0, .context = 2, .stream = 7});
  gap.add_work(82, 5, kNoIndex);
  gap.made.work.back().stream = 1;
  std::swap(gap.made.work[1], gap.made.work[2]);  // by start

  const std::vector<ProcessTimeUse> uses = explain_time(gap.made);

  ASSERT_EQ(uses.size(), 2u);
  const ProcessTimeUse& use = uses[uses[0].process == 0 ? 0 : 1];
  EXPECT_EQ(get_part(use, TimeCause::kGpuOfOthers), 5u);
  EXPECT_EQ(get_part(use, TimeCause::kLaunching), 5u);
}

TEST(TimeUseTest, NcclsKernelsAndCopiesAreToldFromOtherWork) {
  PlantedGap gap;
  gap.made.work.clear();
  gap.add_work(0, 20, 0);
  gap.add_work(10, 60, 0);
  gap.made.work.back().kernel = gap.add_kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL");
  gap.add_work(60, 40, 0);
  gap.made.work.back().kind = WorkKind::kCopy;
  gap.made.work.back().direction = GPUPERF_MEMCPY_HOST_TO_DEVICE;

  const ProcessTimeUse use = gap.explain();

  EXPECT_EQ(get_part(use, TimeCause::kGpuComputing), 20u);
  EXPECT_EQ(get_part(use, TimeCause::kGpuCommunicating), 50u);
  EXPECT_EQ(get_part(use, TimeCause::kGpuCopying), 30u);
  EXPECT_EQ(use.verdict, TimeVerdict::kCommunicationBound);
  EXPECT_EQ(describe_finding(use.findings[0]),
            "the GPU ran nothing but ncclDevKernel_AllReduce_Sum_bf16_RING_LL");
  EXPECT_EQ(describe_finding(use.findings[1]), "the GPU copied host_to_device and ran no kernel");
}

TEST(TimeUseTest, AThreadThatWaitsForASecondOutsideOfCallsHasNothingToDo) {
  PlantedGap gap;
  gap.made.duration_ns = 5'000 * kMs;
  gap.made.work[1].start_mono_ns = gap.at(4'990);
  gap.made.launches[1].start_mono_ns = gap.at(4'980);
  gap.add_state(20, 4'950, make_blocked_state(WaitKind::kPoll));

  const ProcessTimeUse use = gap.explain();

  EXPECT_EQ(get_part(use, TimeCause::kNothing), 4'950u);
  EXPECT_EQ(use.verdict, TimeVerdict::kIdle);
}

TEST(TimeUseTest, AThreadThatIsNeitherSeenToRunNorToWaitIsNotKnown) {
  PlantedGap gap;
  gap.add_state(50, 30, make_blocked_state(WaitKind::kFutex));

  const ProcessTimeUse use = gap.explain();

  EXPECT_EQ(get_part(use, TimeCause::kUnknown), 40u);
  EXPECT_EQ(get_part(use, TimeCause::kHostBlocked), 30u);
}

TEST(TimeUseTest, WhatIsNotRecordedIsNotKnown) {
  PlantedGap gap;
  gap.made.gaps = {{.start_mono_ns = gap.at(20),
                    .duration_ns = 30 * kMs,
                    .process = 0,
                    .cause = "other_client"}};

  const ProcessTimeUse use = gap.explain();

  EXPECT_EQ(get_part(use, TimeCause::kUnknown), 30u);
  EXPECT_EQ(get_part(use, TimeCause::kHostComputing), 40u);
}

TEST(TimeUseTest, BeforeTheFirstWorkTheGpuMayHaveBeenBusy) {
  PlantedGap gap;
  gap.made.work.erase(gap.made.work.begin());
  gap.made.launches[0] = {.start_mono_ns = gap.at(30),
                          .duration_ns = kMs,
                          .thread = 0,
                          .function = gap.launch_function,
                          .match = LaunchMatch::kNoCall};

  const ProcessTimeUse use = gap.explain();

  EXPECT_EQ(get_part(use, TimeCause::kUnknown), 31u);  // the launch's work was not recorded
  EXPECT_EQ(get_part(use, TimeCause::kHostComputing), 49u);
}

TEST(TimeUseTest, TheEndOfTheWindowBelongsToTheThreadThatLaunchedLast) {
  PlantedGap gap;
  gap.made.work.pop_back();
  gap.made.launches.pop_back();
  const uint32_t load = gap.add_function("cudaMalloc");
  gap.add_call(30, 60, load);

  const ProcessTimeUse use = gap.explain();

  EXPECT_EQ(use.findings[0].subject, "cudaMalloc");
  EXPECT_EQ(use.findings[0].time_ns, 60 * kMs);
}

TEST(TimeUseTest, AProcessWithoutTheLibraryIsNotKnown) {
  PlantedGap gap;
  gap.made.work.clear();
  gap.made.processes[0].is_injected = false;

  const ProcessTimeUse use = gap.explain();

  EXPECT_EQ(get_part(use, TimeCause::kUnknown), 100u);
  EXPECT_EQ(use.device, kNoIndex);
  EXPECT_EQ(make_command(gap.made, use, use.findings[0]), "gpuperfctl attach --pid 42");
}

TEST(TimeUseTest, IdleTimeIsAFlameGraphByTheCausesStacks) {
  PlantedGap gap;
  const uint32_t stack =
      gap.add_stack({CaptureBuilder::native("main"), CaptureBuilder::python("plan")});
  gap.add_call(20, 50, gap.add_function("cudnnBackendFinalize", "cudnn"), stack);

  const Result<std::string> folded = render_view(gap.made, "idle-folded", {});

  ASSERT_TRUE(folded.ok()) << folded.status();
  EXPECT_THAT(*folded, HasSubstr("main;plan (model.py);cudnnBackendFinalize;"
                                 "[GPU_Idle]host computing 50000.000\n"));
  EXPECT_THAT(*folded,
              HasSubstr("[no stack];[GPU_Idle]launching, and the way to the GPU 9000.000"));
}

TEST(TimeUseTest, PartsAndFindingsAddUpWhateverTheCaptureHolds) {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    const CaptureSizes sizes{
        .calls = 300, .launches = 300, .work = 300, .waits = 200, .gaps = 5, .names = 1 + seed % 9};
    Capture capture = RandomCapture(seed).make(sizes);
    capture.duration_ns = 2 * kMs;
    for (const ProcessTimeUse& use : explain_time(capture)) {
      uint64_t findings_ns = 0;
      for (const TimeFinding& finding : use.findings) findings_ns += finding.time_ns;
      EXPECT_EQ(findings_ns, capture.duration_ns) << seed;
      EXPECT_EQ(std::accumulate(use.parts_ns.begin(), use.parts_ns.end(), uint64_t{0}),
                capture.duration_ns)
          << seed;
    }
  }
}

TEST(TimeUseTest, AnEmptyCaptureHasNoProcesses) { EXPECT_THAT(explain_time(Capture{}), IsEmpty()); }

}  // namespace
}  // namespace gpuperf
