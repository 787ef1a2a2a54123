#include "daemon/view/trace_counters.h"

#include <fmt/format.h>

#include <algorithm>
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
  return counters;
}

}  // namespace gpuperf
