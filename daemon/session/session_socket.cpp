#include "daemon/session/session_socket.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace gpuperf {
namespace {

// The pid of a message's sender, 0 where the kernel does not say.
uint32_t find_sender(msghdr& message) {
  const cmsghdr* control = CMSG_FIRSTHDR(&message);
  if (control == nullptr || control->cmsg_level != SOL_SOCKET ||
      control->cmsg_type != SCM_CREDENTIALS || control->cmsg_len < CMSG_LEN(sizeof(ucred))) {
    return 0;
  }
  ucred sender{};
  std::memcpy(&sender, CMSG_DATA(control), sizeof sender);
  return static_cast<uint32_t>(sender.pid);
}

}  // namespace

SessionSocket::SessionSocket(Fd connection, uint32_t pid)
    : connection_(std::move(connection)), pid_(pid) {
  const int on = 1;
  // Cannot fail on a Unix socket.
  (void)setsockopt(connection_.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
}

SessionSocket::Received SessionSocket::receive(std::span<std::byte> room) {
  iovec bytes{.iov_base = room.data(), .iov_len = room.size()};
  // No room for descriptors: the kernel closes them.
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t count = -1;
  do {
    count = recvmsg(connection_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (count < 0 && errno == EINTR);
  if (count < 0) return {errno == EAGAIN ? Got::kNothing : Got::kEnd, {}};
  if (count == 0) return {Got::kEnd, {}};
  if ((message.msg_flags & MSG_TRUNC) != 0) return {Got::kTooLong, {}};
  const uint32_t sender = find_sender(message);
  if (sender != pid_ && (named_ || sender != 0)) return {Got::kForeign, {}};
  return {Got::kMessage, room.first(static_cast<size_t>(count))};
}

SessionSocket::Sent SessionSocket::send(std::span<const std::byte> packet) {
  ssize_t count = -1;
  do {
    count = ::send(connection_.get(), packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (count < 0 && errno == EINTR);
  if (count >= 0) return Sent::kAll;
  return errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM ? Sent::kNoRoom : Sent::kFailed;
}

}  // namespace gpuperf
