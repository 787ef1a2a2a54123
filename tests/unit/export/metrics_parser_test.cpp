#include "daemon/export/metrics_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace gpuperf {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<MetricFamily> parse(const std::string& text, const MetricNames& names) {
  auto families = parse_metrics(text, names);
  EXPECT_TRUE(families.ok()) << families.status();
  return families.value_or(std::vector<MetricFamily>());
}

TEST(MetricsParserTest, ReadsWhatIsWantedAndNothingElse) {
  const auto families = parse(
      "# HELP a_total Says \\\\ much.\n# TYPE a_total counter\n"
      "a_total{model=\"m \\\"x\\\" \\\\ \\n}\" , b=\"\"} 1.5e3 1700000000000\r\n"
      "other_total 3\na_total_more 4\n",
      {"a_total"});

  ASSERT_THAT(families, SizeIs(1));
  EXPECT_EQ(families[0].type, MetricType::Counter);
  ASSERT_THAT(families[0].metric, SizeIs(1));
  EXPECT_EQ(families[0].metric[0].counter.value, 1500);
  ASSERT_THAT(families[0].metric[0].label, SizeIs(2));
  EXPECT_EQ(families[0].metric[0].label[0].name, "model");
  EXPECT_EQ(families[0].metric[0].label[0].value, "m \"x\" \\ \n}");
  EXPECT_EQ(families[0].metric[0].label[1].value, "");
}

TEST(MetricsParserTest, PutsTheLinesOfAHistogramTogether) {
  const auto families = parse(
      "# TYPE h histogram\n"
      "h_bucket{e=\"0\",le=\"0.1\"} 1.0\nh_bucket{e=\"1\",le=\"0.1\"} 5\n"
      "h_bucket{e=\"0\",le=\"+Inf\"} 2\nh_count{e=\"0\"} 2\nh_sum{e=\"0\"} 0.75\n"
      "h_created{e=\"0\"} 1.7e9\n",
      {"h"});

  ASSERT_THAT(families, SizeIs(1));
  ASSERT_THAT(families[0].metric, SizeIs(2));
  const auto& histogram = families[0].metric[0].histogram;
  EXPECT_EQ(histogram.sample_count, 2u);
  EXPECT_EQ(histogram.sample_sum, 0.75);
  ASSERT_THAT(histogram.bucket, SizeIs(2));
  EXPECT_EQ(histogram.bucket[0].cumulative_count, 1u);
  EXPECT_TRUE(std::isinf(histogram.bucket[1].upper_bound));
}

TEST(MetricsParserTest, LeavesOutWhatIsNoLineOfTheFormat) {
  const auto families = parse(
      "# TYPE a\n# TYPE\n#\na\na{\na{b\na{b=\na{b=c} 1\na{b=\"c} 1\na{b=\"c\"}\na{} x\na 1x\n"
      "# TYPE s summary\ns{quantile=\"0.5\"} 1\ns_sum 3\n"
      "# TYPE h histogram\nh_bucket 1\nh_bucket{le=\"x\"} 1\nh 3\na{ } 4",
      {"a", "s", "h"});

  ASSERT_THAT(families, SizeIs(1));
  EXPECT_EQ(families[0].name, "a");
  EXPECT_EQ(families[0].type, MetricType::Untyped);
  ASSERT_THAT(families[0].metric, SizeIs(1));
  EXPECT_EQ(families[0].metric[0].gauge.value, 4);
  EXPECT_THAT(parse("", {"a"}), IsEmpty());
}

TEST(MetricsParserTest, HasABound) {
  std::string text;
  for (size_t i = 0; i < kMaxParsedSeries; ++i) text += "a{i=\"" + std::to_string(i) + "\"} 1\n";
  EXPECT_THAT(parse(text, {"a"})[0].metric, SizeIs(kMaxParsedSeries));
  text += "a 1\n";
  EXPECT_TRUE(absl::IsOutOfRange(parse_metrics(text, {"a"}).status()));
  EXPECT_THAT(parse(text, {"b"}), IsEmpty());
}

}  // namespace
}  // namespace gpuperf
