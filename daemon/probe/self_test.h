#pragma once

#include <cstdint>

#include "daemon/base/result.h"
#include "daemon/probe/programs.h"

namespace gpuperf {

// Loads `mechanism` with room for one function, probes a function of this program, calls it and
// checks that every call was counted: the only proof that holds across kernels and their backports.
Status try_mechanism(Mechanism mechanism);

// Offset, in the file it was mapped from, of the code at `address` in this process.
Result<uint64_t> find_own_offset(const void* address);

}  // namespace gpuperf
