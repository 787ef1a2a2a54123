#pragma once

#include <prometheus/metric_family.h>
#include <cstdint>

#include <span>
#include <string>
#include <vector>

#include "daemon/model/histogram.h"
#include "daemon/model/metric_catalog.h"

namespace gpuperf {

// What has no place of its own: functions, kernels, processes beyond a bound.
inline constexpr const char* kOther = "other";
inline double to_seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }

// Of the edges that all durations have.
prometheus::ClientMetric::Histogram make_histogram(const Histogram& durations, uint64_t total_ns);

// The families of one scrape: one per row of the catalog, filled in any order.
//
// Thread: one. A value of its scrape; nothing is kept between scrapes.
class MetricFamilies {
 public:
  MetricFamilies();

  // `values`: those of the row's labels, in the row's order.
  prometheus::ClientMetric& add(Metric metric, std::span<const std::string> values);
  void add_counter(Metric metric, std::span<const std::string> values, double value) {
    add(metric, values).counter.value = value;
  }
  void add_gauge(Metric metric, std::span<const std::string> values, double value) {
    add(metric, values).gauge.value = value;
  }

  // In the order of the catalog; those without a value are left out.
  std::vector<prometheus::MetricFamily> take();

 private:
  std::vector<prometheus::MetricFamily> families_;  // by Metric
};

}  // namespace gpuperf
