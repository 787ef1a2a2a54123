#pragma once

#include <algorithm>

#include "gpuperf/v1/observe.pb.h"

namespace gpuperf::client {

inline constexpr double kShownFill = 0.5;   // of a limit, from where `status` shows it
inline constexpr double kWarnedFill = 0.8;  // from where `doctor` warns of it

// How full a limit was at most within the last one to two minutes.
inline double get_fill_ratio(const v1::BoundLevel& bound) {
  const double used = static_cast<double>(std::max(bound.used(), bound.highest()));
  return bound.limit() == 0 ? 0 : used / static_cast<double>(bound.limit());
}

}  // namespace gpuperf::client
