#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace gpuperf {

// "412 ms", "31.2 s", "850 us"
std::string format_explained_time(uint64_t time_ns);

// At most `bytes` of a text in UTF-8, no character cut.
std::string shorten_explained(std::string text, size_t bytes);

}  // namespace gpuperf
