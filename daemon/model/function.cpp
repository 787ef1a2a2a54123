#include "daemon/model/function.h"

namespace gpuperf {

std::vector<uint32_t> FunctionRegistry::add_all(std::vector<Function> functions) {
  const MutexLock lock(mutex_);
  auto changed = std::make_shared<FunctionList>(*functions_);  // readers keep the list they hold
  std::vector<uint32_t> ids;
  ids.reserve(functions.size());
  for (Function& function : functions) {
    const std::pair key{function.category, function.name};
    const auto known = ids_.find(key);
    const bool is_new = known == ids_.end();
    if (is_new && changed->size() >= capacity_) {
      ids.push_back(kFull);
      continue;
    }
    function.id = is_new ? static_cast<uint32_t>(changed->size()) : known->second;
    ids.push_back(function.id);
    if (is_new) {
      ids_.emplace(key, function.id);
      changed->push_back(std::move(function));
    } else {
      (*changed)[function.id] = std::move(function);
    }
  }
  functions_ = std::move(changed);
  return ids;
}

std::shared_ptr<const FunctionList> FunctionRegistry::get() const {
  const MutexLock lock(mutex_);
  return functions_;
}

const Owner& other_owner() {
  static const Owner kOther{.comm = "other"};
  return kOther;
}

}  // namespace gpuperf
