#include "count_target.h"

#include <time.h>

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t count_fast(uint64_t index, uint64_t spin_ns) {
  if (spin_ns != 0) {
    const uint64_t end_ns = now_ns() + spin_ns;
    while (now_ns() < end_ns) {
    }
  }
  return index + 1;
}

int count_status(uint64_t index) {
  if (index % 1000 == 500) return COUNT_STATUS_ILLEGAL_ADDRESS;
  if (index % 100 == 7) return COUNT_STATUS_MEMORY;
  return 0;
}

uint64_t count_nested(uint64_t index, uint64_t spin_ns) { return count_fast(index, spin_ns) + 1; }

uint64_t count_recurse(uint64_t depth) { return depth <= 1 ? 1 : count_recurse(depth - 1) + 1; }
