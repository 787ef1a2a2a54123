#include "daemon/base/worker_side.h"

#include <sys/socket.h>

namespace gpuperf {

std::optional<WorkerMessage> WorkerSide::receive(
    size_t max_bytes, std::optional<std::chrono::milliseconds> idle) const {
  using std::chrono::steady_clock;
  constexpr steady_clock::time_point kNever = steady_clock::time_point::max();
  auto request =
      receive_message(kWorkerSocket, max_bytes, idle ? steady_clock::now() + *idle : kNever);
  if (absl::IsDeadlineExceeded(request.status())) {
    // From here on the daemon cannot send; what it has sent just before is answered yet.
    (void)::shutdown(kWorkerSocket, SHUT_RD);
    request = receive_message(kWorkerSocket, max_bytes, kNever);
  }
  return request.ok() ? std::optional(*std::move(request)) : std::nullopt;
}

}  // namespace gpuperf
