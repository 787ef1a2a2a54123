#include "daemon/session/session_peer.h"

#include <poll.h>
#include <spdlog/fmt/fmt.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "daemon/base/clock_tick.h"
#include "daemon/base/proc_text.h"
#include "daemon/base/process_status.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

namespace gpuperf {
namespace {

// Two clocks of one time namespace that were read one after the other, and may have been set
// between.
constexpr int64_t kSameClockNs = 1'000'000'000;

// Not valid where the kernel has none; an error: the process has ended.
Result<Fd> open_pidfd(const Fd& connection, uint32_t pid) {
  int pidfd = -1;
  socklen_t length = sizeof pidfd;
  if (getsockopt(connection.get(), SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) == 0) {
    return Fd(pidfd);
  }
  if (errno != ENOPROTOOPT) return errno_status(errno, fmt::format("pid {}: open", pid));
  return Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

// Whether the process has not ended. A pid is not given away before.
bool is_alive(const Fd& pidfd) {
  pollfd ended{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
  return poll(&ended, 1, 0) == 0;
}

std::optional<ino_t> find_time_namespace(std::string_view proc_root, std::string_view pid) {
  struct stat found {};
  const std::string path = fmt::format("{}/{}/ns/time", proc_root, pid);
  if (stat(path.c_str(), &found) != 0) return std::nullopt;
  return found.st_ino;
}

}  // namespace

Result<SessionPeer> read_session_credentials(const Fd& connection) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return errno_status(errno, "peer: ask for its credentials");
  }
  if (peer.pid <= 0) {
    return absl::UnavailableError(
        "peer: its pid cannot be seen from the daemon's pid namespace; run gpuperfd in the host's");
  }
  return SessionPeer{.pid = static_cast<uint32_t>(peer.pid), .uid = peer.uid};
}

Status read_session_process(std::string_view proc_root, const Fd& connection, SessionPeer& peer) {
  ASSIGN_OR_RETURN(peer.pidfd, open_pidfd(connection, peer.pid));
  ASSIGN_OR_RETURN(peer.start_ticks, read_start_ticks(proc_root, peer.pid));
  ASSIGN_OR_RETURN(const std::string status,
                   read_status_text(fmt::format("{}/{}", proc_root, peer.pid)));
  const InnerId inner = parse_inner_id(status, peer.pid);
  // Asked last: then all of the above was this process's and not its successor's.
  if (peer.pidfd.valid() && !is_alive(peer.pidfd)) {
    return absl::NotFoundError(fmt::format("pid {}: has ended", peer.pid));
  }
  peer.inner_pid = inner.id;
  peer.is_pid_namespace_ours = inner.is_namespace_ours;
  return absl::OkStatus();
}

Status check_session_claims(std::string_view proc_root, const SessionPeer& peer,
                            const SessionHello& hello, int64_t offset_ns) {
  if (hello.pid != peer.inner_pid) {
    return absl::PermissionDeniedError(
        fmt::format("says it is pid {} and is {} in its own namespace", hello.pid, peer.inner_pid));
  }
  // Their difference wraps for clocks that nobody has: no harm, they are only compared.
  const auto said_offset_ns = static_cast<int64_t>(static_cast<uint64_t>(hello.unix_ns) -
                                                   static_cast<uint64_t>(hello.mono_ns));
  const auto apart_ns = static_cast<int64_t>(static_cast<uint64_t>(said_offset_ns) -
                                             static_cast<uint64_t>(offset_ns));
  const bool same_clock = apart_ns > -kSameClockNs && apart_ns < kSameClockNs;
  const auto ours = find_time_namespace(proc_root, "self");
  const auto theirs = find_time_namespace(proc_root, fmt::format("{}", peer.pid));
  const bool same_namespace = ours && theirs ? *ours == *theirs : same_clock;
  if (same_namespace && hello.process_start_ticks != 0 &&
      hello.process_start_ticks != peer.start_ticks) {
    return absl::PermissionDeniedError(fmt::format("says it started at tick {} and started at {}",
                                                   hello.process_start_ticks, peer.start_ticks));
  }
  return absl::OkStatus();
}

ProcessKey make_process_key(const SessionPeer& peer) {
  return {.pid = peer.pid, .start_boot_ns = peer.start_ticks * kTickNs};
}

}  // namespace gpuperf
