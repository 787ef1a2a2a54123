#pragma once

// What `gpuperfctl top` shows at one refresh, in its three forms.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/function_rates.h"
#include "client/table.h"
#include "client/top_state.h"
#include "gpuperf/v1/observe.pb.h"

namespace gpuperf::client {

struct TopScreen {
  FunctionRates rates;
  std::vector<v1::InFlightCall> in_flight;  // longest first
  v1::GetStatusResponse status;
  std::vector<v1::SlowCall> slow_calls;  // of the function that is opened, newest first
};

// At most `limit` functions; 0 = all.
std::string render_top(const TopScreen& screen, uint64_t limit, const TextStyle& style);
// The same with what the keys have chosen, and the keys there are.
std::string render_full_screen(const TopScreen& screen, const TopState& state, uint64_t limit,
                               const TextStyle& style);
// Functions that fit a terminal of so many rows when everything else is shown whole.
uint64_t find_function_room(const TopScreen& screen, int terminal_rows);

nlohmann::ordered_json to_json(const TopScreen& screen, uint64_t limit);
// The functions alone.
std::string write_top_csv(const TopScreen& screen, uint64_t limit, const TextStyle& style);

}  // namespace gpuperf::client
