#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "daemon/model/capture.h"
#include "daemon/model/gpu_during_call.h"

namespace gpuperf {

// A call in the time of a capture.
struct CallInCapture {
  uint64_t start_mono_ns = 0;
  uint64_t duration_ns = 0;
  uint32_t tid = 0;
  bool waits_for_gpu = false;        // by its name; a wait that CUPTI recorded tells, too
  std::vector<std::string> missing;  // known already, as GpuDuringCall::missing
  bool operator==(const CallInCapture&) const = default;
};

// What the GPUs did during each of the calls, in their order. The capture is of their process
// alone, with all work that overlaps the calls; `others` is that of the others. At most
// `max_longest` pieces of work are told one by one.
std::vector<GpuDuringCall> list_gpu_during_calls(const Capture& capture,
                                                 std::span<const CallInCapture> calls,
                                                 std::span<const OtherGpuWork> others,
                                                 size_t max_longest = 0);

}  // namespace gpuperf
