#pragma once

#include "daemon/export/metric_families.h"
#include "daemon/model/snapshot.h"

namespace gpuperf {

// The families of steps and requests, of which the host has no more series than functions with a
// role and phases, and three.
void add_step_metrics(const Snapshot& snapshot, MetricFamilies& families);

}  // namespace gpuperf
