#pragma once

// Whether CUPTI has been used in this process, read from libcupti's own memory. That it is loaded
// says nothing: PyTorch always loads it and calls it only to profile.

#include <cstdint>

namespace gpuperf::injector {

struct CuptiUse {
  // Its data holds addresses in the driver, which it looks up on its first use. Measured on an
  // H100, CUPTI 13.0: none until then, 69 from then on. True also where that cannot be told.
  bool has_begun = false;
  // Of its data: two that are equal mean that nobody called anything meanwhile that left a trace.
  uint64_t fingerprint = 0;
};

// Reads all of it, some 1.4 MiB in a millisecond. Thread: any.
CuptiUse read_cupti_use();

}  // namespace gpuperf::injector
