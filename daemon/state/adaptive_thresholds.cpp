#include "daemon/state/adaptive_thresholds.h"

#include <algorithm>

namespace gpuperf {

void AdaptiveThresholds::apply(const CellDelta& delta) {
  loop_thread_.check();
  if (options_.factor <= 0 || delta.buckets.empty()) return;
  if (functions_.size() <= delta.function_id) functions_.resize(delta.function_id + 1);
  Histogram& calls = functions_[delta.function_id].calls[window_];
  for (const auto& [bucket, count] : delta.buckets) calls.add(bucket, count);
}

uint64_t AdaptiveThresholds::compute_threshold_ns(const Windows& windows) const {
  constexpr double kMaxNs = 1e18;  // 31 years: far from the end of the integers
  Histogram calls;
  for (const Histogram& window : windows.calls) calls.merge(window);
  if (options_.factor <= 0 || calls.count() < kMinCalls) return 0;
  const double threshold_ns = options_.factor * static_cast<double>(calls.quantile_ns(0.99));
  return std::max(options_.floor_ns, static_cast<uint64_t>(std::min(threshold_ns, kMaxNs)));
}

std::vector<std::pair<uint32_t, uint64_t>> AdaptiveThresholds::judge(int64_t now_mono_ns) {
  loop_thread_.check();
  if (now_mono_ns >= window_end_mono_ns_) {
    window_end_mono_ns_ = now_mono_ns + kWindowNs;
    window_ = (window_ + 1) % kWindows;
    for (Windows& windows : functions_) windows.calls[window_] = {};
  }
  thresholds_ns_.resize(functions_.size());
  std::vector<std::pair<uint32_t, uint64_t>> changed;
  for (uint32_t id = 0; id < functions_.size(); ++id) {
    const uint64_t before_ns = thresholds_ns_[id];
    const uint64_t now_ns = compute_threshold_ns(functions_[id]);
    const uint64_t difference_ns = std::max(before_ns, now_ns) - std::min(before_ns, now_ns);
    if (difference_ns <= before_ns / 10 && (now_ns == 0) == (before_ns == 0)) continue;
    thresholds_ns_[id] = now_ns;
    changed.emplace_back(id, now_ns);
  }
  return changed;
}

}  // namespace gpuperf
