#pragma once

// GPUs as messages of gpuperf.v1.

#include <cstdint>

#include "daemon/model/snapshot.h"
#include "gpuperf/v1/observe.pb.h"

namespace gpuperf {

v1::Gpu to_proto(const GpuHealth& gpu, int64_t now_mono_ns);

// Every GPU, or why there are none. Pure, any thread.
v1::ListGpusResponse list_gpus(const Snapshot& snapshot, int64_t now_mono_ns);

// What status says of them.
void set_gpu_summary(const Snapshot& snapshot, int64_t now_mono_ns,
                     v1::GetStatusResponse& response);

}  // namespace gpuperf
