#pragma once

#include <string>

#include "gpuperf/v1/observe.pb.h"

namespace gpuperf::client {

// "nothing is probed or recorded for another 5m00s"; empty where nothing is demanded.
std::string describe_demand(const v1::GetStatusResponse& status);

}  // namespace gpuperf::client
