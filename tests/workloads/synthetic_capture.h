#pragma once

#include <cstddef>
#include <cstdint>

#include "daemon/model/capture.h"

namespace gpuperf::testing {

struct SyntheticCapture {
  size_t stacks = 4;        // distinct ones
  size_t work = 400;        // pieces of it, launched round and round from the stacks
  size_t deepest = 24;      // frames of the deepest stack
  bool is_hostile = false;  // names that try to break out of a document
  bool is_slower = false;   // the innermost "layer_11" takes three times as long
};

// A training program as a capture would show it: Python and native frames, probed calls, launches,
// kernels and copies on two streams, waits, idle time after each of its 100 steps. The same options
// make the same capture.
Capture make_synthetic_capture(const SyntheticCapture& options);

}  // namespace gpuperf::testing
