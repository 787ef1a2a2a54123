#include "daemon/slow/other_gpu_work.h"

#include <algorithm>
#include <map>
#include <utility>

namespace gpuperf {
namespace {

using Stretch = std::pair<uint64_t, uint64_t>;

// Where the event says its GPU; kTraceNone = it is no work.
uint32_t find_place(const TraceEvent& event) {
  switch (static_cast<TraceKind>(event.kind)) {
    case TraceKind::kKernel:
      return event.third & UINT16_MAX;
    case TraceKind::kCopy:
    case TraceKind::kSet:
    case TraceKind::kGraph:
      return event.second;
    case TraceKind::kLaunch:
    case TraceKind::kCall:
    case TraceKind::kApi:
    case TraceKind::kWait:
    case TraceKind::kGap:
    case TraceKind::kLost:
    case TraceKind::kThread:
    case TraceKind::kStall:
    case TraceKind::kStep:
      return kTraceNone;
  }
  return kTraceNone;  // only reached with a value outside the enum
}

void merge(std::vector<Stretch>& stretches) {
  std::ranges::sort(stretches);
  size_t kept = 0;
  for (const Stretch& stretch : stretches) {
    if (kept > 0 && stretch.first <= stretches[kept - 1].second) {
      stretches[kept - 1].second = std::max(stretches[kept - 1].second, stretch.second);
    } else {
      stretches[kept++] = stretch;
    }
  }
  stretches.resize(kept);
}

}  // namespace

std::vector<OtherGpuWork> list_other_gpu_work(
    const TraceWindow& window, const ProcessKey& process, uint64_t from_mono_ns,
    uint64_t to_mono_ns, const std::function<Owner(const ProcessKey&)>& get_owner) {
  std::map<std::pair<ProcessKey, GpuUuid>, std::vector<Stretch>> found;
  for (const TraceWindow::Part& part : window.parts) {
    const TraceTables& tables = *part.tables;
    for (const TraceEvent& event : *part.events) {
      const uint64_t end_ns = event.start_mono_ns + event.duration_ns;
      if (event.start_mono_ns >= to_mono_ns || end_ns <= from_mono_ns) continue;
      const uint32_t place = find_place(event);
      if (place >= tables.places.size() || event.process >= tables.processes.size()) continue;
      const ProcessKey& owner = tables.processes[event.process].process;
      if (is_same_process(owner, process)) continue;
      found[{owner, tables.places[place].device_uuid}].emplace_back(event.start_mono_ns, end_ns);
    }
  }
  std::vector<OtherGpuWork> all;
  for (auto& [key, stretches] : found) {
    merge(stretches);
    all.push_back({.pid = key.first.pid,
                   .comm = get_owner(key.first).comm,
                   .device_uuid = key.second,
                   .stretches_mono_ns = std::move(stretches)});
  }
  return all;
}

}  // namespace gpuperf
