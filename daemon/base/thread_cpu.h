#pragma once

#include <time.h>

#include <cstdint>

namespace gpuperf {

// CPU time of the calling thread so far, nanoseconds.
inline uint64_t read_thread_cpu_ns() {
  timespec time{};
  (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);  // cannot fail for the own thread
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

}  // namespace gpuperf
