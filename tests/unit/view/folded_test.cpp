#include "daemon/view/folded.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "tests/unit/view/capture_builder.h"
#include "tests/workloads/synthetic_capture.h"

namespace gpuperf {
namespace {

using Builder = testing::CaptureBuilder;

// The nanoseconds of all lines; each must end in three decimals.
uint64_t add_lines(const std::string& folded) {
  uint64_t sum_ns = 0;
  std::istringstream lines(folded);
  for (std::string line; std::getline(lines, line);) {
    const std::string number = line.substr(line.rfind(' ') + 1);
    EXPECT_EQ(number[number.size() - 4], '.') << line;
    sum_ns += std::stoull(number.substr(0, number.size() - 4)) * 1000 +
              std::stoull(number.substr(number.size() - 3));
  }
  return sum_ns;
}

TEST(FoldedTest, AddsUpEqualPathsAndSortsThem) {
  Builder builder;
  const uint32_t api = builder.add_function("cudaLaunchKernel");
  const uint32_t step = builder.add_stack({Builder::native("main"), Builder::python("step")});
  const uint32_t same = builder.add_stack({Builder::native("main"), Builder::python("step")});
  const uint32_t other = builder.add_stack({Builder::native("main")});
  const uint32_t gemm = builder.add_kernel("gemm");
  builder.add_kernel_work(step, api, gemm, 1'000'001);
  builder.add_kernel_work(same, api, gemm, 2);
  builder.add_kernel_work(other, api, gemm, 30);
  builder.made.work.push_back(
      {.duration_ns = 5, .kind = WorkKind::kCopy, .direction = GPUPERF_MEMCPY_DEVICE_TO_HOST});

  EXPECT_EQ(render_folded(builder.made, {}),
            "[no launch];[GPU_Memcpy]device_to_host 0.005\n"
            "main;cudaLaunchKernel;[GPU_Kernel]gemm 0.030\n"
            "main;step (model.py);cudaLaunchKernel;[GPU_Kernel]gemm 1000.003\n");
}

TEST(FoldedTest, AddsUpToTheWorkToTheNanosecond) {
  const Capture capture =
      testing::make_synthetic_capture({.stacks = 300, .work = 20'000, .deepest = 80});
  uint64_t work_ns = 0;
  for (const CaptureWork& work : capture.work) work_ns += work.duration_ns;

  EXPECT_EQ(add_lines(render_folded(capture, {})), work_ns);
  EXPECT_EQ(add_lines(render_folded(capture, {.path = {.with_process = true, .with_lines = true}})),
            work_ns);
}

TEST(FoldedTest, DoesNotCountAGraphAndItsNodes) {
  Builder builder;
  const uint32_t api = builder.add_function("cudaGraphLaunch");
  const uint32_t kernel = builder.add_kernel("node");
  const uint32_t one = builder.add_launch({.thread = 0, .function = api});
  const uint32_t two = builder.add_launch({.thread = 0, .function = api});
  builder.made.work = {
      {.duration_ns = 100, .kind = WorkKind::kGraph, .launch = one, .graph_id = 7},
      {.duration_ns = 60, .kernel = kernel, .launch = one, .graph_id = 7, .node_id = 1},
      {.duration_ns = 200, .kind = WorkKind::kGraph, .launch = two, .graph_id = 7}};

  EXPECT_EQ(render_folded(builder.made, {}),
            "[no stack];cudaGraphLaunch;[GPU_Graph]7 0.200\n"
            "[no stack];cudaGraphLaunch;[GPU_Kernel]node 0.060\n");
}

TEST(FoldedTest, PutsNodesWhereTheyWereCapturedIfAsked) {
  Builder builder;
  const uint32_t replay = builder.add_function("cudaGraphLaunch");
  const uint32_t launch = builder.add_function("cudaLaunchKernel");
  const uint32_t kernel = builder.add_kernel("node");
  const uint32_t stack = builder.add_stack({Builder::python("layer")});
  builder.made.capture_sites = {{.function = launch, .stack = stack}};
  const uint32_t replayed = builder.add_launch({.function = replay});
  builder.made.work = {{.duration_ns = 60,
                        .kernel = kernel,
                        .launch = replayed,
                        .capture_site = 0,
                        .graph_id = 7,
                        .node_id = 1}};

  EXPECT_EQ(render_folded(builder.made, {}), "[no stack];cudaGraphLaunch;[GPU_Kernel]node 0.060\n");
  EXPECT_EQ(render_folded(builder.made, {.by_capture_site = true}),
            "layer (model.py);cudaLaunchKernel;[GPU_Kernel]node 0.060\n");
}

TEST(FoldedTest, CountsCpuAndOffCpuTimeOfCallsOnce) {
  Builder builder;
  const uint32_t linear = builder.add_function("linear", "libtorch");
  const uint32_t launch = builder.add_function("cudaLaunchKernel");
  const uint32_t wait = builder.add_function("cudaStreamSynchronize");
  const uint32_t stack =
      builder.add_stack({Builder::native("main"), Builder::native("at::_ops::linear::call()")});
  builder.made.calls = {
      {.start_mono_ns = 1000, .duration_ns = 900, .thread = 0, .function = linear},
      {.start_mono_ns = 1100, .duration_ns = 500, .thread = 0, .function = launch, .depth = 1},
      {.start_mono_ns = 3000,
       .duration_ns = 400,
       .off_cpu_ns = 300,
       .thread = 0,
       .function = wait}};
  builder.add_launch({.start_mono_ns = 1110,  // the same call as CUPTI saw it
                      .duration_ns = 480,
                      .thread = 0,
                      .function = launch,
                      .stack = stack});

  EXPECT_EQ(render_folded(builder.made, {.weight = ViewWeight::kCpuTime}),
            "[no stack];cudaStreamSynchronize 0.100\n"
            "main;at::_ops::linear::call() 0.400\n"
            "main;at::_ops::linear::call();cudaLaunchKernel 0.500\n");
  EXPECT_EQ(render_folded(builder.made, {.weight = ViewWeight::kOffCpuTime}),
            "[no stack];cudaStreamSynchronize 0.300\n");
}

TEST(FoldedTest, WritesALinePerLaunch) {
  Builder builder;
  const uint32_t api = builder.add_function("cudaLaunchKernel");
  const uint32_t stack = builder.add_stack({Builder::native("main"), Builder::python("step")});
  builder.add_launch({.start_mono_ns = 123, .thread = 0, .function = api, .stack = stack});
  builder.add_launch({.start_mono_ns = 456, .function = api});

  EXPECT_EQ(render_extended_folded(builder.made, {}),
            "123 main_loop 42 43 -1 main;step (model.py);cudaLaunchKernel\n"
            "456 ? 0 0 -1 [no stack];cudaLaunchKernel\n");
}

TEST(FoldedTest, IsEmptyWhereNothingIs) {
  EXPECT_EQ(render_folded({}, {}), "");
  EXPECT_EQ(render_folded({}, {.weight = ViewWeight::kCpuTime}), "");
  EXPECT_EQ(render_extended_folded({}, {}), "");
}

}  // namespace
}  // namespace gpuperf
