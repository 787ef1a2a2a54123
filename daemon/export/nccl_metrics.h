#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "daemon/export/metric_families.h"
#include "daemon/model/drops.h"
#include "daemon/model/snapshot.h"

namespace gpuperf {

// Metrics of NCCL, by communicator and rank. A communicator has one label on all hosts.
//
// Thread: one at a time. `drops` must outlive it. Bounds: `max_series` ranks; others are left out,
// each counted once (kMetricsSeriesFull), until ranks that were there have gone.
class NcclMetrics {
 public:
  NcclMetrics(DropCounters& drops, uint64_t max_series) : drops_(drops), max_series_(max_series) {}
  NcclMetrics(const NcclMetrics&) = delete;
  NcclMetrics& operator=(const NcclMetrics&) = delete;

  void add(const Snapshot& snapshot, MetricFamilies& families);

 private:
  using Key = std::pair<uint64_t, std::string>;  // communicator, rank

  bool admit(const Key& key, std::set<Key>& seen, std::set<Key>& refused);

  // Set once in the constructor.
  DropCounters& drops_;
  const uint64_t max_series_;
  std::set<Key> shown_;    // at the last scrape
  std::set<Key> refused_;  // likewise
};

}  // namespace gpuperf
