#include "daemon/rpc/to_proto.h"

#include <gtest/gtest.h>
#include <limits>

#include "tests/unit/rpc/rpc_fixture.h"

namespace gpuperf {
namespace {

using testing::make_totals;

// Whole messages as text, so that a field too many or too few is seen.
constexpr char kBadText[] = "bad\xFF";

TEST(ToProtoTest, ConvertsARowOfStatistics) {
  const Function function{
      .id = 3, .category = "cuda", .name = "cudaMalloc", .status = StatusKind::kCudaRuntime};
  FunctionRow row{.function_id = 3,
                  .process = {.pid = 42, .start_boot_ns = 9},
                  .owner = {kBadText, "0123456789ab", "train-0", "ml", "4711", "3"},
                  .exited = true,
                  .totals = make_totals({1'000, 3'000})};
  row.totals.calls = 10;
  row.totals.hooked = 7;
  row.totals.past_hooks = 2;
  row.totals.abandoned = 3;
  row.totals.untimed = 4;
  row.totals.slow_calls = 1;
  row.totals.errors = {{2, 1}, {999'999, 5}, {1, 1}};
  row.totals.other_errors = 2;
  row.totals.flops = 600;
  row.totals.bytes = {0, 0, 70, 90, 0, 80};
  const FunctionNow now{.coverage = 0.5, .oldest_in_flight_ns = 41};

  // The middle of 1000's bucket is below it, that of 3000's is within: quantiles stay in [min,
  // max].
  expect_message(to_proto(function, row, now), R"(
      category: "cuda" function: "cudaMalloc" pid: 42 comm: "bad\357\277\275" calls: 10 errors: 9
      total_ns: 4000 self_ns: 4000 min_ns: 1000 avg_ns: 2000 p50_ns: 1008 p90_ns: 3000
      p99_ns: 3000 p999_ns: 3000 max_ns: 3000 slow_calls: 1 in_flight: 1 abandoned: 3 untimed: 4
      coverage: 0.5
      error_counts { error: "999999" code: 999999 count: 5 }
      error_counts { error: "other" count: 2 }
      error_counts { error: "cudaErrorInvalidValue" code: 1 count: 1 }
      error_counts { error: "cudaErrorMemoryAllocation" code: 2 count: 1 }
      container: "0123456789ab" pod: "train-0" namespace: "ml" exited: true
      oldest_in_flight_ns: 41 bytes: 240
      bytes_by_direction { direction: "device_to_host" bytes: 90 }
      bytes_by_direction { direction: "default" bytes: 80 }
      bytes_by_direction { direction: "host_to_device" bytes: 70 }
      flops: 600 slurm_job: "4711" slurm_rank: "3" calls_hooked: 7 calls_past_hooks: 2)");
}

TEST(ToProtoTest, LeavesDurationsZeroWhereNoCallCompleted) {
  const Function function{.category = "libtorch", .name = "linear"};

  expect_message(to_proto(function, FunctionTotals{.calls = 4, .untimed = 4}, {}), R"(
      category: "libtorch" function: "linear" calls: 4 untimed: 4 coverage: 1)");
}

TEST(ToProtoTest, SaysHowInexactAnEstimateIs) {
  FunctionTotals totals{.calls = 4, .untimed = 4};
  totals.missed = {.calls = 1000.4, .slow_calls = 2.6, .variance = 100, .bias_calls = 5};
  EXPECT_EQ(to_proto(Function(), totals, {}).missed().ShortDebugString(),
            "calls: 1000 calls_error: 25 slow_calls: 3");

  totals.missed.bias_calls = std::numeric_limits<double>::infinity();
  EXPECT_EQ(to_proto(Function(), totals, {}).missed().calls_error(), UINT64_MAX);
}

TEST(ToProtoTest, KeepsQuantilesBetweenShortestAndLongest) {
  for (const uint64_t duration_ns :
       {uint64_t{1}, uint64_t{255}, uint64_t{1'000}, uint64_t{1} << 43}) {
    const v1::FunctionStats stats = to_proto(Function(), make_totals({duration_ns}), {});
    EXPECT_EQ(stats.p50_ns(), duration_ns);
    EXPECT_EQ(stats.p999_ns(), duration_ns);
  }
}

TEST(ToProtoTest, ConvertsASlowCall) {
  SlowCall call{.id = 7,
                .category = "cuda",
                .function = "cudaMemcpy",
                .status = StatusKind::kCudaRuntime,
                .start_unix_ns = 1'700'000'000'000'000'000};
  call.event = {.process = {.pid = 42, .start_boot_ns = 9},
                .owner = {"python", "0123456789ab", "train-0", "ml"},
                .tid = 43,
                .comm = kBadText,
                .start_mono_ns = 5,
                .duration_ns = 200,
                .threshold_ns = 100,
                .return_value = 2};
  call.arguments = {{"dst", "0x7f0000001000"}, {kBadText, kBadText}};
  call.user_stack = std::make_shared<const Stack>(Stack{
      .id = 0x1f,
      .end = StackEnd::kCut,
      .frames = {{.symbol = "g", .address = 4096, .file = kBadText, .line = 7, .is_inlined = true},
                 {.symbol = "f(int)", .module = "/l.so", .offset_bytes = 28, .address = 4096},
                 {.module = kBadText, .address = 8192, .kind = StackFrameKind::kPython}}});

  expect_message(to_proto(call), R"text(
      id: 7 category: "cuda" function: "cudaMemcpy" pid: 42 tid: 43 comm: "bad\357\277\275"
      container: "0123456789ab" pod: "train-0" start_unix_ns: 1700000000000000000 start_mono_ns: 5
      duration_ns: 200 threshold_ns: 100 reason: "absolute"
      arguments { name: "dst" value: "0x7f0000001000" }
      arguments { name: "bad\357\277\275" value: "bad\357\277\275" }
      return_value: "cudaErrorMemoryAllocation"
      user_stack { symbol: "g" address: 4096 file: "bad\357\277\275" line: 7 inlined: true
                   kind: "native" }
      user_stack { symbol: "f(int)" module: "/l.so" offset_bytes: 28 address: 4096 kind: "native" }
      user_stack { module: "bad\357\277\275" address: 8192 kind: "python" }
      user_stack_end: "cut" user_stack_id: "000000000000001f"
      namespace: "ml")text");
}

TEST(ToProtoTest, GivesEachWaitItsStacks) {
  SlowCall call;
  call.event.split = TimeSplit();
  call.event.waits = {{.duration_ns = 9, .waker = {.tid = 5, .pid = 4}}, {.duration_ns = 8}};
  call.wait_stacks = {
      {.kernel = std::make_shared<const Stack>(Stack{.id = 1, .frames = {{.symbol = "schedule"}}}),
       .waker = std::make_shared<const Stack>(Stack{.id = 2, .frames = {{.symbol = "push"}}})},
      {}};

  const v1::TimeSplit split = to_proto(call).time_split();

  ASSERT_EQ(split.waits_size(), 2);
  const v1::Wait& wait = split.waits(0);
  EXPECT_EQ(wait.kernel_stack(0).symbol(), "schedule");
  EXPECT_EQ(wait.kernel_stack_id(), "0000000000000001");
  EXPECT_EQ(wait.waker().stack(0).symbol(), "push");
  EXPECT_EQ(wait.waker().stack_id(), "0000000000000002");
  EXPECT_EQ(split.waker().DebugString(), wait.waker().DebugString());
  EXPECT_EQ(split.waits(1).kernel_stack_size(), 0);
  EXPECT_EQ(split.waits(1).kernel_stack_id(), "");
}

TEST(ToProtoTest, ConvertsWhatTheGpuDidDuringASlowCall) {
  const GpuLauncher launcher = {.function = "cudaLaunchKernel",
                                .operation = "linear",
                                .frame = kBadText,
                                .tid = 71,
                                .comm = kBadText,
                                .is_calling_thread = true,
                                .start_mono_ns = 3};
  SlowCall call{.id = 1};
  call.gpu = std::make_shared<const GpuDuringCall>(
      GpuDuringCall{.busy_ns = 10,
                    .idle_ns = 11,
                    .kernel_ns = 12,
                    .copy_ns = 13,
                    .set_ns = 14,
                    .graph_ns = 15,
                    .kernels = {{kBadText, "k", 16, 17, 18, launcher, 19}},
                    .other_kernels = 20,
                    .other_kernels_ns = 21,
                    .copies = {{"set", 22, 23, 24}},
                    .devices = {{"GPU-1", 1, 25, 26, 27}},
                    .others = {{90, kBadText, 28}},
                    .others_ns = 29,
                    .own = {30, 31, 32, 33, 34},
                    .awaited = GpuAwaitedWork{kBadText, 35, 36, 37, 38, 39, {}},
                    .missing = {kBadText}});

  expect_message(to_proto(call), R"text(
      id: 1 reason: "absolute"
      gpu {
        missing: "bad\357\277\275" busy_ns: 10 idle_ns: 11 kernel_ns: 12 copy_ns: 13 set_ns: 14
        graph_ns: 15
        kernels {
          kernel: "bad\357\277\275" short_name: "k" total_ns: 16 count: 17 longest_ns: 18
          launcher { function: "cudaLaunchKernel" operation: "linear" frame: "bad\357\277\275"
                     tid: 71 comm: "bad\357\277\275" calling_thread: true start_mono_ns: 3 }
          launcher_ns: 19
        }
        other_kernels: 20 other_kernels_ns: 21
        copies { direction: "set" total_ns: 22 count: 23 copied_bytes: 24 }
        devices { uuid: "GPU-1" number: 1 busy_ns: 25 idle_ns: 26 others_ns: 27 }
        others { pid: 90 comm: "bad\357\277\275" busy_ns: 28 }
        others_ns: 29
        own { launches: 30 without_work: 31 run_ns: 32 stream_wait_ns: 33 device_wait_ns: 34 }
        awaited { name: "bad\357\277\275" total_ns: 35 duration_ns: 36 queued_ns: 37
                  stream_wait_ns: 38 before_return_ns: 39 launcher {} }
      })text");
}

TEST(ToProtoTest, SaysThatWhatTheGpuDidIsComplete) {
  SlowCall call{.id = 1};
  call.gpu = std::make_shared<const GpuDuringCall>(GpuDuringCall{.idle_ns = 5});

  expect_message(to_proto(call), R"(id: 1 reason: "absolute" gpu { complete: true idle_ns: 5 })");
}

TEST(ToProtoTest, LeavesArgumentsOutThatWereNotKept) {
  SlowCall call{.id = 1};
  call.arguments.clear();
  call.event.return_value = 0x10;

  expect_message(to_proto(call), R"(id: 1 reason: "absolute" return_value: "0x10")");
}

TEST(ToProtoTest, ConvertsAProcess) {
  const ProcessRow row{.process = {.pid = 42, .start_boot_ns = 9},
                       .owner = {"python", "0123456789ab", "train-0", "ml", "4711", "3"},
                       .exited = true,
                       .functions = 2,
                       .calls = 30,
                       .slow_calls = 1};

  const OverheadRow overhead{.ratio = 0.25,
                             .hooks_ratio = 0.125,
                             .cupti_ratio = 0.0625,
                             .correction = 2,
                             .measured = OverheadMeasurement{.ratio = 0.5, .pairs = 6}};
  expect_message(to_proto(row, overhead, "yielded"), R"(
      pid: 42 start_boot_ns: 9 comm: "python" container: "0123456789ab" pod: "train-0"
      namespace: "ml" functions: 2 calls: 30 slow_calls: 1 exited: true
      slurm_job: "4711" slurm_rank: "3" overhead_ratio: 0.25 session_state: "yielded"
      overhead_hooks_ratio: 0.125 overhead_cupti_ratio: 0.0625 overhead_correction: 2
      overhead_measured { ratio: 0.5 pairs: 6 })");
}

TEST(ToProtoTest, ConvertsAProbeInEveryState) {
  const struct {
    ProbeState state;
    v1::ProbeState expected;
  } cases[] = {
      {ProbeState::kAttached, v1::PROBE_STATE_ATTACHED},
      {ProbeState::kEntryOnly, v1::PROBE_STATE_ENTRY_ONLY},
      {ProbeState::kWaiting, v1::PROBE_STATE_WAITING},
      {ProbeState::kSymbolMissing, v1::PROBE_STATE_SYMBOL_MISSING},
      {ProbeState::kFailed, v1::PROBE_STATE_FAILED},
      {ProbeState::kDisabled, v1::PROBE_STATE_DISABLED},
      {ProbeState::kSuspended, v1::PROBE_STATE_SUSPENDED},
      {ProbeState::kAlias, v1::PROBE_STATE_ALIAS},
  };
  for (const auto& [state, expected] : cases) {
    const ProbeRow row{.category = "cuda",
                       .function = "cudaMalloc",
                       .symbol = "cudaMalloc",
                       .state = state,
                       .reason = "why",
                       .library = "/l.so",
                       .offset_bytes = 16,
                       .mechanism = "multi",
                       .slow_threshold_ns = 5};
    expect_message(to_proto(row, 0),
                   "category: \"cuda\" function: \"cudaMalloc\" symbol: \"cudaMalloc\" state: " +
                       v1::ProbeState_Name(expected) +
                       " reason: \"why\" library: \"/l.so\" offset_bytes: 16 mechanism: \"multi\" "
                       "slow_threshold_ns: 5");
  }
}

TEST(ToProtoTest, ConvertsWhatAProbeCosts) {
  ProbeRow row{.category = "cuda", .hit_cost = HitCost::kEmulated, .exit_sites = 3, .cost_ns = 640};
  expect_message(
      to_proto(row, 7000),
      R"(category: "cuda" state: PROBE_STATE_WAITING hit_cost: HIT_COST_EMULATED exit_sites: 3
         cost_ns: 640 adaptive_threshold_ns: 7000)");
  row = {.category = "cuda", .hit_cost = HitCost::kStepped};
  expect_message(to_proto(row, 0),
                 R"(category: "cuda" state: PROBE_STATE_WAITING hit_cost: HIT_COST_STEPPED)");
}

TEST(ToProtoTest, ConvertsAShape) {
  const ShapeRow row{.process = {.pid = 42},
                     .dimensions = {128, 256, 512, 4},
                     .types = {14, 2, 0, 68},
                     .calls = 3,
                     .total_ns = 900};

  expect_message(to_proto(Function{.category = "cublas", .name = "cublasGemmEx"}, row), R"(
      category: "cublas" function: "cublasGemmEx" m: 128 n: 256 k: 512 batch: 4
      a_type: "bf16" b_type: "f16" c_type: "f32" compute_type: "f32" calls: 3 total_ns: 900
      flops: 402653184)");
}

TEST(ToProtoTest, GivesAShapeTheTypesThatItsFunctionsNameSays) {
  auto plan = std::make_shared<ArgumentPlan>();
  plan->shape_types = {1, 1, 1, 70};
  const Function function{.name = "cublasDgemm", .arguments = plan};

  const v1::Shape shape = to_proto(function, ShapeRow{.dimensions = {1, 1, 1, 1}});

  EXPECT_EQ(shape.a_type() + shape.b_type() + shape.c_type() + shape.compute_type(),
            "f64f64f64f64");
}

TEST(ToProtoTest, ConvertsACallInFlight) {
  const InFlightCall call{.process = {.pid = 42, .start_boot_ns = 9},
                          .tid = 43,
                          .comm = kBadText,
                          .depth = 1,
                          .start_mono_ns = 1'000};
  const Owner owner{"python", "0123456789ab", "train-0", "ml"};

  expect_message(to_proto(Function{.category = "nccl", .name = "ncclAllReduce"}, call, owner, 500),
                 R"(category: "nccl" function: "ncclAllReduce" pid: 42 tid: 43
                    comm: "bad\357\277\275" container: "0123456789ab" pod: "train-0"
                    namespace: "ml" age_ns: 500 start_mono_ns: 1000 depth: 1)");
}

TEST(ToProtoTest, ShowsWhatTheBudgetTookOut) {
  Snapshot snapshot;
  snapshot.functions = std::make_shared<const FunctionList>(
      FunctionList{{.category = "cuda", .name = "cudaMalloc"}});
  snapshot.suspensions = {{.function_id = 0,
                           .process = {.pid = 42},
                           .comm = kBadText,
                           .share_ratio = 0.5,
                           .until_mono_ns = 1'500,
                           .times = 2},
                          {.function_id = 0, .until_mono_ns = 900}};
  snapshot.overhead = {{.process = {.pid = 41}, .ratio = 0.25},
                       {.process = {.pid = 42}, .ratio = 0.5}};
  snapshot.demand = {
      .kind = OverheadDemand::Kind::kDetail, .until_mono_ns = 3'000, .reason = kBadText};

  expect_message(to_proto(snapshot, DropCounters(), 1'000), R"(
      mechanism: "none" probes {} suspensions { category: "cuda" function: "cudaMalloc" pid: 42 comm: "bad\357\277\275"
                    share_ratio: 0.5 remaining_ns: 500 times: 2 }
      suspensions { category: "cuda" function: "cudaMalloc" }
      overhead_ratio: 0.5 overhead_pid: 42 sessions {}
      gpus_reason: "not read yet, or disabled: stats.gpu_interval_ms"
      recorder {}
      overhead_demand: OVERHEAD_DEMAND_DETAIL overhead_demand_remaining_ns: 2000
      overhead_demand_reason: "bad\357\277\275")");
}

TEST(ToProtoTest, ShowsRulesAndWhatTheyDemand) {
  Snapshot snapshot;
  snapshot.demand = {.kind = OverheadDemand::Kind::kDetail, .percent = 2.5, .reason = "rule a"};
  snapshot.qos_rules = {{.rule = {.name = "a", .text = "p99 x > 2: detail", .limit = 2},
                         .value = 2.5,
                         .is_breached = true,
                         .since_mono_ns = 600,
                         .breaches = 3,
                         .is_ours = true},
                        {.rule = {.name = "b"}, .fault = "connect: refused"}};

  expect_message(to_proto(snapshot, DropCounters(), 1'000), R"(
      mechanism: "none" probes {} sessions {}
      gpus_reason: "not read yet, or disabled: stats.gpu_interval_ms"
      recorder {}
      overhead_demand: OVERHEAD_DEMAND_DETAIL overhead_demand_percent: 2.5 overhead_demand_reason: "rule a"
      qos_rules { name: "a" text: "p99 x > 2: detail" value: 2.5 limit: 2 breached: true age_ns: 400 breaches: 3
                  caused_by_gpuperf: true }
      qos_rules { name: "b" fault: "connect: refused" })");
}

TEST(ToProtoTest, ShowsWhatMeasuringOverheadFound) {
  Snapshot snapshot;
  snapshot.overhead_trial = {.is_running = true, .end_mono_ns = 5'000};
  EXPECT_EQ(to_proto(snapshot, DropCounters(), 1'000).overhead_trial().remaining_ns(), 4'000u);
  EXPECT_EQ(to_proto(snapshot, DropCounters(), 9'000).overhead_trial().remaining_ns(), 1u);

  snapshot.overhead_trial = {.end_mono_ns = 5'000,
                             .stopped_by = kBadText,
                             .measurements = {{.process = {.pid = 42},
                                               .owner = {.comm = kBadText, .pod = "p"},
                                               .ratio = 0.25,
                                               .low_ratio = -0.5,
                                               .high_ratio = 0.5,
                                               .estimated_ratio = 0.125,
                                               .pairs = 7,
                                               .calls_per_second = 1.5}}};
  expect_message(to_proto(snapshot, DropCounters(), 9'000).overhead_trial(), R"(
      age_ns: 4000 stopped_by: "bad\357\277\275"
      measurements { pid: 42 comm: "bad\357\277\275" pod: "p" ratio: 0.25 low_ratio: -0.5 high_ratio: 0.5
                     estimated_ratio: 0.125 pairs: 7 calls_per_second: 1.5 })");
}

TEST(ToProtoTest, ConvertsAConfigError) {
  expect_message(to_proto(ConfigError{"$.slow", kBadText, "hint"}),
                 R"(path: "$.slow" message: "bad\357\277\275" hint: "hint")");
}

}  // namespace
}  // namespace gpuperf
