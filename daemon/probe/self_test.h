#pragma once

#include <cstdint>

#include "daemon/base/result.h"
#include "daemon/model/snapshot.h"
#include "daemon/probe/attacher.h"
#include "daemon/probe/programs.h"

namespace gpuperf {

// Loads `mechanism` with room for one function, probes a function of this program, calls it and
// checks that every call was counted: the only proof that holds across kernels and their backports.
Status try_mechanism(Mechanism mechanism);

// Offset, in the file it was mapped from, of the code at `address` in this process.
Result<uint64_t> find_own_offset(const void* address);

// What one call of a probed function costs the workload on this machine, nanoseconds. 0 = not
// known.
struct ProbeCosts {
  uint64_t return_ns[2] = {};  // entry and return; index: entry emulated, entry stepped
  uint64_t exits_ns[2] = {};   // entry and one exit
  uint64_t none_ns[2] = {};    // entry only
};
uint64_t get_cost_ns(const ProbeCosts& costs, HitCost entry, Timing timing);

// Measures them on functions of this program: some 100 ms of CPU, half a second.
Result<ProbeCosts> calibrate(Mechanism mechanism);

}  // namespace gpuperf
