#include "daemon/export/metric_families.h"

#include <limits>
#include <utility>

namespace gpuperf {
namespace {

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

}  // namespace

prometheus::ClientMetric::Histogram make_histogram(const Histogram& durations, uint64_t total_ns) {
  prometheus::ClientMetric::Histogram histogram;
  histogram.sample_count = durations.count();
  histogram.sample_sum = to_seconds(total_ns);
  // One walk over the buckets serves all edges: both ascend.
  const auto buckets = durations.buckets();
  auto bucket = buckets.begin();
  uint64_t seen = 0;
  for (const uint64_t edge_ns : kDurationEdgesNs) {
    const size_t end = bucket_of(edge_ns);
    for (; bucket != buckets.end() && (*bucket).index < end; ++bucket) seen += (*bucket).count;
    histogram.bucket.push_back({.cumulative_count = seen, .upper_bound = to_seconds(edge_ns)});
  }
  histogram.bucket.push_back({.cumulative_count = histogram.sample_count,
                              .upper_bound = std::numeric_limits<double>::infinity()});
  return histogram;
}

MetricFamilies::MetricFamilies() {
  for (const MetricRow& row : metric_rows()) {
    families_.push_back({.name = std::string(row.name),
                         .help = std::string(row.help),
                         .type = get_prometheus_type(row.type),
                         .metric = {}});
  }
}

prometheus::ClientMetric& MetricFamilies::add(Metric metric, std::span<const std::string> values) {
  prometheus::ClientMetric& added = families_[static_cast<size_t>(metric)].metric.emplace_back();
  const std::span<const MetricLabel> labels = get_metric(metric).labels;
  for (size_t i = 0; i < labels.size(); ++i) {
    added.label.push_back({.name = std::string(get_label_name(labels[i])), .value = values[i]});
  }
  return added;
}

std::vector<prometheus::MetricFamily> MetricFamilies::take() {
  std::erase_if(families_, [](const auto& family) { return family.metric.empty(); });
  return std::move(families_);
}

}  // namespace gpuperf
