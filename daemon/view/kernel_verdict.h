#pragma once

// What limits a kernel, as far as its launch and its samples tell.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/model/gpu_rows.h"

namespace gpuperf {

// How much of a multiprocessor (SM) a launch can use at most.
struct Occupancy {
  uint32_t blocks_per_sm = 0;
  double ratio = 0;        // warps that fit, as a share of those there is room for
  std::string_view limit;  // "registers", "shared memory", "blocks", "threads"
  double waves = 0;        // rounds in which the blocks run, on a GPU that runs nothing else
};
// By NVIDIA's rules: registers are given out to warps in units of 256, to four warps at a time;
// shared memory in units of 128 bytes. Nullopt: the launch or the GPU is not known. Clusters
// are not considered.
std::optional<Occupancy> get_occupancy(const LaunchShape& shape, const SmLimits& sm);

struct KernelVerdict {
  std::string_view name;
  std::string reason;  // with its numbers
  std::string_view advice;
};
// The most important first; empty = nothing stands out, or nothing is known. `stalls`: null = it
// was never sampled. `dram_ratio`: how busy DRAM was while it ran alone; nullopt = not known, and
// waits for memory are not told from a lack of bandwidth.
std::vector<KernelVerdict> judge_kernel(const LaunchShape& shape, const SmLimits& sm,
                                        const KernelStalls* stalls,
                                        std::optional<double> dram_ratio = std::nullopt);

}  // namespace gpuperf
