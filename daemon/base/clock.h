#pragma once

// The only place that converts between clock domains.
//
// mono: CLOCK_MONOTONIC nanoseconds, what bpf_ktime_get_ns() stamps. unix: CLOCK_REALTIME
// nanoseconds since the epoch. boot: CLOCK_BOOTTIME nanoseconds, what process start times use.

#include <cstdint>

namespace gpuperf {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t mono_ns() const = 0;
  virtual int64_t unix_ns() const = 0;

  // Wall-clock time of a past monotonic stamp, by the offset of the two clocks now. A step of the
  // wall clock since the stamp is therefore included: the answer matches what `date` says today.
  int64_t unix_from_mono_ns(int64_t stamp_mono_ns) const {
    return stamp_mono_ns + (unix_ns() - mono_ns());
  }
};

class SystemClock final : public Clock {
 public:
  int64_t mono_ns() const override;
  int64_t unix_ns() const override;
};

}  // namespace gpuperf
