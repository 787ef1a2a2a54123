#pragma once

#include <algorithm>
#include <cstdint>

namespace gpuperf {

// How much of something may be taken per second, a second's worth at once. What was taken beyond
// that is a debt: nothing more should be taken before it is paid off by time.
class TokenBucket {
 public:
  // `per_second`: 1 to 10^9.
  explicit TokenBucket(uint64_t per_second) : per_second_(per_second) {}

  // `count` below 2^33.
  void take(uint64_t count, int64_t now_mono_ns) {
    paid_mono_ns_ = std::max(paid_mono_ns_, now_mono_ns - kBurstNs) +
                    static_cast<int64_t>(count * 1'000'000'000 / per_second_);
  }
  // When something may be taken again; in the past = now.
  int64_t ready_mono_ns() const { return paid_mono_ns_; }

 private:
  static constexpr int64_t kBurstNs = 1'000'000'000;

  const uint64_t per_second_;
  int64_t paid_mono_ns_ = 0;  // all that was taken is paid for by then
};

}  // namespace gpuperf
