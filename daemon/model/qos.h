#pragma once

// Rules by which gpuperf observes more or less, and what has become of each.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/model/histogram.h"
#include "daemon/model/metric_catalog.h"
#include "daemon/model/overhead.h"

namespace gpuperf {

// A limit on one of our own metrics or of another program's, and what is done while it is exceeded.
struct QosRule {
  // What is read of the metric.
  enum class Reading {
    kValue,     // of a gauge: of several series the one nearest to, or furthest past, the limit
    kRate,      // of a counter, per second; of a histogram its observations; sum of all series
    kMean,      // of the observations of a histogram
    kQuantile,  // likewise
  };

  std::string name;
  std::string text;                // as configured
  Metric metric = Metric::kCount;  // none: `foreign_metric` is read
  std::string foreign_metric;      // of another program
  std::string url;                 // where that serves its metrics; empty = our own are read
  std::vector<std::pair<std::string, std::string>> labels;  // name, pattern
  Reading reading = Reading::kValue;
  double quantile = 0;    // of kQuantile
  bool is_upper = true;   // the limit may not be exceeded; false = may not be fallen below
  double limit = 0;       // in the metric's unit
  int64_t window_ns = 0;  // of readings
  bool freezes = false;   // the flight recorder, once
  bool checks = false;    // whether gpuperf is the cause
  OverheadDemand::Kind demand = OverheadDemand::Kind::kNone;
  bool operator==(const QosRule&) const = default;
};

// The observations of a histogram of another program up to a bound.
struct QosBucket {
  double bound = 0;  // in the metric's unit; the last is infinite
  uint64_t count = 0;
};

// What a rule reads at one moment: totals, but for kValue.
struct QosSample {
  int64_t mono_ns = 0;
  std::optional<double> value;     // of kValue; nullopt = there is no such series
  double sum = 0;                  // of the counters, or of all observations
  uint64_t count = 0;              // of observations
  Histogram durations;             // of kQuantile, of our own metrics
  std::vector<QosBucket> buckets;  // of kQuantile, of others; by bound
};

// A rule as it stands.
struct QosRow {
  QosRule rule;
  std::optional<double> value;  // of the last window; nullopt = nothing to read
  std::string fault;            // why another program's metric is not read; empty = it is
  bool is_breached = false;
  int64_t since_mono_ns = 0;  // of the breach, or of its end; 0 = none yet
  uint64_t breaches = 0;      // so far
  bool is_ours = false;       // of this breach gpuperf was found to be the cause, so it stands down
};

}  // namespace gpuperf
