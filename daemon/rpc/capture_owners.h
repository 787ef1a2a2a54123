#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "daemon/base/mutex.h"
#include "daemon/model/snapshot.h"

namespace gpuperf {

// Who asked for which capture.
//
// Thread: any. The board must outlive it. Remembers the last kRemembered captures itself: those
// just begun, which the newest snapshot does not have yet.
class CaptureOwners {
 public:
  static constexpr size_t kRemembered = 1024;

  explicit CaptureOwners(const SnapshotBoard& board) : board_(board) {}

  void remember(uint64_t id, uint32_t uid);
  // nullopt = there is no such capture.
  std::optional<uint32_t> find(uint64_t id) const;

 private:
  const SnapshotBoard& board_;
  mutable Mutex mutex_;
  std::deque<std::pair<uint64_t, uint32_t>> begun_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gpuperf
