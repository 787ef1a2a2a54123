#pragma once

// What the warps of a capture's kernels were found doing (PC sampling), and the kernels' time by
// it.

#include <cstdint>
#include <map>
#include <vector>

#include "daemon/model/capture.h"
#include "daemon/model/kernel_stalls.h"

namespace gpuperf {

// By kernel of the capture, over all of its processes; without instructions and lines. Kernels
// without samples are not in it.
std::map<uint32_t, KernelStalls> sum_samples(const Capture& capture);

struct StallTime {
  uint32_t stall = 0;  // enum gpuperf_stall
  uint64_t time_ns = 0;
};
// Time of a kernel by the shares of its samples: exactly `time_ns` in all, each part to 1 ns; the
// largest first.
std::vector<StallTime> split_by_stall(const KernelStalls& stalls, uint64_t time_ns);

// How busy DRAM was while a kernel had its GPU nearly to itself: by those windows of hardware
// counters of which it filled four fifths. By kernel of the capture; most have no such window.
struct DramUse {
  double ratio = 0;      // of the bandwidth, 0 to 1
  uint32_t windows = 0;  // of about a second
};
std::map<uint32_t, DramUse> find_dram_use(const Capture& capture);

}  // namespace gpuperf
