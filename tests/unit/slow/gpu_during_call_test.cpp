#include "daemon/slow/gpu_during_call.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "injector/session_abi.h"
#include "tests/unit/slow/examples.h"

namespace gpuperf {
namespace {

constexpr uint32_t kCaller = 71, kWorker = 72;
constexpr GpuUuid kUuid = {1};
constexpr GpuUuid kOtherUuid = {2};
constexpr char kUuidText[] = "GPU-01000000-0000-0000-0000-000000000000";
constexpr char kOtherUuidText[] = "GPU-02000000-0000-0000-0000-000000000000";

// Thread 71 is in its call from 1000 ms to 2000 ms. Stream 0 and 1 are of one GPU, stream 2 of
// another. Thread 72 launches at model.py:88, within linear, thread 71 in path_07.
class GpuDuringCallTest : public ::testing::Test {
 protected:
  GpuDuringCallTest() {
    capture_.start_mono_ns = 1'000 * kMs;
    capture_.duration_ns = 2'000 * kMs;
    capture_.processes = {{.process = {.pid = 70}, .is_injected = true}};
    capture_.threads = {{.process = 0, .tid = kCaller, .comm = "main"},
                        {.process = 0, .tid = kWorker, .comm = "worker"}};
    capture_.functions = {{"cuda", "cudaLaunchKernel"},
                          {"cuda", "cuLaunchKernel"},
                          {"libtorch", "linear"},
                          {"cuda", "cudaMemcpyAsync"}};
    capture_.operations = {{.function = 2}, {.parent = 0, .function = 1}};
    capture_.kernels = {{"flash(float*)", "flash"}, {"gemm(int)", "gemm"}};
    capture_.frames = {
        {.symbol = "main"},
        {.symbol = "forward", .file = "/w/model.py", .line = 88, .kind = StackFrameKind::kPython},
        {.symbol = "__call__",
         .file = "/usr/lib/python3/dist-packages/torch/nn.py",
         .line = 5,
         .kind = StackFrameKind::kPython},
        {.symbol = "at::launch()", .module = "/w/libtorch.so"},
        {.symbol = "cudaLaunchKernel", .module = "/w/libcudart.so.12"},
        {.symbol = "path_07", .module = "/w/injected"}};
    capture_.stacks = {{.frames = {0, 1, 2, 3, 4}}, {.frames = {0, 5, 4}}};
    capture_.devices = {{.uuid = kUuid, .number = 0}, {.uuid = kOtherUuid, .number = 1}};
    capture_.streams = {{.process = 0, .device = 0, .stream = 7},
                        {.process = 0, .device = 0, .stream = 8},
                        {.process = 0, .device = 1, .stream = 7}};
  }

  // Its index.
  uint32_t launch(uint64_t start_ms, bool by_caller = false, uint32_t function = 0) {
    capture_.launches.push_back({.start_mono_ns = start_ms * kMs,
                                 .duration_ns = kMs,
                                 .thread = by_caller ? 0u : 1u,
                                 .function = function,
                                 .stack = by_caller ? 1u : 0u,
                                 .operation = by_caller ? kNoIndex : 1u});
    return static_cast<uint32_t>(capture_.launches.size() - 1);
  }
  void kernel(uint32_t name, uint64_t start_ms, uint64_t end_ms, uint32_t launch,
              uint32_t stream = 0) {
    capture_.work.push_back({.start_mono_ns = start_ms * kMs,
                             .duration_ns = (end_ms - start_ms) * kMs,
                             .kernel = name,
                             .stream = stream,
                             .launch = launch});
  }
  void copy(uint64_t start_ms, uint64_t end_ms, uint32_t launch, uint64_t bytes) {
    capture_.work.push_back({.start_mono_ns = start_ms * kMs,
                             .duration_ns = (end_ms - start_ms) * kMs,
                             .bytes = bytes,
                             .kind = WorkKind::kCopy,
                             .direction = GPUPERF_MEMCPY_HOST_TO_DEVICE,
                             .stream = 0,
                             .launch = launch});
  }
  GpuDuringCall read(std::vector<OtherGpuWork> others = {}) {
    const std::vector<GpuDuringCall> all = list_gpu_during_calls(capture_, {{call_}}, others);
    return all.at(0);
  }

  static GpuLauncher by_worker(uint64_t start_ms) {
    return {.function = "cudaLaunchKernel",
            .operation = "linear",
            .frame = "forward (model.py:88)",
            .tid = kWorker,
            .comm = "worker",
            .start_mono_ns = start_ms * kMs};
  }
  static GpuLauncher by_caller(uint64_t start_ms, const char* function = "cudaLaunchKernel") {
    return {.function = function,
            .frame = "path_07",
            .tid = kCaller,
            .comm = "main",
            .is_calling_thread = true,
            .start_mono_ns = start_ms * kMs};
  }
  static std::vector<GpuDeviceTime> make_devices(uint64_t busy_ms, uint64_t second_busy_ms,
                                                 uint64_t others_ms = 0) {
    return {{.uuid = kUuidText,
             .number = 0,
             .busy_ns = busy_ms * kMs,
             .idle_ns = (1'000 - busy_ms) * kMs,
             .others_ns = others_ms * kMs},
            {.uuid = kOtherUuidText,
             .number = 1,
             .busy_ns = second_busy_ms * kMs,
             .idle_ns = (1'000 - second_busy_ms) * kMs}};
  }

  Capture capture_;
  CallInCapture call_ = {.start_mono_ns = 1'000 * kMs, .duration_ns = 1'000 * kMs, .tid = kCaller};
};

TEST_F(GpuDuringCallTest, IsIdleWhereNothingRan) {
  EXPECT_EQ(read(), (GpuDuringCall{.idle_ns = 1'000 * kMs, .devices = make_devices(0, 0)}));
}

TEST_F(GpuDuringCallTest, TellsTheLongestWorkOneByOneInItsOrderAndInFullLength) {
  const uint32_t first = launch(400);
  capture_.launches[first].correlation_id = 99;
  kernel(0, 600, 1'300, first, 2);
  kernel(1, 1'300, 1'310, first);
  copy(1'400, 1'600, first, 4'096);

  const auto all = list_gpu_during_calls(capture_, {{call_}}, {}, 2);

  const std::vector<GpuWorkSpan> expected = {{.name = "flash(float*)",
                                              .short_name = "flash",
                                              .start_mono_ns = 600 * kMs,
                                              .duration_ns = 700 * kMs,
                                              .device_uuid = kOtherUuidText,
                                              .device_number = 1,
                                              .stream = 7,
                                              .correlation_id = 99},
                                             {.name = "copy host_to_device",
                                              .short_name = "copy host_to_device",
                                              .start_mono_ns = 1'400 * kMs,
                                              .duration_ns = 200 * kMs,
                                              .device_uuid = kUuidText,
                                              .device_number = 0,
                                              .stream = 7,
                                              .correlation_id = 99,
                                              .bytes = 4'096}};
  EXPECT_EQ(all.at(0).longest, expected);
  EXPECT_EQ(all.at(0).work_count, 3u);
}

TEST_F(GpuDuringCallTest, TellsOfAWaitForAKernelThatBeganBeforeTheCall) {
  call_.waits_for_gpu = true;
  const uint32_t first = launch(400);
  const uint32_t second = launch(500);
  kernel(0, 600, 1'640, first);
  kernel(1, 1'640, 1'700, second);

  EXPECT_EQ(read(), (GpuDuringCall{.busy_ns = 700 * kMs,
                                   .idle_ns = 300 * kMs,
                                   .kernel_ns = 700 * kMs,
                                   .kernels = {{.kernel = "flash(float*)",
                                                .short_name = "flash",
                                                .total_ns = 640 * kMs,
                                                .count = 1,
                                                .longest_ns = 1'040 * kMs,
                                                .launcher = by_worker(400),
                                                .launcher_ns = 640 * kMs},
                                               {.kernel = "gemm(int)",
                                                .short_name = "gemm",
                                                .total_ns = 60 * kMs,
                                                .count = 1,
                                                .longest_ns = 60 * kMs,
                                                .launcher = by_worker(500),
                                                .launcher_ns = 60 * kMs}},
                                   .devices = make_devices(700, 0),
                                   .awaited = GpuAwaitedWork{.name = "gemm(int)",
                                                             .total_ns = 60 * kMs,
                                                             .duration_ns = 60 * kMs,
                                                             .queued_ns = 1'140 * kMs,
                                                             .stream_wait_ns = 1'140 * kMs,
                                                             .before_return_ns = 300 * kMs,
                                                             .launcher = by_worker(500)}}));
}

TEST_F(GpuDuringCallTest, SplitsTheQueueOfWhatTheCallLaunchedThoughItRanLater) {
  const uint32_t before = launch(900);
  const uint32_t own = launch(1'100, true, 3);
  kernel(0, 950, 1'900, before);
  copy(2'100, 2'150, own, 4'096);

  const GpuDuringCall gpu = read();

  EXPECT_EQ(gpu.own, (GpuOwnWork{.launches = 1,
                                 .run_ns = 50 * kMs,
                                 .stream_wait_ns = 800 * kMs,
                                 .device_wait_ns = 200 * kMs}));
  EXPECT_EQ(gpu.copies, std::vector<GpuCopyTime>());  // not within the call
  EXPECT_EQ(gpu.busy_ns, 900 * kMs);
  EXPECT_EQ(gpu.awaited, std::nullopt);  // nothing says that it waits
}

TEST_F(GpuDuringCallTest, TakesWhatAnotherThreadLaunchedMeanwhileForNoneOfItsOwn) {
  kernel(0, 1'200, 1'300, launch(1'100));

  EXPECT_EQ(read().own, GpuOwnWork());
}

TEST_F(GpuDuringCallTest, CountsWhatOverlapsOnceInTheUnionAndFullyInTheSums) {
  const uint32_t a = launch(1'000), b = launch(1'010);
  kernel(0, 1'100, 1'300, a, 0);
  kernel(0, 1'200, 1'400, b, 1);
  copy(1'350, 1'450, b, 1'000);
  kernel(1, 1'500, 1'600, b, 2);

  const GpuDuringCall gpu = read();

  EXPECT_EQ(gpu.busy_ns, 450 * kMs);
  EXPECT_EQ(gpu.idle_ns, 550 * kMs);
  EXPECT_EQ(gpu.kernel_ns, 400 * kMs);
  EXPECT_EQ(gpu.copy_ns, 100 * kMs);
  EXPECT_EQ(gpu.kernels[0].total_ns, 400 * kMs);
  EXPECT_EQ(gpu.kernels[0].launcher, by_worker(1'000));
  EXPECT_EQ(gpu.kernels[0].launcher_ns, 400 * kMs);  // the same place in the code
  EXPECT_EQ(
      gpu.copies,
      (std::vector<GpuCopyTime>{
          {.direction = "host_to_device", .total_ns = 100 * kMs, .count = 1, .bytes = 1'000}}));
  EXPECT_EQ(gpu.devices, make_devices(350, 100));
}

TEST_F(GpuDuringCallTest, NamesTheLauncherOfMostOfAKernel) {
  kernel(0, 1'100, 1'200, launch(1'000));
  kernel(0, 1'200, 1'500, launch(1'050, true));

  const GpuDuringCall gpu = read();

  EXPECT_EQ(gpu.kernels[0].count, 2);
  EXPECT_EQ(gpu.kernels[0].total_ns, 400 * kMs);
  EXPECT_EQ(gpu.kernels[0].launcher, by_caller(1'050));
  EXPECT_EQ(gpu.kernels[0].launcher_ns, 300 * kMs);
}

TEST_F(GpuDuringCallTest, ShowsFiveKernelsAndAddsUpTheRest) {
  for (uint32_t i = 0; i < 7; ++i) {
    capture_.kernels.push_back({"k" + std::to_string(i), "k" + std::to_string(i)});
    kernel(2 + i, 1'000 + 100 * i, 1'000 + 100 * i + 10 + i, kNoIndex);
  }

  const GpuDuringCall gpu = read();

  ASSERT_EQ(gpu.kernels.size(), 5);
  EXPECT_EQ(gpu.kernels[0].kernel, "k6");
  EXPECT_EQ(gpu.kernels[0].launcher, GpuLauncher());  // its launch is not known
  EXPECT_EQ(gpu.other_kernels, 2);
  EXPECT_EQ(gpu.other_kernels_ns, 21 * kMs);
}

TEST_F(GpuDuringCallTest, CountsAGraphByItsKernelsWhereTheyAreKnown) {
  const uint32_t by_nodes = launch(1'000), whole = launch(1'010);
  capture_.work.push_back({.start_mono_ns = 1'100 * kMs,
                           .duration_ns = 300 * kMs,
                           .kind = WorkKind::kGraph,
                           .stream = 0,
                           .launch = by_nodes,
                           .graph_id = 3});
  capture_.work.push_back({.start_mono_ns = 1'100 * kMs,
                           .duration_ns = 100 * kMs,
                           .kernel = 0,
                           .stream = 0,
                           .launch = by_nodes,
                           .graph_id = 3,
                           .node_id = 1});
  capture_.work.push_back({.start_mono_ns = 1'500 * kMs,
                           .duration_ns = 200 * kMs,
                           .kind = WorkKind::kGraph,
                           .stream = 0,
                           .launch = whole,
                           .graph_id = 7});

  const GpuDuringCall gpu = read();

  EXPECT_EQ(gpu.busy_ns, 500 * kMs);  // what lies between a graph's kernels is the graph's
  EXPECT_EQ(gpu.kernel_ns, 100 * kMs);
  EXPECT_EQ(gpu.graph_ns, 200 * kMs);
  ASSERT_EQ(gpu.kernels.size(), 2);
  EXPECT_EQ(gpu.kernels[0].kernel, "graph 7");
  EXPECT_EQ(gpu.kernels[0].total_ns, 200 * kMs);
  EXPECT_EQ(gpu.kernels[1].kernel, "flash(float*)");
}

TEST_F(GpuDuringCallTest, TakesARecordedWaitOfTheThreadForAWait) {
  kernel(0, 1'100, 1'990, launch(1'050));
  capture_.waits = {{.start_mono_ns = 1'060 * kMs, .duration_ns = 930 * kMs, .thread = 1}};
  EXPECT_EQ(read().awaited, std::nullopt);  // another thread's

  capture_.waits[0].thread = 0;

  ASSERT_TRUE(read().awaited);
  EXPECT_EQ(read().awaited->name, "flash(float*)");
  EXPECT_EQ(read().awaited->before_return_ns, 10 * kMs);
}

TEST_F(GpuDuringCallTest, WaitsForNothingThatEndedBeforeTheCallOrWellBehindIt) {
  call_.waits_for_gpu = true;
  kernel(0, 100, 900, launch(50));
  kernel(0, 1'900, 2'010, launch(60), 1);

  EXPECT_EQ(read().awaited, std::nullopt);
}

TEST_F(GpuDuringCallTest, AllowsForClocksThatDiffer) {
  call_.waits_for_gpu = true;
  kernel(0, 1'100, 2'000, launch(1'050));
  capture_.work[0].duration_ns += 5'000;

  ASSERT_TRUE(read().awaited);
  EXPECT_EQ(read().awaited->before_return_ns, 0);
}

TEST_F(GpuDuringCallTest, TellsOfOtherProcessesOnTheSameGpus) {
  const std::vector<OtherGpuWork> others = {
      {.pid = 90,
       .comm = "a",
       .device_uuid = kUuid,
       .stretches_mono_ns = {{900 * kMs, 1'100 * kMs}, {1'200 * kMs, 1'300 * kMs}}},
      {.pid = 91,
       .comm = "b",
       .device_uuid = kUuid,
       .stretches_mono_ns = {{1'250 * kMs, 1'600 * kMs}}},
      {.pid = 92,
       .comm = "elsewhere",
       .device_uuid = {9},
       .stretches_mono_ns = {{1'000 * kMs, 2'000 * kMs}}}};

  EXPECT_EQ(read(others), (GpuDuringCall{.idle_ns = 1'000 * kMs,
                                         .devices = make_devices(0, 0, 500),
                                         .others = {{91, "b", 350 * kMs}, {90, "a", 200 * kMs}},
                                         .others_ns = 500 * kMs}));
}

TEST_F(GpuDuringCallTest, SaysWhatIsMissing) {
  call_.missing = {"one launch of 8 is recorded"};
  capture_.gaps = {
      {.start_mono_ns = 2'500 * kMs, .process = 0, .cause = "queue_full", .count = 12},
      {.start_mono_ns = 1'500 * kMs, .duration_ns = 700 * kMs, .process = 0, .cause = "control"},
      {.start_mono_ns = 2'100 * kMs, .duration_ns = kMs, .process = 0, .cause = "nsight"}};
  launch(900);

  EXPECT_EQ(read().missing,
            (std::vector<std::string>{
                "one launch of 8 is recorded", "12 records lost about then (queue_full)",
                "less was collected for 500 ms of it (control)",
                "1 launch of before its end has no work by a second later: queued, running, or put "
                "into a graph"}));
}

TEST_F(GpuDuringCallTest, MissesNothingForLaunchesBehindTheCall) {
  launch(2'100);

  EXPECT_EQ(read().missing, std::vector<std::string>());
}

TEST_F(GpuDuringCallTest, ReadsEveryCallByItsOwnTime) {
  kernel(0, 1'200, 1'800, launch(1'050));
  const CallInCapture early = {.start_mono_ns = 1'100 * kMs, .duration_ns = 200 * kMs};
  const CallInCapture late = {.start_mono_ns = 1'700 * kMs, .duration_ns = 200 * kMs};

  const auto all = list_gpu_during_calls(capture_, {{late, early}}, {});

  ASSERT_EQ(all.size(), 2);
  EXPECT_EQ(all[0].busy_ns, 100 * kMs);
  EXPECT_EQ(all[1].busy_ns, 100 * kMs);
  EXPECT_EQ(all[0].idle_ns, 100 * kMs);
}

TEST_F(GpuDuringCallTest, HoldsWhateverIndexesTheCaptureHas) {
  call_.waits_for_gpu = true;
  kernel(99, 1'100, 1'200, 99, 99);
  capture_.launches.push_back(
      {.start_mono_ns = 1'100 * kMs, .thread = 99, .function = 99, .stack = 99});
  kernel(0, 1'300, 1'400, 0);

  const GpuDuringCall gpu = read();

  EXPECT_EQ(gpu.busy_ns, 200 * kMs);
  EXPECT_EQ(gpu.kernels.size(), 2);
}

TEST_F(GpuDuringCallTest, AveragesTheCountersOfTheSecondsThatContainTheCall) {
  const auto add = [&](GpuUuid uuid, uint64_t start_ms, uint64_t end_ms, uint64_t millionths) {
    GpuCounterRecord record{.uuid = uuid,
                            .window = {.start_mono_ns = static_cast<int64_t>(start_ms * kMs),
                                       .end_mono_ns = static_cast<int64_t>(end_ms * kMs)}};
    record.window.values[static_cast<size_t>(GpuCounter::kDram)] = millionths;
    capture_.gpu_counters.push_back(record);
  };
  add(kUuid, 0, 1'000, 999'999);  // ends as the call begins
  add(kUuid, 800, 1'800, 100'000);
  add(kOtherUuid, 900, 2'900, 710'000);
  add(kUuid, 1'800, 3'800, 400'000);
  capture_.gpu_counters.push_back(capture_.gpu_counters.back());
  capture_.gpu_counters.back().gpu_instance = 3;

  const GpuDuringCall gpu = read();

  GpuCounterValues first, second;
  first[static_cast<size_t>(GpuCounter::kDram)] = 300'000;
  second[static_cast<size_t>(GpuCounter::kDram)] = 710'000;
  EXPECT_EQ(gpu.devices[0].counters, (GpuCounterWindow{800 * kMs, 3'800 * kMs, first}));
  EXPECT_EQ(gpu.devices[1].counters, (GpuCounterWindow{900 * kMs, 2'900 * kMs, second}));
}

}  // namespace
}  // namespace gpuperf
