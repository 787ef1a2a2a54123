#include "daemon/view/kernel_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>

namespace gpuperf {
namespace {

constexpr uint32_t kWarpThreads = 32;
constexpr uint32_t kRegisterUnit = 256;
constexpr uint32_t kWarpUnit = 4;
constexpr uint32_t kSharedUnitBytes = 128;

// Below it a GPU is not filled once, and most of it idles meanwhile.
constexpr double kFewWaves = 0.5;
// A last round that is less full than this costs as much as a full one; only while there are few.
constexpr double kTailWaves = 4, kTailFull = 0.5;
constexpr double kLowOccupancy = 0.5;
// A share of the samples that says something; enough of them, so that it is not by chance.
constexpr double kMuch = 0.3;
constexpr uint64_t kSamplesMin = 1'000;
// DRAM that is so busy has little left to give.
constexpr double kBusyDram = 0.6;
// Warps that issue, or could: then it is the issue slots that are short.
constexpr double kBusyIssue = 0.5;

uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

uint64_t multiply(const std::array<uint32_t, 3>& sizes) {
  return uint64_t{sizes[0]} * sizes[1] * sizes[2];
}

struct Group {
  std::string_view name;
  std::initializer_list<uint32_t> stalls;
  std::string_view advice;
};

// States that have one cause. Order: as it matters where shares are equal.
const Group kGroups[] = {
    {"memory latency",
     {GPUPERF_STALL_long_scoreboard, GPUPERF_STALL_imc_miss, GPUPERF_STALL_membar,
      GPUPERF_STALL_drain},
     "load earlier or more at a time, improve locality, raise occupancy; if DRAM is near 70 % in "
     "gpuperfctl gpus, bandwidth is the limit: move fewer bytes"},
    {"memory throughput",
     {GPUPERF_STALL_lg_throttle, GPUPERF_STALL_tex_throttle},
     "use fewer and wider accesses; look for register spills"},
    {"shared memory or special functions",
     {GPUPERF_STALL_short_scoreboard, GPUPERF_STALL_mio_throttle},
     "look for bank conflicts, and for special functions in the inner loop"},
    {"barriers", {GPUPERF_STALL_barrier}, "balance the work between barriers; use smaller blocks"},
    {"tensor cores",
     {GPUPERF_STALL_warpgroup_arrive},
     "tensor cores are at work: deepen the pipeline of loads, or use larger tiles"},
    {"math pipe",
     {GPUPERF_STALL_math_pipe_throttle},
     "the pipe is the limit: use another type or tensor cores, or less arithmetic"},
    {"dependent instructions",
     {GPUPERF_STALL_wait, GPUPERF_STALL_dispatch_stall},
     "more independent instructions in each thread, or more warps"},
    {"instruction fetch",
     {GPUPERF_STALL_no_instructions, GPUPERF_STALL_branch_resolving},
     "make the inner loop smaller: less unrolling, fewer jumps"},
};

double get_share(const KernelStalls& stalls, const Group& group) {
  uint64_t samples = 0;
  for (const uint32_t stall : group.stalls) samples += stalls.stalls[stall].samples;
  return static_cast<double>(samples) / static_cast<double>(stalls.samples);
}

// "long_scoreboard 61 %, drain 3 %": what it consists of, the largest first.
std::string describe(const KernelStalls& stalls, const Group& group) {
  std::vector<uint32_t> parts(group.stalls);
  std::ranges::sort(parts, std::ranges::greater(),
                    [&stalls](uint32_t stall) { return stalls.stalls[stall].samples; });
  std::string text;
  for (const uint32_t stall : parts) {
    const double share =
        static_cast<double>(stalls.stalls[stall].samples) / static_cast<double>(stalls.samples);
    if (share < 0.01) break;
    text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", get_stall_name(stall).name,
                        100 * share);
  }
  return text;
}

// Waits for memory: DRAM says whether it is the latency of loads or all of its bandwidth. A copy
// kernel on an H200 keeps DRAM at 68 % by GPM, a bf16 GEMM at 15 % (0029).
KernelVerdict judge_memory(KernelVerdict verdict, double dram_ratio) {
  verdict.reason += fmt::format("; DRAM {:.0f} % busy while it ran alone", 100 * dram_ratio);
  if (dram_ratio >= kBusyDram) {
    verdict.name = "memory bandwidth";
    verdict.advice =
        "bandwidth is the limit: move fewer bytes (fuse kernels, smaller types, reuse)";
  } else {
    verdict.advice = "load earlier or more at a time, improve locality, raise occupancy";
  }
  return verdict;
}

void judge_samples(const KernelStalls& stalls, std::optional<double> dram_ratio,
                   std::vector<KernelVerdict>& verdicts) {
  if (stalls.samples < kSamplesMin) return;
  std::vector<std::pair<double, const Group*>> shares;
  for (const Group& group : kGroups) shares.emplace_back(get_share(stalls, group), &group);
  std::ranges::stable_sort(shares, std::ranges::greater(),
                           [](const auto& entry) { return entry.first; });
  const double issue = static_cast<double>(stalls.stalls[GPUPERF_STALL_selected].samples +
                                           stalls.stalls[GPUPERF_STALL_not_selected].samples) /
                       static_cast<double>(stalls.samples);
  if (issue >= kBusyIssue) {
    verdicts.push_back(
        {"instruction issue",
         fmt::format("{:.0f} % of its warps' time they issue an instruction or could", 100 * issue),
         "the issue slots are the limit: fewer instructions (wider loads, less address "
         "arithmetic), or tensor cores"});
  }
  for (const auto& [share, group] : shares) {
    if (share < kMuch) break;
    verdicts.push_back(
        {group->name,
         fmt::format("{:.0f} % of its warps' time: {}", 100 * share, describe(stalls, *group)),
         group->advice});
    const bool waits_for_memory = group == &kGroups[0];
    if (waits_for_memory && dram_ratio) {
      verdicts.back() = judge_memory(std::move(verdicts.back()), *dram_ratio);
    }
  }
}

void judge_launch(const LaunchShape& shape, const SmLimits& sm,
                  std::vector<KernelVerdict>& verdicts) {
  const std::optional<Occupancy> occupancy = get_occupancy(shape, sm);
  if (occupancy) {
    const uint64_t blocks = multiply(shape.grid);
    const double rounds = std::ceil(occupancy->waves);
    const double last = occupancy->waves - (rounds - 1);
    if (occupancy->waves < kFewWaves) {
      verdicts.push_back(
          {"small launch",
           fmt::format("{} blocks on {} SMs, which have room for {}: {:.0f} % of one wave", blocks,
                       sm.count, uint64_t{occupancy->blocks_per_sm} * sm.count,
                       100 * occupancy->waves),
           "more blocks: smaller tiles, split-K, a larger batch, or run it beside other kernels"});
    } else if (rounds > 1 && occupancy->waves < kTailWaves && last < kTailFull) {
      verdicts.push_back({"tail",
                          fmt::format("{:.2f} waves: in the last one {:.0f} % of the GPU has work",
                                      occupancy->waves, 100 * last),
                          "choose tiles so that the number of blocks fills whole waves, or use a "
                          "persistent kernel"});
    }
    const bool is_of_kernel =
        occupancy->limit == "registers" || occupancy->limit == "shared memory";
    if (is_of_kernel && occupancy->ratio < kLowOccupancy) {
      verdicts.push_back(
          {occupancy->limit == "registers" ? "occupancy by registers"
                                           : "occupancy by shared memory",
           fmt::format("{} registers per thread and {} bytes of shared memory per block leave room "
                       "for {:.0f} % of the warps",
                       shape.registers_per_thread, shape.shared_memory_bytes,
                       100 * occupancy->ratio),
           "matters where warps wait for memory: __launch_bounds__, smaller tiles, fewer stages; "
           "matrix kernels are made this way on purpose"});
    }
  }
  if (shape.local_memory_bytes > 0) {
    verdicts.push_back({"local memory",
                        fmt::format("{} bytes of local memory per thread: spilled registers, or "
                                    "arrays indexed at run time",
                                    shape.local_memory_bytes),
                        "raise the limit of registers, shorten live ranges, or index arrays by "
                        "constants"});
  }
}

}  // namespace

std::optional<Occupancy> get_occupancy(const LaunchShape& shape, const SmLimits& sm) {
  const uint64_t threads = multiply(shape.block);
  if (threads == 0 || sm.count == 0 || sm.threads == 0 || sm.blocks == 0) return std::nullopt;
  const uint64_t warps = round_up(threads, kWarpThreads) / kWarpThreads;
  Occupancy occupancy{.blocks_per_sm = sm.blocks, .limit = "blocks"};
  const auto limit = [&occupancy](uint64_t blocks, std::string_view by) {
    if (blocks >= occupancy.blocks_per_sm) return;
    occupancy.blocks_per_sm = static_cast<uint32_t>(blocks);
    occupancy.limit = by;
  };
  limit(sm.threads / (warps * kWarpThreads), "threads");
  if (shape.registers_per_thread > 0 && sm.registers > 0) {
    const uint64_t of_warp =
        round_up(uint64_t{shape.registers_per_thread} * kWarpThreads, kRegisterUnit);
    const uint64_t warps_in_room = sm.registers / of_warp / kWarpUnit * kWarpUnit;
    limit(warps_in_room / warps, "registers");
  }
  const uint64_t shared = round_up(
      uint64_t{shape.shared_memory_bytes} + sm.shared_memory_reserved_bytes, kSharedUnitBytes);
  if (shared > 0 && sm.shared_memory_bytes > 0) {
    limit(sm.shared_memory_bytes / shared, "shared memory");
  }
  if (occupancy.blocks_per_sm == 0) return std::nullopt;  // it ran: something is not as said
  occupancy.ratio = static_cast<double>(occupancy.blocks_per_sm * warps * kWarpThreads) /
                    static_cast<double>(sm.threads);
  occupancy.waves = static_cast<double>(multiply(shape.grid)) /
                    (static_cast<double>(occupancy.blocks_per_sm) * sm.count);
  return occupancy;
}

std::vector<KernelVerdict> judge_kernel(const LaunchShape& shape, const SmLimits& sm,
                                        const KernelStalls* stalls,
                                        std::optional<double> dram_ratio) {
  std::vector<KernelVerdict> verdicts;
  if (stalls != nullptr) judge_samples(*stalls, dram_ratio, verdicts);
  judge_launch(shape, sm, verdicts);
  // A launch that leaves most of the GPU idle matters more than what its few warps wait for.
  std::stable_partition(verdicts.begin(), verdicts.end(), [](const KernelVerdict& verdict) {
    return verdict.name == "small launch";
  });
  return verdicts;
}

}  // namespace gpuperf
