#include "daemon/base/worker_message.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

namespace gpuperf {
namespace {

using TimePoint = std::chrono::steady_clock::time_point;
constexpr size_t kMaxFds = 2;

void take_descriptors(msghdr& header, std::array<Fd, kMaxFds>& taken) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    std::array<int, kMaxFds> fds{};
    const size_t count = std::min((part->cmsg_len - CMSG_LEN(0)) / sizeof(int), fds.size());
    std::memcpy(fds.data(), CMSG_DATA(part), count * sizeof(int));
    for (size_t i = 0; i < count; ++i) taken[i] = Fd(fds[i]);
  }
}

// True once something can be read, or the other end is gone.
bool wait_readable(int socket, TimePoint deadline) {
  while (true) {
    int wait_ms = -1;
    if (deadline != TimePoint::max()) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      wait_ms = static_cast<int>(std::max<int64_t>(left.count(), 0));
    }
    pollfd waited{.fd = socket, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&waited, 1, wait_ms);
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

// How many bytes came; fewer than wanted when the other end is gone.
Result<size_t> receive_all(int socket, std::span<char> to, std::array<Fd, kMaxFds>& fds,
                           TimePoint deadline) {
  size_t done = 0;
  while (done < to.size()) {
    if (!wait_readable(socket, deadline)) return absl::DeadlineExceededError("no message in time");
    alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxFds * sizeof(int))> control;
    iovec part{to.data() + done, to.size() - done};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    const ssize_t received = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (received < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (received <= 0) break;
    take_descriptors(header, fds);
    done += static_cast<size_t>(received);
  }
  return done;
}

}  // namespace

bool send_message(int socket, std::string_view bytes, std::span<const int> fds) {
  const auto length = static_cast<uint32_t>(bytes.size());
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxFds * sizeof(int))> control{};
  // sendmsg() only reads what the parts point to.
  std::array<iovec, 2> parts{
      iovec{const_cast<uint32_t*>(&length), sizeof length},
      iovec{const_cast<char*>(bytes.data()), bytes.size()},
  };
  msghdr header{};
  header.msg_iov = parts.data();
  header.msg_iovlen = parts.size();
  if (!fds.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* const first = CMSG_FIRSTHDR(&header);
    first->cmsg_level = SOL_SOCKET;
    first->cmsg_type = SCM_RIGHTS;
    first->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(first), fds.data(), fds.size_bytes());
  }
  while (parts[0].iov_len + parts[1].iov_len > 0) {
    const ssize_t sent = ::sendmsg(socket, &header, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    auto rest = static_cast<size_t>(sent);
    for (iovec& part : parts) {
      const size_t taken = std::min(rest, part.iov_len);
      part.iov_base = static_cast<char*>(part.iov_base) + taken;
      part.iov_len -= taken;
      rest -= taken;
    }
    header.msg_control = nullptr;
    header.msg_controllen = 0;
  }
  return true;
}

Result<WorkerMessage> receive_message(int socket, size_t max_bytes, TimePoint deadline) {
  WorkerMessage message;
  uint32_t length = 0;
  std::span<char> head(reinterpret_cast<char*>(&length), sizeof length);
  ASSIGN_OR_RETURN(const size_t head_bytes, receive_all(socket, head, message.fds, deadline));
  if (head_bytes == 0) return absl::UnavailableError("the other end is gone");
  if (head_bytes < head.size() || length > max_bytes) return absl::DataLossError("no message");
  message.bytes.resize(length);
  ASSIGN_OR_RETURN(const size_t body_bytes,
                   receive_all(socket, message.bytes, message.fds, deadline));
  if (body_bytes < length) return absl::DataLossError("the other end went within a message");
  return message;
}

}  // namespace gpuperf
