#pragma once

#include <string>

#include "client/table.h"
#include "gpuperf/v1/model.pb.h"

namespace gpuperf::client {

// What the GPU did during a slow call, as a block to read: busy and idle, the kernels with who
// launched them, copies, what was waited for, other processes. Empty where nothing is known of it.
std::string render_gpu(const v1::SlowCall& call, const TextStyle& style);

}  // namespace gpuperf::client
