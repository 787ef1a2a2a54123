#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "daemon/gpu/gpu_events.h"
#include "daemon/model/gpu_health.h"

namespace gpuperf {

// The errors that the driver reported since the daemon started, by GPU.
//
// Thread: one at a time. Bounds: a GPU has at most kXidEnd codes and the last kRecentXids events;
// GPUs are those that were registered for events.
class GpuErrorLog {
 public:
  // No driver has codes from here on; whatever else arrives is counted together, under 0.
  static constexpr uint64_t kXidEnd = 1000;

  void add(const GpuEvents::Event& event);
  void fill(GpuHealthReport& report) const;

 private:
  struct Errors {
    std::map<uint32_t, XidCount> xids;
    std::vector<XidEvent> recent;
    uint64_t ecc_events = 0;
  };
  std::map<GpuUuid, Errors> errors_;
};

}  // namespace gpuperf
