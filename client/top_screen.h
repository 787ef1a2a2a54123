#pragma once

// What `gpuperfctl top` shows at one refresh, in its three forms.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/function_rates.h"
#include "client/table.h"
#include "gpuperf/v1/observe.pb.h"

namespace gpuperf::client {

struct TopScreen {
  FunctionRates rates;
  std::vector<v1::InFlightCall> in_flight;  // longest first
  v1::GetStatusResponse status;
};

// At most `limit` functions; 0 = all.
std::string render_top(const TopScreen& screen, uint64_t limit, const TextStyle& style);
// Functions that fit a terminal of so many rows when everything else is shown whole.
uint64_t find_function_room(const TopScreen& screen, int terminal_rows);

nlohmann::ordered_json to_json(const TopScreen& screen, uint64_t limit);
// The functions alone.
std::string write_top_csv(const TopScreen& screen, uint64_t limit, const TextStyle& style);

}  // namespace gpuperf::client
