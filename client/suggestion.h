#pragma once

#include <string>
#include <vector>

namespace gpuperf::client {

// What somebody who typed `word` most likely meant: few letters apart, or the one that it begins or
// that begins it. Empty = nothing is near.
std::string find_nearest(const std::string& word, const std::vector<std::string>& known);

}  // namespace gpuperf::client
