#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "daemon/base/clock.h"

namespace gpuperf {

// Two clocks that stand still until they are told otherwise, or go on by `per_read_ns` with each
// look at either. Any thread.
class FakeClock final : public Clock {
 public:
  static constexpr int64_t kStart = 1'000'000'000'000;

  explicit FakeClock(int64_t mono_ns = kStart, int64_t unix_ns = kStart)
      : mono_ns_(mono_ns), offset_ns_(unix_ns - mono_ns) {}

  int64_t mono_ns() const override { return mono_ns_ += per_read_ns; }
  int64_t unix_ns() const override { return (mono_ns_ += per_read_ns) + offset_ns_; }
  void advance(std::chrono::nanoseconds by) { mono_ns_ += by.count(); }
  void set_mono_ns(int64_t mono_ns) { mono_ns_ = mono_ns; }
  void step(int64_t ns) { offset_ns_ += ns; }  // of the wall clock

  int64_t per_read_ns = 0;

 private:
  mutable std::atomic<int64_t> mono_ns_;
  int64_t offset_ns_;
};

}  // namespace gpuperf
