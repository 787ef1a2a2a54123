#pragma once

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>

namespace gpuperf::injector {

inline uint64_t read_clock_ns(clockid_t clock) {
  timespec now = {};
  (void)clock_gettime(clock, &now);  // cannot fail for these clocks
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}
inline uint64_t read_mono_ns() { return read_clock_ns(CLOCK_MONOTONIC); }
inline uint64_t read_unix_ns() { return read_clock_ns(CLOCK_REALTIME); }
// CLOCK_REALTIME - CLOCK_MONOTONIC, from the shortest of several readings.
inline uint64_t read_mono_to_unix_ns() {
  uint64_t offset_ns = 0, shortest_ns = UINT64_MAX;
  for (int i = 0; i < 5; ++i) {
    const uint64_t before_ns = read_mono_ns();
    const uint64_t unix_ns = read_unix_ns();
    const uint64_t took_ns = read_mono_ns() - before_ns;
    if (took_ns >= shortest_ns) continue;
    shortest_ns = took_ns;
    offset_ns = unix_ns - (before_ns + took_ns / 2);
  }
  return offset_ns;
}
inline uint64_t read_mono_ms() { return read_mono_ns() / 1'000'000; }
// Until the next look at what is awaited. Unlike libc's functions, not a cancellation point for the
// workload's threads.
inline void sleep_until_next_look() {
  const timespec length = {.tv_sec = 0, .tv_nsec = 50'000};
  (void)syscall(SYS_nanosleep, &length, nullptr);
}

}  // namespace gpuperf::injector
