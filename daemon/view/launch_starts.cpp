#include "daemon/view/launch_starts.h"

#include <algorithm>

#include "daemon/view/rows.h"

namespace gpuperf {
namespace {

struct Change {
  uint64_t mono_ns = 0;
  bool is_launch = false;
  bool operator<(const Change& other) const { return mono_ns < other.mono_ns; }
};

std::vector<QueueStep> to_steps(std::vector<Change>& changes) {
  std::sort(changes.begin(), changes.end());
  std::vector<QueueStep> steps;
  int64_t depth = 0;
  for (size_t i = 0; i < changes.size();) {
    const uint64_t mono_ns = changes[i].mono_ns;
    const int64_t before = depth;
    for (; i < changes.size() && changes[i].mono_ns == mono_ns; ++i) {
      depth += changes[i].is_launch ? 1 : -1;
    }
    if (depth != before) steps.push_back({mono_ns, static_cast<uint32_t>(depth)});
  }
  return steps;
}

}  // namespace

LaunchStarts list_launch_starts(const Capture& capture) {
  LaunchStarts result;
  std::vector<bool> has_begun(capture.launches.size());
  std::vector<uint64_t> stream_end_ns(capture.streams.size());
  result.starts.reserve(std::min(capture.work.size(), capture.launches.size()));
  for (uint32_t i = 0; i < capture.work.size(); ++i) {
    const CaptureWork& work = capture.work[i];
    const CaptureLaunch* launch = find_row(capture.launches, work.launch);
    const bool has_stream = work.stream < capture.streams.size();
    if (launch != nullptr && !has_begun[work.launch]) {
      has_begun[work.launch] = true;
      if (work.start_mono_ns < launch->start_mono_ns) {
        ++result.before_call;
      } else {
        const uint64_t free_ns = has_stream ? stream_end_ns[work.stream] : 0;
        const uint64_t until_ns = std::min(free_ns, work.start_mono_ns);
        result.starts.push_back(
            {work.launch, i, work.start_mono_ns - launch->start_mono_ns,
             until_ns > launch->start_mono_ns ? until_ns - launch->start_mono_ns : 0});
      }
    }
    if (has_stream) {
      uint64_t& end_ns = stream_end_ns[work.stream];
      end_ns = std::max(end_ns, work.start_mono_ns + work.duration_ns);
    }
  }
  return result;
}

std::vector<std::vector<QueueStep>> list_queue_steps(const Capture& capture,
                                                     const LaunchStarts& starts) {
  const uint64_t begin_ns = capture.start_mono_ns;
  const uint64_t end_ns = begin_ns + capture.duration_ns;
  std::vector<std::vector<Change>> changes(capture.streams.size());
  for (const LaunchStart& start : starts.starts) {
    const CaptureWork& work = capture.work[start.work];
    if (work.stream >= changes.size()) continue;
    const uint64_t from_ns = std::clamp(work.start_mono_ns - start.latency_ns, begin_ns, end_ns);
    const uint64_t to_ns = std::clamp(work.start_mono_ns, begin_ns, end_ns);
    changes[work.stream].push_back({from_ns, true});
    changes[work.stream].push_back({to_ns, false});
  }
  std::vector<std::vector<QueueStep>> steps;
  steps.reserve(changes.size());
  for (std::vector<Change>& each : changes) {
    steps.push_back(to_steps(each));
    each = {};
  }
  return steps;
}

}  // namespace gpuperf
