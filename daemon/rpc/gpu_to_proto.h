#pragma once

// What is known of injected processes and their GPUs as messages of gpuperf.v1; see to_proto.h.

#include <cstdint>

#include "daemon/model/gpu_during_call.h"
#include "daemon/model/gpu_rows.h"
#include "gpuperf/v1/observe.pb.h"

namespace gpuperf {

// One kernel summed over processes: pid, comm and owner stay empty, and so does the share.
v1::KernelStats to_proto(const KernelText& name, const KernelTotals& totals);
v1::KernelStats to_proto(const KernelRow& row);
// `process`: of the same process; null = not shown.
v1::Session to_proto(const SessionRow& row, const GpuProcessRow* process, int64_t now_mono_ns);
v1::GpuActivity to_proto(const GpuActivity& activity);
v1::GpuDuringCall to_proto(const GpuDuringCall& gpu);
// Sessions and launches of a status.
void set_gpu(const GpuReport& report, v1::GetStatusResponse& response);

}  // namespace gpuperf
