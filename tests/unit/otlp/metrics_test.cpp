#include "daemon/otlp/metrics.h"

#include <gtest/gtest.h>

#include <limits>

#include "opentelemetry/proto/collector/metrics/v1/metrics_service.pb.h"
#include "tests/unit/otlp/messages.h"

namespace gpuperf::otlp {
namespace {

using MetricsRequest = ::opentelemetry::proto::collector::metrics::v1::ExportMetricsServiceRequest;
using testing::is_message;
using testing::parse_bytes;

constexpr MetricTimes kTimes{.start_unix_ns = 1'000, .now_unix_ns = 5'000};

Origin make_test_origin() { return make_origin({{"service.name", "gpuperfd"}}, "1.2.3"); }

prometheus::MetricFamily make_family(const char* name, prometheus::MetricType type) {
  return {.name = name, .help = "Help.", .type = type, .metric = {}};
}

MetricsRequest convert(const prometheus::MetricFamily& family) {
  const auto requests = make_metrics_requests({family}, make_test_origin(), kTimes);
  EXPECT_EQ(requests.size(), 1u);
  return parse_bytes<MetricsRequest>(requests.at(0).bytes);
}

constexpr char kAround[] = R"(resource_metrics {
  resource { attributes { key: "service.name" value { string_value: "gpuperfd" } } }
  scope_metrics { scope { name: "gpuperf" version: "1.2.3" } metrics { )";

TEST(OtlpMetricsTest, MakesACumulativeSumOfACounter) {
  auto family = make_family("gpuperf_function_calls_total", prometheus::MetricType::Counter);
  auto& metric = family.metric.emplace_back();
  metric.label = {{.name = "function", .value = "cudaMalloc"}, {.name = "pod", .value = ""}};
  metric.counter.value = 7;

  EXPECT_TRUE(is_message(convert(family), std::string(kAround) + R"(
    name: "gpuperf_function_calls_total" description: "Help." unit: "{call}"
    sum { aggregation_temporality: AGGREGATION_TEMPORALITY_CUMULATIVE is_monotonic: true
      data_points {
        attributes { key: "function" value { string_value: "cudaMalloc" } }
        start_time_unix_nano: 1000 time_unix_nano: 5000 as_double: 7 } } } } })"));
}

TEST(OtlpMetricsTest, MakesAGaugeOfAGauge) {
  auto family = make_family("gpuperf_gpu_power_watts", prometheus::MetricType::Gauge);
  family.metric.emplace_back().gauge.value = 312.5;

  EXPECT_TRUE(is_message(convert(family), std::string(kAround) + R"(
    name: "gpuperf_gpu_power_watts" description: "Help." unit: "W"
    gauge { data_points { time_unix_nano: 5000 as_double: 312.5 } } } } })"));
}

TEST(OtlpMetricsTest, GivesAnInfoMetricNoUnitSoThatNobodyCallsItARatio) {
  auto family = make_family("gpuperf_build_info", prometheus::MetricType::Gauge);
  family.metric.emplace_back().gauge.value = 1;

  EXPECT_TRUE(is_message(convert(family), std::string(kAround) + R"(
    name: "gpuperf_build_info" description: "Help."
    gauge { data_points { time_unix_nano: 5000 as_double: 1 } } } } })"));
}

TEST(OtlpMetricsTest, MakesBucketsThatAddUpOfCumulativeOnes) {
  auto family = make_family("gpuperf_function_duration_seconds", prometheus::MetricType::Histogram);
  auto& histogram = family.metric.emplace_back().histogram;
  histogram.sample_count = 6;
  histogram.sample_sum = 2.5;
  histogram.bucket = {
      {.cumulative_count = 1, .upper_bound = 0.25},
      {.cumulative_count = 4, .upper_bound = 1},
      {.cumulative_count = 6, .upper_bound = std::numeric_limits<double>::infinity()}};

  EXPECT_TRUE(is_message(convert(family), std::string(kAround) + R"(
    name: "gpuperf_function_duration_seconds" description: "Help." unit: "s"
    histogram { aggregation_temporality: AGGREGATION_TEMPORALITY_CUMULATIVE
      data_points { start_time_unix_nano: 1000 time_unix_nano: 5000 count: 6 sum: 2.5
        bucket_counts: [1, 3, 2] explicit_bounds: [0.25, 1] } } } } })"));
}

TEST(OtlpMetricsTest, SplitsWhatIsTooLargeForOneRequestAndLosesNothing) {
  auto family = make_family("gpuperf_function_calls_total", prometheus::MetricType::Counter);
  for (int i = 0; i < 100; ++i) family.metric.emplace_back().counter.value = i;

  const auto requests = make_metrics_requests({family, family}, make_test_origin(), kTimes, 1'000);

  EXPECT_GT(requests.size(), 3u);
  std::vector<double> values;
  for (const Request& request : requests) {
    EXPECT_LT(request.bytes.size(), 1'500u);
    size_t points = 0;
    const auto message = parse_bytes<MetricsRequest>(request.bytes);
    for (const auto& metric : message.resource_metrics(0).scope_metrics(0).metrics()) {
      EXPECT_EQ(metric.name(), "gpuperf_function_calls_total");
      for (const auto& point : metric.sum().data_points()) values.push_back(point.as_double());
      points += static_cast<size_t>(metric.sum().data_points_size());
    }
    EXPECT_EQ(points, request.items);
  }
  std::vector<double> expected;
  for (int i = 0; i < 200; ++i) expected.push_back(i % 100);
  EXPECT_EQ(values, expected);
}

TEST(OtlpMetricsTest, SendsNothingWhereThereIsNothing) {
  EXPECT_TRUE(make_metrics_requests({}, make_test_origin(), kTimes).empty());
}

}  // namespace
}  // namespace gpuperf::otlp
