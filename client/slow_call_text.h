#pragma once

#include <string>

#include "client/table.h"
#include "gpuperf/v1/model.pb.h"

namespace gpuperf::client {

// One slow call as an explanation to read: why it was slow, where its time went, what it waited
// for; then when, who, how long against which threshold, with which arguments and result, and from
// where. `now_unix_ns` says how long ago; 0 = leave that out.
std::string explain_slow_call(const v1::SlowCall& call, uint64_t now_unix_ns,
                              const TextStyle& style);

// What it returned, for a column: "in flight", "gone" or "unfinished" where it did not. Empty = not
// seen.
std::string describe_return_shortly(const v1::SlowCall& call);

}  // namespace gpuperf::client
