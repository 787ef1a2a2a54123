#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace gpuperf {

// What a launch hook costs a call of one process, by what its library has timed: some ten calls a
// second, picked at random, of which the last ones count.
//
// Thread: one. The totals are what the process says: any value leads to a cost within kMostNs.
class HookCost {
 public:
  static constexpr uint64_t kCallsMin = 16;    // fewer say little
  static constexpr uint64_t kCallsKept = 256;  // 25 s
  static constexpr double kMostNs = 20'000;
  // By how much a call takes longer than its hook does: what the hook puts out of the caches is
  // missing afterwards (docs/overhead.md, "What gpuperf says it costs").
  static constexpr double kAftermath = 1.2;

  // Totals since the process began: calls timed, nanoseconds in their hooks.
  void apply(uint64_t calls, uint64_t ns) {
    const uint64_t more_calls = calls - last_calls_;
    const auto more_ns = static_cast<double>(ns - last_ns_);
    const bool is_usable = calls > last_calls_ && ns >= last_ns_ && more_calls <= kCallsKept;
    last_calls_ = calls;
    last_ns_ = ns;
    if (!is_usable) return;
    calls_ += static_cast<double>(more_calls);
    ns_ += more_ns;
    if (calls_ < kCallsKept) return;
    calls_ /= 2;
    ns_ /= 2;
  }
  // Nanoseconds a call; empty = too few were timed.
  std::optional<double> ns() const {
    if (calls_ < kCallsMin) return std::nullopt;
    return std::min(kAftermath * ns_ / calls_, kMostNs);
  }

 private:
  uint64_t last_calls_ = 0;
  uint64_t last_ns_ = 0;
  double calls_ = 0;
  double ns_ = 0;
};

}  // namespace gpuperf
