#pragma once

#include <string>

#include "daemon/model/capture.h"
#include "daemon/view/formats.h"

namespace gpuperf {

// One line per path: "frame;frame;cudaLaunchKernel;[GPU_Kernel]name 12.345", microseconds. Three
// decimals are nanoseconds: the lines add up to the records, exactly. Sorted.
std::string render_folded(const Capture& capture, const ViewOptions& options);

// One line per launch, by time: "timestamp_ns comm pid tid cpu frame;...;frame". The timestamp is
// CLOCK_MONOTONIC; the CPU is not known and -1; blanks in `comm` are '_', an unknown one is "?".
std::string render_extended_folded(const Capture& capture, const ViewOptions& options);

}  // namespace gpuperf
