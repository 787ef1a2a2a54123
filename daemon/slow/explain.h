#pragma once

#include <string>

#include "daemon/model/snapshot.h"

namespace gpuperf {

// Why the call was slow, in plain words: what dominated its time, the evidence, and what to look at
// next. One or two sentences; the rules, in order, are in docs/explanations.md, one test for each.
// Pure; takes everything of the call but its id.
std::string explain(const SlowCall& call);

}  // namespace gpuperf
