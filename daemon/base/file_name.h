#pragma once

#include <string_view>

namespace gpuperf {

// The part behind the last slash; all of it where there is none.
constexpr std::string_view get_file_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

}  // namespace gpuperf
