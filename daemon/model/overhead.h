#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "daemon/base/wildcard.h"

namespace gpuperf {

// What share of its time a process may lose to us, by everything together: probes, launch hooks and
// CUPTI.
struct OverheadLimits {
  double percent = 1;  // 0 = no limit
  // Of processes whose command name matches the pattern; the first one counts, in the order of the
  // patterns' bytes.
  std::map<std::string, double> percent_by_comm;
  bool operator==(const OverheadLimits&) const = default;

  double get_ratio(std::string_view comm) const {
    for (const auto& [pattern, its_percent] : percent_by_comm) {
      if (matches_wildcard(pattern, comm)) return its_percent / 100;
    }
    return percent / 100;
  }
  // The lowest limit there is; 0 = there is none.
  double get_least_percent() const {
    double least = percent;
    for (const auto& [pattern, its_percent] : percent_by_comm) {
      if (its_percent > 0) least = least > 0 ? std::min(least, its_percent) : its_percent;
    }
    return least;
  }
};

// What somebody outside demands for a time, whatever the limits say.
struct OverheadDemand {
  enum class Kind {
    kNone,
    kStandDown,  // nothing is probed, counted or recorded
    kDetail,     // there is no limit, or a higher one
  };
  Kind kind = Kind::kNone;
  int64_t until_mono_ns = 0;  // 0 = until what demands it no longer does
  double percent = 0;         // of kDetail, what limits are raised to; 0 = there are none
  std::string reason;
  bool operator==(const OverheadDemand&) const = default;
};

constexpr const char* get_demand_name(OverheadDemand::Kind kind) {
  switch (kind) {
    case OverheadDemand::Kind::kNone:
      break;
    case OverheadDemand::Kind::kStandDown:
      return "stand-down";
    case OverheadDemand::Kind::kDetail:
      return "detail";
  }
  return "none";
}

// Of what is configured.
inline OverheadLimits get_limits_in_force(OverheadLimits limits, const OverheadDemand& demand) {
  if (demand.kind != OverheadDemand::Kind::kDetail) return limits;
  if (demand.percent == 0) return {.percent = 0, .percent_by_comm = {}};
  const auto raise = [&](double& percent) {
    if (percent != 0) percent = std::max(percent, demand.percent);
  };
  raise(limits.percent);
  for (auto& [pattern, percent] : limits.percent_by_comm) raise(percent);
  return limits;
}

// Where CUPTI's records cost launches something, it has this share of the limit.
inline constexpr double kCuptiShare = 0.5;

}  // namespace gpuperf
