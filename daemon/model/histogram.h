#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "bpf/records.h"

namespace gpuperf {

inline constexpr size_t kBucketCount = GPUPERF_BUCKETS;

// Bucket that takes `duration_ns`; the same arithmetic as the BPF side (bpf/cells.bpf.h).
size_t bucket_of(uint64_t duration_ns);
// Smallest duration of a bucket, nanoseconds; `bucket` up to kBucketCount (then 2^42).
uint64_t bucket_lower_ns(size_t bucket);

// Log-linear histogram of durations. Layout and accuracy: bpf/records.h.
class Histogram {
 public:
  void add(size_t bucket, uint64_t count);
  void merge(const Histogram& other);

  uint64_t count() const { return count_; }
  uint64_t bucket(size_t index) const { return buckets_[index]; }
  // Smallest duration with at least `quantile` (0 to 1) of the values at or below it: the middle of
  // its bucket, within 3.1 % from 256 ns on. 0 when empty.
  uint64_t quantile_ns(double quantile) const;
  // Values in buckets that end at or below `edge_ns`. Exact when `edge_ns` is a bucket's edge.
  uint64_t count_below_ns(uint64_t edge_ns) const;

  bool operator==(const Histogram&) const = default;

 private:
  std::array<uint64_t, kBucketCount> buckets_{};
  uint64_t count_ = 0;
};

}  // namespace gpuperf
