#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "daemon/base/thread_checker.h"
#include "daemon/model/event.h"
#include "daemon/model/histogram.h"
#include "daemon/model/snapshot.h"

namespace gpuperf {

// Derives from each function's recent calls, over all processes, how long a call must take to be
// unusual: a multiple of the p99 of the last minute, and at least a floor that keeps noise out.
//
// Thread: loop only. Memory: 9 KB for each function that was called in the last minute.
// Without kMinCalls in that minute a function has no such threshold: its p99 would be one or two
// calls.
class AdaptiveThresholds {
 public:
  struct Options {
    double factor = 10;  // times p99; 0 = no adaptive thresholds
    uint64_t floor_ns = 5'000'000;
  };
  static constexpr size_t kWindows = 6;
  static constexpr int64_t kWindowNs = 10'000'000'000;
  static constexpr uint64_t kMinCalls = 1000;

  explicit AdaptiveThresholds(const Options& options) : options_(options) {}
  AdaptiveThresholds(const AdaptiveThresholds&) = delete;
  AdaptiveThresholds& operator=(const AdaptiveThresholds&) = delete;

  void set_options(const Options& options) {
    loop_thread_.check();
    options_ = options;
  }
  void apply(const CellDelta& delta);

  // Function and its new threshold in nanoseconds (0 = none any more), of those that changed by
  // more than a tenth. To be called about every second.
  std::vector<std::pair<uint32_t, uint64_t>> judge(int64_t now_mono_ns);

  // By function id, in force; missing or 0 = none.
  const std::vector<uint64_t>& thresholds_ns() const { return thresholds_ns_; }
  void fill(Snapshot& snapshot) const { snapshot.adaptive_threshold_ns = thresholds_ns_; }

 private:
  struct Windows {
    std::array<Histogram, kWindows> calls;
  };

  uint64_t compute_threshold_ns(const Windows& windows) const;

  ThreadChecker loop_thread_;
  Options options_;
  std::vector<Windows> functions_;       // by function id
  std::vector<uint64_t> thresholds_ns_;  // likewise, in force
  size_t window_ = 0;
  int64_t window_end_mono_ns_ = 0;  // 0 = not begun
};

}  // namespace gpuperf
