#pragma once

#include <cstdint>

#include "daemon/model/gpu_counters.h"
#include "gpuperf/v1/model.pb.h"

namespace gpuperf {

// Values and length of a window that there is, without its age. Any thread.
v1::GpuCounters to_proto(const GpuCounterWindow& window);

// What is known of a GPU's hardware counters now. Any thread.
v1::GpuCounters to_proto(const GpuCounterState& state, int64_t now_mono_ns);

}  // namespace gpuperf
