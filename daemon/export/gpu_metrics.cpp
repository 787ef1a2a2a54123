#include "daemon/export/gpu_metrics.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "daemon/model/display_text.h"
#include "daemon/model/session_names.h"

namespace gpuperf {
namespace {

// A share of all kernels' time from which a name is worth a set of its own.
constexpr uint64_t kWorthyPart = 100;

Owner make_valid(const Owner& owner) {
  return {.comm = to_valid_utf8(owner.comm),
          .container = to_valid_utf8(owner.container),
          .pod = to_valid_utf8(owner.pod),
          .pod_namespace = to_valid_utf8(owner.pod_namespace),
          .slurm_job = to_valid_utf8(owner.slurm_job),
          .slurm_rank = to_valid_utf8(owner.slurm_rank)};
}

std::vector<std::string> make_labels(const Owner& owner) {
  return {owner.comm,          owner.container, owner.pod,
          owner.pod_namespace, owner.slurm_job, owner.slurm_rank};
}

}  // namespace

void GpuMetrics::add(Durations& sum, const DurationTotals& totals) {
  sum.count += totals.histogram.count();
  sum.total_ns += totals.total_ns;
  // One walk over the buckets serves all edges: both ascend.
  const auto buckets = totals.histogram.buckets();
  auto bucket = buckets.begin();
  uint64_t seen = 0;
  for (size_t i = 0; i < kDurationEdgesNs.size(); ++i) {
    const size_t end = bucket_of(kDurationEdgesNs[i]);
    for (; bucket != buckets.end() && bucket->index < end; ++bucket) seen += bucket->count;
    sum.counts[i] += seen;
  }
}

void GpuMetrics::add(Durations& sum, const Durations& other) {
  sum.count += other.count;
  sum.total_ns += other.total_ns;
  for (size_t i = 0; i < sum.counts.size(); ++i) sum.counts[i] += other.counts[i];
}

void GpuMetrics::subtract(Durations& from, const Durations& part) {
  from.count -= part.count;
  from.total_ns -= part.total_ns;
  for (size_t i = 0; i < from.counts.size(); ++i) from.counts[i] -= part.counts[i];
}

// What was folded is "other" already, and of nobody.
GpuMetrics::Kernels GpuMetrics::sum_kernels(const GpuReport& report) {
  Kernels sums;
  for (const auto* rows : {&report.kernels, &report.retired_kernels}) {
    for (const auto& row : *rows) {
      const SetKey key = row->folded
                             ? SetKey{kOther, other_owner()}
                             : SetKey{to_valid_utf8(row->name->brief), make_valid(row->owner)};
      Kernel& sum = sums[key];
      add(sum.duration, row->totals.duration);
      add(sum.launch_latency, row->totals.launch_latency);
    }
  }
  return sums;
}

void GpuMetrics::choose_kernels(const Kernels& kernels) {
  std::map<std::string, uint64_t> candidates;  // name -> time
  uint64_t all_ns = 0;
  for (const auto& [key, kernel] : kernels) {
    all_ns += kernel.duration.total_ns;
    if (key.kernel != kOther && !shown_.contains(key.kernel)) {
      candidates[key.kernel] += kernel.duration.total_ns;
    }
  }
  std::vector<std::pair<std::string, uint64_t>> longest(candidates.begin(), candidates.end());
  std::ranges::stable_sort(longest, std::ranges::greater(),
                           &std::pair<std::string, uint64_t>::second);
  for (const auto& [name, total_ns] : longest) {
    const bool is_early = shown_.size() < (max_kernels_ + 1) / 2;
    const bool is_worthy = total_ns >= all_ns / kWorthyPart;
    if (shown_.size() < max_kernels_ && (is_early || is_worthy)) {
      shown_.insert(name);
      if (!unshown_.contains(name)) continue;
      for (const auto& [key, kernel] : kernels) {
        if (key.kernel == name) counted_as_other_[key] = kernel;
      }
    } else if (unshown_.insert(name).second) {
      drops_.add(DropCause::kMetricsKernelsFull);
    }
  }
}

// The set under which `key` is exported: itself, or that of nobody in particular.
GpuMetrics::SetKey GpuMetrics::admit(SetKey key) {
  SetKey other{.kernel = key.kernel.empty() ? "" : kOther, .owner = other_owner()};
  if (key == other) return other;
  const auto [decision, first_seen] = decided_.try_emplace(key, admitted_ < max_series_);
  if (first_seen && decision->second) ++admitted_;
  if (first_seen && !decision->second) drops_.add(DropCause::kMetricsSeriesFull);
  return decision->second ? std::move(key) : std::move(other);
}

void GpuMetrics::add_kernels(const GpuReport& report, MetricFamilies& families) {
  const Kernels kernels = sum_kernels(report);
  choose_kernels(kernels);
  Kernels sets;
  const auto add_to = [&](SetKey key, const Kernel& kernel) {
    Kernel& set = sets[admit(std::move(key))];
    add(set.duration, kernel.duration);
    add(set.launch_latency, kernel.launch_latency);
  };
  for (const auto& [key, kernel] : kernels) {
    const SetKey as_other{kOther, key.owner};
    const auto before = counted_as_other_.find(key);
    if (!shown_.contains(key.kernel)) {
      add_to(as_other, kernel);
    } else if (before == counted_as_other_.end()) {
      add_to(key, kernel);
    } else {
      add_to(as_other, before->second);
      Kernel since = kernel;
      subtract(since.duration, before->second.duration);
      subtract(since.launch_latency, before->second.launch_latency);
      add_to(key, since);
    }
  }
  for (const auto& [key, kernel] : sets) {
    std::vector<std::string> labels = make_labels(key.owner);
    labels.insert(labels.begin(), key.kernel);
    const auto add_histogram = [&](Metric metric, const Durations& durations) {
      auto& histogram = families.add(metric, labels).histogram;
      histogram.sample_count = durations.count;
      histogram.sample_sum = to_seconds(durations.total_ns);
      for (size_t i = 0; i < durations.counts.size(); ++i) {
        histogram.bucket.push_back({.cumulative_count = durations.counts[i],
                                    .upper_bound = to_seconds(kDurationEdgesNs[i])});
      }
      histogram.bucket.push_back({.cumulative_count = durations.count,
                                  .upper_bound = std::numeric_limits<double>::infinity()});
    };
    add_histogram(Metric::kKernelDuration, kernel.duration);
    if (kernel.launch_latency.count > 0) {
      add_histogram(Metric::kKernelLaunchLatency, kernel.launch_latency);
    }
  }
}

void GpuMetrics::add_processes(const GpuReport& report, MetricFamilies& families) {
  std::map<SetKey, GpuProcessTotals> sets;
  for (const auto* rows : {&report.processes, &report.retired_processes}) {
    for (const auto& row : *rows) {
      merge_totals(sets[admit({"", row->folded ? other_owner() : make_valid(row->owner)})],
                   row->totals);
    }
  }
  for (const auto& [key, totals] : sets) {
    std::vector<std::string> labels = make_labels(key.owner);
    uint64_t launches = 0;
    for (const GraphTotals& graph : totals.graphs) launches += graph.duration.histogram.count();
    if (launches > 0) {
      families.add_counter(Metric::kGraphLaunches, labels, static_cast<double>(launches));
    }
    std::map<std::string_view, uint64_t> bytes;
    for (const CopyTotals& copy : totals.copies) {
      bytes[get_copy_direction_name(copy.is_set, copy.direction)] += copy.bytes;
    }
    labels.emplace_back();
    for (const auto& [direction, count] : bytes) {
      labels.back() = direction;
      families.add_counter(Metric::kGpuCopiedBytes, labels, static_cast<double>(count));
    }
    for (uint32_t type = 0; type < totals.syncs.size(); ++type) {
      if (totals.syncs[type].histogram.count() == 0) continue;
      labels.back() = get_sync_type_name(type);
      families.add_counter(Metric::kGpuSync, labels, to_seconds(totals.syncs[type].total_ns));
    }
  }
}

void GpuMetrics::add_memory(const GpuReport& report, MetricFamilies& families) {
  std::map<std::pair<std::string, SetKey>, uint64_t> held;
  for (const auto& row : report.processes) {
    if (row->exited) continue;
    for (const GpuMemoryRow& memory : row->memory) {
      if (memory.memory != GPUPERF_MEMORY_DEVICE) continue;
      held[{format_gpu_uuid(memory.uuid),
            admit({"", row->folded ? other_owner() : make_valid(row->owner)})}] +=
          memory.used_bytes;
    }
  }
  for (const auto& [key, bytes] : held) {
    std::vector<std::string> labels = make_labels(key.second.owner);
    labels.insert(labels.begin(), key.first);
    families.add_gauge(Metric::kGpuAllocated, labels, static_cast<double>(bytes));
  }
}

// GPUs without a uuid are one: each process numbers its own.
void GpuMetrics::add_activity(const GpuReport& report, MetricFamilies& families) {
  std::map<std::string, GpuActivity> gpus;
  for (const GpuActivity& activity : report.activity) {
    GpuActivity& gpu = gpus[format_gpu_uuid(activity.uuid)];
    gpu.busy_ns += activity.busy_ns;
    gpu.without_nccl_ns += activity.without_nccl_ns;
    gpu.observed_ns += activity.observed_ns;
    gpu.kernel_ns += activity.kernel_ns;
    gpu.copy_ns += activity.copy_ns;
    gpu.graph_ns += activity.graph_ns;
  }
  for (const auto& [uuid, gpu] : gpus) {
    const auto add_seconds = [&, &uuid = uuid](Metric metric, uint64_t ns) {
      families.add_counter(metric, {&uuid, 1}, to_seconds(ns));
    };
    add_seconds(Metric::kGpuBusy, gpu.busy_ns);
    add_seconds(Metric::kGpuBusyWithoutNccl, gpu.without_nccl_ns);
    add_seconds(Metric::kGpuObserved, gpu.observed_ns);
    add_seconds(Metric::kGpuKernelBusy, gpu.kernel_ns);
    add_seconds(Metric::kGpuCopyBusy, gpu.copy_ns);
    add_seconds(Metric::kGpuGraphBusy, gpu.graph_ns);
  }
}

void GpuMetrics::add_sessions(const GpuReport& report, MetricFamilies& families) {
  const auto counts = count_sessions(report);
  for (uint32_t state = 0; state < counts.size(); ++state) {
    const std::string name(get_session_state_name(state));
    families.add_gauge(Metric::kSessions, {&name, 1}, counts[state]);
  }
  for (size_t loss = 0; loss < report.lost_records.size(); ++loss) {
    const std::string reason(get_session_loss_name(loss));
    families.add_counter(Metric::kSessionLostRecords, {&reason, 1},
                         static_cast<double>(report.lost_records[loss]));
  }
  uint64_t worst_ns = 0;
  for (const auto& row : report.sessions) {
    if (!row->open) continue;
    worst_ns = std::max({worst_ns, row->status.clock_error_ns, row->join.clock_worst_ns});
  }
  families.add_gauge(Metric::kSessionClockError, {}, to_seconds(worst_ns));
}

void GpuMetrics::add(const GpuReport& report, MetricFamilies& families) {
  add_kernels(report, families);
  add_processes(report, families);
  add_memory(report, families);
  add_activity(report, families);
  add_sessions(report, families);
}

}  // namespace gpuperf
