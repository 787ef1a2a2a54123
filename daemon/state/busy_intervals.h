#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpuperf {

// How much of time was covered by intervals that come in any order: their exact union.
//
// Thread: one. No clock of its own; times are nanoseconds of one clock.
// Bounds: what may still be covered is kept for kHorizonNs behind the newest end, in buckets of
// 2.1 ms with at most so many intervals as the budget, which several sets share, has room for; when
// it is used up, the oldest buckets are closed early. What comes for a time that is closed is not
// counted and returned as late.
class BusyIntervals {
 public:
  struct Budget {
    size_t max_pieces = size_t{1} << 21;  // 8 bytes each: 16 MB, and a half more for room to grow
    size_t pieces = 0;
  };
  static constexpr uint64_t kHorizonNs = 5'000'000'000;

  explicit BusyIntervals(Budget& budget) : budget_(&budget) {}
  // Goes on as `other` would, with a part of the budget of its own.
  BusyIntervals(const BusyIntervals& other);
  BusyIntervals& operator=(const BusyIntervals&) = delete;

  // Adds [start_ns, end_ns). Returns how much of it lies in closed time, nanoseconds.
  uint64_t add(uint64_t start_ns, uint64_t end_ns);
  // Closes all time up to the newest end, and gives its memory back until the next interval.
  void rest();
  // Length of the union. Only grows.
  uint64_t busy_ns() const { return busy_ns_; }

 private:
  static constexpr int kBucketBits = 21;
  static constexpr uint64_t kBucketNs = uint64_t{1} << kBucketBits;
  static constexpr uint64_t kBuckets = kHorizonNs / kBucketNs + 1;

  // Within a bucket: nanoseconds from its begin. Disjoint, not touching, ascending.
  struct Piece {
    uint32_t start = 0;
    uint32_t end = 0;
  };
  using Bucket = std::vector<Piece>;

  Bucket& get_bucket(uint64_t number) { return ring_[number % kBuckets]; }
  void add_piece(uint64_t number, uint64_t start_ns, uint64_t end_ns);
  void insert(Bucket& bucket, Piece piece);
  void close_until(uint64_t number, uint64_t start_ns, uint64_t end_ns);
  void close(Bucket& bucket);

  Budget* const budget_;
  std::vector<Bucket> ring_;  // empty until the first interval, and after a rest
  uint64_t first_ = 0;        // number of the oldest bucket that is open
  uint64_t busy_ns_ = 0;
};

}  // namespace gpuperf
