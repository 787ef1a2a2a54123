#pragma once

#include <cstddef>
#include <cstdint>

#include "daemon/base/log.h"
#include "daemon/state/session_registry.h"

namespace gpuperf {

// Says in the log when a session opens, closes or changes its state, and how much it sent.
//
// Thread: loop. Bounds: kLogPerSecond lines; what is beyond is not written.
class SessionLog {
 public:
  SessionLog() : log_(kLogPerSecond) {}

  void follow(SessionRegistry& sessions);

 private:
  // Processes that come and go by the thousand, or do it on purpose, must not fill the log.
  static constexpr uint32_t kLogPerSecond = 20;
  struct Session;

  bool may_log(int64_t mono_ns) { return log_.admit(mono_ns).allowed; }

  LogLimiter log_;
  size_t open_ = 0;  // sessions
};

}  // namespace gpuperf
