#pragma once

#include <cstdint>

#include "daemon/base/clock.h"

namespace gpuperf {

// Two clocks that stand still until they are told otherwise, or go on by `per_read_ns` with each
// look at either.
class FakeClock final : public Clock {
 public:
  FakeClock(int64_t mono_ns, int64_t unix_ns) : mono_ns_(mono_ns), offset_ns_(unix_ns - mono_ns) {}

  int64_t mono_ns() const override { return mono_ns_ += per_read_ns; }
  int64_t unix_ns() const override { return (mono_ns_ += per_read_ns) + offset_ns_; }
  void advance(int64_t ns) { mono_ns_ += ns; }
  void step(int64_t ns) { offset_ns_ += ns; }  // of the wall clock

  int64_t per_read_ns = 0;

 private:
  mutable int64_t mono_ns_;
  int64_t offset_ns_;
};

}  // namespace gpuperf
