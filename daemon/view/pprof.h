#pragma once

#include <string>

#include "daemon/model/capture.h"
#include "daemon/view/formats.h"

namespace gpuperf {

// The capture as a pprof profile, compressed. The stacks are those of the folded form, with
// files, lines and modules as far as they are known.
//
// By GPU time the values are gpu_time (the default), launches and pieces of work, and samples are
// told apart by stream; by CPU or off-CPU time they are that and calls. Labels: kernel, device,
// gpu_uuid, stream, process, pid, comm, container, pod, as far as there is one. The values add up
// to the records: the record of a graph whose nodes are known counts with its nodes.
std::string render_pprof(const Capture& capture, const ViewOptions& options);

}  // namespace gpuperf
