#pragma once

#include <cstdint>
#include <string>

#include "daemon/model/capture.h"
#include "daemon/view/formats.h"

namespace gpuperf {

// The capture in the JSON of Chrome's trace viewer, which Perfetto's and speedscope read, too.
//
// Processes and GPUs are processes, threads and streams are threads ("X" events); arrows ("s", "f")
// lead from launches to their work; queue depths and busy GPUs are counters ("C"). Times are
// microseconds since the earliest event or the window's begin, whichever is first: readers drop
// events before 0. otherData says which time of which clock that is. Stacks are in stackFrames,
// named by "sf" of launches and calls.
std::string render_chrome_trace(const Capture& capture, const ViewOptions& options);

// From where on a trace is written shorter, so that a million pieces of work stay below 500 MB.
struct ChromeLimits {
  // Names of kernels, shapes and operations in the arguments of events, beyond which these are rows
  // of otherData.kernels, shapes and operations, and correlation ids are left out.
  uint64_t text_bytes = 32 << 20;
  // Beyond, arrows are not events of their own: launches and work have a "bind_id". Perfetto and
  // Chrome draw both.
  uint64_t arrows = 200'000;
};
std::string render_chrome_trace(const Capture& capture, const ChromeLimits& limits);

}  // namespace gpuperf
