#pragma once

#include <prometheus/metric_family.h>

#include <span>

#include "daemon/base/result.h"
#include "daemon/model/qos.h"
#include "daemon/model/snapshot.h"

namespace gpuperf {

// Whether a rule about our own metrics needs a collection of PrometheusMetrics; others are read of
// the snapshot, which costs next to nothing.
bool needs_families(const QosRule& rule);

// What a rule reads of a snapshot; of `families`, if it needs them. nullopt: what it reads is as it
// was at `last_mono_ns`, since when nothing was read from the kernel.
std::optional<QosSample> read_qos_sample(const QosRule& rule, const Snapshot& snapshot,
                                         std::span<const prometheus::MetricFamily> families,
                                         int64_t last_mono_ns);

// The same of another program's `families`, read at `mono_ns`. INVALID_ARGUMENT: the metric's type
// cannot be read so; NOT_FOUND: there is no such metric, or no series that matches.
Result<QosSample> read_foreign_sample(const QosRule& rule,
                                      std::span<const prometheus::MetricFamily> families,
                                      int64_t mono_ns);

}  // namespace gpuperf
