#include "daemon/otlp/metrics.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/model/metric_catalog.h"
#include "opentelemetry/proto/collector/metrics/v1/metrics_service.pb.h"

namespace gpuperf::otlp {
namespace {

namespace metrics = ::opentelemetry::proto::metrics::v1;
using ExportMetrics = ::opentelemetry::proto::collector::metrics::v1::ExportMetricsServiceRequest;

// In UCUM. What is counted stands in braces, which the Collector's Prometheus exporter leaves out
// of names; an info metric has no unit, because "1" would make it a ratio there.
std::string_view get_unit(MetricUnit unit) {
  switch (unit) {
    case MetricUnit::kSeconds:
      return "s";
    case MetricUnit::kBytes:
      return "By";
    case MetricUnit::kRatio:
      return "1";
    case MetricUnit::kWatts:
      return "W";
    case MetricUnit::kJoules:
      return "J";
    case MetricUnit::kHertz:
      return "Hz";
    case MetricUnit::kCelsius:
      return "Cel";
    case MetricUnit::kCalls:
      return "{call}";
    case MetricUnit::kOperations:
      return "{operation}";
    case MetricUnit::kFunctions:
      return "{function}";
    case MetricUnit::kProbes:
      return "{probe}";
    case MetricUnit::kProcesses:
      return "{process}";
    case MetricUnit::kDrops:
      return "{drop}";
    case MetricUnit::kLaunches:
      return "{launch}";
    case MetricUnit::kSessions:
      return "{session}";
    case MetricUnit::kRecords:
      return "{record}";
    case MetricUnit::kErrors:
      return "{error}";
    case MetricUnit::kRows:
      return "{row}";
    case MetricUnit::kBytesPerSecond:
      return "By/s";
    case MetricUnit::kSteps:
      return "{step}";
    case MetricUnit::kTokens:
      return "{token}";
    case MetricUnit::kSamples:
      return "{sample}";
    case MetricUnit::kPackets:
      return "{packet}";
    case MetricUnit::kEvents:
      return "{event}";
    case MetricUnit::kRequests:
      return "{request}";
    case MetricUnit::kCaptures:
      return "{capture}";
    case MetricUnit::kOfBound:
    case MetricUnit::kInfo:
      return "";
  }
  return "";  // only reached with a value outside the enum
}

std::string_view find_unit(std::string_view name) {
  const auto rows = metric_rows();
  const auto row = std::ranges::find(rows, name, &MetricRow::name);
  return row == rows.end() ? "" : get_unit(row->unit);
}

template <typename Point>
void set_point(const prometheus::ClientMetric& metric, const MetricTimes& times, Point& point) {
  for (const auto& label : metric.label) add_text(point, label.name, label.value);
  point.set_time_unix_nano(times.now_unix_ns);
}

void set_histogram(const prometheus::ClientMetric::Histogram& histogram,
                   metrics::HistogramDataPoint& point) {
  point.set_count(histogram.sample_count);
  point.set_sum(histogram.sample_sum);
  uint64_t below = 0;
  for (const auto& bucket : histogram.bucket) {
    point.add_bucket_counts(bucket.cumulative_count - below);
    below = bucket.cumulative_count;
    if (std::isfinite(bucket.upper_bound)) point.add_explicit_bounds(bucket.upper_bound);
  }
}

// Adds one data point to `metric`, which is of its family. Returns its size.
size_t add_point(const prometheus::ClientMetric& value, prometheus::MetricType type,
                 const MetricTimes& times, metrics::Metric& metric) {
  constexpr auto kCumulative = metrics::AGGREGATION_TEMPORALITY_CUMULATIVE;
  if (type == prometheus::MetricType::Histogram) {
    metric.mutable_histogram()->set_aggregation_temporality(kCumulative);
    auto& point = *metric.mutable_histogram()->add_data_points();
    set_point(value, times, point);
    point.set_start_time_unix_nano(times.start_unix_ns);
    set_histogram(value.histogram, point);
    return point.ByteSizeLong();
  }
  if (type == prometheus::MetricType::Counter) {
    metric.mutable_sum()->set_aggregation_temporality(kCumulative);
    metric.mutable_sum()->set_is_monotonic(true);
    auto& point = *metric.mutable_sum()->add_data_points();
    set_point(value, times, point);
    point.set_start_time_unix_nano(times.start_unix_ns);
    point.set_as_double(value.counter.value);
    return point.ByteSizeLong();
  }
  auto& point = *metric.mutable_gauge()->add_data_points();
  set_point(value, times, point);
  point.set_as_double(value.gauge.value);
  return point.ByteSizeLong();
}

// Fills one request after the other.
class Requests {
 public:
  explicit Requests(const Origin& origin) : origin_(origin) {}

  metrics::Metric& add_metric(const prometheus::MetricFamily& family) {
    if (scope_ == nullptr) begin();
    metrics::Metric& metric = *scope_->add_metrics();
    metric.set_name(family.name);
    metric.set_description(family.help);
    metric.set_unit(std::string(find_unit(family.name)));
    return metric;
  }
  void note_point(size_t bytes) {
    bytes_ += bytes;
    ++items_;
  }
  size_t bytes() const { return bytes_; }
  void close() {
    if (scope_ == nullptr) return;
    done_.push_back({.bytes = request_.SerializeAsString(), .items = items_});
    scope_ = nullptr;
  }
  std::vector<Request> take() {
    close();
    return std::move(done_);
  }

 private:
  void begin() {
    request_.Clear();
    bytes_ = items_ = 0;
    auto& resource = *request_.add_resource_metrics();
    *resource.mutable_resource() = origin_.resource;
    scope_ = resource.add_scope_metrics();
    *scope_->mutable_scope() = origin_.scope;
  }

  const Origin& origin_;
  ExportMetrics request_;
  metrics::ScopeMetrics* scope_ = nullptr;  // of request_; null = none is open
  size_t bytes_ = 0;
  size_t items_ = 0;
  std::vector<Request> done_;
};

}  // namespace

std::vector<Request> make_metrics_requests(const std::vector<prometheus::MetricFamily>& families,
                                           const Origin& origin, const MetricTimes& times,
                                           size_t max_bytes) {
  Requests requests(origin);
  for (const prometheus::MetricFamily& family : families) {
    metrics::Metric* metric = nullptr;
    for (const prometheus::ClientMetric& value : family.metric) {
      if (metric == nullptr) metric = &requests.add_metric(family);
      requests.note_point(add_point(value, family.type, times, *metric));
      if (requests.bytes() < max_bytes) continue;
      requests.close();
      metric = nullptr;
    }
  }
  return requests.take();
}

}  // namespace gpuperf::otlp
