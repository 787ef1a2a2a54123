#include "daemon/export/qos_reading.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "daemon/base/wildcard.h"
#include "daemon/export/metric_families.h"
#include "daemon/model/step.h"

namespace gpuperf {
namespace {

using prometheus::ClientMetric;

std::string_view find_label(const ClientMetric& series, std::string_view name) {
  const auto label = std::ranges::find(series.label, name, &ClientMetric::Label::name);
  return label == series.label.end() ? std::string_view() : std::string_view(label->value);
}

// `get(name)`: the value of a label.
template <typename Get>
bool matches(const QosRule& rule, Get get) {
  return std::ranges::all_of(rule.labels, [&](const auto& wanted) {
    return matches_wildcard(wanted.second, get(wanted.first));
  });
}

bool is_read_of_totals(Metric metric) {
  return metric >= Metric::kFunctionCalls && metric <= Metric::kMemcpyBytes;
}

void add_durations(const QosRule& rule, const Histogram& durations, uint64_t total_ns,
                   QosSample& sample) {
  sample.count += durations.count();
  sample.sum += to_seconds(total_ns);
  if (rule.reading == QosRule::Reading::kQuantile) sample.durations.merge(durations);
}

void add_steps(const QosRule& rule, const Snapshot& snapshot, QosSample& sample) {
  for (const StepSeries& series : snapshot.steps.series) {
    if (series.function_id >= snapshot.functions->size()) continue;
    const Function& function = (*snapshot.functions)[series.function_id];
    const auto get = [&](std::string_view label) -> std::string_view {
      if (label == get_label_name(MetricLabel::kPhase)) return get_step_phase_name(series.phase);
      return label == get_label_name(MetricLabel::kFunction) ? function.name : function.category;
    };
    if (!matches(rule, get)) continue;
    add_durations(rule, series.totals.durations, series.totals.total_ns, sample);
  }
}

void add_calls(const QosRule& rule, const Snapshot& snapshot, QosSample& sample) {
  for (const auto& series : snapshot.series) {
    if (series->function_id >= snapshot.functions->size()) continue;
    const Function& function = (*snapshot.functions)[series->function_id];
    const Owner& owner = series->owner;
    const std::pair<MetricLabel, std::string_view> labels[] = {
        {MetricLabel::kCategory, function.category},
        {MetricLabel::kFunction, function.name},
        {MetricLabel::kComm, owner.comm},
        {MetricLabel::kContainer, owner.container},
        {MetricLabel::kPod, owner.pod},
        {MetricLabel::kNamespace, owner.pod_namespace},
        {MetricLabel::kSlurmJob, owner.slurm_job},
        {MetricLabel::kSlurmRank, owner.slurm_rank}};
    const auto get = [&](std::string_view name) {
      const auto* label = std::ranges::find(
          labels, name, [](const auto& pair) { return get_label_name(pair.first); });
      return label == std::end(labels) ? std::string_view() : label->second;
    };
    if (!matches(rule, get)) continue;
    add_durations(rule, series->totals.histogram, series->totals.total_ns, sample);
  }
}

void add_series(const QosRule& rule, const ClientMetric& series, QosSample& sample) {
  if (rule.reading == QosRule::Reading::kValue) {
    const double value = series.gauge.value;
    const double before = sample.value.value_or(value);
    sample.value = rule.is_upper ? std::max(before, value) : std::min(before, value);
  } else {
    sample.count += series.histogram.sample_count;
    sample.sum += series.counter.value + series.histogram.sample_sum;
  }
}

using Reading = QosRule::Reading;
using prometheus::MetricType;

// What is to be written before a metric of the type; empty = it is right as it is.
std::string_view find_reading_fault(Reading reading, MetricType type) {
  switch (type) {
    case MetricType::Gauge:
      return reading == Reading::kValue ? "" : "a gauge: write no word before it";
    case MetricType::Counter:
      return reading == Reading::kRate ? "" : "a counter: write rate before it";
    case MetricType::Histogram:
      return reading == Reading::kValue ? "a histogram: write rate, mean or a quantile before it"
                                        : "";
    case MetricType::Untyped:
      return reading == Reading::kValue || reading == Reading::kRate
                 ? ""
                 : "of no type: write rate or no word before it";
    default:
      return "of a type that cannot be read";
  }
}

// Totals of several series have the same buckets.
void add_buckets(const ClientMetric& series, std::vector<QosBucket>& buckets) {
  for (const ClientMetric::Bucket& added : series.histogram.bucket) {
    auto bucket = std::ranges::lower_bound(buckets, added.upper_bound, {}, &QosBucket::bound);
    if (bucket == buckets.end() || bucket->bound != added.upper_bound) {
      bucket = buckets.insert(bucket, {.bound = added.upper_bound});
    }
    bucket->count += added.cumulative_count;
  }
}

void add_foreign(const QosRule& rule, MetricType type, const ClientMetric& series,
                 QosSample& sample) {
  if (rule.reading == Reading::kQuantile) return add_buckets(series, sample.buckets);
  if (rule.reading != Reading::kRate) return add_series(rule, series, sample);
  sample.sum += type == MetricType::Histogram ? static_cast<double>(series.histogram.sample_count)
                : type == MetricType::Counter ? series.counter.value
                                              : series.gauge.value;
}

}  // namespace

bool needs_families(const QosRule& rule) {
  return rule.url.empty() && rule.metric != Metric::kStepDuration &&
         rule.metric != Metric::kFunctionDuration;
}

std::optional<QosSample> read_qos_sample(const QosRule& rule, const Snapshot& snapshot,
                                         std::span<const prometheus::MetricFamily> families,
                                         int64_t last_mono_ns) {
  QosSample sample;
  sample.mono_ns = snapshot.taken_mono_ns;
  if (is_read_of_totals(rule.metric)) {
    sample.mono_ns = snapshot.totals_mono_ns;
  }
  if (sample.mono_ns == last_mono_ns) return std::nullopt;
  if (needs_families(rule)) {
    const auto family =
        std::ranges::find(families, get_metric(rule.metric).name, &prometheus::MetricFamily::name);
    if (family == families.end()) return sample;
    for (const ClientMetric& series : family->metric) {
      const auto get = [&](std::string_view label) { return find_label(series, label); };
      if (matches(rule, get)) add_series(rule, series, sample);
    }
  } else if (snapshot.functions != nullptr) {
    rule.metric == Metric::kStepDuration ? add_steps(rule, snapshot, sample)
                                         : add_calls(rule, snapshot, sample);
  }
  return sample;
}

Result<QosSample> read_foreign_sample(const QosRule& rule,
                                      std::span<const prometheus::MetricFamily> families,
                                      int64_t mono_ns) {
  const auto family =
      std::ranges::find(families, rule.foreign_metric, &prometheus::MetricFamily::name);
  if (family == families.end()) {
    return absl::NotFoundError("there is no metric " + rule.foreign_metric);
  }
  const std::string_view fault = find_reading_fault(rule.reading, family->type);
  if (!fault.empty()) {
    return absl::InvalidArgumentError(rule.foreign_metric + " is " + std::string(fault));
  }
  QosSample sample{.mono_ns = mono_ns};
  bool is_any = false;
  for (const ClientMetric& series : family->metric) {
    const auto get = [&](std::string_view label) { return find_label(series, label); };
    if (!matches(rule, get)) continue;
    add_foreign(rule, family->type, series, sample);
    is_any = true;
  }
  if (!is_any) {
    return absl::NotFoundError("no series of " + rule.foreign_metric + " has such labels");
  }
  return sample;
}

}  // namespace gpuperf
