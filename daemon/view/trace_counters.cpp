#include "daemon/view/trace_counters.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "daemon/view/device_busy.h"
#include "daemon/view/rows.h"

namespace gpuperf {
namespace {

uint64_t bin_width_ns(const Capture& capture) { return capture.duration_ns / kBins + 1; }

// The deepest of each part of the window that had a change, and of what it began with.
std::vector<QueueStep> thin_queue(const Capture& capture, std::vector<QueueStep> steps) {
  if (steps.size() <= kMaxSteps) return steps;
  const uint64_t width_ns = bin_width_ns(capture);
  std::vector<QueueStep> thin;
  uint32_t depth = 0;  // at the end of the part before
  for (size_t i = 0; i < steps.size();) {
    const uint64_t bin = (steps[i].mono_ns - capture.start_mono_ns) / width_ns;
    const uint64_t begin_ns = capture.start_mono_ns + bin * width_ns;
    uint32_t deepest = depth;
    for (; i < steps.size() && steps[i].mono_ns < begin_ns + width_ns; ++i) {
      depth = steps[i].depth;
      deepest = std::max(deepest, depth);
    }
    thin.push_back({begin_ns, deepest});
    const bool is_next_quiet = i == steps.size() || steps[i].mono_ns >= begin_ns + 2 * width_ns;
    if (is_next_quiet && depth != deepest) thin.push_back({begin_ns + width_ns, depth});
  }
  return thin;
}

std::vector<QueueStep> to_percent(const std::vector<BusyStretch>& stretches) {
  std::vector<QueueStep> steps;
  for (const BusyStretch& busy : stretches) {
    steps.push_back({busy.start_mono_ns, 100});
    steps.push_back({busy.end_mono_ns, 0});
  }
  return steps;
}

std::vector<QueueStep> to_shares(const Capture& capture,
                                 const std::vector<BusyStretch>& stretches) {
  const uint64_t width_ns = bin_width_ns(capture);
  std::vector<uint64_t> busy_ns(kBins + 1);
  for (const BusyStretch& busy : stretches) {
    uint64_t at_ns = busy.start_mono_ns - capture.start_mono_ns;
    const uint64_t end_ns = busy.end_mono_ns - capture.start_mono_ns;
    while (at_ns < end_ns) {
      const uint64_t bin = at_ns / width_ns;
      const uint64_t until_ns = std::min(end_ns, (bin + 1) * width_ns);
      busy_ns[bin] += until_ns - at_ns;
      at_ns = until_ns;
    }
  }
  std::vector<QueueStep> steps;
  for (uint64_t bin = 0; bin * width_ns < capture.duration_ns; ++bin) {
    const uint64_t begin_ns = bin * width_ns;
    const uint64_t length_ns = std::min(width_ns, capture.duration_ns - begin_ns);
    const auto percent = static_cast<uint32_t>((busy_ns[bin] * 100 + length_ns / 2) / length_ns);
    if (!steps.empty() && steps.back().depth == percent) continue;
    steps.push_back({capture.start_mono_ns + begin_ns, percent});
  }
  return steps;
}

uint32_t to_step(const GpuCounterRow& row, uint64_t value) {
  const uint64_t unit = row.is_ratio ? kRatioMillion / 100 : 1'000'000;
  return static_cast<uint32_t>(std::min<uint64_t>((value + unit / 2) / unit, UINT32_MAX));
}

// Windows of one GPU, or of one GPU instance of it, by start.
void add_hardware_counters(const Capture& capture,
                           const std::vector<const GpuCounterRecord*>& records, uint32_t group,
                           std::vector<TraceCounter>& counters) {
  const uint64_t last_ns = capture.start_mono_ns + capture.duration_ns;
  for (const GpuCounterRow& row : gpu_counter_rows()) {
    std::vector<QueueStep> steps;
    uint64_t end_ns = 0;  // of the window before
    for (const GpuCounterRecord* record : records) {
      const auto& value = record->window.values[static_cast<size_t>(row.counter)];
      if (!value) continue;
      const uint64_t start_ns =
          std::max(static_cast<uint64_t>(record->window.start_mono_ns), capture.start_mono_ns);
      if (end_ns != 0 && start_ns > end_ns) steps.push_back({end_ns, 0});
      steps.push_back({start_ns, to_step(row, *value)});
      end_ns = static_cast<uint64_t>(record->window.end_mono_ns);
    }
    if (steps.empty()) continue;
    if (end_ns < last_ns) steps.push_back({end_ns, 0});
    std::string name = fmt::format("{} {}", row.words, row.is_ratio ? "percent" : "MB/s");
    if (records[0]->gpu_instance) name += fmt::format(", instance {}", *records[0]->gpu_instance);
    counters.push_back({std::move(name), group, std::move(steps)});
  }
}

}  // namespace

std::string make_stream_name(const Capture& capture, uint32_t stream) {
  const CaptureStream& row = capture.streams[stream];
  std::string name = row.stream == UINT32_MAX ? "no stream" : fmt::format("stream {}", row.stream);
  name += fmt::format(", context {}", row.context);
  if (const CaptureProcess* process = find_row(capture.processes, row.process)) {
    name += fmt::format(", {} ({})", process->owner.comm, process->process.pid);
  }
  return name;
}

std::vector<TraceCounter> make_counters(const Capture& capture, const Timeline& timeline) {
  std::vector<uint32_t> device_groups(capture.devices.size(), kNoIndex);
  for (uint32_t i = 0; i < timeline.groups.size(); ++i) {
    if (timeline.groups[i].device != kNoIndex) device_groups[timeline.groups[i].device] = i;
  }
  std::vector<TraceCounter> counters;
  const std::vector<std::vector<BusyStretch>> stretches = list_busy_stretches(capture);
  for (uint32_t i = 0; i < stretches.size(); ++i) {
    if (stretches[i].empty()) continue;
    const bool is_short = stretches[i].size() * 2 <= kMaxSteps;
    counters.push_back({"GPU busy percent", device_groups[i],
                        is_short ? to_percent(stretches[i]) : to_shares(capture, stretches[i])});
  }
  std::vector<std::vector<QueueStep>> queues =
      list_queue_steps(capture, list_launch_starts(capture));
  for (uint32_t i = 0; i < queues.size(); ++i) {
    const uint32_t device = capture.streams[i].device;
    if (queues[i].empty() || device >= device_groups.size()) continue;
    counters.push_back({"queue depth: " + make_stream_name(capture, i), device_groups[device],
                        thin_queue(capture, std::move(queues[i]))});
  }
  std::map<std::pair<GpuUuid, std::optional<uint32_t>>, std::vector<const GpuCounterRecord*>> gpus;
  for (const GpuCounterRecord& record : capture.gpu_counters) {
    gpus[{record.uuid, record.gpu_instance}].push_back(&record);
  }
  std::map<GpuUuid, uint32_t> gpu_groups;
  for (uint32_t i = 0; i < timeline.groups.size(); ++i) {
    gpu_groups.emplace(timeline.groups[i].gpu_uuid, i);
  }
  for (const auto& [gpu, records] : gpus) {
    const auto group = gpu_groups.find(gpu.first);
    if (group == gpu_groups.end()) continue;  // make_timeline has one for each
    add_hardware_counters(capture, records, group->second, counters);
  }
  return counters;
}

}  // namespace gpuperf
