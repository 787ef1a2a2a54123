#pragma once

// Under which metric each hardware counter of a GPU is published.

#include <span>
#include <string>
#include <string_view>

#include "daemon/model/gpu_counters.h"
#include "daemon/model/metric_catalog.h"

namespace gpuperf {

struct GpuCounterMetricRow {
  GpuCounter counter;
  Metric metric;
  std::string_view label;  // value of the metric's last label, pipe or direction; empty = has none
};
// In the order of GpuCounter.
std::span<const GpuCounterMetricRow> gpu_counter_metric_rows();

// Our name of each, DCGM's, and what to multiply ours by: for docs/metrics.md.
std::string render_dcgm_markdown();

}  // namespace gpuperf
