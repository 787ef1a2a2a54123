#include "daemon/model/kernel_stalls.h"

#include <algorithm>
#include <functional>
#include <tuple>

namespace gpuperf {
namespace {

// By enum gpuperf_stall. Meanings: Nsight Compute's Kernel Profiling Guide, "Warp Stall Reasons".
constexpr StallName kStalls[] = {
    {"other", "state that this version does not know"},
    {"barrier", "waits at a barrier of its block"},
    {"branch_resolving", "waits for the target of a branch"},
    {"dispatch_stall", "dispatcher holds the instruction back"},
    {"drain", "waits at its end until its stores have left"},
    {"imc_miss", "waits for the constant cache"},
    {"lg_throttle", "queue for global and local memory is full"},
    {"long_scoreboard", "waits for data from global or local memory"},
    {"math_pipe_throttle", "math pipe is busy"},
    {"membar", "waits at a memory fence"},
    {"mio_throttle", "queue for shared memory and special functions is full"},
    {"misc", "another reason"},
    {"no_instructions", "waits for instructions to be fetched"},
    {"not_selected", "is ready, but another warp was issued"},
    {"selected", "issues an instruction"},
    {"short_scoreboard", "waits for shared memory or special functions"},
    {"sleeping", "sleeps (nanosleep or yield)"},
    {"tex_throttle", "queue for textures is full"},
    {"wait", "waits a fixed number of cycles for the instruction before"},
    {"warpgroup_arrive", "waits for matrix instructions of its warpgroup (wgmma)"},
};
static_assert(std::size(kStalls) == GPUPERF_STALL_COUNT);

template <typename Hot, typename Order>
void keep(std::vector<Hot>& all, Order order) {
  const size_t count = std::min(all.size(), KernelStalls::kHottest);
  std::ranges::partial_sort(all, all.begin() + static_cast<std::ptrdiff_t>(count), {}, order);
  all.resize(count);
}

// Of equal keys: adds up.
template <typename Hot, typename Key>
void merge_hot(std::vector<Hot>& all, const std::vector<Hot>& others, Key key) {
  for (const Hot& one : others) {
    const auto same =
        std::ranges::find_if(all, [&](const Hot& known) { return key(known) == key(one); });
    if (same == all.end()) {
      all.push_back(one);
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
  keep_hottest(all);
}

}  // namespace

const StallName& get_stall_name(uint32_t stall) {
  return kStalls[stall < std::size(kStalls) ? stall : uint32_t{GPUPERF_STALL_other}];
}

void keep_hottest(std::vector<HotInstruction>& instructions) {
  keep(instructions, [](const HotInstruction& one) {
    return std::make_tuple(UINT64_MAX - one.samples, one.cubin_crc, one.pc_offset_bytes);
  });
}

void keep_hottest(std::vector<HotLine>& lines) {
  keep(lines, [](const HotLine& one) {
    return std::make_tuple(UINT64_MAX - one.samples, std::cref(one.source));
  });
}

void merge_stalls(KernelStalls& stalls, const KernelStalls& other) {
  stalls.samples += other.samples;
  stalls.other_samples += other.other_samples;
  stalls.instructions = std::max(stalls.instructions, other.instructions);
  for (size_t i = 0; i < stalls.stalls.size(); ++i) {
    stalls.stalls[i].samples += other.stalls[i].samples;
    stalls.stalls[i].idle_samples += other.stalls[i].idle_samples;
  }
  for (size_t i = 0; i < stalls.unlined_samples.size(); ++i) {
    stalls.unlined_samples[i] += other.unlined_samples[i];
  }
  merge_hot(stalls.hottest, other.hottest, [](const HotInstruction& one) {
    return std::make_tuple(one.cubin_crc, one.pc_offset_bytes, std::cref(one.source));
  });
  merge_hot(stalls.lines, other.lines, [](const HotLine& one) { return std::tie(one.source); });
}

}  // namespace gpuperf
