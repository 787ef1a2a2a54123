#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "daemon/base/worker_message.h"

namespace gpuperf {

// "gpuperfd --worker ROLE PARENT ...": how a WorkerPool executes this program, and no one else.
inline constexpr std::string_view kWorkerArgument = "--worker";
// Behind standard input, output and error, which are /dev/null.
inline constexpr int kWorkerSocket = 3;

// In a worker: takes requests and answers them, one at a time.
//
// Thread: the worker's only one. Every function blocks.
class WorkerSide {
 public:
  // To be called once, when requests can be taken: the daemon waits for it.
  bool tell_ready() const { return send_message(kWorkerSocket, ""); }
  // Nothing when the daemon is gone, or has asked nothing for `idle`: the worker is to end then,
  // and the daemon, which can no longer send to it, asks another.
  std::optional<WorkerMessage> receive(size_t max_bytes,
                                       std::optional<std::chrono::milliseconds> idle) const;
  bool answer(std::string_view bytes, std::span<const int> fds = {}) const {
    return send_message(kWorkerSocket, bytes, fds);
  }
};

}  // namespace gpuperf
