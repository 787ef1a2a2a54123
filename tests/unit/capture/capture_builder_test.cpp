#include "daemon/capture/capture_builder.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/capture/trace_recorder.h"
#include "injector/session_abi.h"
#include "tests/unit/capture/handles.h"
#include "tests/unit/matchers.h"

namespace gpuperf {
namespace {

constexpr ProcessKey kByProbe = {.pid = 71, .start_boot_ns = 5'000'000'123};
constexpr ProcessKey kBySession = {.pid = 71, .start_boot_ns = 5'000'000'000};
constexpr uint64_t kSession = 3;
constexpr uint32_t kRuntimeLaunch = 211;       // cudaLaunchKernel
constexpr uint32_t kDriverLaunch = 307;        // cuLaunchKernel
constexpr uint32_t kRuntimeGraphLaunch = 311;  // cudaGraphLaunch
constexpr uint32_t kLaunchFunction = 0, kGemm = 1, kLinear = 2, kGraphLaunch = 3, kSetFunction = 4;

class CaptureBuilderTest : public ::testing::Test {
 protected:
  CaptureBuilderTest() {
    functions_ = {
        {.id = kLaunchFunction,
         .category = "cuda",
         .name = "cuLaunchKernel",
         .symbol = "cuLaunchKernel"},
        {.id = kGemm, .category = "cublas", .name = "cublasGemmEx", .symbol = "cublasGemmEx"},
        {.id = kLinear, .category = "libtorch", .name = "linear", .symbol = "linear"},
        {.id = kGraphLaunch, .category = "cuda", .name = "launch", .symbol = "cuGraphLaunch_ptsz"},
        {.id = kSetFunction, .category = "cuda", .name = "set", .symbol = "cuMemsetD8Async"}};
    recorder_.follow(sessions_);
    apply(SessionOpened{.session_id = kSession, .process = kBySession});
    SessionBatch batch{.session_id = kSession};
    batch.names = {{.id = 1, .text = "_Z6squarePfi"}, {.id = 2, .text = "plain"}};
    batch.places = {{.id = 1, .device = 0, .context = 1, .stream = 7}};
    apply(batch);
    TraceBatch sites;
    sites.sites = {{.site_id = 50,
                    .stack_id = 500,
                    .functions = {kLinear, kGemm},
                    .shape_at = 1,
                    .shape = {1, 1024, 3072, 1}}};
    recorder_.apply(sites);
  }

  void apply(const SessionEvent& event) { sessions_.apply(event, 0); }
  void hit(uint64_t mono_ns, uint32_t tid = 72) {
    TraceBatch batch;
    batch.launches = {
        {.mono_ns = mono_ns, .site_id = 50, .process = kByProbe, .tid = tid, .function_id = 0}};
    recorder_.apply(batch);
  }
  void api(uint32_t correlation_id, uint64_t start_ns, uint64_t end_ns, bool is_driver = false) {
    SessionBatch batch{.session_id = kSession};
    batch.apis = {{.start_mono_ns = start_ns,
                   .duration_ns = end_ns - start_ns,
                   .correlation_id = correlation_id,
                   .tid = 72,
                   .callback_id = is_driver ? kDriverLaunch : kRuntimeLaunch,
                   .is_driver = is_driver}};
    apply(batch);
  }
  void kernel(uint32_t correlation_id, uint64_t start_ns, uint64_t duration_ns) {
    SessionBatch batch{.session_id = kSession};
    batch.kernels = {{.start_mono_ns = start_ns,
                      .duration_ns = duration_ns,
                      .correlation_id = correlation_id,
                      .name_id = 1,
                      .place_id = 1}};
    apply(batch);
  }
  // Captures one launch of each function, from sites 51, 52, ..., long ago.
  void capture_graph(std::vector<uint32_t> functions) {
    TraceBatch batch;
    batch.graph_calls = {{.mono_ns = 1,
                          .process = kByProbe,
                          .tid = 72,
                          .call = GPUPERF_GRAPH_CAPTURE_BEGAN,
                          .is_followed = true,
                          .handle = kStream},
                         {.mono_ns = 100,
                          .process = kByProbe,
                          .tid = 72,
                          .call = GPUPERF_GRAPH_CAPTURE_ENDED,
                          .handle = kGraph,
                          .source = kStream},
                         {.mono_ns = 101,
                          .process = kByProbe,
                          .tid = 72,
                          .call = GPUPERF_GRAPH_INSTANTIATED,
                          .handle = kExec,
                          .source = kGraph}};
    for (uint64_t i = 0; i < functions.size(); ++i) {
      batch.sites.push_back({.site_id = 51 + i, .stack_id = 501 + i, .functions = {kLinear}});
      batch.launches.push_back({.mono_ns = 2 + i,
                                .site_id = 51 + i,
                                .process = kByProbe,
                                .tid = 72,
                                .function_id = functions[i],
                                .is_captured = true});
    }
    recorder_.apply(batch);
  }
  // Launches it at this time; its nodes come with the ids given, in no order.
  void replay(uint32_t correlation_id, uint64_t start_ns, std::vector<uint32_t> kernels,
              std::vector<uint32_t> sets = {}) {
    TraceBatch hits;
    hits.launches = {{.mono_ns = start_ns + 5,
                      .site_id = 50,
                      .process = kByProbe,
                      .tid = 72,
                      .function_id = kGraphLaunch,
                      .exec = kExec}};
    recorder_.apply(hits);
    SessionBatch batch{.session_id = kSession};
    batch.apis = {{.start_mono_ns = start_ns,
                   .duration_ns = 10,
                   .correlation_id = correlation_id,
                   .tid = 72,
                   .callback_id = kRuntimeGraphLaunch}};
    for (const uint32_t node : kernels) {
      batch.kernels.push_back({.start_mono_ns = start_ns + 10 + node,
                               .duration_ns = 1,
                               .correlation_id = correlation_id,
                               .name_id = 1,
                               .place_id = 1,
                               .graph_id = 9,
                               .node_id = node});
    }
    for (const uint32_t node : sets) {
      batch.copies.push_back({.start_mono_ns = start_ns + 10 + node,
                              .duration_ns = 1,
                              .bytes = 4'096,
                              .correlation_id = correlation_id,
                              .place_id = 1,
                              .graph_id = 9,
                              .node_id = node,
                              .is_set = true});
    }
    apply(batch);
  }
  // By node id: the capture site's stack, 0 = not known.
  std::map<uint32_t, uint64_t> get_sites(const Capture& capture) {
    std::map<uint32_t, uint64_t> sites;
    for (const CaptureWork& work : capture.work) {
      if (work.kind == WorkKind::kGraph || work.graph_id == 0) continue;
      sites[work.node_id] = 0;
      if (work.capture_site == kNoIndex) continue;
      const uint32_t stack = capture.capture_sites[work.capture_site].stack;
      sites[work.node_id] = std::stoull(capture.frames[capture.stacks[stack].frames[0]].symbol);
    }
    return sites;
  }
  Capture build(CaptureScope scope) {
    const TraceWindow window = recorder_.take(recorder_.pin(0, UINT64_MAX));
    const CaptureNames names{
        .get_owner = [](const ProcessKey&) { return Owner{.comm = "python3"}; },
        .read_thread_comm = [](uint32_t, uint32_t tid) { return "t" + std::to_string(tid); },
        .functions = &functions_,
        .host = "node1"};
    CaptureBuilder builder(window, scope, names);
    std::vector<StackPtr> stacks;
    for (const auto& key : builder.stacks()) {
      auto stack = std::make_shared<Stack>();
      stack->id = key.stack_id;
      stack->frames = {{.symbol = "inner"},
                       {.symbol = key.stack_id > 500 ? std::to_string(key.stack_id) : "outer"}};
      stacks.push_back(std::move(stack));
    }
    return builder.finish(stacks);
  }
  Capture build() { return build({.id = 1, .start_mono_ns = 0, .end_mono_ns = 1'000'000}); }

  FunctionList functions_;
  DropCounters drops_;
  SessionMemory memory_{drops_};
  SessionRegistry sessions_{{}, drops_, memory_};
  TraceRecorder recorder_{{}, drops_};
};

TEST_F(CaptureBuilderTest, HasWorkThatOnlyOverlapsTheWindowWhereItIsAskedFor) {
  api(5, 10'000, 11'000);
  kernel(5, 12'000, 700);
  api(6, 11'500, 11'600);
  kernel(6, 12'700, 300);
  api(7, 11'700, 11'800);
  kernel(7, 11'900, 50);  // over before
  CaptureScope scope{.start_mono_ns = 12'500, .end_mono_ns = 12'800};

  EXPECT_EQ(build(scope).work.size(), 1);
  scope.with_overlap = true;
  const Capture capture = build(scope);

  ASSERT_EQ(capture.work.size(), 2);
  EXPECT_EQ(capture.work[0].start_mono_ns, 12'000);
  ASSERT_EQ(capture.launches.size(), 2);
  EXPECT_EQ(capture.launches[0].correlation_id, 5);
}

TEST_F(CaptureBuilderTest, KeepsLaunchesWithoutWorkBesideOverlappingWork) {
  api(5, 10'000, 11'000);
  api(6, 10'500, 10'600);
  kernel(6, 10'700, 50);
  api(8, 13'000, 13'100);  // behind the window
  SessionBatch failed{.session_id = kSession};
  failed.apis = {{.start_mono_ns = 10'800,
                  .duration_ns = 100,
                  .correlation_id = 7,
                  .tid = 72,
                  .callback_id = kRuntimeLaunch,
                  .return_value = 2}};
  apply(failed);

  const Capture capture =
      build({.start_mono_ns = 12'500, .end_mono_ns = 12'800, .with_overlap = true});

  ASSERT_EQ(capture.launches.size(), 1);
  EXPECT_EQ(capture.launches[0].correlation_id, 5);
  EXPECT_EQ(capture.work.size(), 0);
}

TEST_F(CaptureBuilderTest, JoinsAHitItsCallAndItsKernel) {
  hit(10'200);
  api(5, 10'000, 11'000);
  kernel(5, 12'000, 700);

  const Capture capture = build();

  ASSERT_EQ(capture.work.size(), 1);
  ASSERT_EQ(capture.launches.size(), 1);
  EXPECT_EQ(capture.work[0].launch, 0);
  EXPECT_EQ(capture.kernels[capture.work[0].kernel],
            (CaptureKernel{.name = "square(float*, int)", .short_name = "square"}));
  const CaptureLaunch& launch = capture.launches[0];
  EXPECT_EQ(launch.match, LaunchMatch::kExact);
  EXPECT_EQ(capture.functions[launch.function], (CaptureFunction{"cuda", "cudaLaunchKernel"}));
  EXPECT_EQ(capture.threads[launch.thread],
            (CaptureThread{.process = 0, .tid = 72, .comm = "t72"}));
  const CaptureOperation& gemm = capture.operations[launch.operation];
  EXPECT_EQ(capture.functions[gemm.function].name, "cublasGemmEx");
  EXPECT_EQ(gemm.shape, (std::array<uint64_t, 4>{1, 1024, 3072, 1}));
  EXPECT_EQ(capture.functions[capture.operations[gemm.parent].function].name, "linear");
  EXPECT_EQ(capture.frames[capture.stacks[launch.stack].frames[0]].symbol, "outer");
  EXPECT_EQ(capture.processes,
            (std::vector<CaptureProcess>{
                {.process = kByProbe, .owner = {.comm = "python3"}, .is_injected = true}}));
  EXPECT_EQ(capture.matches,
            (CaptureMatches{.launches = {1, 0, 0, 0}, .work = 1, .work_matched = 1}));
}

TEST_F(CaptureBuilderTest, ADriverCallTakesTheHitRightBeforeIt) {
  hit(9'900);
  api(5, 10'000, 11'000, true);
  kernel(5, 12'000, 700);

  EXPECT_EQ(build().matches.work_matched, 1);
}

TEST_F(CaptureBuilderTest, TellsWhatIsMissingOfALaunch) {
  hit(10'200);             // its call's record is lost
  api(6, 20'000, 21'000);  // no probe was there
  kernel(6, 22'000, 100);
  kernel(7, 23'000, 100);  // neither

  const Capture capture = build();

  EXPECT_EQ(
      capture.matches,
      (CaptureMatches{.launches = {0, 0, 1, 1}, .work = 2, .work_matched = 0, .work_no_call = 1}));
  EXPECT_EQ(capture.work[1].launch, kNoIndex);
  EXPECT_EQ(capture.functions[capture.launches[0].function].name, "cuLaunchKernel");
}

TEST_F(CaptureBuilderTest, HasTheLaunchOfWorkThatBeganInTheWindow) {
  hit(10'200);
  api(5, 10'000, 11'000);
  kernel(5, 60'000, 700);
  hit(20'200);
  api(6, 20'000, 21'000);
  kernel(6, 49'000, 700);

  const Capture capture = build({.start_mono_ns = 50'000, .end_mono_ns = 90'000});

  ASSERT_EQ(capture.work.size(), 1);
  ASSERT_EQ(capture.launches.size(), 1);
  EXPECT_EQ(capture.launches[0].correlation_id, 5);
}

TEST_F(CaptureBuilderTest, OfTwoLaunchesOfOneIdTheLastBeforeTheWorkIsMeant) {
  api(5, 10'000, 11'000);
  api(5, 500'000, 501'000);
  kernel(5, 12'000, 100);
  kernel(5, 502'000, 100);

  const Capture capture = build();

  EXPECT_EQ(capture.work[0].launch, 0);
  EXPECT_EQ(capture.work[1].launch, 1);
}

TEST_F(CaptureBuilderTest, OtherProcessesAreLeftOut) {
  hit(10'200);

  const Capture capture =
      build({.end_mono_ns = 90'000, .all_processes = false, .processes = {{.pid = 72}}});

  EXPECT_TRUE(capture.launches.empty());
  EXPECT_TRUE(capture.processes.empty());
}

TEST_F(CaptureBuilderTest, AWaitBelongsToTheThreadOfItsCall) {
  SessionBatch batch{.session_id = kSession};
  batch.apis = {{.start_mono_ns = 10'000,
                 .duration_ns = 5'000,
                 .correlation_id = 9,
                 .tid = 77,
                 .callback_id = 165}};  // cudaDeviceSynchronize
  batch.syncs = {{.start_mono_ns = 10'000, .duration_ns = 5'000, .correlation_id = 9, .type = 4}};
  apply(batch);

  const Capture capture = build();

  ASSERT_EQ(capture.waits.size(), 1);
  EXPECT_EQ(capture.threads[capture.waits[0].thread].tid, 77);
  EXPECT_TRUE(capture.launches.empty());
}

TEST_F(CaptureBuilderTest, CallsKeepTheirOffCpuTime) {
  TraceBatch batch;
  batch.calls = {{.start_mono_ns = 10'000,
                  .duration_ns = 1'000'000'000,
                  .off_cpu_ns = 750'000'000,
                  .stack_id = 600,
                  .process = kByProbe,
                  .tid = 72,
                  .function_id = kGemm,
                  .depth = 2}};
  recorder_.apply(batch);

  const Capture capture = build();

  ASSERT_EQ(capture.calls.size(), 1);
  EXPECT_NEAR(static_cast<double>(capture.calls[0].off_cpu_ns), 750e6, 1);
  EXPECT_EQ(capture.calls[0].depth, 2);
  EXPECT_NE(capture.calls[0].stack, kNoIndex);
}

TEST_F(CaptureBuilderTest, ATimeOffTheCpuIsBlockedThenThrottledThenRunnable) {
  TraceBatch batch;
  batch.thread_times = {{.start_mono_ns = 10'000,
                         .blocked_ns = 5'000,
                         .throttled_ns = 300,
                         .runnable_ns = 20,
                         .stack_id = 600,
                         .process = kByProbe,
                         .tid = 72,
                         .kind = GPUPERF_WAIT_FUTEX,
                         .waker_pid = 42,
                         .waker_tid = 73},
                        {.start_mono_ns = 40'000,
                         .stack_id = 601,
                         .process = kByProbe,
                         .tid = 72,
                         .is_tick = true,
                         .kind = GPUPERF_TICK_FAULT},
                        {.start_mono_ns = 50'000,
                         .runnable_ns = 30,
                         .stack_id = 600,
                         .process = kByProbe,
                         .tid = 72}};
  recorder_.apply(batch);

  const Capture capture = build();

  const std::vector<CaptureThreadTime>& times = capture.thread_times;
  ASSERT_EQ(times.size(), 5);
  const uint32_t waited = times[0].stack;
  const uint32_t sampled = times[3].stack;
  EXPECT_NE(waited, kNoIndex);
  EXPECT_NE(sampled, kNoIndex);
  EXPECT_NE(waited, sampled);
  EXPECT_EQ(capture.threads[0].tid, 72);
  const HostState futex = make_blocked_state(WaitKind::kFutex);
  EXPECT_EQ(times[0], (CaptureThreadTime{10'000, 5'000, 0, futex, waited, 42, 73}));
  EXPECT_EQ(times[1], (CaptureThreadTime{15'000, 300, 0, HostState::kThrottled}));
  EXPECT_EQ(times[2], (CaptureThreadTime{15'300, 20, 0, HostState::kRunnable}));
  EXPECT_EQ(times[3], (CaptureThreadTime{40'000, 0, 0, HostState::kOnCpuFault, sampled}));
  EXPECT_EQ(times[4], (CaptureThreadTime{50'000, 30, 0, HostState::kRunnable}));
}

TEST_F(CaptureBuilderTest, NodesBelongToTheLaunchesThatWereCapturedInTheirOrder) {
  capture_graph({kLaunchFunction, kSetFunction, kLaunchFunction});
  replay(5, 10'000, {11, 4}, {7});  // other nodes, which leave no record, lie in between

  const Capture capture = build({.start_mono_ns = 5'000, .end_mono_ns = 90'000});

  EXPECT_THAT(get_sites(capture), ElementsAre(Pair(4, 501), Pair(7, 502), Pair(11, 503)));
  EXPECT_EQ(capture.matches.nodes, 3);
  EXPECT_EQ(capture.matches.nodes_placed, 3);
  EXPECT_EQ(capture.launches.size(), 1);  // those of the capture are no launches of the window
  const CaptureLaunch& site = capture.capture_sites[0];
  EXPECT_EQ(capture.functions[capture.operations[site.operation].function].name, "linear");
  EXPECT_EQ(capture.threads[site.thread].tid, 72);
}

TEST_F(CaptureBuilderTest, ALaunchWithMissingNodesLearnsFromAWholeOne) {
  capture_graph({kLaunchFunction, kLaunchFunction});
  replay(5, 10'000, {8});
  replay(6, 20'000, {4, 8});

  const Capture capture = build();

  EXPECT_EQ(capture.matches.nodes, 3);
  EXPECT_EQ(capture.matches.nodes_placed, 3);
  EXPECT_EQ(get_sites(capture).at(8), 502);
}

TEST_F(CaptureBuilderTest, NodesThatAreNotWhatWasCapturedHaveNoCaptureSite) {
  capture_graph({kLaunchFunction, kSetFunction});
  replay(5, 10'000, {4, 8});       // kernels alone
  replay(6, 20'000, {4, 8}, {9});  // one too many
  const Capture capture = build();

  EXPECT_THAT(get_sites(capture), ElementsAre(Pair(4, 0), Pair(8, 0), Pair(9, 0)));
  EXPECT_EQ(capture.matches.nodes, 5);
  EXPECT_EQ(capture.matches.nodes_placed, 0);
}

TEST_F(CaptureBuilderTest, LostRecordsAreGapsAndLeaveEachCallItsHit) {
  hit(1'000);
  api(5, 900'000, 901'000, true);
  SessionStatus status{.session_id = kSession};
  status.losses[GPUPERF_SESSION_LOSS_QUEUE_FULL] = 4;
  apply(status);

  const Capture capture = build();

  ASSERT_EQ(capture.gaps.size(), 1);
  EXPECT_EQ(capture.gaps[0].cause, "queue_full");
  EXPECT_EQ(capture.gaps[0].count, 4);
  EXPECT_EQ(capture.launches[0].match, LaunchMatch::kExact);
}

TEST_F(CaptureBuilderTest, HasTheStepsThatReachIntoTheWindow) {
  const auto step = [&](uint64_t start_ns, uint64_t end_ns) {
    recorder_.apply(Step{.process = kByProbe,
                         .tid = 72,
                         .function_id = kLinear,
                         .start_mono_ns = start_ns,
                         .returned_mono_ns = end_ns - 5,
                         .completed_mono_ns = end_ns,
                         .completed_quality = StepQuality::kExact,
                         .phase = StepPhase::kDecode,
                         .phase_quality = StepQuality::kDerived,
                         .tokens = {8, StepQuality::kEstimated},
                         .sequences = {3, StepQuality::kUnknown}});
  };
  step(100, 900);
  step(3'000, 4'000);  // handed on before the one that is earlier
  step(1'000, 2'000);
  step(9'000, 9'500);
  CaptureScope scope{.start_mono_ns = 1'500, .end_mono_ns = 9'000};

  const Capture capture = build(scope);

  ASSERT_EQ(capture.steps.size(), 2u);
  EXPECT_EQ(capture.steps[0], (CaptureStep{.start_mono_ns = 1'000,
                                           .duration_ns = 1'000,
                                           .thread = 0,
                                           .function = 0,
                                           .phase = StepPhase::kDecode,
                                           .phase_quality = StepQuality::kDerived,
                                           .duration_quality = StepQuality::kExact,
                                           .tokens = {8, StepQuality::kEstimated},
                                           .sequences = {3, StepQuality::kUnknown}}));
  EXPECT_EQ(capture.steps[1].start_mono_ns, 3'000u);
  EXPECT_EQ(capture.functions[0].name, "linear");
  scope.cpu = false;
  EXPECT_EQ(build(scope).steps.size(), 0u);
}

TEST_F(CaptureBuilderTest, SamplesAreAddedUpByKernelAndState) {
  kernel(5, 1'000, 500);
  const auto sample = [&](uint32_t name_id, uint32_t offset, uint32_t stall, uint32_t samples) {
    SessionBatch batch{.session_id = kSession};
    batch.stalls = {{.name_id = name_id,
                     .pc_offset_bytes = offset,
                     .counts = {{.stall = stall, .samples = samples, .idle_samples = 1}}}};
    apply(batch);
  };
  sample(1, 0x10, GPUPERF_STALL_wait, 5);
  sample(1, 0x20, GPUPERF_STALL_wait, 7);
  sample(1, 0x20, GPUPERF_STALL_barrier, 3);
  sample(2, 0x10, GPUPERF_STALL_wait, 2);

  const Capture capture = build();

  const auto find = [&](std::string_view name) {
    const auto found = std::ranges::find(capture.kernels, name, &CaptureKernel::name);
    return static_cast<uint32_t>(found - capture.kernels.begin());
  };
  EXPECT_THAT(capture.stalls,
              testing::UnorderedElementsAre(
                  CaptureStall{0, find("square(float*, int)"), GPUPERF_STALL_barrier, 3, 1},
                  CaptureStall{0, find("square(float*, int)"), GPUPERF_STALL_wait, 12, 2},
                  CaptureStall{0, find("plain"), GPUPERF_STALL_wait, 2, 1}));
}

TEST_F(CaptureBuilderTest, SamplesOfAnotherTimeAreLeftOut) {
  kernel(5, 1'000, 500);
  SessionBatch batch{.session_id = kSession};
  batch.stalls = {{.name_id = 1, .counts = {{.stall = GPUPERF_STALL_wait, .samples = 5}}}};
  apply(batch);
  EXPECT_EQ(build({.start_mono_ns = 0, .end_mono_ns = 1'000}).stalls.size(), 0u);
}

}  // namespace
}  // namespace gpuperf
