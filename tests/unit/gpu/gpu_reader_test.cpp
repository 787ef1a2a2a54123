#include "daemon/gpu/gpu_reader.h"

#include <gtest/gtest.h>

#include "tests/unit/gpu/fake_gpus.h"

namespace gpuperf {
namespace {

using testing::FakeGpu;
using testing::FakeGpus;

class GpuReaderTest : public ::testing::Test {
 protected:
  GpuHealth read_first(int64_t now_mono_ns = 100 * kSecondNs) {
    EXPECT_TRUE(reader_.read(now_mono_ns).ok());
    return reader_.make_report().gpus.at(0);
  }

  FakeGpus fake_;
  GpuReader reader_{std::chrono::seconds(1), std::make_shared<CallWatch>()};
};

TEST_F(GpuReaderTest, LeavesOutWhatTheDriverHasNoFunctionFor) {
  ASSERT_TRUE(reader_.open(fake_.make_api()).ok());

  const GpuHealth gpu = read_first();

  EXPECT_EQ(gpu.uuid_text, "GPU-0123abcd-0000-1111-2222-000000000001");
  EXPECT_EQ(gpu.uuid, parse_gpu_uuid(gpu.uuid_text));
  EXPECT_EQ(gpu.sm_clock_hz, 1'755'000'000u);
  EXPECT_EQ(gpu.temperature_celsius, std::nullopt);
  EXPECT_EQ(gpu.utilization_ratio, std::nullopt);
  EXPECT_EQ(gpu.memory_used_bytes, std::nullopt);
  EXPECT_EQ(gpu.is_mig_enabled, std::nullopt);
  EXPECT_FALSE(gpu.is_lost);
}

TEST_F(GpuReaderTest, ReadsPowerEnergyAndErrorsFromFieldValues) {
  fake_.gpus[0].fields = {{kFieldPowerAverageMw, {512'000, kNvmlUnsignedInt}},
                          {kFieldPowerInstantMw, {700'000, kNvmlUnsignedInt}},
                          {kFieldEnergyMj, {9'000'000'000}},
                          {kFieldEccUncorrectedVolatile, {2}},
                          {kFieldRemapPending, {1, kNvmlUnsignedInt}}};
  ASSERT_TRUE(reader_.open(fake_.make_api()).ok());

  const GpuHealth gpu = read_first();

  EXPECT_EQ(gpu.power_mw, 512'000u);
  EXPECT_EQ(gpu.energy_mj, 9'000'000'000u);
  EXPECT_EQ(gpu.ecc, (EccCounts{.uncorrected_volatile = 2}));
  EXPECT_EQ(gpu.repair, (RepairState{.remap_pending = 1}));
}

TEST_F(GpuReaderTest, FindsTheDurationsOfItsDriver) {
  fake_.gpus[0].fields = {{kFieldSwThermalNsOld, {1, kNvmlUnsignedInt}},  // power smoothing's
                          {kFieldSwThermalNsOld + 1, {0, kNvmlUnsignedInt}},
                          {kFieldSwThermalNsOld + 2, {1, kNvmlUnsignedInt}},
                          {kFieldSwThermalNsNew, {10}},
                          {kFieldSwThermalNsNew + 1, {20}},
                          {kFieldSwThermalNsNew + 2, {30}},
                          {kFieldPowerCapNs, {40}}};
  ASSERT_TRUE(reader_.open(fake_.make_api()).ok());

  const GpuHealth gpu = read_first();

  const auto total = [&](ClockLimit limit) {
    return gpu.clock_limits[static_cast<size_t>(limit)].total_ns;
  };
  EXPECT_EQ(total(ClockLimit::kSwThermal), 10u);
  EXPECT_EQ(total(ClockLimit::kHwThermal), 20u);
  EXPECT_EQ(total(ClockLimit::kPowerBrake), 30u);
  EXPECT_EQ(total(ClockLimit::kPowerCap), 40u);
  EXPECT_EQ(total(ClockLimit::kSyncBoost), std::nullopt);
}

TEST_F(GpuReaderTest, ReadsErrorsOfMemoryTenTimesRarerThanClocks) {
  ASSERT_TRUE(reader_.open(fake_.make_api()).ok());

  for (int second = 0; second < 20; ++second) ASSERT_TRUE(reader_.read(second * kSecondNs).ok());

  EXPECT_EQ(fake_.calls.count("clock"), 40u);             // of multiprocessors and memory
  EXPECT_EQ(fake_.calls.count("fields"), 20u + 2u + 1u);  // each round, memory errors, remapping
}

TEST_F(GpuReaderTest, KeepsTheOthersWhenOneGpuIsLost) {
  FakeGpu second;
  second.uuid = "GPU-0123abcd-0000-1111-2222-000000000002";
  fake_.gpus.push_back(second);
  ASSERT_TRUE(reader_.open(fake_.make_api()).ok());
  (void)read_first();
  fake_.gpus[0].is_lost = true;
  fake_.gpus[1].sm_mhz = 345;

  ASSERT_TRUE(reader_.read(200 * kSecondNs).ok());

  const GpuHealthReport report = reader_.make_report();
  EXPECT_TRUE(reader_.is_any_lost());
  EXPECT_TRUE(report.gpus[0].is_lost);
  EXPECT_EQ(report.gpus[0].sm_clock_hz, 1'755'000'000u);  // the last known
  EXPECT_EQ(report.gpus[0].read_mono_ns, 100 * kSecondNs);
  EXPECT_FALSE(report.gpus[1].is_lost);
  EXPECT_EQ(report.gpus[1].sm_clock_hz, 345'000'000u);
}

TEST_F(GpuReaderTest, KnowsAGpuAgainInANewSession) {
  ASSERT_TRUE(reader_.open(fake_.make_api()).ok());
  fake_.gpus[0].is_lost = true;
  (void)read_first();
  reader_.close();
  ASSERT_TRUE(reader_.open(fake_.make_api()).ok());
  EXPECT_TRUE(reader_.make_report().gpus.at(0).is_lost);  // no handle is given for it
  reader_.close();
  fake_.gpus[0].is_lost = false;

  ASSERT_TRUE(reader_.open(fake_.make_api()).ok());

  EXPECT_FALSE(read_first(300 * kSecondNs).is_lost);
  EXPECT_EQ(fake_.inits, 3);
  EXPECT_EQ(fake_.shutdowns, 2);
}

TEST_F(GpuReaderTest, SaysWhenTheSessionIsOfNoUse) {
  ASSERT_TRUE(reader_.open(fake_.make_api()).ok());
  fake_.fields_answer = kNvmlUninitialized;

  const Status status = reader_.read(100 * kSecondNs);

  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "NVML: NVML error 1");
}

TEST_F(GpuReaderTest, SaysWhyADriverCannotBeReached) {
  fake_.init_answer = kNvmlVersionMismatch;
  auto api = fake_.make_api();
  api->error_string = [](NvmlReturn) { return "Driver/library version mismatch"; };

  const Status status = reader_.open(api);

  EXPECT_EQ(status.message(), "nvmlInit: Driver/library version mismatch");
  EXPECT_FALSE(reader_.is_open());
}

TEST_F(GpuReaderTest, ReadsAtMostSoManyGpus) {
  fake_.gpus.clear();
  for (unsigned i = 0; i < GpuReader::kMaxGpus + 1; ++i) {
    char text[64];
    std::snprintf(text, sizeof text, "GPU-0123abcd-0000-1111-2222-%012x", i);
    fake_.gpus.push_back({.uuid = text});
  }

  ASSERT_TRUE(reader_.open(fake_.make_api()).ok());

  EXPECT_EQ(reader_.make_report().gpus.size(), GpuReader::kMaxGpus);
}

TEST_F(GpuReaderTest, PutsTheProcessWithMostMemoryFirst) {
  auto api = fake_.make_api();
  api->processes = [](NvmlDevice, unsigned* count, NvmlProcessInfo* infos) {
    *count = 3;
    infos[0] = {.pid = 10, .used_gpu_memory = ~0ULL};
    infos[1] = {.pid = 11, .used_gpu_memory = 100};
    infos[2] = {.pid = 12, .used_gpu_memory = 200};
    return kNvmlSuccess;
  };
  ASSERT_TRUE(reader_.open(api).ok());

  EXPECT_EQ(read_first().processes,
            (std::vector<GpuProcessMemory>{{12, 200}, {11, 100}, {10, std::nullopt}}));
}

}  // namespace
}  // namespace gpuperf
