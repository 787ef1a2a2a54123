#pragma once

#include <string>

#include "daemon/model/capture.h"
#include "daemon/view/formats.h"

namespace gpuperf {

// One page about one capture that needs nothing beside it: what it is of and what it lacks, busy
// and idle time of each GPU and what hosts did meanwhile, the flame graph, a timeline, kernels,
// operations, launch latency and queues, copies. Figures are those of summarise(). Without a
// script tables and bars are there, flame graph and timeline are not.
std::string render_report(const Capture& capture, const ViewOptions& options);

}  // namespace gpuperf
