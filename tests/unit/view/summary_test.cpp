#include "daemon/view/summary.h"

#include "injector/session_abi.h"
#include "tests/fakes/captures/example_capture.h"
#include "tests/unit/matchers.h"

namespace gpuperf {
namespace {

using testing::make_example_capture;

constexpr uint64_t kUs = 1'000;

// One device, one stream, one thread; the window is [1000, 2000).
Capture make_small_capture() {
  Capture capture;
  capture.start_mono_ns = 1'000;
  capture.duration_ns = 1'000;
  capture.processes = {{{1, 1}, {}, true}};
  capture.threads = {{0, 1, "main"}};
  capture.functions = {{"cuda", "cudaLaunchKernel"}};
  capture.kernels = {{"k", "k"}};
  capture.devices = {{{1}, 0}};
  capture.streams = {{0, 0, 1, 7}};
  return capture;
}

void add_launch(uint64_t start_ns, uint64_t call_ns, Capture& capture) {
  capture.launches.push_back(
      {.start_mono_ns = start_ns, .duration_ns = call_ns, .thread = 0, .function = 0});
}

void add_kernel(uint64_t start_ns, uint64_t duration_ns, uint32_t launch, Capture& capture) {
  capture.work.push_back({.start_mono_ns = start_ns,
                          .duration_ns = duration_ns,
                          .kernel = 0,
                          .stream = 0,
                          .launch = launch});
}

Histogram make_histogram(std::initializer_list<uint64_t> values) {
  Histogram histogram;
  for (const uint64_t value : values) histogram.add(bucket_of(value), 1);
  return histogram;
}

TEST(SummaryTest, IdleTimeIsSplitByWhatTheLaunchingThreadDid) {
  Capture capture = make_small_capture();
  add_kernel(1'000, 100, kNoIndex, capture);
  add_launch(1'550, 100, capture);
  add_kernel(1'700, 200, 0, capture);
  capture.waits = {{.start_mono_ns = 1'100, .duration_ns = 300, .thread = 0}};

  const DeviceSummary device = summarise(capture).devices[0];

  // Until 1700: 300 waiting, 100 in the call, 50 after it, 150 between.
  const DeviceGap gap{1'100, 600, 0, {0, 150, 300, 100, 50}, IdleCause::kWaiting};
  EXPECT_EQ(device, (DeviceSummary{0, 2, 300, 600, 100, 1, {0, 150, 300, 100, 50}, {gap}}));
}

TEST(SummaryTest, AWaitInsideALaunchCallCountsOnce) {
  Capture capture = make_small_capture();
  add_kernel(1'000, 10, kNoIndex, capture);
  add_launch(1'000, 400, capture);
  add_kernel(1'400, 600, 0, capture);
  capture.waits = {{.start_mono_ns = 1'100, .duration_ns = 100, .thread = 0}};

  const DeviceGap gap = summarise(capture).devices[0].longest_gaps.at(0);

  EXPECT_EQ(gap, (DeviceGap{1'010, 390, 0, {0, 0, 100, 290, 0}, IdleCause::kLaunching}));
}

TEST(SummaryTest, BusyTimeIsTheUnionWithinTheWindow) {
  Capture capture = make_small_capture();
  capture.streams.push_back({0, 0, 1, 8});
  add_kernel(1'100, 200, kNoIndex, capture);
  add_kernel(1'200, 300, kNoIndex, capture);  // overlaps
  capture.work.back().stream = 1;
  add_kernel(1'900, 500, kNoIndex, capture);  // beyond the window

  const CaptureSummary summary = summarise(capture);

  EXPECT_EQ(summary.devices[0].busy_ns, 500u);
  EXPECT_EQ(summary.devices[0].idle_ns, 400u);
  EXPECT_EQ(summary.devices[0].edges_ns, 100u);  // before the first
  EXPECT_EQ(summary.gpu_ns, 1'000u);
}

TEST(SummaryTest, KeepsTheLongestGapsAndCountsAll) {
  Capture capture = make_small_capture();
  capture.duration_ns = 1'000'000;
  uint64_t at_ns = 1'000;
  for (uint64_t gap = 1; gap <= 30; ++gap) {
    at_ns += gap;
    add_kernel(at_ns, 10, kNoIndex, capture);
    at_ns += 10;
  }
  capture.duration_ns = at_ns - 1'000;

  const DeviceSummary device = summarise(capture).devices[0];

  EXPECT_EQ(device.gaps, 29u);  // all but what is before the first
  EXPECT_EQ(device.idle_ns, 30u * 31 / 2 - 1);
  ASSERT_EQ(device.longest_gaps.size(), 20u);
  EXPECT_EQ(device.longest_gaps.front().duration_ns, 30u);
  EXPECT_EQ(device.longest_gaps.back().duration_ns, 11u);
}

TEST(SummaryTest, LatencyIsWaitingForTheStreamAndForTheDevice) {
  Capture capture = make_small_capture();
  add_launch(1'100, 10, capture);
  add_launch(1'150, 10, capture);
  add_launch(1'900, 10, capture);
  add_kernel(1'200, 300, 0, capture);  // nothing before it on the stream
  add_kernel(1'520, 100, 1, capture);  // the stream was busy until 1500
  add_kernel(1'890, 100, 2, capture);  // before its call

  const LaunchLatency latency = summarise(capture).launch_latency;

  LaunchLatency expected{make_histogram({100, 370}), make_histogram({0, 350}),
                         make_histogram({100, 20})};
  expected.device_wait = make_histogram({20, 100});
  expected.latency_ns = 470;
  expected.stream_wait_ns = 350;
  expected.device_wait_ns = 120;
  expected.before_call = 1;
  EXPECT_EQ(latency, expected);
}

TEST(SummaryTest, AQueueIsWhatIsLaunchedAndNotBegun) {
  Capture capture = make_small_capture();
  add_launch(900, 10, capture);  // before the window
  add_launch(1'100, 10, capture);
  add_kernel(1'300, 100, 0, capture);
  add_kernel(1'500, 100, 1, capture);
  add_kernel(1'600, 100, 1, capture);  // of the same launch: not queued again

  const StreamSummary stream = summarise(capture).streams[0];

  // 1 from 1000, 2 from 1100, 1 from 1300, 0 from 1500: 100 + 400 + 200 of 1000.
  EXPECT_EQ(stream, (StreamSummary{0, 3, 300, 2, 0.7}));
}

TEST(SummaryTest, KernelsHaveExactQuantiles) {
  Capture capture = make_small_capture();
  for (uint64_t i = 1; i <= 200; ++i) {
    add_launch(1'000 + i, 1, capture);
    add_kernel(1'001 + 2 * i, i, static_cast<uint32_t>(i - 1), capture);
  }
  add_kernel(1'500, 7, kNoIndex, capture);
  capture.work.back().kernel = kNoIndex;

  const std::vector<KernelSummary> kernels = summarise(capture).kernels;

  const KernelSummary named{0, 200, 20'100, 1, 100, 100, 198, 200, 200, 101, 199};
  const KernelSummary unnamed{kNoIndex, 1, 7, 7, 7, 7, 7, 7, 0, 0, 0};
  EXPECT_THAT(kernels, ElementsAre(named, unnamed));
}

TEST(SummaryTest, WorkIsAddedUpByInnermostAndOutermostCall) {
  const CaptureSummary summary = summarise(make_example_capture());

  const std::array<uint64_t, 4> shape{512, 1024, 64, 1};
  // Neither the graph's launches nor the rest are within a probed call.
  const OperationSummary none{kNoIndex, {}, 5, 7, 182 * kUs};
  EXPECT_THAT(summary.innermost, ElementsAre(none, OperationSummary{1, shape, 1, 1, 60 * kUs},
                                             OperationSummary{0, {}, 1, 1, 20 * kUs}));
  EXPECT_THAT(summary.outermost, ElementsAre(none, OperationSummary{0, {}, 2, 2, 80 * kUs}));
}

TEST(SummaryTest, AGraphWhoseNodesAreKnownCountsOnce) {
  Capture capture = make_small_capture();
  add_launch(1'000, 10, capture);
  add_kernel(1'100, 500, 0, capture);
  capture.work.back().kind = WorkKind::kGraph;
  capture.work.back().graph_id = 3;
  add_kernel(1'100, 200, 0, capture);
  capture.work.back().graph_id = 3;
  add_kernel(1'300, 300, 0, capture);
  capture.work.back().graph_id = 3;

  const CaptureSummary summary = summarise(capture);

  EXPECT_EQ(summary.gpu_ns, 500u);
  EXPECT_THAT(summary.innermost, ElementsAre(OperationSummary{kNoIndex, {}, 1, 2, 500}));
}

TEST(SummaryTest, CopiesAreAddedUpByDirection) {
  const CaptureSummary summary = summarise(make_example_capture());

  EXPECT_THAT(summary.copies,
              ElementsAre(CopySummary{false, GPUPERF_MEMCPY_HOST_TO_DEVICE, 1, 1'000'000, 20 * kUs},
                          CopySummary{true, 0, 1, 4'096, 2 * kUs}));
}

TEST(SummaryTest, IndexesThatLeadNowhereAreNotFollowed) {
  Capture capture = make_small_capture();
  add_launch(1'100, 10, capture);
  capture.launches.back().thread = 77;
  capture.launches.back().operation = 78;
  add_kernel(1'000, 50, kNoIndex, capture);
  add_kernel(1'200, 50, 0, capture);
  add_kernel(1'300, 100, 99, capture);
  capture.work.back().stream = 5;
  capture.work.back().kernel = 5;
  capture.waits = {{.start_mono_ns = 1'100, .duration_ns = 10, .thread = 3}};
  capture.operations = {{.parent = 9, .function = 9}};

  const CaptureSummary summary = summarise(capture);

  EXPECT_EQ(summary.gpu_ns, 200u);
  EXPECT_EQ(summary.devices[0].busy_ns, 100u);
  EXPECT_EQ(summary.devices[0].longest_gaps.at(0).cause, IdleCause::kUnknown);
}

TEST(SummaryTest, AnEmptyCaptureIsAllZero) { EXPECT_EQ(summarise(Capture{}), CaptureSummary{}); }

}  // namespace
}  // namespace gpuperf
