#pragma once

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <atomic>
#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/base/mutex.h"
#include "daemon/export/gpu_metrics.h"
#include "daemon/export/metric_families.h"
#include "daemon/export/metrics_text.h"
#include "daemon/export/nccl_metrics.h"
#include "daemon/model/drops.h"
#include "daemon/model/snapshot.h"

namespace gpuperf {

// Turns the newest snapshot into Prometheus metrics, by the catalog (model/metric_catalog).
//
// Thread: any; concurrent collections run one after the other. The board and the counters must
// outlive it.
// Bounds: at most `max_series` sets (function, owner) are exported on their own, in order of
// appearance; what comes later goes to the function's set with comm="other", which exists at most
// once per function and is not counted against the bound. A set once exported stays exported and a
// set once folded stays folded, so no counter ever falls; each folded set counts
// DropCause::kMetricsSeriesFull once.
// Not here: serving (HttpServer), names and help (the catalog).
class PrometheusMetrics final : public prometheus::Collectable {
 public:
  PrometheusMetrics(const SnapshotBoard& board, DropCounters& drops, uint64_t max_series,
                    uint64_t max_kernels)
      : board_(board),
        drops_(drops),
        max_series_(max_series),
        gpu_(drops, max_kernels, max_series),
        nccl_(drops, max_series) {}
  PrometheusMetrics(const PrometheusMetrics&) = delete;
  PrometheusMetrics& operator=(const PrometheusMetrics&) = delete;

  // In the order of the catalog; a metric without a value yet is left out.
  std::vector<prometheus::MetricFamily> Collect() const override;
  // The recent slow calls of the sets exported so far.
  Exemplars list_exemplars() const;
  // How full max_series is, by functions or by kernels, whichever have more. Any thread.
  void fill(SelfReport& report) const {
    report.add(Bound::kMetricsSeries, series_.load(std::memory_order_relaxed), max_series_);
  }

 private:
  // The labels of one exported set. Values, not ids: two functions that share category and name
  // would otherwise be one Prometheus series given twice, which makes the whole scrape invalid.
  struct SeriesKey {
    std::string category;
    std::string function;
    Owner owner;
    auto operator<=>(const SeriesKey&) const = default;
  };
  // The snapshot's series that make up one exported set: one, unless some were folded.
  struct Part {
    const Function* function;
    const FunctionSeries* series;
    uint64_t oldest_in_flight_ns;
  };
  using SeriesMap = std::map<SeriesKey, std::vector<Part>>;

  static SeriesKey make_key(const std::string& category, const std::string& function,
                            const Owner& owner);
  static SeriesKey make_other(const SeriesKey& key);  // its function's "other"
  static std::vector<std::string> list_labels(const SeriesKey& key);
  SeriesMap group_series(const Snapshot& snapshot) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  SeriesKey admit(SeriesKey key) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void add_function(const SeriesKey& key, const std::vector<Part>& parts,
                    MetricFamilies& families) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void add_errors(const std::vector<std::string>& labels, const std::vector<Part>& parts,
                         MetricFamilies& families);
  void add_memory(const MemoryReport& report, MetricFamilies& families) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // That of a set (owner) without a function.
  SeriesKey admit_owner(const Owner& owner) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return admit(make_key("", "", owner));
  }
  void add_overhead(const Snapshot& snapshot, MetricFamilies& families) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Set once in the constructor.
  const SnapshotBoard& board_;
  DropCounters& drops_;
  const uint64_t max_series_;
  mutable std::atomic<uint64_t> series_ = 0;
  mutable Mutex mutex_;
  mutable uint64_t admitted_ ABSL_GUARDED_BY(mutex_) = 0;
  // Set -> whether it is exported on its own.
  mutable std::map<SeriesKey, bool> decided_ ABSL_GUARDED_BY(mutex_);
  // Highest count of abandoned calls exported so far. The only total that can fall: a call given up
  // for lost may return after all.
  mutable std::map<SeriesKey, uint64_t> abandoned_ ABSL_GUARDED_BY(mutex_);
  mutable GpuMetrics gpu_ ABSL_GUARDED_BY(mutex_);
  mutable NcclMetrics nccl_ ABSL_GUARDED_BY(mutex_);
};

std::string render_metrics_text(const prometheus::Collectable& metrics,
                                MetricsFormat format = MetricsFormat::kPrometheus,
                                const Exemplars& exemplars = {});
// The same as a gzip file.
std::string render_metrics_gzip(const prometheus::Collectable& metrics,
                                MetricsFormat format = MetricsFormat::kPrometheus,
                                const Exemplars& exemplars = {});

}  // namespace gpuperf
