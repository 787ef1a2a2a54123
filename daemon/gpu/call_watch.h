#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "daemon/base/mutex.h"

namespace gpuperf {

// Which call of a library a thread is inside of, for others to see when it does not come back.
//
// Thread: any; `enter` and `leave` on the one that calls.
class CallWatch {
 public:
  struct Inside {
    std::string call;
    std::chrono::steady_clock::time_point since;
  };

  void enter(const char* call) {
    const MutexLock lock(mutex_);
    call_ = call;
    since_ = std::chrono::steady_clock::now();
  }
  // How long it took.
  std::chrono::nanoseconds leave() {
    const MutexLock lock(mutex_);
    call_ = nullptr;
    return std::chrono::steady_clock::now() - since_;
  }
  std::optional<Inside> find() const {
    const MutexLock lock(mutex_);
    if (call_ == nullptr) return std::nullopt;
    return Inside{call_, since_};
  }

 private:
  mutable Mutex mutex_;
  const char* call_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::chrono::steady_clock::time_point since_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gpuperf
