#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "daemon/base/fd.h"

namespace gpuperf {

// One end of a session's connection: whole messages in and out, never waiting.
//
// Thread: one. Descriptors that a peer sends along are closed by the kernel unseen. A message is
// that of the process that connected, or is called foreign: a connection outlives a fork and can be
// handed on.
class SessionSocket {
 public:
  enum class Got {
    kMessage,
    kNothing,  // for now
    kEnd,      // the peer has closed it, or sent an empty packet
    kTooLong,  // a packet beyond the room
    kForeign,  // a message of another process; it is gone
  };
  struct Received {
    Got got = Got::kNothing;
    std::span<const std::byte> packet;  // of a message: the front of `room`
  };

  // The connection must not block. `pid`: who connected.
  SessionSocket(Fd connection, uint32_t pid);

  Received receive(std::span<std::byte> room);
  enum class Sent { kAll, kNoRoom, kFailed };
  Sent send(std::span<const std::byte> packet);
  // Before the first answer messages may have been sent before the kernel was asked to name
  // senders.
  void expect_named_senders() { named_ = true; }
  const Fd& fd() const { return connection_; }

 private:
  Fd connection_;
  const uint32_t pid_;
  bool named_ = false;
};

}  // namespace gpuperf
