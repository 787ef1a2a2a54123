#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace gpuperf {

// How often something took how long, by powers of two nanoseconds: for what is told of the daemon
// itself, where a factor of two is exact enough.
//
// Thread: any. The counts of one `get` may be of slightly different moments.
class DurationCounts {
 public:
  static constexpr size_t kBuckets = 43;  // the last one: 2^41 ns, 37 minutes, and more

  struct Totals {
    std::array<uint64_t, kBuckets> counts{};  // [i]: below 2^i ns, and not below half of that
    uint64_t total_ns = 0;
    uint64_t longest_ns = 0;
    uint64_t count() const;
    // At least that share of all took no longer: the upper edge of their bucket, at most
    // longest_ns. 0 = there were none.
    uint64_t quantile_ns(double quantile) const;
    void merge(const Totals& other);
    bool operator==(const Totals&) const = default;
  };

  void add(std::chrono::nanoseconds duration);  // below 0 counts as 0
  Totals get() const;

 private:
  std::array<std::atomic<uint64_t>, kBuckets> counts_{};
  std::atomic<uint64_t> total_ns_ = 0;
  std::atomic<uint64_t> longest_ns_ = 0;
};

}  // namespace gpuperf
