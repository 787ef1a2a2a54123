#pragma once

#include <cstddef>
#include <string>

namespace gpuperf {

// How often `part` stands in `text`.
inline size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace gpuperf
