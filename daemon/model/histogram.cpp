#include "daemon/model/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace gpuperf {
namespace {

constexpr uint64_t kSubBuckets = 1u << GPUPERF_SUB_BUCKET_BITS;

}  // namespace

size_t bucket_of(uint64_t duration_ns) {
  if (duration_ns < (1u << GPUPERF_FIRST_OCTAVE)) return duration_ns >> GPUPERF_BUCKET_SHIFT;
  const int octave = static_cast<int>(std::bit_width(duration_ns)) - 1;
  if (octave > GPUPERF_LAST_OCTAVE) return kBucketCount - 1;
  const uint64_t sub = (duration_ns >> (octave - GPUPERF_SUB_BUCKET_BITS)) & (kSubBuckets - 1);
  return (octave - GPUPERF_FIRST_OCTAVE + 1) * kSubBuckets + sub;
}

uint64_t bucket_lower_ns(size_t bucket) {
  if (bucket < kSubBuckets) return bucket << GPUPERF_BUCKET_SHIFT;
  const uint64_t octave = bucket / kSubBuckets - 1 + GPUPERF_FIRST_OCTAVE;
  return (kSubBuckets + bucket % kSubBuckets) << (octave - GPUPERF_SUB_BUCKET_BITS);
}

void Histogram::add(size_t bucket, uint64_t count) {
  buckets_[std::min(bucket, kBucketCount - 1)] += count;
  count_ += count;
}

void Histogram::merge(const Histogram& other) {
  for (size_t i = 0; i < kBucketCount; ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
}

uint64_t Histogram::quantile_ns(double quantile) const {
  if (count_ == 0) return 0;
  const auto rank = std::clamp<uint64_t>(
      static_cast<uint64_t>(std::ceil(quantile * static_cast<double>(count_))), 1, count_);
  uint64_t seen = 0;
  for (size_t i = 0; i < kBucketCount; ++i) {
    seen += buckets_[i];
    if (seen >= rank) return (bucket_lower_ns(i) + bucket_lower_ns(i + 1)) / 2;
  }
  return bucket_lower_ns(kBucketCount);
}

uint64_t Histogram::count_below_ns(uint64_t edge_ns) const {
  uint64_t seen = 0;
  for (size_t i = 0; i < kBucketCount && bucket_lower_ns(i + 1) <= edge_ns; ++i) {
    seen += buckets_[i];
  }
  return seen;
}

}  // namespace gpuperf
