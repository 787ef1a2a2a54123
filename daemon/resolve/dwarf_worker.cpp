#include "daemon/resolve/dwarf_worker.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "daemon/resolve/dwarf_message.h"
#include "daemon/resolve/dwarf_process.h"

namespace gpuperf {
namespace {

constexpr size_t kMaxFailedFiles = 4'096;

}  // namespace

DwarfWorker::DwarfWorker(Options options) : options_(options), failed_(kMaxFailedFiles) {}

DwarfWorker::~DwarfWorker() { (void)stop(); }

std::optional<DwarfWorker::Frames> DwarfWorker::find_frames(const File& file,
                                                            std::span<const uint64_t> vaddrs) {
  Frames frames;
  frames.reserve(vaddrs.size());
  bool may_be_idle = true;  // once in a call
  while (frames.size() < vaddrs.size() && failed_.find(file.id) == nullptr) {
    const TimePoint began = std::chrono::steady_clock::now();
    if (began < retry_at_) return std::nullopt;
    if (!is_running() && !start()) return std::nullopt;
    const auto rest = vaddrs.subspan(frames.size());
    std::optional<Frames> some = ask(file, rest.first(std::min(rest.size(), kMaxRequestAddresses)));
    if (!some || some->empty() || some->size() > rest.size()) {
      // It may have ended because it was idle, just when it was asked: not the file's fault.
      const bool was_idle = stop() && std::exchange(may_be_idle, false);
      if (was_idle) continue;
      on_failure(file.id, began);
      break;
    }
    std::ranges::move(*some, std::back_inserter(frames));
  }
  frames.resize(vaddrs.size());
  return frames;
}

// It may have ended because it was idle: then another is started.
bool DwarfWorker::is_running() {
  if (pid_ == 0) return false;
  if (::waitpid(pid_, nullptr, WNOHANG) == 0) return true;
  pid_ = 0;
  socket_.reset();
  return false;
}

bool DwarfWorker::start() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return false;
  Fd own(ends[0]);
  const Fd theirs(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return false;
  if (child == 0) {
    run_dwarf_process({.socket = theirs.get(),
                       .parent = parent,
                       .memory_bytes = options_.memory_bytes,
                       .idle = options_.idle});
  }
  pid_ = child;
  socket_ = std::move(own);
  return true;
}

bool DwarfWorker::stop() {
  socket_.reset();
  if (pid_ == 0) return false;
  int status = 0;
  (void)::kill(pid_, SIGKILL);  // our own child, not waited for yet: the pid is still its
  const bool is_reaped = ::waitpid(pid_, &status, 0) == pid_;
  pid_ = 0;
  return is_reaped && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void DwarfWorker::on_failure(uint64_t file_id, TimePoint began) {
  (void)failed_.put(file_id, true, 1);
  const TimePoint now = std::chrono::steady_clock::now();
  retry_at_ = now + options_.pause_factor * (now - began);
}

std::optional<DwarfWorker::Frames> DwarfWorker::ask(const File& file,
                                                    std::span<const uint64_t> vaddrs) {
  const TimePoint deadline = std::chrono::steady_clock::now() + options_.timeout;
  const DwarfRequest request{.file_id = file.id,
                             .has_alternate = file.alternate_fd >= 0,
                             .vaddrs = {vaddrs.begin(), vaddrs.end()}};
  uint32_t reply_bytes = 0;
  if (!send(file, encode(request))) return std::nullopt;
  if (!receive(reinterpret_cast<char*>(&reply_bytes), sizeof reply_bytes, deadline)) {
    return std::nullopt;
  }
  if (reply_bytes > kMaxReplyBytes) return std::nullopt;
  std::string reply(reply_bytes, '\0');
  if (!receive(reply.data(), reply.size(), deadline)) return std::nullopt;
  return decode_reply(reply);
}

// In one message: a request is smaller than the socket's buffer, which is empty, so it fits.
bool DwarfWorker::send(const File& file, const std::string& bytes) const {
  const std::array<int, 2> fds{file.fd, file.alternate_fd};
  const size_t fd_bytes = (file.alternate_fd >= 0 ? 2 : 1) * sizeof(int);
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof fds)> control{};
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(fd_bytes);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(fd_bytes);
  std::memcpy(CMSG_DATA(header), fds.data(), fd_bytes);
  return ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes.size());
}

bool DwarfWorker::receive(char* bytes, size_t count, TimePoint deadline) const {
  while (count > 0) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd waited{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    const int ready = left.count() <= 0 ? 0 : ::poll(&waited, 1, static_cast<int>(left.count()));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t received = ::recv(socket_.get(), bytes, count, MSG_DONTWAIT);
    if (received < 0 && errno == EINTR) continue;
    if (received <= 0) return false;
    bytes += received;
    count -= static_cast<size_t>(received);
  }
  return true;
}

}  // namespace gpuperf
