#pragma once

#include <algorithm>
#include <cstdint>

namespace gpuperf {

// How much of something may be taken per second, the worth of some seconds at once. What was taken
// beyond that is a debt: nothing more should be taken before it is paid off by time.
class TokenBucket {
 public:
  // `per_second`: 1 to 10^9.
  explicit TokenBucket(uint64_t per_second, uint32_t burst_seconds = 1)
      : per_second_(per_second), burst_ns_(int64_t{burst_seconds} * 1'000'000'000) {}

  // `count` below 2^33.
  void take(uint64_t count, int64_t now_mono_ns) {
    paid_mono_ns_ = std::max(paid_mono_ns_, now_mono_ns - burst_ns_) +
                    static_cast<int64_t>(count * 1'000'000'000 / per_second_);
  }
  // When something may be taken again; in the past = now.
  int64_t ready_mono_ns() const { return paid_mono_ns_; }
  // As if nothing had ever been taken.
  bool is_full(int64_t now_mono_ns) const { return paid_mono_ns_ <= now_mono_ns - burst_ns_; }

 private:
  const uint64_t per_second_;
  const int64_t burst_ns_;
  int64_t paid_mono_ns_ = 0;  // all that was taken is paid for by then
};

}  // namespace gpuperf
