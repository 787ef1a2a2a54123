#include "daemon/view/kernel_verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpuperf {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Of an H200.
constexpr SmLimits kHopper{.count = 132,
                           .threads = 2'048,
                           .blocks = 32,
                           .registers = 65'536,
                           .shared_memory_bytes = 233'472,
                           .shared_memory_reserved_bytes = 1'024};

LaunchShape make_shape(uint32_t blocks, uint32_t threads, uint32_t registers = 32,
                       uint32_t shared_bytes = 0) {
  return {.id = 1,
          .grid = {blocks, 1, 1},
          .block = {threads, 1, 1},
          .shared_memory_bytes = shared_bytes,
          .registers_per_thread = registers};
}

KernelStalls make_stalls(std::initializer_list<std::pair<uint32_t, uint64_t>> counts) {
  KernelStalls stalls;
  for (const auto& [stall, samples] : counts) {
    stalls.stalls[stall].samples = samples;
    stalls.samples += samples;
  }
  return stalls;
}

std::vector<std::string> list_names(const std::vector<KernelVerdict>& verdicts) {
  std::vector<std::string> names;
  for (const KernelVerdict& verdict : verdicts) names.emplace_back(verdict.name);
  return names;
}

// As NVIDIA's occupancy calculator has it (cudaOccupancyMaxActiveBlocksPerMultiprocessor).
TEST(KernelVerdictTest, KnowsTheOccupancy) {
  struct Case {
    LaunchShape shape;
    uint32_t blocks;
    std::string_view limit;
  };
  const Case cases[] = {
      {make_shape(1, 1'024), 2, "threads"},
      {make_shape(1, 256), 8, "threads"},
      {make_shape(1, 32), 32, "blocks"},
      {make_shape(1, 256, 64), 4, "registers"},   // 64 x 32 = 2,048 of a warp: 32 warps
      {make_shape(1, 384, 168), 1, "registers"},  // 5,376 of a warp: 12 warps, in fours
      {make_shape(1, 128, 32, 99 * 1024), 2, "shared memory"},
      {make_shape(1, 128, 32, 227 * 1024), 1, "shared memory"},
      {make_shape(1, 100, 32), 16, "threads"},  // 4 warps
  };
  for (const Case& one : cases) {
    const auto occupancy = get_occupancy(one.shape, kHopper);
    ASSERT_TRUE(occupancy) << one.limit;
    EXPECT_EQ(occupancy->blocks_per_sm, one.blocks) << one.limit;
    EXPECT_EQ(occupancy->limit, one.limit);
  }
  EXPECT_DOUBLE_EQ(get_occupancy(make_shape(132 * 16, 256), kHopper)->waves, 2);
  EXPECT_DOUBLE_EQ(get_occupancy(make_shape(1, 256, 64), kHopper)->ratio, 0.5);
}

TEST(KernelVerdictTest, KnowsNoOccupancyWithoutLaunchOrLimits) {
  EXPECT_FALSE(get_occupancy(LaunchShape(), kHopper));
  EXPECT_FALSE(get_occupancy(make_shape(1, 32), SmLimits()));
  EXPECT_FALSE(get_occupancy(make_shape(1, 4'096), kHopper));  // cannot be
  EXPECT_THAT(judge_kernel(LaunchShape(), SmLimits(), nullptr), IsEmpty());
}

TEST(KernelVerdictTest, NamesWhatMostOfTheTimeIsSpentOn) {
  const KernelStalls stalls = make_stalls({{GPUPERF_STALL_long_scoreboard, 6'100},
                                           {GPUPERF_STALL_drain, 400},
                                           {GPUPERF_STALL_selected, 2'000},
                                           {GPUPERF_STALL_wait, 1'500}});
  const auto verdicts = judge_kernel(make_shape(132 * 80, 256), kHopper, &stalls);
  EXPECT_THAT(list_names(verdicts), ElementsAre("memory latency"));
  EXPECT_EQ(verdicts[0].reason, "65 % of its warps' time: long_scoreboard 61 %, drain 4 %");
}

TEST(KernelVerdictTest, HasAVerdictForEachCause) {
  const auto judge = [](uint32_t stall) {
    const KernelStalls stalls = make_stalls({{stall, 7'000}, {GPUPERF_STALL_selected, 3'000}});
    return list_names(judge_kernel(make_shape(132 * 80, 256), kHopper, &stalls));
  };
  EXPECT_THAT(judge(GPUPERF_STALL_barrier), ElementsAre("barriers"));
  EXPECT_THAT(judge(GPUPERF_STALL_lg_throttle), ElementsAre("memory throughput"));
  EXPECT_THAT(judge(GPUPERF_STALL_short_scoreboard),
              ElementsAre("shared memory or special functions"));
  EXPECT_THAT(judge(GPUPERF_STALL_warpgroup_arrive), ElementsAre("tensor cores"));
  EXPECT_THAT(judge(GPUPERF_STALL_math_pipe_throttle), ElementsAre("math pipe"));
  EXPECT_THAT(judge(GPUPERF_STALL_wait), ElementsAre("dependent instructions"));
  EXPECT_THAT(judge(GPUPERF_STALL_no_instructions), ElementsAre("instruction fetch"));
  EXPECT_THAT(judge(GPUPERF_STALL_not_selected), ElementsAre("instruction issue"));
}

TEST(KernelVerdictTest, SaysNothingFromFewSamples) {
  const KernelStalls stalls = make_stalls({{GPUPERF_STALL_barrier, 900}});
  EXPECT_THAT(judge_kernel(make_shape(132 * 80, 256), kHopper, &stalls), IsEmpty());
}

TEST(KernelVerdictTest, PutsASmallLaunchFirst) {
  const KernelStalls stalls = make_stalls({{GPUPERF_STALL_wait, 9'000}});
  const auto verdicts = judge_kernel(make_shape(16, 256), kHopper, &stalls);
  EXPECT_THAT(list_names(verdicts), ElementsAre("small launch", "dependent instructions"));
  EXPECT_EQ(verdicts[0].reason, "16 blocks on 132 SMs, which have room for 1056: 2 % of one wave");
}

TEST(KernelVerdictTest, SeesTailsSpillsAndScarceOccupancy) {
  EXPECT_THAT(list_names(judge_kernel(make_shape(132 * 8 + 40, 256), kHopper, nullptr)),
              ElementsAre("tail"));
  EXPECT_THAT(judge_kernel(make_shape(132 * 8 * 6 + 40, 256), kHopper, nullptr), IsEmpty());
  LaunchShape spills = make_shape(132 * 80, 256);
  spills.local_memory_bytes = 384;
  const auto verdicts = judge_kernel(spills, kHopper, nullptr);
  EXPECT_THAT(list_names(verdicts), ElementsAre("local memory"));
  EXPECT_THAT(verdicts[0].reason, HasSubstr("384 bytes"));
  EXPECT_THAT(list_names(judge_kernel(make_shape(132 * 80, 256, 200), kHopper, nullptr)),
              ElementsAre("occupancy by registers"));
}

TEST(KernelVerdictTest, TellsBandwidthFromLatencyByDram) {
  const KernelStalls stalls =
      make_stalls({{GPUPERF_STALL_long_scoreboard, 8'000}, {GPUPERF_STALL_selected, 2'000}});
  const auto judge = [&](std::optional<double> dram) {
    return judge_kernel(make_shape(132 * 80, 256), kHopper, &stalls, dram).at(0);
  };
  EXPECT_EQ(judge(0.68).name, "memory bandwidth");
  EXPECT_THAT(judge(0.68).reason, testing::HasSubstr("DRAM 68 % busy while it ran alone"));
  EXPECT_EQ(judge(0.15).name, "memory latency");
  EXPECT_THAT(std::string(judge(0.15).advice), testing::Not(testing::HasSubstr("gpuperfctl gpus")));
  EXPECT_EQ(judge(std::nullopt).name, "memory latency");
  EXPECT_THAT(std::string(judge(std::nullopt).advice), testing::HasSubstr("gpuperfctl gpus"));
}

}  // namespace
}  // namespace gpuperf
