#pragma once

#include <string_view>
#include <vector>

#include "daemon/model/snapshot.h"

namespace gpuperf {

// Names of the rules of explain(), in order; docs/explanations.md has a row for each.
std::vector<std::string_view> list_explanation_rules();

// The rule that explains the call.
std::string_view find_explanation_rule(const SlowCall& call);

}  // namespace gpuperf
