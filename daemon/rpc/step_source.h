#pragma once

#include "daemon/model/display_text.h"
#include "daemon/model/snapshot.h"
#include "daemon/rpc/function_list.h"
#include "daemon/rpc/row_filter.h"

namespace gpuperf {

// The fields that say whose a row about steps is, under the same names in all of them; valid UTF-8.
template <typename Message>
void set_step_source(const Snapshot& snapshot, const ProcessKey& process, uint32_t function_id,
                     Message& message) {
  const Owner owner = get_owner(snapshot, process);
  message.set_pid(process.pid);
  message.set_comm(to_valid_utf8(owner.comm));
  message.set_container(to_valid_utf8(owner.container));
  message.set_pod(to_valid_utf8(owner.pod));
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
