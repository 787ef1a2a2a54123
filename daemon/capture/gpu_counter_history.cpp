#include "daemon/capture/gpu_counter_history.h"

#include <algorithm>

namespace gpuperf {
namespace {

bool ends_before(const GpuCounterRecord& record, uint64_t mono_ns) {
  return static_cast<uint64_t>(record.window.end_mono_ns) <= mono_ns;
}

}  // namespace

void GpuCounterHistory::expire(uint64_t wanted_from_mono_ns) {
  wanted_from_mono_ns_ = wanted_from_mono_ns;
  while (!records_.empty() && ends_before(records_.front(), wanted_from_mono_ns)) {
    records_.pop_front();
  }
}

void GpuCounterHistory::add(const GpuHealthReport& report, DropCounters& drops) {
  for (const GpuHealth& gpu : report.gpus) {
    add(gpu, std::nullopt, gpu.counters, drops);
    for (const auto& [instance, state] : gpu.instance_counters) add(gpu, instance, state, drops);
  }
}

// A report may come again with the same window: notices of errors bring the newest reading.
void GpuCounterHistory::add(const GpuHealth& gpu, std::optional<uint32_t> instance,
                            const GpuCounterState& state, DropCounters& drops) {
  if (state.window.end_mono_ns == 0) return;
  int64_t& last_mono_ns = last_mono_ns_[{gpu.uuid, instance}];
  if (state.window.end_mono_ns <= last_mono_ns) return;
  last_mono_ns = state.window.end_mono_ns;
  records_.push_back(
      {.uuid = gpu.uuid, .gpu = gpu.index, .gpu_instance = instance, .window = state.window});
  if (records_.size() <= kMaxRecords) return;
  if (!ends_before(records_.front(), wanted_from_mono_ns_)) {
    drops.add(DropCause::kTraceCaptureFull);
  }
  records_.pop_front();
}

std::vector<GpuCounterRecord> GpuCounterHistory::list(uint64_t from_mono_ns) const {
  const auto first = std::ranges::partition_point(
      records_, [&](const GpuCounterRecord& record) { return ends_before(record, from_mono_ns); });
  return {first, records_.end()};
}

}  // namespace gpuperf
