#include "daemon/state/gpu_activity.h"

#include <algorithm>

namespace gpuperf {

uint32_t GpuActivities::get_device(const GpuUuid& uuid, const ProcessKey& process, uint32_t ordinal,
                                   uint32_t uid) {
  loop_thread_.check();
  const bool is_known = uuid != GpuUuid{};
  const Key key = is_known ? Key{uuid, {}, 0} : Key{uuid, process, ordinal};
  const auto found = numbers_.find(key);
  if (found != numbers_.end()) return found->second;
  if (shares_.take({.uid = uid}) != Shares::Verdict::kTaken) {
    drops_.add(DropCause::kGpuDevicesFull);
    return kNone;
  }
  const auto number = static_cast<uint32_t>(devices_.size());
  Device& device = devices_.emplace_back(budget_);
  device.facts.uuid = uuid;
  device.facts.ordinal = ordinal;
  if (!is_known) device.facts.process = process;
  numbers_[key] = number;
  return number;
}

BusyIntervals& GpuActivities::get_intervals(Device& device, Kind kind) {
  switch (kind) {
    case Kind::kKernel:
    case Kind::kNcclKernel:
      return device.kernel;
    case Kind::kCopy:
      return device.copy;
    case Kind::kGraph:
      return device.graph;
  }
  return device.busy;  // only reached with a value outside the enum
}

void GpuActivities::add(uint32_t number, Kind kind, uint64_t start_ns, uint64_t duration_ns,
                        int64_t now_mono_ns) {
  loop_thread_.check();
  if (number == kNone) return;
  const uint64_t latest_ns = static_cast<uint64_t>(now_mono_ns) + kMaxAheadNs;
  if (start_ns > latest_ns || duration_ns > latest_ns - start_ns) {
    return drops_.add(DropCause::kGpuFutureRecords);
  }
  Device& device = devices_[number];
  GpuActivity& facts = device.facts;
  const uint64_t end_ns = start_ns + duration_ns;
  const auto start = static_cast<int64_t>(start_ns);
  facts.since_mono_ns = facts.newest_mono_ns == 0 ? start : std::min(facts.since_mono_ns, start);
  facts.newest_mono_ns = std::max(facts.newest_mono_ns, static_cast<int64_t>(end_ns));
  if (kind == Kind::kNcclKernel && !device.without_nccl) device.without_nccl.emplace(device.busy);
  if (kind != Kind::kNcclKernel && device.without_nccl) {
    (void)device.without_nccl->add(start_ns, end_ns);
  }
  (void)get_intervals(device, kind).add(start_ns, end_ns);  // late there is late here
  const uint64_t late_ns = device.busy.add(start_ns, end_ns);
  if (late_ns == 0) return;
  facts.late_ns += late_ns;
  drops_.add(DropCause::kGpuLateRecords);
}

void GpuActivities::note_collected(uint32_t number, uint64_t collected_ns) {
  loop_thread_.check();
  if (number == kNone) return;
  Device& device = devices_[number];
  device.collected_ns = std::min(device.collected_ns, collected_ns);
}

void GpuActivities::expire(int64_t now_mono_ns) {
  loop_thread_.check();
  for (Device& device : devices_) {
    if (device.collected_ns != UINT64_MAX) device.facts.observed_ns += device.collected_ns;
    device.collected_ns = UINT64_MAX;
  }
  // Later than whatever may still come: a record that ends in the future was believed.
  const auto rest_ns = static_cast<int64_t>(2 * BusyIntervals::kHorizonNs);
  for (Device& device : devices_) {
    if (now_mono_ns - device.facts.newest_mono_ns < rest_ns) continue;
    for (BusyIntervals* busy : {&device.busy, &device.kernel, &device.copy, &device.graph}) {
      busy->rest();
    }
    if (device.without_nccl) device.without_nccl->rest();
  }
}

std::vector<GpuActivity> GpuActivities::list(std::vector<uint32_t>& numbers) const {
  std::vector<GpuActivity> activity;
  numbers.clear();
  for (uint32_t number = 0; number < devices_.size(); ++number) {
    const Device& device = devices_[number];
    if (device.facts.newest_mono_ns == 0) continue;
    GpuActivity& row = activity.emplace_back(device.facts);
    row.busy_ns = device.busy.busy_ns();
    row.without_nccl_ns = device.without_nccl ? device.without_nccl->busy_ns() : row.busy_ns;
    row.kernel_ns = device.kernel.busy_ns();
    row.copy_ns = device.copy.busy_ns();
    row.graph_ns = device.graph.busy_ns();
    numbers.push_back(number);
  }
  return activity;
}

}  // namespace gpuperf
