#pragma once

#include <vector>

#include "daemon/model/capture.h"
#include "daemon/view/summary.h"

namespace gpuperf {

// The `devices` of a summary.
std::vector<DeviceSummary> summarise_devices(const Capture& capture);

}  // namespace gpuperf
