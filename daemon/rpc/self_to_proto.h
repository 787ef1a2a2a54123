#pragma once

#include "daemon/model/self_report.h"
#include "gpuperf/v1/observe.pb.h"

namespace gpuperf {

// Sets bounds, steps and memory.
void set_self_report(const SelfReport& report, v1::GetStatusResponse& response);

}  // namespace gpuperf
