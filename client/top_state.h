#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/function_rates.h"
#include "client/terminal.h"

namespace gpuperf::client {

// What the keys of `gpuperfctl top` have chosen. Pure: no terminal, no daemon.
struct TopState {
  size_t sort = 0;            // of list_top_sorts()
  std::string filter;         // functions or categories that contain it
  bool is_filtering = false;  // keys go into the filter
  size_t selected = 0;        // of the rows shown
  // The function whose processes are shown: category and name; empty = all functions.
  std::optional<std::pair<std::string, std::string>> opened;
  bool quits = false;
};

// "time", "calls", …: the columns by which rows can be sorted.
const std::vector<std::string>& list_top_sorts();

// `shown`: the rows on the screen, which Enter opens.
void apply_key(TopState& state, const Key& key, const std::vector<FunctionRate>& shown);

// The rows that pass the filter, in the order chosen.
FunctionRates arrange(const FunctionRates& rates, const TopState& state);

}  // namespace gpuperf::client
