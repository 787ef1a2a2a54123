#include "daemon/view/device_idle.h"

#include <algorithm>
#include <utility>

#include "daemon/view/device_busy.h"
#include "daemon/view/rows.h"

namespace gpuperf {
namespace {

constexpr size_t kLongestGaps = 20;

struct Interval {
  uint64_t begin_ns = 0;
  uint64_t end_ns = 0;
};

// What each thread did that a device may have waited for, without overlaps, by time.
struct ThreadActivity {
  std::vector<std::vector<Interval>> waits;
  std::vector<std::vector<Interval>> launches;
};

// `rows` by start, those of each thread merged where they overlap.
template <typename Row>
std::vector<std::vector<Interval>> merge_by_thread(const std::vector<Row>& rows, size_t threads) {
  std::vector<std::vector<Interval>> result(threads);
  for (const Row& row : rows) {
    if (row.thread >= threads) continue;
    const Interval interval{row.start_mono_ns, row.start_mono_ns + row.duration_ns};
    std::vector<Interval>& intervals = result[row.thread];
    if (!intervals.empty() && interval.begin_ns <= intervals.back().end_ns) {
      intervals.back().end_ns = std::max(intervals.back().end_ns, interval.end_ns);
    } else {
      intervals.push_back(interval);
    }
  }
  return result;
}

// Calls `visit` with every part of [begin_ns, end_ns) that `intervals` cover.
template <typename Visit>
void for_each_overlap(const std::vector<Interval>& intervals, uint64_t begin_ns, uint64_t end_ns,
                      Visit visit) {
  auto at = std::partition_point(intervals.begin(), intervals.end(),
                                 [&](const Interval& each) { return each.end_ns <= begin_ns; });
  for (; at != intervals.end() && at->begin_ns < end_ns; ++at) {
    visit(std::max(at->begin_ns, begin_ns), std::min(at->end_ns, end_ns));
  }
}

uint64_t covered_ns(const std::vector<Interval>& intervals, uint64_t begin_ns, uint64_t end_ns) {
  uint64_t sum_ns = 0;
  for_each_overlap(intervals, begin_ns, end_ns,
                   [&](uint64_t from_ns, uint64_t to_ns) { sum_ns += to_ns - from_ns; });
  return sum_ns;
}

uint64_t& part_of(std::array<uint64_t, kIdleCauses>& split_ns, IdleCause cause) {
  return split_ns[static_cast<size_t>(cause)];
}

void explain(const Capture& capture, const ThreadActivity& activity, DeviceGap& gap) {
  const CaptureLaunch* launch = find_row(capture.launches, gap.launch);
  if (launch == nullptr || launch->thread >= capture.threads.size()) {
    part_of(gap.split_ns, IdleCause::kUnknown) = gap.duration_ns;
    return;
  }
  const uint64_t begin_ns = gap.start_mono_ns;
  const uint64_t end_ns = begin_ns + gap.duration_ns;
  const uint64_t back_ns =
      std::clamp(launch->start_mono_ns + launch->duration_ns, begin_ns, end_ns);
  const std::vector<Interval>& waits = activity.waits[launch->thread];
  const uint64_t waiting_ns = covered_ns(waits, begin_ns, back_ns);
  uint64_t launching_ns = 0;
  for_each_overlap(activity.launches[launch->thread], begin_ns, back_ns,
                   [&](uint64_t from_ns, uint64_t to_ns) {
                     launching_ns += to_ns - from_ns - covered_ns(waits, from_ns, to_ns);
                   });
  part_of(gap.split_ns, IdleCause::kWaiting) = waiting_ns;
  part_of(gap.split_ns, IdleCause::kLaunching) = launching_ns;
  part_of(gap.split_ns, IdleCause::kLaunched) = end_ns - back_ns;
  part_of(gap.split_ns, IdleCause::kElsewhere) = back_ns - begin_ns - waiting_ns - launching_ns;
  const auto most = std::max_element(gap.split_ns.begin(), gap.split_ns.end());
  gap.cause = static_cast<IdleCause>(most - gap.split_ns.begin());
}

std::vector<DeviceGap> list_gaps(const Capture& capture,
                                 const std::vector<BusyStretch>& stretches) {
  std::vector<DeviceGap> gaps;
  uint64_t idle_since_ns = stretches.empty() ? 0 : stretches.front().start_mono_ns;
  for (const BusyStretch& busy : stretches) {
    if (busy.start_mono_ns > idle_since_ns) {
      gaps.push_back({.start_mono_ns = idle_since_ns,
                      .duration_ns = busy.start_mono_ns - idle_since_ns,
                      .launch = capture.work[busy.first_work].launch});
    }
    idle_since_ns = busy.end_mono_ns;
  }
  return gaps;
}

void add_gaps(std::vector<DeviceGap> gaps, DeviceSummary& summary) {
  summary.gaps = gaps.size();
  for (const DeviceGap& gap : gaps) {
    summary.idle_ns += gap.duration_ns;
    for (size_t i = 0; i < kIdleCauses; ++i) summary.idle_split_ns[i] += gap.split_ns[i];
  }
  const size_t kept = std::min(gaps.size(), kLongestGaps);
  std::partial_sort(gaps.begin(), gaps.begin() + static_cast<ptrdiff_t>(kept), gaps.end(),
                    [](const DeviceGap& left, const DeviceGap& right) {
                      return std::pair(right.duration_ns, left.start_mono_ns) <
                             std::pair(left.duration_ns, right.start_mono_ns);
                    });
  gaps.resize(kept);
  summary.longest_gaps = std::move(gaps);
}

}  // namespace

std::vector<DeviceSummary> summarise_devices(const Capture& capture) {
  const ThreadActivity activity{merge_by_thread(capture.waits, capture.threads.size()),
                                merge_by_thread(capture.launches, capture.threads.size())};
  const std::vector<std::vector<BusyStretch>> stretches = list_busy_stretches(capture);
  std::vector<DeviceSummary> devices(capture.devices.size());
  for (uint32_t i = 0; i < devices.size(); ++i) {
    DeviceSummary& summary = devices[i];
    summary.device = i;
    for (const BusyStretch& busy : stretches[i]) {
      summary.busy_ns += busy.end_mono_ns - busy.start_mono_ns;
    }
    std::vector<DeviceGap> gaps = list_gaps(capture, stretches[i]);
    for (DeviceGap& gap : gaps) explain(capture, activity, gap);
    add_gaps(std::move(gaps), summary);
    summary.edges_ns = capture.duration_ns - summary.busy_ns - summary.idle_ns;
  }
  for (const CaptureWork& work : capture.work) {
    const uint32_t device = find_device(capture, work);
    if (device != kNoIndex) ++devices[device].work;
  }
  return devices;
}

}  // namespace gpuperf
