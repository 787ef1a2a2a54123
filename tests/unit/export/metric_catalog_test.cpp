#include "daemon/model/metric_catalog.h"

#include <gtest/gtest.h>

#include <set>
#include <string_view>

#include "daemon/model/histogram.h"
#include "tests/unit/golden_file.h"

namespace gpuperf {
namespace {

TEST(MetricCatalogTest, NamesEveryMetricAndLabelOnce) {
  std::set<std::string_view> names;
  for (const MetricRow& row : metric_rows()) names.insert(row.name);
  std::set<std::string_view> labels;
  for (const MetricLabelRow& row : metric_label_rows()) labels.insert(row.name);

  EXPECT_EQ(names.size(), metric_rows().size());
  EXPECT_EQ(labels.size(), metric_label_rows().size());
}

TEST(MetricCatalogTest, DurationEdgesAreEdgesOfTheHistogram) {
  for (const uint64_t edge_ns : kDurationEdgesNs) {
    EXPECT_EQ(bucket_lower_ns(bucket_of(edge_ns)), edge_ns);
  }
}

TEST(MetricCatalogTest, DurationEdgesAscendFromAMicrosecondToAMinute) {
  for (size_t i = 1; i < kDurationEdgesNs.size(); ++i) {
    EXPECT_LT(kDurationEdgesNs[i - 1], kDurationEdgesNs[i]);
  }
  EXPECT_EQ(kDurationEdgesNs.front(), 1'024u);
  EXPECT_EQ(kDurationEdgesNs.back(), 68'719'476'736u);
}

TEST(MetricCatalogTest, DocumentationIsUpToDate) {
  expect_golden(source_path("docs/metrics.md"), render_metrics_markdown());
}

}  // namespace
}  // namespace gpuperf
