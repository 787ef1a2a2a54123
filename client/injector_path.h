#pragma once

#include <string>

#include "client/status.h"

namespace gpuperf::client {

// libgpuperf_injector.so, absolute: `asked` where it is not empty, else the environment's
// CUDA_INJECTION64_PATH where that names one of ours, else beside this program, ../lib/gpuperf, and
// where it is installed. kNotFound lists where it was looked for.
Result<std::string> find_injector(const std::string& asked);

}  // namespace gpuperf::client
