#include "daemon/view/device_busy.h"

#include <algorithm>

#include "daemon/view/rows.h"

namespace gpuperf {

std::vector<std::vector<BusyStretch>> list_busy_stretches(const Capture& capture) {
  const uint64_t begin_ns = capture.start_mono_ns;
  const uint64_t end_ns = begin_ns + capture.duration_ns;
  std::vector<std::vector<BusyStretch>> devices(capture.devices.size());
  for (uint32_t i = 0; i < capture.work.size(); ++i) {
    const CaptureWork& work = capture.work[i];
    const uint32_t device = find_device(capture, work);
    if (device == kNoIndex) continue;
    const uint64_t from_ns = std::clamp(work.start_mono_ns, begin_ns, end_ns);
    const uint64_t to_ns = std::clamp(work.start_mono_ns + work.duration_ns, begin_ns, end_ns);
    if (from_ns >= to_ns) continue;
    std::vector<BusyStretch>& stretches = devices[device];
    if (!stretches.empty() && from_ns <= stretches.back().end_mono_ns) {
      stretches.back().end_mono_ns = std::max(stretches.back().end_mono_ns, to_ns);
    } else {
      stretches.push_back({from_ns, to_ns, i});
    }
  }
  return devices;
}

}  // namespace gpuperf
