#include "daemon/gpu/gpu_counter_reader.h"

#include <gtest/gtest.h>

#include <cmath>

#include "daemon/gpu/gpu_reader.h"
#include "tests/unit/gpu/fake_gpus.h"
#include "tests/unit/matchers.h"

namespace gpuperf {
namespace {

using testing::FakeGpus;

uint64_t get(const GpuCounterState& state, GpuCounter counter) {
  return state.window.values[static_cast<size_t>(counter)].value();
}

// One GPU, read through GpuReader once a second.
class GpuCounterReaderTest : public ::testing::Test {
 protected:
  GpuCounterReaderTest() { fake_.add_gpm(*api_); }
  GpuHealth read(int seconds = 1) {
    if (!reader_.is_open()) {
      EXPECT_TRUE(reader_.open(api_).ok());
    }
    for (int i = 0; i < seconds; ++i) EXPECT_TRUE(reader_.read(now_mono_ns_ += kSecondNs).ok());
    return reader_.make_report().gpus.at(0);
  }
  size_t count(const char* call) const { return fake_.calls.count(call); }

  FakeGpus fake_;
  std::shared_ptr<NvmlApi> api_ = fake_.make_api();
  GpuReader reader_{std::chrono::seconds(1), std::make_shared<CallWatch>()};
  int64_t now_mono_ns_ = 100 * kSecondNs;
};

TEST_F(GpuCounterReaderTest, AveragesBetweenTwoSamples) {
  const GpuCounterState first = read().counters;
  const GpuCounterState second = read().counters;

  EXPECT_EQ(first, (GpuCounterState{.samples = 1}));
  EXPECT_EQ(second.window.end_mono_ns - second.window.start_mono_ns, kSecondNs);
  EXPECT_EQ(get(second, GpuCounter::kTensor), 835'000u);
  EXPECT_EQ(get(second, GpuCounter::kPcieReceive), 2u << 20);
  EXPECT_EQ(second.window.values[static_cast<size_t>(GpuCounter::kDram)], std::nullopt);
  EXPECT_EQ(second.reason, "");
}

TEST_F(GpuCounterReaderTest, CostsOneCallWhereAGpuHasNone) {
  fake_.gpus[0].gpm.is_supported = false;

  const GpuCounterState state = read(60).counters;

  EXPECT_EQ(state.reason, "this GPU has none that NVML can read (GPM): Hopper and later have them");
  EXPECT_FALSE(state.has_failed);
  EXPECT_EQ(state.samples, 0u);
  EXPECT_EQ(count("gpm_support"), 1u);
  EXPECT_EQ(count("gpm_sample"), 0u);
}

TEST_F(GpuCounterReaderTest, SaysThatADriverCannot) {
  api_->gpm_metrics = nullptr;

  const GpuCounterState state = read(3).counters;

  EXPECT_EQ(state.reason, "this version of NVIDIA's driver cannot read them (NVML without GPM)");
  EXPECT_EQ(count("gpm_support"), 0u);
}

TEST_F(GpuCounterReaderTest, CountsSamplesThatFailAndComesBackByItself) {
  (void)read(2);
  fake_.gpus[0].gpm.sample_answer = kNvmlUnknown;
  const GpuCounterState failing = read(30).counters;
  fake_.gpus[0].gpm.sample_answer = kNvmlSuccess;
  const GpuCounterState back = read(60).counters;

  // At 1, 3, 7 and 15 s of the 30.
  EXPECT_EQ(failing.failed_samples, 4u);
  EXPECT_EQ(failing.window, GpuCounterWindow());
  EXPECT_TRUE(failing.has_failed);
  EXPECT_EQ(failing.reason, "nvmlGpmSampleGet: NVML error 999; tried again after 16 s");
  EXPECT_EQ(back.reason, "");
  EXPECT_FALSE(back.has_failed);
  EXPECT_EQ(get(back, GpuCounter::kTensor), 835'000u);
  EXPECT_EQ(back.failed_samples, 4u);
}

TEST_F(GpuCounterReaderTest, TakesSamplesWithoutAnyValueForFailed) {
  (void)read(2);
  fake_.gpus[0].gpm.metrics = {{kGpmAnyTensor, std::nan("")}, {kGpmSm, -1}, {kGpmDram, 1e300}};

  const GpuCounterState state = read().counters;

  EXPECT_EQ(state.failed_samples, 1u);
  EXPECT_EQ(state.reason,
            "nvmlGpmMetricsGet has no values: a profiler may hold them; tried again after 2 s");
}

TEST_F(GpuCounterReaderTest, ReadsGpuInstancesInMigMode) {
  fake_.add_mig(*api_);
  fake_.gpus[0].gpm_of_instances[3].metrics = {{kGpmSm, 50}};
  fake_.gpus[0].gpm_of_instances[5].sample_answer = kNvmlNotSupported;

  const GpuHealth gpu = read(2);

  EXPECT_EQ(gpu.counters.reason, "in MIG mode, they are read per GPU instance");
  EXPECT_EQ(gpu.counters.samples, 0u);
  ASSERT_EQ(gpu.instance_counters.size(), 2u);
  EXPECT_EQ(get(gpu.instance_counters.at(3), GpuCounter::kSm), 500'000u);
  EXPECT_TRUE(gpu.instance_counters.at(5).has_failed);
}

TEST_F(GpuCounterReaderTest, FreesSamplesOfInstancesThatAreGone) {
  fake_.add_mig(*api_);
  fake_.gpus[0].gpm_of_instances[3] = {};
  (void)read(2);
  fake_.gpus[0].gpm_of_instances.clear();

  const GpuHealth gpu = read(70);  // the layout is read once a minute

  EXPECT_TRUE(gpu.instance_counters.empty());
  EXPECT_EQ(get(gpu.counters, GpuCounter::kTensor), 835'000u);
  EXPECT_EQ(count("gpm_free"), 2u);
}

TEST_F(GpuCounterReaderTest, FreesSamplesWithTheSessionAndCountsOn) {
  (void)read(3);
  reader_.close();

  const GpuCounterState state = read().counters;

  EXPECT_EQ(count("gpm_free"), 2u);
  EXPECT_EQ(count("gpm_alloc"), 4u);
  EXPECT_EQ(state, (GpuCounterState{.samples = 4}));
}

TEST_F(GpuCounterReaderTest, MakesNoCallWhereItIsSwitchedOff) {
  GpuReader reader(std::chrono::seconds(1), std::make_shared<CallWatch>(), false);
  ASSERT_TRUE(reader.open(api_).ok());
  ASSERT_TRUE(reader.read(now_mono_ns_).ok());

  EXPECT_EQ(reader.make_report().gpus.at(0).counters.reason, "switched off: stats.gpu_counters");
  EXPECT_EQ(count("gpm_support"), 0u);
}

}  // namespace
}  // namespace gpuperf
