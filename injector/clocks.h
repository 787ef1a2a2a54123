#pragma once

#include <time.h>

#include <cstdint>

namespace gpuperf::injector {

inline uint64_t read_clock_ns(clockid_t clock) {
  timespec now = {};
  (void)clock_gettime(clock, &now);  // cannot fail for these clocks
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}
inline uint64_t read_mono_ns() { return read_clock_ns(CLOCK_MONOTONIC); }
inline uint64_t read_unix_ns() { return read_clock_ns(CLOCK_REALTIME); }
inline uint64_t read_mono_ms() { return read_mono_ns() / 1'000'000; }

}  // namespace gpuperf::injector
