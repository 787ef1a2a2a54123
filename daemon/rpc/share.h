#pragma once

#include <cstdint>

namespace gpuperf {

// 0 to 1; of nothing 0.
inline double get_share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace gpuperf
