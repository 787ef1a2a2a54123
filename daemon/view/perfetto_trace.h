#pragma once

#include <string>

#include "daemon/model/capture.h"
#include "daemon/view/formats.h"

namespace gpuperf {

// The capture as a Perfetto trace (perfetto.protos.Trace), on the host's monotonic clock, with
// the wall clock beside it.
//
// Threads are thread tracks; streams are tracks below their GPU's; queue depths and busy GPUs are
// counter tracks. Flows lead from launches to their work. Launches and calls carry their stack.
// All that repeats is interned.
std::string render_perfetto_trace(const Capture& capture, const ViewOptions& options);

}  // namespace gpuperf
