#include "client/demand_text.h"

#include <fmt/format.h>

#include "client/text.h"

namespace gpuperf::client {

std::string describe_demand(const v1::GetStatusResponse& status) {
  std::string text;
  if (status.overhead_demand() == v1::OVERHEAD_DEMAND_STAND_DOWN) {
    text = "nothing is probed or recorded";
  } else if (status.overhead_demand() != v1::OVERHEAD_DEMAND_DETAIL) {
    return "";
  } else if (status.overhead_demand_percent() > 0) {
    text = fmt::format("overhead budgets are raised to {}",
                       format_ratio(status.overhead_demand_percent() / 100));
  } else {
    text = "no overhead budget";
  }
  if (status.overhead_demand_remaining_ns() == 0) return text;
  return fmt::format("{} for another {}", text,
                     format_duration(status.overhead_demand_remaining_ns()));
}

}  // namespace gpuperf::client
