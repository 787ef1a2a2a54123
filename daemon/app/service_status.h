#pragma once

#include <string>

#include "daemon/model/snapshot.h"

namespace gpuperf {

// What `systemctl status` shows of the daemon, in one sentence: "136 probes in 2 files", and
// before that the first thing that it cannot do.
std::string describe_service(const Snapshot& snapshot);

}  // namespace gpuperf
