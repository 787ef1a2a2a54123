#pragma once

// Metrics as text: that of Prometheus, version 0.0.4, and OpenMetrics 1.0.

#include <prometheus/metric_family.h>

#include <cstdint>
#include <map>
#include <ostream>
#include <span>
#include <string>
#include <vector>

namespace gpuperf {

enum class MetricsFormat { kPrometheus, kOpenMetrics };

// A slow call that a bucket of a duration histogram counts.
struct Exemplar {
  uint64_t slow_call_id = 0;
  double seconds = 0;
  double end_unix_seconds = 0;
};
// By the values of the labels of gpuperf_function_duration_seconds, in their order.
using Exemplars = std::map<std::vector<std::string>, std::vector<Exemplar>>;

// Only OpenMetrics has room for exemplars: each bucket gets the latest that is in it.
void write_metrics(std::ostream& out, std::span<const prometheus::MetricFamily> families,
                   MetricsFormat format, const Exemplars& exemplars = {});

}  // namespace gpuperf
