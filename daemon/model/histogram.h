#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bpf/records.h"

namespace gpuperf {

inline constexpr size_t kBucketCount = GPUPERF_BUCKETS;

// Bucket that takes `duration_ns`; the same arithmetic as the BPF side (bpf/cells.bpf.c).
size_t bucket_of(uint64_t duration_ns);
// Smallest duration of a bucket, nanoseconds; `bucket` up to kBucketCount (then 2^42).
uint64_t bucket_lower_ns(size_t bucket);
// What its durations are taken for: the middle, within 3.1 % from 256 ns on; `bucket` below
// kBucketCount.
uint64_t bucket_middle_ns(size_t bucket);

// Log-linear histogram of durations. Layout and accuracy: bpf/records.h.
//
// A value. Keeps only buckets that are not empty, one word each: the calls of one function mostly
// fall into 20 to 60 of the 560 buckets, so that is 160 to 480 bytes where all would be 4.5 KB.
// Bounds: a bucket stops counting at 2^54 - 1 values, 570 years at a million calls a second.
class Histogram {
 public:
  struct Bucket {
    size_t index = 0;
    uint64_t count = 0;  // never 0
    bool operator==(const Bucket&) const = default;
  };

  // Cheapest in ascending order of buckets.
  void add(size_t bucket, uint64_t count);
  void merge(const Histogram& other);
  // What was added since it was `earlier`.
  Histogram without(const Histogram& earlier) const;

  uint64_t count() const { return count_; }
  size_t bytes() const { return words_.capacity() * sizeof(Word); }  // beside itself
  // Those that are not empty, in ascending order.
  std::vector<Bucket> buckets() const;
  // Smallest duration with at least `quantile` (0 to 1) of the values at or below it: the middle of
  // its bucket, within 3.1 % from 256 ns on. 0 when empty.
  uint64_t quantile_ns(double quantile) const;

  bool operator==(const Histogram&) const = default;

 private:
  // A word: the bucket's index in the upper 10 bits, its count in the lower 54. Words in order are
  // buckets in order.
  using Word = uint64_t;
  static constexpr int kCountBits = 54;
  static constexpr uint64_t kMaxCount = (uint64_t{1} << kCountBits) - 1;
  static constexpr size_t kGrowth = 8;  // words added to the capacity at a time
  static_assert(kBucketCount <= uint64_t{1} << (64 - kCountBits));

  static size_t index_of(Word word) { return word >> kCountBits; }
  static Bucket unpack(Word word) { return {index_of(word), word & kMaxCount}; }
  static void raise(Word& word, uint64_t count);

  std::vector<Word> words_;
  uint64_t count_ = 0;
};

}  // namespace gpuperf
