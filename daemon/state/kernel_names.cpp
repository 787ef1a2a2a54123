#include "daemon/state/kernel_names.h"

namespace gpuperf {

void KernelNames::apply(const HandleNamed& named) {
  loop_thread_.check();
  std::string name = named.name;
  if (name.empty()) name = find(named.process, named.source_handle).value_or("");
  if (name.empty()) return;  // the call that named the other was not seen
  const Key key{named.process, named.handle};
  const auto [entry, added] = names_.try_emplace(key);
  entry->second.name = std::move(name);
  if (!added) return uses_.splice(uses_.end(), uses_, entry->second.use);
  entry->second.use = uses_.insert(uses_.end(), key);
  if (names_.size() <= max_names_) return;
  drops_.add(DropCause::kNamesFull);
  names_.erase(uses_.front());
  uses_.pop_front();
}

void KernelNames::apply(const ProcessExited& exited) {
  loop_thread_.check();
  auto entry = names_.lower_bound({exited.process, 0});
  while (entry != names_.end() && entry->first.first == exited.process) {
    uses_.erase(entry->second.use);
    entry = names_.erase(entry);
  }
}

std::optional<std::string> KernelNames::find(const ProcessKey& process, uint64_t handle) {
  loop_thread_.check();
  const auto found = names_.find({process, handle});
  if (found == names_.end()) return std::nullopt;
  uses_.splice(uses_.end(), uses_, found->second.use);
  return found->second.name;
}

}  // namespace gpuperf
