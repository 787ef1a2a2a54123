#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>

#include "daemon/model/gpu_health.h"

namespace gpuperf {

// What held the clocks of one GPU down, now and over the last minute.
//
// Thread: one. Shares come from the GPU's own counters of time where it has them: those miss
// nothing between two looks. Elsewhere what is active at a look stands for the time since the one
// before. Bounds: the looks of a minute.
class LimitWindow {
 public:
  static constexpr std::chrono::nanoseconds kSpan = std::chrono::minutes(1);

  struct Look {
    int64_t mono_ns = 0;
    std::optional<uint64_t> active_bits;  // of ClockLimitRow::bit; empty = not told
    std::array<std::optional<uint64_t>, kClockLimits> total_ns{};
  };
  void add(const Look& look);

  const std::array<ClockLimitState, kClockLimits>& states() const { return states_; }

 private:
  struct Step {
    int64_t mono_ns = 0;
    uint64_t elapsed_ns = 0;
    std::array<uint64_t, kClockLimits> active_ns{};
  };

  std::optional<Look> last_;
  std::deque<Step> steps_;  // oldest first
  std::array<ClockLimitState, kClockLimits> states_{};
};

}  // namespace gpuperf
