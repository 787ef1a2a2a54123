#include "daemon/base/duration_counts.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace gpuperf {

uint64_t DurationCounts::Totals::count() const {
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

uint64_t DurationCounts::Totals::quantile_ns(double quantile) const {
  const auto wanted = static_cast<uint64_t>(std::ceil(quantile * static_cast<double>(count())));
  uint64_t seen = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    seen += counts[i];
    if (counts[i] == 0 || seen < wanted) continue;
    return i + 1 == counts.size() ? longest_ns : std::min(uint64_t{1} << i, longest_ns);
  }
  return 0;
}

void DurationCounts::Totals::merge(const Totals& other) {
  for (size_t i = 0; i < counts.size(); ++i) counts[i] += other.counts[i];
  total_ns += other.total_ns;
  longest_ns = std::max(longest_ns, other.longest_ns);
}

void DurationCounts::add(std::chrono::nanoseconds duration) {
  const auto ns = static_cast<uint64_t>(std::max<int64_t>(duration.count(), 0));
  const size_t bucket = std::min<size_t>(std::bit_width(ns), kBuckets - 1);
  counts_[bucket].fetch_add(1, std::memory_order_relaxed);
  total_ns_.fetch_add(ns, std::memory_order_relaxed);
  uint64_t longest_ns = longest_ns_.load(std::memory_order_relaxed);
  while (ns > longest_ns &&
         !longest_ns_.compare_exchange_weak(longest_ns, ns, std::memory_order_relaxed)) {
  }
}

DurationCounts::Totals DurationCounts::get() const {
  Totals totals{.total_ns = total_ns_.load(std::memory_order_relaxed),
                .longest_ns = longest_ns_.load(std::memory_order_relaxed)};
  for (size_t i = 0; i < counts_.size(); ++i) {
    totals.counts[i] = counts_[i].load(std::memory_order_relaxed);
  }
  return totals;
}

}  // namespace gpuperf
