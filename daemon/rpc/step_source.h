#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "daemon/model/display_text.h"
#include "daemon/model/snapshot.h"
#include "daemon/rpc/function_list.h"
#include "daemon/rpc/row_filter.h"

namespace gpuperf {

inline v1::StepPhase to_proto(StepPhase phase) { return static_cast<v1::StepPhase>(phase); }
static_assert(static_cast<int>(StepPhase::kOptimizer) == v1::STEP_PHASE_OPTIMIZER);

// What rates of kept rows are over: the last 10 s, or less where the oldest kept one, `age_ns` old,
// began later: of a young process, or of one with many rows a second.
inline constexpr uint64_t kRateWindowNs = 10'000'000'000;
inline uint64_t get_rate_span_ns(uint64_t age_ns) {
  constexpr uint64_t kLeastNs = 1'000'000;  // of all that are kept, faster than any
  return std::clamp(age_ns, kLeastNs, kRateWindowNs);
}

// Rows that are kept for more than one reason, each once, by id.
template <typename Row, typename... Kept>
std::vector<const Row*> list_once(const Kept&... kept) {
  std::map<uint64_t, const Row*> by_id;
  const auto add = [&by_id](const auto& rows) {
    for (const Row& row : rows) by_id.emplace(row.id, &row);
  };
  (add(kept), ...);
  std::vector<const Row*> listed;
  for (const auto& [id, row] : by_id) listed.push_back(row);
  return listed;
}

// The fields that say whose a row is, under the same names in all of them; valid UTF-8.
template <typename Message>
void set_process(const ProcessKey& process, const Owner& owner, Message& message) {
  message.set_pid(process.pid);
  message.set_comm(to_valid_utf8(owner.comm));
  message.set_container(to_valid_utf8(owner.container));
  message.set_pod(to_valid_utf8(owner.pod));
}

// The same of a row about steps.
template <typename Message>
void set_step_source(const Snapshot& snapshot, const ProcessKey& process, uint32_t function_id,
                     Message& message) {
  set_process(process, get_owner(snapshot, process), message);
  const Function* function = find_function(snapshot, function_id);
  if (function == nullptr) return;
  message.set_category(to_valid_utf8(function->category));
  message.set_function(to_valid_utf8(function->name));
}

inline bool matches_step_row(const Snapshot& snapshot, const RowFilter& filter,
                             const ProcessKey& process, uint32_t function_id) {
  const Function* function = find_function(snapshot, function_id);
  return function != nullptr && filter.matches_function(function->category, function->name) &&
         filter.matches(process) && filter.matches(get_owner(snapshot, process));
}

}  // namespace gpuperf
