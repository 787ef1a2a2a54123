#include "daemon/app/named_stacks.h"

#include <utility>

#include "daemon/app/kernel_part.h"

namespace gpuperf {

void NamedStacks::keep(const std::map<uint64_t, ProcessKey>& wanted) {
  std::map<uint64_t, StackPtr> kept;
  for (const auto& [id, process] : wanted) {
    const auto known = stacks_.find(id);
    if (known != stacks_.end()) {
      kept[id] = known->second;
      continue;
    }
    const bool is_asked = kernel_.name_stack(process, id, [this, id = id](const StackPtr& stack) {
      const auto asked = stacks_.find(id);
      if (asked != stacks_.end()) asked->second = stack;
      core_.changed = true;
    });
    if (is_asked) kept[id] = nullptr;  // else the next time
  }
  stacks_ = std::move(kept);
}

void NamedStacks::fill(Snapshot& snapshot) const {
  for (const auto& [id, stack] : stacks_) {
    if (stack != nullptr) snapshot.named_stacks[id] = stack;
  }
}

}  // namespace gpuperf
