#pragma once

// Hand-made snapshots for the tests of what serves them.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/model/snapshot.h"

namespace gpuperf::testing {

// Builds a Snapshot piece by piece; `build` shares nothing with later pieces.
class SnapshotBuilder {
 public:
  // Ids are given in order of addition, from 0.
  uint32_t add_function(Function function) {
    function.id = static_cast<uint32_t>(functions_.size());
    functions_.push_back(std::move(function));
    return functions_.back().id;
  }
  void add_series(uint32_t function_id, Owner owner, FunctionTotals totals) {
    snapshot_.series.push_back(std::make_shared<const FunctionSeries>(
        FunctionSeries{function_id, std::move(owner), std::move(totals)}));
  }
  void add_row(FunctionRow row) {
    snapshot_.rows.push_back(std::make_shared<const FunctionRow>(std::move(row)));
  }
  void add_slow_call(SlowCall call) {
    snapshot_.last_slow_call_id = std::max(snapshot_.last_slow_call_id, call.id);
    snapshot_.slow_calls.push_back(std::make_shared<const SlowCall>(std::move(call)));
  }
  Snapshot& snapshot() { return snapshot_; }
  DaemonFacts& facts() { return facts_; }
  ProbeReport& probes() { return probes_; }

  std::shared_ptr<const Snapshot> build() {
    Snapshot built = snapshot_;
    built.daemon = std::make_shared<const DaemonFacts>(facts_);
    built.probes = std::make_shared<const ProbeReport>(probes_);
    built.functions = std::make_shared<const std::vector<Function>>(functions_);
    return std::make_shared<const Snapshot>(std::move(built));
  }

 private:
  std::vector<Function> functions_;
  DaemonFacts facts_{.version = "0.1.0", .pid = 100, .start_unix_ns = 1, .kernel = "6.18.0"};
  ProbeReport probes_{.mechanism = "session"};
  Snapshot snapshot_;
};

// Totals of calls with these durations, all completed.
inline FunctionTotals make_totals(const std::vector<uint64_t>& durations_ns) {
  FunctionTotals totals;
  for (const uint64_t duration_ns : durations_ns) {
    ++totals.calls;
    totals.total_ns += duration_ns;
    totals.self_ns += duration_ns;
    totals.min_ns =
        totals.calls == 1 ? duration_ns : std::min<uint64_t>(totals.min_ns, duration_ns);
    totals.max_ns = std::max<uint64_t>(totals.max_ns, duration_ns);
    totals.histogram.add(bucket_of(duration_ns), 1);
  }
  return totals;
}

}  // namespace gpuperf::testing
