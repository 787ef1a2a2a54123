#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "daemon/model/gpu_during_call.h"
#include "daemon/model/trace_event.h"

namespace gpuperf {

// The GPU work of all processes but one, as far as it overlaps the time.
std::vector<OtherGpuWork> list_other_gpu_work(
    const TraceWindow& window, const ProcessKey& process, uint64_t from_mono_ns,
    uint64_t to_mono_ns, const std::function<Owner(const ProcessKey&)>& get_owner);

}  // namespace gpuperf
