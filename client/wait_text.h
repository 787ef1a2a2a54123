#pragma once

#include <string>

#include "client/table.h"
#include "gpuperf/v1/model.pb.h"

namespace gpuperf::client {

// "in ioctl of device nvidia-uvm", "in read of a pipe", "in a page fault".
std::string describe_wait_place(const v1::Wait& wait);

// The waits of a call that its daemon described, each with what it waited for, who ended it and the
// stacks of both. Empty = none.
std::string render_waits(const v1::SlowCall& call, const TextStyle& style);

}  // namespace gpuperf::client
