#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "daemon/model/overhead_measurement.h"
#include "daemon/model/trace_event.h"

namespace gpuperf {

// Compares how fast processes progress with probes and launch hooks and without: their calls of
// launch entries a second, in slices of either kind that take turns. Two slices that follow each
// other, one of each kind, are a pair; the median of the pairs says what a process loses.
//
// Slices must come in pairs, in either order within a pair: load that rises or falls then favours
// neither kind.
//
// Thread: loop only; no I/O, times are passed in. Bounds: 8 bytes per pair and process; processes
// that told their progress.
class OverheadTrial {
 public:
  // What a process said: how many calls it has made, by its own clock.
  struct Progress {
    uint64_t calls = 0;
    uint64_t mono_ns = 0;
  };
  // With fewer pairs there is no interval of 95 % for the median.
  static constexpr uint32_t kPairsMin = 6;
  // What a process progressed in less is chance.
  static constexpr uint64_t kSliceNsMin = 200'000'000;

  // Before the first slice: what is published as the estimate, CUPTI left out. Several times.
  void add_estimate(const ProcessKey& process, double ratio);
  // From now on, progress is that of a slice.
  void begin_slice(bool is_observed);
  // Of the slice at hand; of others it is ignored.
  void apply(const ProcessKey& process, const Owner& owner, const Progress& progress);
  void end_slice();

  uint32_t slices() const { return slices_; }
  bool has_progress() const { return !processes_.empty(); }
  // Of processes with enough pairs.
  std::vector<OverheadMeasurement> measure() const;

 private:
  struct Slice {
    Progress first;
    Progress last;
  };
  struct Process {
    Owner owner;
    std::optional<Slice> slice;       // at hand
    std::optional<double> rates[2];   // of the pair at hand, calls a second: without, observed
    std::vector<double> lost_ratios;  // of each pair
    double calls = 0;                 // in slices without, and how long those were
    double seconds = 0;
  };
  struct Estimate {
    double sum = 0;
    uint32_t count = 0;
  };

  void end_slice(Process& process) const;

  std::map<ProcessKey, Process> processes_;
  std::map<ProcessKey, Estimate, ProcessOrder> estimates_;
  bool is_in_slice_ = false;
  bool is_observed_ = true;
  uint32_t slices_ = 0;
};

}  // namespace gpuperf
