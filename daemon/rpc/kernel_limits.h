#pragma once

// What limits a kernel, as messages of gpuperf.v1; see to_proto.h.

#include "daemon/model/gpu_rows.h"
#include "gpuperf/v1/observe.pb.h"

namespace gpuperf {

// Sets stalls, launch and verdicts. `shape` with id 0: no launch is known. `stalls`: null = the
// kernel was never sampled.
void set_limits(const LaunchShape& shape, const SmLimits& sm, const KernelStalls* stalls,
                v1::KernelStats& stats);

}  // namespace gpuperf
