#include "daemon/export/prometheus.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <sstream>
#include <string_view>
#include <utility>

#include "daemon/export/gpu_health_metrics.h"
#include "daemon/export/gzip_buffer.h"
#include "daemon/export/metric_families.h"
#include "daemon/export/step_metrics.h"
#include "daemon/model/display_text.h"
#include "daemon/model/memory.h"
#include "daemon/model/metric_catalog.h"
#include "daemon/model/status_names.h"

namespace gpuperf {
namespace {

// Comm of the set that takes what is beyond a bound; the state uses the same one for processes.

constexpr size_t kProbeStates = static_cast<size_t>(ProbeState::kAlias) + 1;

std::array<uint32_t, kProbeStates> count_probes(const Snapshot& snapshot) {
  std::array<uint32_t, kProbeStates> counts{};
  if (snapshot.probes == nullptr) return counts;
  for (const ProbeRow& probe : snapshot.probes->probes) ++counts[static_cast<size_t>(probe.state)];
  return counts;
}

// Age of the oldest call in flight, by function and owner.
using OldestCalls = std::map<std::pair<uint32_t, Owner>, uint64_t>;

OldestCalls find_oldest_calls(const Snapshot& snapshot) {
  OldestCalls oldest;
  if (snapshot.in_flight == nullptr) return oldest;
  for (const InFlightCall& call : snapshot.in_flight->calls) {
    uint64_t& age_ns = oldest[{call.function_id, get_owner(snapshot, call.process)}];
    age_ns = std::max(age_ns, get_age_ns(*snapshot.in_flight, call));
  }
  return oldest;
}

// Two functions that share category and name are one series: the one covered least.
void add_coverage(const Snapshot& snapshot, MetricFamilies& families) {
  if (snapshot.functions == nullptr) return;
  std::map<std::array<std::string, 2>, double> least;
  for (const Function& function : *snapshot.functions) {
    const double coverage = get_coverage(snapshot, function.id);
    if (coverage >= 1) continue;
    const auto [entry, added] = least.try_emplace(
        {to_valid_utf8(function.category), to_valid_utf8(function.name)}, coverage);
    entry->second = std::min(entry->second, coverage);
  }
  for (const auto& [labels, coverage] : least) {
    families.add_gauge(Metric::kFunctionCoverage, labels, coverage);
  }
}

void add_memcpy(const Snapshot& snapshot, MetricFamilies& families) {
  for (size_t slot = GPUPERF_BYTES_HOST_TO_HOST; slot < GPUPERF_BYTE_SLOTS; ++slot) {
    uint64_t bytes = 0;
    for (const auto& series : snapshot.series) bytes += series->totals.bytes[slot];
    const std::string kind(get_direction_name(slot));
    families.add_counter(Metric::kMemcpyBytes, {&kind, 1}, static_cast<double>(bytes));
  }
}

void add_tracing(const Snapshot& snapshot, MetricFamilies& families) {
  const RecorderRow& recorder = snapshot.recorder;
  families.add_gauge(Metric::kRecorderEvents, {}, static_cast<double>(recorder.events));
  families.add_gauge(Metric::kRecorderBytes, {}, static_cast<double>(recorder.bytes));
  families.add_gauge(Metric::kRecorderSpan, {}, to_seconds(recorder.span_ns));
  for (size_t state = 0; state <= static_cast<size_t>(CaptureState::kFailed); ++state) {
    const auto is_in = [state](const CaptureRow& row) {
      return static_cast<size_t>(row.state) == state;
    };
    const std::string name(get_capture_state_name(static_cast<CaptureState>(state)));
    families.add_gauge(Metric::kCaptures, {&name, 1},
                       static_cast<double>(std::ranges::count_if(snapshot.captures, is_in)));
  }
}

void add_daemon(const Snapshot& snapshot, const DropCounters& drops, MetricFamilies& families) {
  for (const DropRow& row : drop_rows()) {
    const std::string values[] = {std::string(row.stage), std::string(row.reason)};
    families.add_counter(Metric::kDropped, values, static_cast<double>(drops.get(row.cause)));
  }
  if (snapshot.daemon != nullptr) {
    const std::string mechanism = snapshot.probes ? snapshot.probes->mechanism : "none";
    const std::string values[] = {snapshot.daemon->version, snapshot.daemon->kernel, mechanism};
    families.add_gauge(Metric::kBuildInfo, values, 1);
  }
  families.add_counter(Metric::kDaemonCpu, {}, to_seconds(snapshot.cpu_ns));
  families.add_gauge(Metric::kDaemonResident, {}, static_cast<double>(snapshot.resident_bytes));
}

void add_qos(const std::vector<QosRow>& rules, MetricFamilies& families) {
  for (const QosRow& row : rules) {
    const std::string* const name = &row.rule.name;
    families.add_gauge(Metric::kQosBreached, {name, 1}, row.is_breached ? 1 : 0);
    families.add_counter(Metric::kQosBreaches, {name, 1}, static_cast<double>(row.breaches));
  }
}

constexpr size_t kFirstStepEdge = 20;  // 2^20 ns are a millisecond
constexpr size_t kLastStepEdge = 34;

prometheus::ClientMetric::Histogram make_histogram(const DurationCounts::Totals& times) {
  prometheus::ClientMetric::Histogram histogram;
  histogram.sample_count = times.count();
  histogram.sample_sum = to_seconds(times.total_ns);
  uint64_t seen = 0;
  for (size_t i = 0; i <= kLastStepEdge; ++i) {
    seen += times.counts[i];
    if (i < kFirstStepEdge || i % 2 != 0) continue;
    histogram.bucket.push_back(
        {.cumulative_count = seen, .upper_bound = to_seconds(uint64_t{1} << i)});
  }
  histogram.bucket.push_back({.cumulative_count = histogram.sample_count,
                              .upper_bound = std::numeric_limits<double>::infinity()});
  return histogram;
}

void add_self_report(const SelfReport& report, MetricFamilies& families) {
  for (const BoundLevel& level : report.bounds) {
    const std::string name(get_bound(level.bound).name);
    families.add_gauge(Metric::kBoundUsed, {&name, 1}, static_cast<double>(level.used));
    families.add_gauge(Metric::kBoundHighest, {&name, 1}, static_cast<double>(level.highest));
    families.add_gauge(Metric::kBoundLimit, {&name, 1}, static_cast<double>(level.limit));
  }
  for (const auto& [part, bytes] : report.memory) {
    const std::string name(memory_rows()[static_cast<size_t>(part)].name);
    families.add_gauge(Metric::kDaemonMemory, {&name, 1}, static_cast<double>(bytes));
  }
  for (const StepTimes& step : report.steps) {
    families.add(Metric::kDaemonStep, {&step.step, 1}).histogram = make_histogram(step.times);
  }
}

}  // namespace

std::vector<prometheus::MetricFamily> PrometheusMetrics::Collect() const {
  const MutexLock lock(mutex_);
  // Taken under the lock, so that a later collection never shows an older snapshot.
  const std::shared_ptr<const Snapshot> snapshot = board_.get();
  MetricFamilies families;
  for (const auto& [key, parts] : group_series(*snapshot)) add_function(key, parts, families);
  add_coverage(*snapshot, families);
  add_memcpy(*snapshot, families);
  gpu_.add(snapshot->gpu, families);
  nccl_.add(*snapshot, families);
  add_step_metrics(*snapshot, families);
  const auto probes = count_probes(*snapshot);
  for (size_t i = 0; i < probes.size(); ++i) {
    const std::string state(get_probe_state_name(static_cast<ProbeState>(i)));
    families.add_gauge(Metric::kProbes, {&state, 1}, probes[i]);
  }
  families.add_gauge(Metric::kSuspendedFunctions, {},
                     static_cast<double>(snapshot->suspensions.size()));
  add_overhead(*snapshot, families);
  add_qos(snapshot->qos_rules, families);
  if (snapshot->memory) add_memory(*snapshot->memory, families);
  families.add_gauge(Metric::kProcesses, {},
                     static_cast<double>(count_running_processes(*snapshot)));
  if (snapshot->gpus) add_gpu_health_metrics(*snapshot->gpus, families);
  add_tracing(*snapshot, families);
  add_self_report(snapshot->self, families);
  series_ = std::max(admitted_, gpu_.count_admitted());
  add_daemon(*snapshot, drops_, families);  // last: it shows the drops of the above
  return families.take();
}

PrometheusMetrics::SeriesMap PrometheusMetrics::group_series(const Snapshot& snapshot) const {
  SeriesMap groups;
  if (snapshot.functions == nullptr) return groups;
  const OldestCalls oldest = find_oldest_calls(snapshot);
  for (const auto& series : snapshot.series) {
    // An id outside the table of its own snapshot has no name to be exported under.
    if (series->function_id >= snapshot.functions->size()) continue;
    const Function& function = (*snapshot.functions)[series->function_id];
    const Owner& owner = series->owner;
    SeriesKey key = make_key(function.category, function.name, owner);
    const auto call = oldest.find({series->function_id, owner});
    groups[admit(std::move(key))].push_back(
        {.function = &function,
         .series = series.get(),
         .oldest_in_flight_ns = call == oldest.end() ? 0 : call->second});
  }
  return groups;
}

PrometheusMetrics::SeriesKey PrometheusMetrics::make_key(const std::string& category,
                                                         const std::string& function,
                                                         const Owner& owner) {
  return {.category = to_valid_utf8(category),
          .function = to_valid_utf8(function),
          .owner = {.comm = to_valid_utf8(owner.comm),
                    .container = to_valid_utf8(owner.container),
                    .pod = to_valid_utf8(owner.pod),
                    .pod_namespace = to_valid_utf8(owner.pod_namespace),
                    .slurm_job = to_valid_utf8(owner.slurm_job),
                    .slurm_rank = to_valid_utf8(owner.slurm_rank)}};
}

std::vector<std::string> PrometheusMetrics::list_labels(const SeriesKey& key) {
  const Owner& owner = key.owner;
  return {key.category, key.function,        owner.comm,      owner.container,
          owner.pod,    owner.pod_namespace, owner.slurm_job, owner.slurm_rank};
}

Exemplars PrometheusMetrics::list_exemplars() const {
  const MutexLock lock(mutex_);
  const std::shared_ptr<const Snapshot> snapshot = board_.get();
  Exemplars exemplars;
  for (const auto& call : snapshot->slow_calls) {
    if (call->event.in_flight) continue;  // its histogram does not count it yet
    const auto known = decided_.find(make_key(call->category, call->function, call->event.owner));
    if (known == decided_.end()) continue;
    const SeriesKey key = known->second ? known->first : make_other(known->first);
    exemplars[list_labels(key)].push_back(
        {.slow_call_id = call->id,
         .seconds = to_seconds(call->event.duration_ns),
         .end_unix_seconds = to_seconds(call->start_unix_ns + call->event.duration_ns)});
  }
  return exemplars;
}

PrometheusMetrics::SeriesKey PrometheusMetrics::make_other(const SeriesKey& key) {
  SeriesKey other{.category = key.category, .function = key.function, .owner = {}};
  other.owner.comm = kOther;
  return other;
}

// The set under which `key` is exported: itself, or its function's "other".
PrometheusMetrics::SeriesKey PrometheusMetrics::admit(SeriesKey key) const {
  SeriesKey other = make_other(key);
  if (key == other) return other;
  const auto [decision, first_seen] = decided_.try_emplace(key, admitted_ < max_series_);
  if (first_seen && decision->second) ++admitted_;
  if (first_seen && !decision->second) drops_.add(DropCause::kMetricsSeriesFull);
  return decision->second ? std::move(key) : std::move(other);
}

void PrometheusMetrics::add_function(const SeriesKey& key, const std::vector<Part>& parts,
                                     MetricFamilies& families) const {
  FunctionTotals merged;
  if (parts.size() > 1) {
    for (const Part& part : parts) merge_totals(merged, part.series->totals);
  }
  const FunctionTotals& totals = parts.size() > 1 ? merged : parts.front().series->totals;
  const std::vector<std::string> labels = list_labels(key);

  families.add_counter(Metric::kFunctionCalls, labels, static_cast<double>(totals.calls));
  add_errors(labels, parts, families);
  families.add_counter(Metric::kFunctionSlowCalls, labels, static_cast<double>(totals.slow_calls));
  // Counted at entry only: an empty histogram would say that every call took no time.
  if (totals.calls != totals.untimed) {
    families.add(Metric::kFunctionDuration, labels).histogram =
        make_histogram(totals.histogram, totals.total_ns);
  }
  // Held at its highest: see abandoned_. Below zero, a call came back under another owner's name.
  uint64_t& abandoned = abandoned_[key];
  if (static_cast<int64_t>(totals.abandoned) > 0) abandoned = std::max(abandoned, totals.abandoned);
  families.add_counter(Metric::kFunctionAbandoned, labels, static_cast<double>(abandoned));
  families.add_gauge(Metric::kFunctionInFlight, labels, static_cast<double>(get_in_flight(totals)));
  const auto oldest = std::ranges::max_element(parts, {}, &Part::oldest_in_flight_ns);
  families.add_gauge(Metric::kFunctionOldestInFlight, labels,
                     to_seconds(oldest->oldest_in_flight_ns));
  if (totals.missed.calls > 0) {
    families.add_counter(Metric::kFunctionMissedCalls, labels, std::round(totals.missed.calls));
    families.add_gauge(Metric::kFunctionMissedCallsError, labels,
                       std::round(get_error_calls(totals.missed)));
  }
  for (size_t slot = 0; slot < totals.bytes.size(); ++slot) {
    if (totals.bytes[slot] == 0) continue;
    std::vector<std::string> values = labels;
    values.emplace_back(get_direction_name(slot));
    families.add_counter(Metric::kFunctionBytes, values, static_cast<double>(totals.bytes[slot]));
  }
  if (totals.flops == 0) return;
  families.add_counter(Metric::kFunctionFlops, labels, static_cast<double>(totals.flops));
}

void PrometheusMetrics::add_errors(const std::vector<std::string>& labels,
                                   const std::vector<Part>& parts, MetricFamilies& families) {
  std::map<std::string, uint64_t> errors;
  for (const Part& part : parts) {
    const FunctionTotals& totals = part.series->totals;
    for (const auto& [code, count] : totals.errors) {
      errors[get_status_name(part.function->status, code)] += count;
    }
    if (totals.other_errors != 0) errors[kOther] += totals.other_errors;
  }
  for (const auto& [error, count] : errors) {
    std::vector<std::string> values = labels;
    values.push_back(error);
    families.add_counter(Metric::kFunctionErrors, values, static_cast<double>(count));
  }
}

// Bounded like the functions' sets, of which these are the sets of no function.
void PrometheusMetrics::add_overhead(const Snapshot& snapshot, MetricFamilies& families) const {
  std::map<SeriesKey, OverheadRow> most;
  for (const OverheadRow& row : snapshot.overhead) {
    OverheadRow& highest = most[admit(
        {.category = "",
         .function = "",
         .owner = {.comm = to_valid_utf8(row.owner.comm), .pod = to_valid_utf8(row.owner.pod)}})];
    const auto measured = highest.measured;
    if (row.ratio >= highest.ratio) highest = row;
    if (measured && (!row.measured || measured->ratio > row.measured->ratio)) {
      highest.measured = measured;
    }
  }
  for (const auto& [key, row] : most) {
    const std::string values[] = {key.owner.pod, key.owner.comm};
    families.add_gauge(Metric::kOverhead, values, row.ratio);
    if (row.measured) {
      families.add_gauge(Metric::kOverheadMeasured, values, row.measured->ratio);
      families.add_gauge(Metric::kOverheadCorrection, values, row.correction);
    }
    const std::pair<const char*, double> parts[] = {
        {"probes", row.probes_ratio()}, {"hooks", row.hooks_ratio}, {"cupti", row.cupti_ratio}};
    for (const auto& [name, ratio] : parts) {
      const std::string more[] = {key.owner.pod, key.owner.comm, name};
      families.add_gauge(Metric::kOverheadComponent, more, ratio);
    }
  }
}

// Likewise.
void PrometheusMetrics::add_memory(const MemoryReport& report, MetricFamilies& families) const {
  struct Sum {
    std::array<MemoryTotals, kMemoryKindCount> kinds{};
    std::optional<double> leak_bytes_per_second;
  };
  std::map<SeriesKey, Sum> sums;
  for (const auto& process : report.processes) {
    if (process->exited) continue;
    Sum& sum = sums[admit_owner(process->owner)];
    for (size_t kind = 0; kind < kMemoryKindCount; ++kind) {
      merge_totals(sum.kinds[kind], process->kinds[kind]);
    }
    if (!process->has_leaked) continue;
    sum.leak_bytes_per_second =
        sum.leak_bytes_per_second.value_or(0) + get_leak_bytes_per_second(*process);
  }
  const auto list_owner_labels = [](const SeriesKey& key) {
    std::vector<std::string> labels = list_labels(key);
    labels.erase(labels.begin(), labels.begin() + 2);  // category and function
    return labels;
  };
  for (const auto& [key, sum] : sums) {
    std::vector<std::string> labels = list_owner_labels(key);
    if (sum.leak_bytes_per_second) {
      families.add_gauge(Metric::kMemoryLeak, labels, *sum.leak_bytes_per_second);
    }
    labels.emplace_back();
    for (size_t kind = 0; kind < kMemoryKindCount; ++kind) {
      if (sum.kinds[kind].allocations == 0) continue;
      labels.back() = get_memory_name(static_cast<MemoryKind>(kind));
      families.add_gauge(Metric::kMemoryLive, labels,
                         static_cast<double>(sum.kinds[kind].live_bytes));
      families.add_gauge(Metric::kMemoryPeak, labels,
                         static_cast<double>(sum.kinds[kind].peak_bytes));
    }
  }
  std::map<SeriesKey, uint64_t> failures;
  for (const auto& [owner, count] : report.out_of_memory_counts) {
    failures[admit_owner(owner)] += count;
  }
  for (const auto& [key, count] : failures) {
    families.add_counter(Metric::kMemoryFailures, list_owner_labels(key),
                         static_cast<double>(count));
  }
}

std::string render_metrics_text(const prometheus::Collectable& metrics, MetricsFormat format,
                                const Exemplars& exemplars) {
  std::ostringstream out;
  write_metrics(out, metrics.Collect(), format, exemplars);
  return std::move(out).str();
}

std::string render_metrics_gzip(const prometheus::Collectable& metrics, MetricsFormat format,
                                const Exemplars& exemplars) {
  GzipBuffer packed;
  std::ostream out(&packed);
  out.exceptions(std::ios::badbit | std::ios::failbit);  // a text cut short would not be noticed
  write_metrics(out, metrics.Collect(), format, exemplars);
  return packed.finish();
}

}  // namespace gpuperf
