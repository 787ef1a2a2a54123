#include "daemon/view/kernel_samples.h"

#include <gmock/gmock.h>

#include <numeric>

#include "daemon/view/diff.h"
#include "daemon/view/flamegraph_svg.h"
#include "daemon/view/folded.h"
#include "daemon/view/pprof.h"
#include "daemon/view/report_tables.h"
#include "daemon/view/summary.h"

namespace gpuperf {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Two kernels, of which the first was sampled: a quarter at barriers.
Capture make_sampled_capture(uint64_t barrier = 1'000, uint64_t memory = 3'000) {
  Capture capture;
  capture.duration_ns = 1'000'000'000;
  capture.processes = {{.process = {.pid = 7, .start_boot_ns = 1}}};
  capture.kernels = {{.name = "add(float*)", .short_name = "add"},
                     {.name = "copy(float*)", .short_name = "copy"}};
  capture.devices = {{}};
  capture.streams = {{.process = 0, .device = 0, .stream = 7}};
  for (const uint32_t kernel : {0u, 1u, 0u}) {
    capture.work.push_back({.start_mono_ns = 10 * capture.work.size(),
                            .duration_ns = 1'001,
                            .kernel = kernel,
                            .stream = 0});
  }
  capture.stalls = {{.process = 0, .kernel = 0, .stall = GPUPERF_STALL_barrier, .samples = barrier},
                    {.process = 0,
                     .kernel = 0,
                     .stall = GPUPERF_STALL_long_scoreboard,
                     .samples = memory,
                     .idle_samples = 9}};
  return capture;
}
const ViewOptions kWithStalls{.with_stalls = true};

TEST(KernelSamplesTest, AddsUpProcessesByKernel) {
  Capture capture = make_sampled_capture();
  capture.processes.push_back({});
  capture.stalls.push_back(
      {.process = 1, .kernel = 0, .stall = GPUPERF_STALL_barrier, .samples = 5});

  const auto kernels = sum_samples(capture);

  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(kernels.at(0).samples, 4'005u);
  EXPECT_EQ(kernels.at(0).stalls[GPUPERF_STALL_barrier], (StallCount{1'005, 0}));
  EXPECT_EQ(kernels.at(0).stalls[GPUPERF_STALL_long_scoreboard], (StallCount{3'000, 9}));
}

TEST(KernelSamplesTest, SplitsTimeWithoutLosingANanosecond) {
  KernelStalls stalls;
  for (uint32_t stall = 0; stall < GPUPERF_STALL_COUNT; ++stall) {
    stalls.stalls[stall].samples = 7 * stall + 1;
    stalls.samples += 7 * stall + 1;
  }
  for (const uint64_t time_ns : {0ull, 1ull, 19ull, 1'000'003ull, 3'600'000'000'000ull}) {
    const std::vector<StallTime> parts = split_by_stall(stalls, time_ns);
    uint64_t sum_ns = 0;
    for (const StallTime& part : parts) {
      sum_ns += part.time_ns;
      const double exact = static_cast<double>(time_ns) *
                           static_cast<double>(stalls.stalls[part.stall].samples) /
                           static_cast<double>(stalls.samples);
      EXPECT_NEAR(static_cast<double>(part.time_ns), exact, 1.001);
    }
    EXPECT_EQ(sum_ns, time_ns);
  }
}

TEST(KernelSamplesTest, AreTheLeavesOfFlameGraphsAndFoldedStacks) {
  const Capture capture = make_sampled_capture();
  EXPECT_EQ(render_folded(capture, kWithStalls),
            "[no launch];[GPU_Kernel]add(float*);[GPU_Stall]barrier 0.500\n"
            "[no launch];[GPU_Kernel]add(float*);[GPU_Stall]long_scoreboard 1.502\n"
            "[no launch];[GPU_Kernel]copy(float*) 1.001\n");
  EXPECT_EQ(
      render_folded(capture, {}),
      "[no launch];[GPU_Kernel]add(float*) 2.002\n[no launch];[GPU_Kernel]copy(float*) 1.001\n");
  const std::string svg = render_flamegraph(capture, kWithStalls);
  EXPECT_THAT(svg, HasSubstr("[GPU_Stall]long_scoreboard"));
  EXPECT_THAT(svg, HasSubstr("its time by the shares of its PC samples (4,000 in all)"));
  EXPECT_THAT(render_flamegraph(capture, {}), Not(HasSubstr("GPU_Stall")));
}

TEST(KernelSamplesTest, AreComparedByStall) {
  DiffOptions options{.view = kWithStalls, .by = DiffBy::kStall, .scale = DiffScale::kAbsolute};
  const std::vector<DiffRow> rows =
      diff_captures(make_sampled_capture(), make_sampled_capture(3'000, 1'000), options);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].name, "[GPU_Stall]barrier");
  EXPECT_EQ(rows[0].delta_ns, 1'001);
  EXPECT_EQ(rows[1].name, "[GPU_Stall]long_scoreboard");
  EXPECT_EQ(rows[1].delta_ns, -1'001);
  EXPECT_EQ(rows[2].name, "[GPU_Kernel]copy(float*)");
  EXPECT_EQ(rows[2].delta_ns, 0);

  options.by = DiffBy::kKernel;
  options.view.with_stalls = false;
  EXPECT_EQ(
      diff_captures(make_sampled_capture(), make_sampled_capture(3'000, 1'000), options).size(),
      2u);
}

TEST(KernelSamplesTest, AreColumnsOfTheReportWhereThereAreSome) {
  Capture capture = make_sampled_capture();
  std::string html = make_report_kernels(capture, summarise(capture));
  EXPECT_THAT(html, HasSubstr("long_scoreboard 75.0 %"));
  EXPECT_THAT(html, HasSubstr("memory latency"));
  capture.stalls.clear();
  html = make_report_kernels(capture, summarise(capture));
  EXPECT_THAT(html, Not(HasSubstr("Limited by")));
}

// A window of a second: the first kernel fills so much of it, and DRAM is so busy.
Capture make_counted(uint64_t kernel_ns, uint64_t dram_millionths) {
  Capture capture = make_sampled_capture(0, 4'000);
  capture.work = {
      {.start_mono_ns = 1'000, .duration_ns = kernel_ns, .kernel = 0, .stream = 0},
      {.start_mono_ns = 1'000 + kernel_ns, .duration_ns = 100'000'000, .kernel = 1, .stream = 0}};
  GpuCounterRecord record{.window = {.start_mono_ns = 1'000, .end_mono_ns = 1'000'001'000}};
  record.window.values[static_cast<size_t>(GpuCounter::kDram)] = dram_millionths;
  capture.gpu_counters = {record};
  return capture;
}

TEST(KernelSamplesTest, TellBandwidthFromLatencyWhereAKernelFillsASecond) {
  const auto report = [](const Capture& capture) {
    return make_report_kernels(capture, summarise(capture));
  };
  EXPECT_THAT(report(make_counted(850'000'000, 700'000)), HasSubstr("memory bandwidth"));
  EXPECT_THAT(report(make_counted(850'000'000, 300'000)), HasSubstr("memory latency"));
  EXPECT_THAT(report(make_counted(700'000'000, 700'000)), HasSubstr("memory latency"));

  const auto uses = find_dram_use(make_counted(850'000'000, 700'000));
  ASSERT_EQ(uses.size(), 1u);
  EXPECT_DOUBLE_EQ(uses.at(0).ratio, 0.7);
  EXPECT_EQ(uses.at(0).windows, 1u);
}

}  // namespace
}  // namespace gpuperf
