#include "daemon/view/summary.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "daemon/view/device_idle.h"
#include "daemon/view/launch_starts.h"
#include "daemon/view/path_weights.h"
#include "daemon/view/rows.h"

namespace gpuperf {
namespace {

// The smallest value with at least that share of them at or below it. `values` in order.
uint64_t quantile_of(const std::vector<uint64_t>& values, uint64_t percent) {
  if (values.empty()) return 0;
  const size_t rank = (values.size() * percent + 99) / 100;
  return values[std::max<size_t>(rank, 1) - 1];
}

// Most GPU time first; ties as they came.
template <typename Row, typename Time>
void sort_by_time(std::vector<Row>& rows, Time Row::*time) {
  std::stable_sort(rows.begin(), rows.end(),
                   [time](const Row& left, const Row& right) { return left.*time > right.*time; });
}

struct KernelValues {
  std::vector<uint64_t> durations_ns;
  std::vector<uint64_t> latencies_ns;
};

KernelSummary summarise_kernel(uint32_t kernel, KernelValues& values) {
  std::sort(values.durations_ns.begin(), values.durations_ns.end());
  std::sort(values.latencies_ns.begin(), values.latencies_ns.end());
  KernelSummary summary{.kernel = kernel,
                        .count = values.durations_ns.size(),
                        .min_ns = values.durations_ns.front(),
                        .p50_ns = quantile_of(values.durations_ns, 50),
                        .p99_ns = quantile_of(values.durations_ns, 99),
                        .max_ns = values.durations_ns.back(),
                        .latencies = values.latencies_ns.size(),
                        .latency_p50_ns = quantile_of(values.latencies_ns, 50),
                        .latency_p99_ns = quantile_of(values.latencies_ns, 99)};
  for (const uint64_t duration_ns : values.durations_ns) summary.total_ns += duration_ns;
  summary.avg_ns = summary.total_ns / summary.count;
  return summary;
}

std::vector<KernelSummary> summarise_kernels(const Capture& capture, const LaunchStarts& starts) {
  const size_t unnamed = capture.kernels.size();
  std::vector<KernelValues> values(unnamed + 1);
  const auto find_values = [&](const CaptureWork& work) -> KernelValues& {
    return values[std::min<size_t>(work.kernel, unnamed)];
  };
  for (const CaptureWork& work : capture.work) {
    if (work.kind == WorkKind::kKernel) find_values(work).durations_ns.push_back(work.duration_ns);
  }
  for (const LaunchStart& start : starts.starts) {
    const CaptureWork& work = capture.work[start.work];
    if (work.kind == WorkKind::kKernel) find_values(work).latencies_ns.push_back(start.latency_ns);
  }
  std::vector<KernelSummary> kernels;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].durations_ns.empty()) continue;
    kernels.push_back(
        summarise_kernel(i == unnamed ? kNoIndex : static_cast<uint32_t>(i), values[i]));
  }
  sort_by_time(kernels, &KernelSummary::total_ns);
  return kernels;
}

std::vector<StreamSummary> summarise_streams(const Capture& capture, const LaunchStarts& starts) {
  const std::vector<std::vector<QueueStep>> steps = list_queue_steps(capture, starts);
  std::vector<StreamSummary> streams(capture.streams.size());
  for (uint32_t i = 0; i < streams.size(); ++i) {
    StreamSummary& summary = streams[i];
    summary.stream = i;
    uint64_t queued_ns = 0;
    for (size_t step = 0; step < steps[i].size(); ++step) {
      const uint64_t end_ns = step + 1 < steps[i].size()
                                  ? steps[i][step + 1].mono_ns
                                  : capture.start_mono_ns + capture.duration_ns;
      const uint64_t depth = steps[i][step].depth;
      summary.max_queue_depth = std::max(summary.max_queue_depth, depth);
      queued_ns += depth * (end_ns - steps[i][step].mono_ns);
    }
    if (capture.duration_ns != 0) {
      summary.average_queue_depth =
          static_cast<double>(queued_ns) / static_cast<double>(capture.duration_ns);
    }
  }
  for (const CaptureWork& work : capture.work) {
    if (work.stream >= streams.size()) continue;
    ++streams[work.stream].work;
    streams[work.stream].busy_ns += work.duration_ns;
  }
  return streams;
}

// The outermost of each operation's chain; a chain goes up by index only, so it ends.
std::vector<uint32_t> list_outermost(const Capture& capture) {
  std::vector<uint32_t> outermost(capture.operations.size());
  for (uint32_t i = 0; i < outermost.size(); ++i) {
    const uint32_t parent = capture.operations[i].parent;
    outermost[i] = parent < i ? outermost[parent] : i;
  }
  return outermost;
}

class OperationTotals {
 public:
  // `operation` may be kNoIndex.
  OperationSummary& find(const Capture& capture, uint32_t operation) {
    const CaptureOperation* row = find_row(capture.operations, operation);
    const CaptureOperation none;
    const CaptureOperation& key = row == nullptr ? none : *row;
    OperationSummary& total = totals_[{key.function, key.shape}];
    total.function = key.function;
    total.shape = key.shape;
    return total;
  }
  std::vector<OperationSummary> take() {
    std::vector<OperationSummary> rows;
    for (const auto& [key, total] : totals_) rows.push_back(total);
    sort_by_time(rows, &OperationSummary::gpu_ns);
    return rows;
  }

 private:
  std::map<std::pair<uint32_t, std::array<uint64_t, 4>>, OperationSummary> totals_;
};

// What the launches of one operation caused.
struct OperationWork {
  uint64_t launches = 0;
  uint64_t work = 0;
  uint64_t gpu_ns = 0;
};

void summarise_operations(const Capture& capture, const std::vector<bool>& is_counted_work,
                          CaptureSummary& summary) {
  const uint32_t none = static_cast<uint32_t>(capture.operations.size());
  std::vector<OperationWork> by_operation(none + 1);
  std::vector<bool> is_counted(capture.launches.size());
  for (size_t i = 0; i < capture.work.size(); ++i) {
    if (!is_counted_work[i]) continue;
    const CaptureWork& work = capture.work[i];
    const CaptureLaunch* launch = find_row(capture.launches, work.launch);
    OperationWork& total =
        by_operation[launch == nullptr ? none : std::min(launch->operation, none)];
    ++total.work;
    total.gpu_ns += work.duration_ns;
    if (launch == nullptr || is_counted[work.launch]) continue;
    is_counted[work.launch] = true;
    ++total.launches;
  }
  const std::vector<uint32_t> outermost = list_outermost(capture);
  OperationTotals inner;
  OperationTotals outer;
  for (uint32_t i = 0; i <= none; ++i) {
    if (by_operation[i].work == 0) continue;
    for (OperationSummary* total :
         {&inner.find(capture, i), &outer.find(capture, i == none ? i : outermost[i])}) {
      total->launches += by_operation[i].launches;
      total->work += by_operation[i].work;
      total->gpu_ns += by_operation[i].gpu_ns;
    }
  }
  summary.innermost = inner.take();
  summary.outermost = outer.take();
}

class BucketCounts {
 public:
  void add(uint64_t duration_ns) { ++counts_[bucket_of(duration_ns)]; }
  Histogram take() const {
    Histogram histogram;
    for (size_t i = 0; i < counts_.size(); ++i) {
      if (counts_[i] != 0) histogram.add(i, counts_[i]);
    }
    return histogram;
  }

 private:
  std::vector<uint64_t> counts_ = std::vector<uint64_t>(kBucketCount);
};

LaunchLatency summarise_latency(const LaunchStarts& starts) {
  LaunchLatency result;
  BucketCounts latency;
  BucketCounts stream_wait;
  BucketCounts device_wait;
  for (const LaunchStart& start : starts.starts) {
    const uint64_t device_wait_ns = start.latency_ns - start.stream_wait_ns;
    latency.add(start.latency_ns);
    stream_wait.add(start.stream_wait_ns);
    device_wait.add(device_wait_ns);
    result.latency_ns += start.latency_ns;
    result.stream_wait_ns += start.stream_wait_ns;
    result.device_wait_ns += device_wait_ns;
  }
  result.latency = latency.take();
  result.stream_wait = stream_wait.take();
  result.device_wait = device_wait.take();
  result.before_call = starts.before_call;
  return result;
}

std::vector<CopySummary> summarise_copies(const Capture& capture) {
  std::map<std::pair<bool, uint8_t>, CopySummary> totals;
  for (const CaptureWork& work : capture.work) {
    if (work.kind != WorkKind::kCopy && work.kind != WorkKind::kSet) continue;
    const bool is_set = work.kind == WorkKind::kSet;
    const uint8_t direction = is_set ? uint8_t{0} : work.direction;
    CopySummary& total = totals[{is_set, direction}];
    total.is_set = is_set;
    total.direction = direction;
    ++total.count;
    total.bytes += work.bytes;
    total.total_ns += work.duration_ns;
  }
  std::vector<CopySummary> copies;
  for (const auto& [key, total] : totals) copies.push_back(total);
  sort_by_time(copies, &CopySummary::total_ns);
  return copies;
}

}  // namespace

CaptureSummary summarise(const Capture& capture) {
  const LaunchStarts starts = list_launch_starts(capture);
  const std::vector<bool> is_counted_work = find_counted_work(capture);
  CaptureSummary summary;
  summary.devices = summarise_devices(capture);
  summary.streams = summarise_streams(capture, starts);
  summary.kernels = summarise_kernels(capture, starts);
  summarise_operations(capture, is_counted_work, summary);
  summary.launch_latency = summarise_latency(starts);
  summary.copies = summarise_copies(capture);
  for (size_t i = 0; i < capture.work.size(); ++i) {
    if (is_counted_work[i]) summary.gpu_ns += capture.work[i].duration_ns;
  }
  return summary;
}

}  // namespace gpuperf
