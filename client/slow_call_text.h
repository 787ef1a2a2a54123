#pragma once

#include <string>

#include "client/table.h"
#include "gpuperf/v1/model.pb.h"

namespace gpuperf::client {

// One slow call as an explanation to read: what, when, who, how long against which threshold, with
// which arguments and result, and from where. `now_unix_ns` says how long ago; 0 = leave that out.
std::string explain_slow_call(const v1::SlowCall& call, uint64_t now_unix_ns,
                              const TextStyle& style);

// "main+0x33 (/usr/bin/train)": as much of the frame as is known.
std::string describe_frame(const v1::StackFrame& frame);

}  // namespace gpuperf::client
