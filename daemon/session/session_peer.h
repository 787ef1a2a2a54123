#pragma once

// Who is at the other end of a session's socket, by the kernel's word.

#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"
#include "daemon/model/function.h"
#include "daemon/session/decode_session.h"

namespace gpuperf {

// The process that connected.
struct SessionPeer {
  uint32_t pid = 0;
  uint32_t uid = 0;  // effective, at its connect
  uint64_t start_ticks = 0;
  uint32_t inner_pid = 0;  // in its own pid namespace
  bool is_pid_namespace_ours = true;
  Fd pidfd;  // readable once it has ended; not valid where the kernel is older than 5.3
};

// The pid and user that connected; UNAVAILABLE: a pid that cannot be seen from here.
Result<SessionPeer> read_session_credentials(const Fd& connection);

// Fills in the rest from /proc, of the very process that connected: on kernels without
// SO_PEERPIDFD (before 6.5), of the one that has its pid now. An error: it has ended.
Status read_session_process(std::string_view proc_root, const Fd& connection, SessionPeer& peer);

// Whether a HELLO speaks of that process. `offset_ns`: REALTIME - MONOTONIC here. A peer in a time
// namespace of its own sees other start times: they are not compared then.
Status check_session_claims(std::string_view proc_root, const SessionPeer& peer,
                            const SessionHello& hello, int64_t offset_ns);

// The start time is as fine as /proc tells it, 10 ms: that of a probed process is exact, and the
// two are of one process when they fall into one tick.
ProcessKey make_process_key(const SessionPeer& peer);

}  // namespace gpuperf
