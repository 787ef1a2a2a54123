#include "daemon/base/wildcard.h"

#include <cstddef>

namespace gpuperf {

bool matches_wildcard(std::string_view pattern, std::string_view text) {
  size_t at = 0;  // in the pattern
  size_t star = std::string_view::npos;
  size_t retry = 0;  // where in the text the last star's run ends
  for (size_t i = 0; i < text.size();) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      retry = i;
    } else if (at < pattern.size() && pattern[at] == text[i]) {
      ++at;
      ++i;
    } else if (star != std::string_view::npos) {
      at = star + 1;
      i = ++retry;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', at) == std::string_view::npos;
}

}  // namespace gpuperf
