#pragma once

// Messages between the daemon and its workers over a stream socket: u32 bytes that follow | bytes;
// descriptors come with the first byte. Both ends are the same program on the same machine.

#include <array>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"

namespace gpuperf {

struct WorkerMessage {
  std::string bytes;
  std::array<Fd, 2> fds;
};

// False when the other end is gone or, on a socket that does not block, has no room.
bool send_message(int socket, std::string_view bytes, std::span<const int> fds = {});

// DeadlineExceeded when it was not there in time; Unavailable when the other end is gone, DataLoss
// when it went within the message or the message is longer than `max_bytes`.
Result<WorkerMessage> receive_message(int socket, size_t max_bytes,
                                      std::chrono::steady_clock::time_point deadline);

}  // namespace gpuperf
