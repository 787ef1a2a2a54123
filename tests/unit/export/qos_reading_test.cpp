#include "daemon/export/qos_reading.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "daemon/export/metrics_parser.h"
#include "daemon/export/prometheus.h"
#include "tests/unit/export/snapshot_builder.h"

namespace gpuperf {
namespace {

using testing::make_totals;
using Reading = QosRule::Reading;
using Labels = std::vector<std::pair<std::string, std::string>>;

class QosReadingTest : public ::testing::Test {
 protected:
  QosReadingTest() {
    const uint32_t decode = builder_.add_function({.category = "llama", .name = "decode"});
    const uint32_t copy = builder_.add_function({.category = "cuda", .name = "copy"});
    builder_.add_series(copy, {.comm = "train"}, make_totals({1'000'000, 3'000'000}));
    builder_.add_series(copy, {.comm = "serve", .pod = "a"}, make_totals({9'000'000}));
    StepSeries steps{.function_id = decode, .phase = StepPhase::kDecode};
    steps.totals.durations.add(bucket_of(40'000'000), 5);
    steps.totals.total_ns = 200'000'000;
    builder_.snapshot().steps.series.push_back(steps);
    steps.phase = StepPhase::kPrefill;
    steps.totals.total_ns = 7;
    builder_.snapshot().steps.series.push_back(steps);
    builder_.snapshot().steps.series.push_back({.function_id = 99});  // not in the list yet
    builder_.snapshot().taken_mono_ns = 5'000;
    builder_.snapshot().totals_mono_ns = 4'000;
    builder_.snapshot().steps.stalled = {0, 2, 3};
  }

  std::optional<QosSample> read(Metric metric, Reading reading, Labels labels, bool is_upper = true,
                                int64_t last_mono_ns = 0) {
    const QosRule rule{.name = "rule",
                       .text = "",
                       .metric = metric,
                       .labels = std::move(labels),
                       .reading = reading,
                       .is_upper = is_upper};
    const auto snapshot = builder_.build();
    board_.publish(snapshot);
    return read_qos_sample(
        rule, *snapshot,
        needs_families(rule) ? metrics_.Collect() : std::vector<prometheus::MetricFamily>(),
        last_mono_ns);
  }

  testing::SnapshotBuilder builder_;
  SnapshotBoard board_;
  DropCounters drops_;
  PrometheusMetrics metrics_{board_, drops_, 100, 100};
};

TEST_F(QosReadingTest, StepsAreReadByPhaseInFineBuckets) {
  const auto sample = read(Metric::kStepDuration, Reading::kQuantile, {{"phase", "dec*"}});
  EXPECT_EQ(sample->mono_ns, 5'000);
  EXPECT_EQ(sample->count, 5u);
  EXPECT_DOUBLE_EQ(sample->sum, 0.2);
  EXPECT_NEAR(static_cast<double>(sample->durations.quantile_ns(0.99)), 40e6, 1.3e6);
  EXPECT_EQ(read(Metric::kStepDuration, Reading::kMean, {})->count, 10u);
  EXPECT_EQ(read(Metric::kStepDuration, Reading::kMean, {{"function", "copy"}})->count, 0u);
}

TEST_F(QosReadingTest, CallsAreReadAsOfTheKernelsTotals) {
  const auto all = read(Metric::kFunctionDuration, Reading::kQuantile, {{"function", "copy"}});
  EXPECT_EQ(all->mono_ns, 4'000);
  EXPECT_EQ(all->durations.count(), 3u);
  const auto one = read(Metric::kFunctionDuration, Reading::kMean,
                        {{"category", "cuda"}, {"comm", "ser*"}, {"pod", "a"}});
  EXPECT_EQ(one->count, 1u);
  EXPECT_DOUBLE_EQ(one->sum, 0.009);
  EXPECT_EQ(read(Metric::kFunctionDuration, Reading::kMean, {}, true, 4'000), std::nullopt);
  EXPECT_EQ(read(Metric::kStepDuration, Reading::kMean, {}, true, 5'000), std::nullopt);
}

TEST_F(QosReadingTest, CountersAreSummedOverTheSeriesThatMatch) {
  EXPECT_DOUBLE_EQ(read(Metric::kFunctionCalls, Reading::kRate, {})->sum, 3);
  EXPECT_DOUBLE_EQ(read(Metric::kFunctionCalls, Reading::kRate, {{"comm", "train"}})->sum, 2);
  EXPECT_DOUBLE_EQ(read(Metric::kFunctionCalls, Reading::kRate, {{"comm", "none"}})->sum, 0);
}

TEST_F(QosReadingTest, OfSeveralGaugesTheOneNearestToTheLimitOrFurthestPastItCounts) {
  EXPECT_EQ(read(Metric::kStepStalled, Reading::kValue, {})->value, 3);
  EXPECT_EQ(read(Metric::kStepStalled, Reading::kValue, {}, /*is_upper=*/false)->value, 2);
  EXPECT_EQ(read(Metric::kStepStalled, Reading::kValue, {{"where", "in_step"}})->value, 2);
  EXPECT_EQ(read(Metric::kGpuTemperature, Reading::kValue, {})->value, std::nullopt);
}

class ForeignReadingTest : public ::testing::Test {
 protected:
  static Result<QosSample> read(const std::string& metric, Reading reading, Labels labels = {},
                                bool is_upper = true) {
    const auto families = parse_metrics(R"(
# TYPE running gauge
running{engine="0"} 3
running{engine="1"} 5
# TYPE tokens_total counter
tokens_total{engine="0"} 100
tokens_total{engine="1"} 50.5
# TYPE ttft histogram
ttft_bucket{engine="0",le="0.5"} 2
ttft_bucket{engine="0",le="+Inf"} 3
ttft_count{engine="0"} 3
ttft_sum{engine="0"} 1.5
ttft_bucket{engine="1",le="0.5"} 1
ttft_bucket{engine="1",le="+Inf"} 1
ttft_count{engine="1"} 1
ttft_sum{engine="1"} 0.1
bare 7
)",
                                        {"running", "tokens_total", "ttft", "bare"});
    EXPECT_TRUE(families.ok());
    return read_foreign_sample({.name = "rule",
                                .text = "",
                                .foreign_metric = metric,
                                .url = "http://127.0.0.1:1/",
                                .labels = std::move(labels),
                                .reading = reading,
                                .is_upper = is_upper},
                               *families, 7);
  }
};

TEST_F(ForeignReadingTest, EachTypeIsReadAsOurs) {
  EXPECT_EQ(read("running", Reading::kValue)->value, 5);
  EXPECT_EQ(read("running", Reading::kValue, {}, false)->value, 3);
  EXPECT_EQ(read("running", Reading::kValue, {{"engine", "0"}})->value, 3);
  EXPECT_EQ(read("bare", Reading::kValue)->value, 7);
  EXPECT_EQ(read("bare", Reading::kRate)->sum, 7);
  EXPECT_DOUBLE_EQ(read("tokens_total", Reading::kRate)->sum, 150.5);
  EXPECT_DOUBLE_EQ(read("ttft", Reading::kRate)->sum, 4);
  const auto mean = read("ttft", Reading::kMean);
  EXPECT_DOUBLE_EQ(mean->sum, 1.6);
  EXPECT_EQ(mean->count, 4u);
  const auto quantile = read("ttft", Reading::kQuantile);
  ASSERT_EQ(quantile->buckets.size(), 2u);
  EXPECT_EQ(quantile->buckets[0].count, 3u);
  EXPECT_EQ(quantile->buckets[1].count, 4u);
  EXPECT_EQ(quantile->mono_ns, 7);
}

TEST_F(ForeignReadingTest, SaysWhyAMetricIsNotRead) {
  EXPECT_EQ(read("running", Reading::kRate).status().message(),
            "running is a gauge: write no word before it");
  EXPECT_EQ(read("tokens_total", Reading::kMean).status().message(),
            "tokens_total is a counter: write rate before it");
  EXPECT_EQ(read("ttft", Reading::kValue).status().message(),
            "ttft is a histogram: write rate, mean or a quantile before it");
  EXPECT_EQ(read("bare", Reading::kQuantile).status().message(),
            "bare is of no type: write rate or no word before it");
  EXPECT_EQ(read("none", Reading::kValue).status().message(), "there is no metric none");
  EXPECT_EQ(read("running", Reading::kValue, {{"engine", "2"}}).status().message(),
            "no series of running has such labels");
}

}  // namespace
}  // namespace gpuperf
