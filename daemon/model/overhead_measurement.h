#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/model/function.h"

namespace gpuperf {

// What probes and launch hooks take of a process's time, by experiment (OverheadTrial). Ratios of
// its time, as of OverheadRow; below 0 = it was faster with them, by chance.
struct OverheadMeasurement {
  ProcessKey process;
  Owner owner;
  double ratio = 0;
  // Confidence interval, 95 %.
  double low_ratio = 0;
  double high_ratio = 0;
  // What was published at the time for the same: probes and hooks, without CUPTI.
  double estimated_ratio = 0;
  uint32_t pairs = 0;           // of slices
  double calls_per_second = 0;  // that it made without probes and hooks
  bool operator==(const OverheadMeasurement&) const = default;

  bool agrees_with_estimate() const {
    return estimated_ratio >= low_ratio && estimated_ratio <= high_ratio;
  }
};

// The experiment that runs, or else the last one.
struct OverheadTrialReport {
  bool is_running = false;
  int64_t end_mono_ns = 0;  // of one that runs: when it will; 0 = there was none
  std::string stopped_by;   // empty = nothing did
  std::vector<OverheadMeasurement> measurements;
};

}  // namespace gpuperf
