#pragma once

#include "daemon/export/metric_families.h"
#include "daemon/model/gpu_health.h"

namespace gpuperf {

// The GPUs' families. Values that a GPU does not tell have no series.
void add_gpu_health_metrics(const GpuHealthReport& report, MetricFamilies& families);

}  // namespace gpuperf
