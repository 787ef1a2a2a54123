#pragma once

// Probes that other tools put in, for comparison.

#include <functional>
#include <string>
#include <vector>

#include "daemon/base/result.h"

namespace gpuperf::bench {

// Takes the probe out.
using Detach = std::function<void()>;

// Runs a tool, found in PATH, and waits until its probe is felt. Its output is thrown away.
// Errors: Unavailable = it ended, or is not installed; DeadlineExceeded = nothing felt.
Result<Detach> attach_tool(std::vector<std::string> command, const std::function<bool()>& is_felt);

}  // namespace gpuperf::bench
