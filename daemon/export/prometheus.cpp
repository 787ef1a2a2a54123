#include "daemon/export/prometheus.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "daemon/model/display_text.h"
#include "daemon/model/metric_catalog.h"
#include "daemon/model/status_names.h"

namespace gpuperf {
namespace {

// Comm of the set that takes what is beyond a bound; the state uses the same one for processes.
constexpr std::string_view kOther = "other";

prometheus::MetricType get_prometheus_type(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return prometheus::MetricType::Counter;
    case MetricType::kGauge:
      return prometheus::MetricType::Gauge;
    case MetricType::kHistogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;  // only reached with a value outside the enum
}

double to_seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }

prometheus::ClientMetric::Histogram make_histogram(const FunctionTotals& totals) {
  prometheus::ClientMetric::Histogram histogram;
  histogram.sample_count = totals.histogram.count();
  histogram.sample_sum = to_seconds(totals.total_ns);
  // One walk over the buckets serves all edges: both ascend.
  uint64_t seen = 0;
  size_t bucket = 0;
  for (const uint64_t edge_ns : kDurationEdgesNs) {
    const size_t end = bucket_of(edge_ns);
    for (; bucket < end; ++bucket) seen += totals.histogram.bucket(bucket);
    histogram.bucket.push_back({.cumulative_count = seen, .upper_bound = to_seconds(edge_ns)});
  }
  histogram.bucket.push_back({.cumulative_count = histogram.sample_count,
                              .upper_bound = std::numeric_limits<double>::infinity()});
  return histogram;
}

std::array<uint32_t, 6> count_probes(const Snapshot& snapshot) {
  std::array<uint32_t, 6> counts{};
  if (snapshot.probes == nullptr) return counts;
  for (const ProbeRow& probe : snapshot.probes->probes) ++counts[static_cast<size_t>(probe.state)];
  return counts;
}

}  // namespace

// One family per row of the catalog, filled in any order.
class PrometheusMetrics::Families {
 public:
  Families() {
    for (const MetricRow& row : metric_rows()) {
      families_.push_back({.name = std::string(row.name),
                           .help = std::string(row.help),
                           .type = get_prometheus_type(row.type),
                           .metric = {}});
    }
  }

  // `values`: those of the row's labels, in the row's order.
  prometheus::ClientMetric& add(Metric metric, std::span<const std::string> values) {
    prometheus::ClientMetric& added = families_[static_cast<size_t>(metric)].metric.emplace_back();
    const std::span<const MetricLabel> labels = get_metric(metric).labels;
    for (size_t i = 0; i < labels.size(); ++i) {
      added.label.push_back({.name = std::string(get_label_name(labels[i])), .value = values[i]});
    }
    return added;
  }
  void add_counter(Metric metric, std::span<const std::string> values, double value) {
    add(metric, values).counter.value = value;
  }
  void add_gauge(Metric metric, std::span<const std::string> values, double value) {
    add(metric, values).gauge.value = value;
  }

  std::vector<prometheus::MetricFamily> take() {
    std::erase_if(families_, [](const auto& family) { return family.metric.empty(); });
    return std::move(families_);
  }

 private:
  std::vector<prometheus::MetricFamily> families_;  // by Metric
};

std::vector<prometheus::MetricFamily> PrometheusMetrics::Collect() const {
  const std::lock_guard lock(mutex_);
  // Taken under the lock, so that a later collection never shows an older snapshot.
  const std::shared_ptr<const Snapshot> snapshot = board_.get();
  Families families;
  for (const auto& [key, parts] : group_series(*snapshot)) add_function(key, parts, families);
  const std::array<uint32_t, 6> probes = count_probes(*snapshot);
  for (size_t i = 0; i < probes.size(); ++i) {
    const std::string state(get_probe_state_name(static_cast<ProbeState>(i)));
    families.add_gauge(Metric::kProbes, {&state, 1}, probes[i]);
  }
  families.add_gauge(Metric::kProcesses, {},
                     static_cast<double>(count_running_processes(*snapshot)));
  for (const DropRow& row : drop_rows()) {
    const std::string values[] = {std::string(row.stage), std::string(row.reason)};
    families.add_counter(Metric::kDropped, values, static_cast<double>(drops_.get(row.cause)));
  }
  if (snapshot->daemon != nullptr) {
    const std::string mechanism = snapshot->probes ? snapshot->probes->mechanism : "none";
    const std::string values[] = {snapshot->daemon->version, snapshot->daemon->kernel, mechanism};
    families.add_gauge(Metric::kBuildInfo, values, 1);
  }
  families.add_counter(Metric::kDaemonCpu, {}, to_seconds(snapshot->cpu_ns));
  families.add_gauge(Metric::kDaemonResident, {}, static_cast<double>(snapshot->resident_bytes));
  return families.take();
}

PrometheusMetrics::SeriesMap PrometheusMetrics::group_series(const Snapshot& snapshot) const {
  SeriesMap groups;
  if (snapshot.functions == nullptr) return groups;
  for (const auto& series : snapshot.series) {
    // An id outside the table of its own snapshot has no name to be exported under.
    if (series->function_id >= snapshot.functions->size()) continue;
    const Function& function = (*snapshot.functions)[series->function_id];
    const Owner& owner = series->owner;
    SeriesKey key{.category = to_valid_utf8(function.category),
                  .function = to_valid_utf8(function.name),
                  .owner = {.comm = to_valid_utf8(owner.comm),
                            .container = to_valid_utf8(owner.container),
                            .pod = to_valid_utf8(owner.pod),
                            .pod_namespace = to_valid_utf8(owner.pod_namespace)}};
    groups[admit(std::move(key))].push_back({.function = &function, .series = series.get()});
  }
  return groups;
}

// The set under which `key` is exported: itself, or its function's "other".
PrometheusMetrics::SeriesKey PrometheusMetrics::admit(SeriesKey key) const {
  SeriesKey other{.category = key.category, .function = key.function, .owner = {}};
  other.owner.comm = kOther;
  if (key == other) return other;
  const auto [decision, first_seen] = decided_.try_emplace(key, admitted_ < max_series_);
  if (first_seen && decision->second) ++admitted_;
  if (first_seen && !decision->second) drops_.add(DropCause::kMetricsSeriesFull);
  return decision->second ? std::move(key) : std::move(other);
}

void PrometheusMetrics::add_function(const SeriesKey& key, const std::vector<Part>& parts,
                                     Families& families) const {
  FunctionTotals merged;
  if (parts.size() > 1) {
    for (const Part& part : parts) merge_totals(merged, part.series->totals);
  }
  const FunctionTotals& totals = parts.size() > 1 ? merged : parts.front().series->totals;
  const std::vector<std::string> labels = {key.category,   key.function,
                                           key.owner.comm, key.owner.container,
                                           key.owner.pod,  key.owner.pod_namespace};

  families.add_counter(Metric::kFunctionCalls, labels, static_cast<double>(totals.calls));
  std::map<std::string, uint64_t> errors;
  for (const auto& [function, series] : parts) {
    for (const auto& [code, count] : series->totals.errors) {
      errors[get_status_name(function->status, code)] += count;
    }
    if (series->totals.other_errors != 0)
      errors[std::string(kOther)] += series->totals.other_errors;
  }
  for (const auto& [error, count] : errors) {
    std::vector<std::string> values = labels;
    values.push_back(error);
    families.add_counter(Metric::kFunctionErrors, values, static_cast<double>(count));
  }
  families.add_counter(Metric::kFunctionSlowCalls, labels, static_cast<double>(totals.slow_calls));
  const auto timed = [](const Part& part) { return !part.function->entry_only; };
  if (std::ranges::any_of(parts, timed)) {
    families.add(Metric::kFunctionDuration, labels).histogram = make_histogram(totals);
  }
  // Held at its highest: see abandoned_. Below zero, a call came back under another owner's name.
  uint64_t& abandoned = abandoned_[key];
  if (static_cast<int64_t>(totals.abandoned) > 0) abandoned = std::max(abandoned, totals.abandoned);
  families.add_counter(Metric::kFunctionAbandoned, labels, static_cast<double>(abandoned));
  families.add_gauge(Metric::kFunctionInFlight, labels, static_cast<double>(get_in_flight(totals)));
}

std::string render_metrics_text(const prometheus::Collectable& metrics) {
  return prometheus::TextSerializer().Serialize(metrics.Collect());
}

}  // namespace gpuperf
