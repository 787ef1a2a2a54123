#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "daemon/export/metric_families.h"
#include "daemon/model/drops.h"
#include "daemon/model/gpu_rows.h"
#include "daemon/model/metric_catalog.h"

namespace gpuperf {

// Metrics of injected processes and of what their GPUs did.
//
// Thread: one at a time. `drops` must outlive it.
// Bounds: `max_kernels` kernel names have sets of their own: half of the room goes to the names
// with the most time when it is looked at, the rest is kept for names that come to take 1 % of all
// kernels' time. Whatever has none counts under kernel_name="other"; each such name is counted once
// (kMetricsKernelsFull). A name once shown stays, and what was counted under "other" before it was
// shown stays there, so that neither ever falls. At most `max_series` sets (kernel name, owner) and
// as many owners: later ones go to comm="other", each counted once (kMetricsSeriesFull).
class GpuMetrics {
 public:
  GpuMetrics(DropCounters& drops, uint64_t max_kernels, uint64_t max_series)
      : drops_(drops), max_kernels_(max_kernels), max_series_(max_series) {}
  GpuMetrics(const GpuMetrics&) = delete;
  GpuMetrics& operator=(const GpuMetrics&) = delete;

  void add(const GpuReport& report, MetricFamilies& families);
  uint64_t count_admitted() const { return admitted_; }

 private:
  // A histogram as it is exported.
  struct Durations {
    uint64_t count = 0;
    uint64_t total_ns = 0;
    std::array<uint64_t, kDurationEdgesNs.size()> counts{};  // below each edge
  };
  struct Kernel {
    Durations duration;
    Durations launch_latency;
  };
  // Labels: values, for two kernels may have one short name. The owner's text is valid UTF-8.
  struct SetKey {
    std::string kernel;  // empty = of no kernel
    Owner owner;
    auto operator<=>(const SetKey&) const = default;
  };
  using Kernels = std::map<SetKey, Kernel>;

  static void add(Durations& sum, const DurationTotals& totals);
  static void add(Durations& sum, const Durations& other);
  static void subtract(Durations& from, const Durations& part);
  static Kernels sum_kernels(const GpuReport& report);
  void choose_kernels(const Kernels& kernels);
  SetKey admit(SetKey key);
  void add_kernels(const GpuReport& report, MetricFamilies& families);
  void add_processes(const GpuReport& report, MetricFamilies& families);
  static void add_activity(const GpuReport& report, MetricFamilies& families);
  static void add_sessions(const GpuReport& report, MetricFamilies& families);
  void add_memory(const GpuReport& report, MetricFamilies& families);

  // Set once in the constructor.
  DropCounters& drops_;
  const uint64_t max_kernels_;
  const uint64_t max_series_;
  // What was decided stays so.
  std::set<std::string> shown_;                // names with sets of their own
  std::set<std::string> unshown_;              // names that have counted under "other"
  std::map<SetKey, Kernel> counted_as_other_;  // of names shown since: that much stays there
  std::map<SetKey, bool> decided_;             // set -> whether it is exported on its own
  uint64_t admitted_ = 0;
};

}  // namespace gpuperf
