#include "daemon/gpu/gpu_error_log.h"

namespace gpuperf {

void GpuErrorLog::add(const GpuEvents::Event& event) {
  Errors& errors = errors_[event.uuid];
  if (!event.is_xid) {
    ++errors.ecc_events;
    return;
  }
  const uint32_t xid = event.xid < kXidEnd ? static_cast<uint32_t>(event.xid) : 0;
  XidCount& count = errors.xids[xid];
  ++count.count;
  count.last_mono_ns = event.mono_ns;
  count.last_unix_ns = event.unix_ns;
  if (errors.recent.size() == kRecentXids) errors.recent.erase(errors.recent.begin());
  errors.recent.push_back({xid, event.unix_ns});
}

void GpuErrorLog::fill(GpuHealthReport& report) const {
  for (GpuHealth& gpu : report.gpus) {
    const auto found = errors_.find(gpu.uuid);
    if (found == errors_.end()) continue;
    gpu.xids = found->second.xids;
    gpu.recent_xids = found->second.recent;
    gpu.ecc_events = found->second.ecc_events;
  }
}

}  // namespace gpuperf
