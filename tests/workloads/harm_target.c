#include "harm_target.h"

// The second version of the library computes something else, at other addresses.
#ifdef HARM_SECOND_VERSION
#define LEAF_STEP 2
uint64_t harm_moves_the_rest(uint64_t a) { return (a * 7919 + 13) ^ (a >> 3) ^ (a << 5); }
#else
#define LEAF_STEP 1
#endif

uint64_t harm_leaf(uint64_t index) { return index + LEAF_STEP; }

uint64_t harm_call(harm_callback callback, void* argument) { return callback(argument) + 1; }

uint64_t harm_outer(harm_callback callback, void* argument) {
  return harm_call(callback, argument) + 1;
}
