#pragma once

// Functions whose every call is known. Each begins with `push %rbp`, which the kernel emulates
// under a probe, and none is inlined, merged or turned into a tail call.

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Errors that count_status() returns, by index: 2 where index % 100 == 7, 700 where
// index % 1000 == 500, otherwise 0.
#define COUNT_STATUS_MEMORY 2
#define COUNT_STATUS_ILLEGAL_ADDRESS 700

// Busy for `spin_ns` nanoseconds; 0 = returns at once.
uint64_t count_fast(uint64_t index, uint64_t spin_ns);
int count_status(uint64_t index);
// Calls count_fast() once.
uint64_t count_nested(uint64_t index, uint64_t spin_ns);
// Calls itself until `depth` calls are open at once. Returns depth.
uint64_t count_recurse(uint64_t depth);

#ifdef __cplusplus
}
#endif
