#pragma once

#include <string_view>

namespace gpuperf {

// Whether `text` is `pattern`, in which `*` stands for any run of characters, empty ones included.
// Time: at most the product of the two lengths.
bool matches_wildcard(std::string_view pattern, std::string_view text);

}  // namespace gpuperf
