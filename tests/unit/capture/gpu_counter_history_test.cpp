#include "daemon/capture/gpu_counter_history.h"

#include <gtest/gtest.h>

#include "daemon/capture/trace_recorder.h"

namespace gpuperf {
namespace {

constexpr int64_t kWindowSecondNs = 1'000'000'000;

// One GPU whose newest window ends at that second.
GpuHealthReport make_report(int64_t end_second, uint8_t gpu = 1) {
  GpuHealth health{.index = gpu, .uuid = {gpu}};
  health.counters.window = {.start_mono_ns = (end_second - 1) * kWindowSecondNs,
                            .end_mono_ns = end_second * kWindowSecondNs,
                            .values = {500'000}};
  return {.read_mono_ns = end_second * kWindowSecondNs, .gpus = {health}};
}

class GpuCounterHistoryTest : public ::testing::Test {
 protected:
  void add(const GpuHealthReport& report) { history_.add(report, drops_); }

  GpuCounterHistory history_;
  DropCounters drops_;
};

TEST_F(GpuCounterHistoryTest, KeepsEachWindowOfEachGpuOnce) {
  add(make_report(10));
  add(make_report(10));  // brought again by a notice of an error
  add(make_report(10, 2));
  GpuHealthReport mig = make_report(11);
  mig.gpus[0].instance_counters[3] = mig.gpus[0].counters;
  mig.gpus[0].counters = {.reason = "in MIG mode, they are read per GPU instance"};
  add(mig);

  const std::vector<GpuCounterRecord> records = history_.list(0);

  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[1].uuid, GpuUuid{2});
  EXPECT_EQ(records[2].gpu_instance, 3u);
}

TEST_F(GpuCounterHistoryTest, ListsWindowsThatEndLater) {
  for (int64_t second = 1; second <= 5; ++second) add(make_report(second));

  const std::vector<GpuCounterRecord> records = history_.list(3 * kWindowSecondNs);

  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].window.end_mono_ns, 4 * kWindowSecondNs);
}

TEST_F(GpuCounterHistoryTest, CountsWhatACaptureMissesWhenItIsFull) {
  const auto fill = [this](int64_t first) {
    for (size_t i = 0; i <= GpuCounterHistory::kMaxRecords; ++i) {
      add(make_report(first + static_cast<int64_t>(i)));
    }
  };
  fill(1);
  EXPECT_EQ(history_.size(), GpuCounterHistory::kMaxRecords);
  EXPECT_EQ(drops_.get(DropCause::kTraceCaptureFull), 1u);

  history_.expire(1'000'000 * kWindowSecondNs);
  EXPECT_EQ(history_.size(), 0u);
}

TEST(TraceRecorderCountersTest, KeepsThemForItsSpanAndForPins) {
  DropCounters drops;
  TraceRecorder recorder({.max_bytes = 4 << 16, .span_ns = 3 * kWindowSecondNs}, drops);
  const auto apply = [&](int64_t from, int64_t to) {
    for (int64_t second = from; second <= to; ++second) recorder.apply(make_report(second));
  };
  apply(1, 10);
  const auto pin = recorder.pin(9 * kWindowSecondNs, UINT64_MAX);
  apply(11, 20);

  const TraceWindow window = recorder.take(pin);

  ASSERT_EQ(window.gpu_counters.size(), 11u);
  EXPECT_EQ(window.gpu_counters[0].window.end_mono_ns, 10 * kWindowSecondNs);
}

}  // namespace
}  // namespace gpuperf
