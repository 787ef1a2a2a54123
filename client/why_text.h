#pragma once

#include <string>

#include "client/table.h"
#include "gpuperf/v1/observe.pb.h"

namespace gpuperf::client {

// One page: of each process what its time went into, what limits it and what to look at.
// `findings`: at most so many of each process; 0 = all.
std::string render_why(const v1::ExplainCaptureResponse& response, size_t findings,
                       const TextStyle& style);

}  // namespace gpuperf::client
