#pragma once

// The stacks of a slow call apart from it, as the store keeps them.

#include <span>
#include <vector>

#include "daemon/store/stored_call.h"
#include "gpuperf/v1/model.pb.h"

namespace gpuperf {

// Takes the frames of its stacks out of a call, each stack once, in the order of their ids. The ids
// stay. A stack without an id keeps its frames.
std::vector<StoredStack> take_stacks(v1::SlowCall& call);

// Puts the frames back where there is an id and none. A stack that is not among `stacks`, or does
// not parse, stays empty.
void put_back_stacks(std::span<const StoredStack> stacks, v1::SlowCall& call);

}  // namespace gpuperf
