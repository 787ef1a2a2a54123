#pragma once

#include <cstdint>

#include "daemon/base/result.h"
#include "daemon/model/snapshot.h"
#include "daemon/probe/attach/attacher.h"
#include "daemon/probe/attach/programs.h"

namespace gpuperf {

// Loads `mechanism` with room for one function, probes a function of this program, calls it and
// checks that every call was counted: the only proof that holds across kernels and their backports.
Status try_mechanism(Mechanism mechanism);

// Offset, in the file it was mapped from, of the code at `address` in this process.
Result<uint64_t> find_own_offset(const void* address);

// What one call of a probed function costs the workload on this machine, nanoseconds. 0 = not
// known.
struct CallCost {
  uint64_t total_ns = 0;
  uint64_t outside_ns = 0;  // the part that is not in the call's own duration, but its caller's
};
struct ProbeCosts {
  CallCost at_return[2];   // entry and return; index: entry emulated, entry stepped
  CallCost at_exits[2];    // entry and one exit
  CallCost at_entry[2];    // entry only
  uint64_t report_ns = 0;  // more, of a function each of whose calls is reported
};
CallCost get_call_cost(const ProbeCosts& costs, HitCost entry, Timing timing,
                       const Function& function);

// Measures them on functions of this program: some 100 ms of CPU, half a second.
Result<ProbeCosts> calibrate(Mechanism mechanism);

}  // namespace gpuperf
