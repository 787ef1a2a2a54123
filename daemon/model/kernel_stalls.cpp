#include "daemon/model/kernel_stalls.h"

#include <algorithm>
#include <tuple>

namespace gpuperf {
namespace {

// By enum gpuperf_stall. Meanings: Nsight Compute's Kernel Profiling Guide, "Warp Stall Reasons".
constexpr StallName kStalls[] = {
    {"other", "state that this version does not know", ""},
    {"barrier", "waits at a barrier of its block",
     "balance the work between barriers; use smaller blocks, or fewer barriers"},
    {"branch_resolving", "waits for the target of a branch", "use fewer jumps in the inner loop"},
    {"dispatch_stall", "dispatcher holds the instruction back", ""},
    {"drain", "waits at its end until its stores have left",
     "coalesce the stores at the kernel's end"},
    {"imc_miss", "waits for the constant cache",
     "read constants with the same address in all threads"},
    {"lg_throttle", "queue for global and local memory is full",
     "use fewer and wider loads and stores; look for register spills"},
    {"long_scoreboard", "waits for data from global or local memory",
     "load earlier (prefetch, more loads in flight), improve locality, or move data to shared "
     "memory"},
    {"math_pipe_throttle", "math pipe is busy",
     "the pipe is the limit: use another type or tensor cores, or less arithmetic"},
    {"membar", "waits at a memory fence", "use fewer or narrower fences"},
    {"mio_throttle", "queue for shared memory and special functions is full",
     "use fewer or wider accesses to shared memory, and fewer special functions"},
    {"misc", "another reason", ""},
    {"no_instructions", "waits for instructions to be fetched",
     "make the inner loop smaller: less unrolling, fewer jumps"},
    {"not_selected", "is ready, but another warp was issued", ""},
    {"selected", "issues an instruction", ""},
    {"short_scoreboard", "waits for shared memory or special functions",
     "look for bank conflicts, and for special functions in the inner loop"},
    {"sleeping", "sleeps (nanosleep or yield)", ""},
    {"tex_throttle", "queue for textures is full", "issue fewer texture accesses"},
    {"wait", "waits a fixed number of cycles for the instruction before",
     "more independent instructions in each thread, or more warps"},
    {"warpgroup_arrive", "waits for matrix instructions of its warpgroup (wgmma)",
     "tensor cores are at work: deepen the pipeline of loads, or use larger tiles"},
};
static_assert(std::size(kStalls) == GPUPERF_STALL_COUNT);

}  // namespace

const StallName& get_stall_name(uint32_t stall) {
  return kStalls[stall < std::size(kStalls) ? stall : uint32_t{GPUPERF_STALL_other}];
}

void keep_hottest(std::vector<HotInstruction>& instructions) {
  const auto order = [](const HotInstruction& one) {
    return std::make_tuple(UINT64_MAX - one.samples, one.cubin_crc, one.pc_offset_bytes);
  };
  const size_t count = std::min(instructions.size(), KernelStalls::kHottest);
  std::ranges::partial_sort(instructions, instructions.begin() + static_cast<std::ptrdiff_t>(count),
                            {}, order);
  instructions.resize(count);
}

void merge_stalls(KernelStalls& stalls, const KernelStalls& other) {
  stalls.samples += other.samples;
  stalls.other_samples += other.other_samples;
  stalls.instructions = std::max(stalls.instructions, other.instructions);
  for (size_t i = 0; i < stalls.stalls.size(); ++i) {
    stalls.stalls[i].samples += other.stalls[i].samples;
    stalls.stalls[i].idle_samples += other.stalls[i].idle_samples;
  }
  for (const HotInstruction& one : other.hottest) {
    const auto same = std::ranges::find_if(stalls.hottest, [&one](const HotInstruction& known) {
      return known.cubin_crc == one.cubin_crc && known.pc_offset_bytes == one.pc_offset_bytes;
    });
    if (same == stalls.hottest.end()) {
      stalls.hottest.push_back(one);
      continue;
    }
    same->samples += one.samples;
    if (same->stall == one.stall) {
      same->stall_samples += one.stall_samples;
    } else if (one.stall_samples > same->stall_samples) {
      same->stall = one.stall;
      same->stall_samples = one.stall_samples;
    }
  }
  keep_hottest(stalls.hottest);
}

}  // namespace gpuperf
