#pragma once

#include <cstdint>
#include <vector>

#include "daemon/model/capture.h"

namespace gpuperf {

// A stretch of time with work on a device throughout.
struct BusyStretch {
  uint64_t start_mono_ns = 0;
  uint64_t end_mono_ns = 0;
  uint32_t first_work = kNoIndex;
  bool operator==(const BusyStretch&) const = default;
};
// By device, each by time, without overlaps and clipped to the window.
std::vector<std::vector<BusyStretch>> list_busy_stretches(const Capture& capture);

}  // namespace gpuperf
