#include "daemon/model/gpu_health.h"

#include <gtest/gtest.h>

#include "daemon/model/xids.h"

namespace gpuperf {
namespace {

constexpr int64_t kMinuteNs = 60'000'000'000;
constexpr int64_t kNowNs = 100'000 * kMinuteNs;

GpuHealth make_limited(ClockLimit limit, double minute_ratio) {
  GpuHealth gpu;
  gpu.clock_limits[static_cast<size_t>(limit)].minute_ratio = minute_ratio;
  return gpu;
}

GpuHealth make_with_xid(uint32_t xid, int64_t age_ns, uint64_t count = 1) {
  GpuHealth gpu;
  gpu.xids[xid] = {.count = count, .last_mono_ns = kNowNs - age_ns};
  return gpu;
}

TEST(GpuHealthTest, CallsAGpuHealthyThatIsAtRest) {
  EXPECT_EQ(judge_gpu(make_limited(ClockLimit::kIdle, 1), kNowNs),
            (GpuVerdict{GpuState::kOk, "healthy", ""}));
}

TEST(GpuHealthTest, SaysWhatSlowsAGpuDownAndForHowLong) {
  const GpuVerdict verdict = judge_gpu(make_limited(ClockLimit::kHwThermal, 0.43), kNowNs);

  EXPECT_EQ(verdict.state, GpuState::kSlowed);
  EXPECT_EQ(verdict.text, "slowed: hardware thermal slowdown, 43 % of the last minute");
  EXPECT_NE(verdict.hint, "");
}

TEST(GpuHealthTest, SaysWhyAHardwareSlowdownIsOneWhereThatIsKnown) {
  GpuHealth gpu = make_limited(ClockLimit::kHwSlowdown, 0.5);
  EXPECT_EQ(judge_gpu(gpu, kNowNs).text, "slowed: hardware slowdown, 50 % of the last minute");

  gpu.clock_limits[static_cast<size_t>(ClockLimit::kPowerBrake)].minute_ratio = 0.5;

  EXPECT_EQ(judge_gpu(gpu, kNowNs).text, "slowed: power brake, 50 % of the last minute");
}

TEST(GpuHealthTest, DoesNotBlameAGpuForItsPowerCap) {
  const GpuVerdict verdict = judge_gpu(make_limited(ClockLimit::kPowerCap, 0.9), kNowNs);

  EXPECT_EQ(verdict.state, GpuState::kLimited);
  EXPECT_EQ(verdict.text, "limited: power cap, 90 % of the last minute");
}

TEST(GpuHealthTest, DoesNotMindShortLimits) {
  EXPECT_EQ(judge_gpu(make_limited(ClockLimit::kHwThermal, 0.04), kNowNs).state, GpuState::kOk);
}

TEST(GpuHealthTest, PutsAnErrorOfTheGpuBeforeItsSpeed) {
  GpuHealth gpu = make_with_xid(79, kMinuteNs);
  gpu.clock_limits[static_cast<size_t>(ClockLimit::kHwThermal)].minute_ratio = 1;

  EXPECT_EQ(judge_gpu(gpu, kNowNs).text, "XID 79: GPU has fallen off the bus");
  EXPECT_EQ(judge_gpu(gpu, kNowNs).state, GpuState::kFailing);
  gpu.is_lost = true;
  EXPECT_EQ(judge_gpu(gpu, kNowNs).state, GpuState::kLost);
  EXPECT_EQ(judge_gpu(gpu, kNowNs).text, "XID 79: GPU has fallen off the bus");
}

TEST(GpuHealthTest, SaysThatAGpuIsLostWhereNoErrorDoes) {
  GpuHealth gpu;
  gpu.is_lost = true;

  EXPECT_EQ(judge_gpu(gpu, kNowNs).text, "lost: the GPU no longer responds to the driver");
}

TEST(GpuHealthTest, DoesNotBlameAGpuForAnErrorOfAProgram) {
  const GpuVerdict verdict = judge_gpu(make_with_xid(31, kMinuteNs, 3), kNowNs);

  EXPECT_EQ(verdict.state, GpuState::kOk);
  EXPECT_EQ(verdict.text,
            "XID 31: memory page fault: a kernel read or wrote an address that is not mapped (3 "
            "times)");
}

TEST(GpuHealthTest, ForgetsErrorsOfProgramsSoonAndThoseOfGpusLater) {
  EXPECT_EQ(judge_gpu(make_with_xid(31, 11 * kMinuteNs), kNowNs).text, "healthy");
  EXPECT_EQ(judge_gpu(make_with_xid(79, 23 * 60 * kMinuteNs), kNowNs).state, GpuState::kFailing);
  EXPECT_EQ(judge_gpu(make_with_xid(79, 25 * 60 * kMinuteNs), kNowNs).text, "healthy");
  EXPECT_EQ(judge_gpu(make_with_xid(63, 0), kNowNs).text, "healthy");  // a notice
}

TEST(GpuHealthTest, TakesAnUnknownErrorForOneOfTheGpu) {
  EXPECT_EQ(judge_gpu(make_with_xid(999, 0), kNowNs).state, GpuState::kFailing);
}

TEST(GpuHealthTest, SaysWhatIsWrongWithTheMemory) {
  GpuHealth pending, failed, errors;
  pending.repair.remap_pending = 1;
  failed.repair.remap_failed = 1;
  errors.ecc.uncorrected_volatile = 2;

  EXPECT_EQ(judge_gpu(pending, kNowNs).text, "bad memory stays in use until the GPU is reset");
  EXPECT_EQ(judge_gpu(failed, kNowNs).hint, "replace the GPU");
  EXPECT_EQ(judge_gpu(errors, kNowNs).text,
            "memory errors that could not be corrected since the driver was loaded: 2");
}

TEST(GpuHealthTest, ReadsUuidsOfGpusAndOfTheirParts) {
  const GpuUuid uuid = {0x8f, 0x3b, 0x00, 0x01, 0x02, 0x03, 0x04, 0x05,
                        0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0xFF};

  EXPECT_EQ(parse_gpu_uuid("GPU-8f3b0001-0203-0405-0607-08090a0b0cff"), uuid);
  EXPECT_EQ(parse_gpu_uuid("MIG-8F3B0001-0203-0405-0607-08090A0B0CFF"), uuid);
}

TEST(GpuHealthTest, RefusesWhatIsNoUuid) {
  for (const char* text :
       {"", "GPU-", "GPU-8f3b0001-0203-0405-0607-08090a0b0c",
        "8f3b0001-0203-0405-0607-08090a0b0cff", "GPU-8f3b0001-0203-0405-0607-08090a0b0cffff",
        "GPU-8f3b0001-0203-0405-0607-08090a0b0cfg",
        "MIG-GPU-8f3b0001-0203-0405-0607-08090a0b0cff/1/0"}) {
    EXPECT_EQ(parse_gpu_uuid(text), std::nullopt) << text;
  }
}

TEST(XidsTest, HasWordsAndAdviceForEveryRow) {
  for (const XidRow& row : xid_rows()) {
    EXPECT_FALSE(row.meaning.empty()) << row.xid;
    EXPECT_FALSE(row.advice.empty()) << row.xid;
    EXPECT_EQ(get_xid(row.xid).meaning, row.meaning);
  }
}

}  // namespace
}  // namespace gpuperf
