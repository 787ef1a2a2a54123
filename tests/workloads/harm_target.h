#pragma once

// Functions that are left in every way there is: what happens inside a call is up to a callback.
// C functions get a return probe, unless gpuperf decides otherwise; those of cpp_target.h must not.

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef uint64_t (*harm_callback)(void* argument);

uint64_t harm_leaf(uint64_t index);                           // index + 1
uint64_t harm_call(harm_callback callback, void* argument);   // what it returns, + 1
uint64_t harm_outer(harm_callback callback, void* argument);  // what harm_call returns, + 1

#ifdef __cplusplus
}
#endif
