#pragma once

#include <string>

#include "client/table.h"
#include "gpuperf/v1/model.pb.h"

namespace gpuperf::client {

// What took most of the time, in a word or two: "futex 97 %", "on CPU 88 %". Empty = nothing did.
std::string describe_main_part(const v1::TimeSplit& split);

// A bar for every part of the call's time that is not zero, the largest first, and a note on how
// far to trust them; where the split is not known, why.
std::string render_time_split(const v1::SlowCall& call, const TextStyle& style);

}  // namespace gpuperf::client
