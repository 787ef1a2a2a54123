#include "daemon/rpc/capture_owners.h"

#include <algorithm>
#include <memory>

namespace gpuperf {

void CaptureOwners::remember(uint64_t id, uint32_t uid) {
  const MutexLock lock(mutex_);
  begun_.emplace_back(id, uid);
  if (begun_.size() > kRemembered) begun_.pop_front();
}

std::optional<uint32_t> CaptureOwners::find(uint64_t id) const {
  {
    const MutexLock lock(mutex_);
    const auto found = std::ranges::find(begun_, id, [](const auto& begun) { return begun.first; });
    if (found != begun_.end()) return found->second;
  }
  const std::shared_ptr<const Snapshot> snapshot = board_.get();
  const auto found = std::ranges::find(snapshot->captures, id, &CaptureRow::id);
  if (found == snapshot->captures.end()) return std::nullopt;
  return found->requester_uid;
}

}  // namespace gpuperf
