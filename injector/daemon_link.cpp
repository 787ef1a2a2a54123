#include "injector/daemon_link.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "injector/clocks.h"
#include "injector/own_memory.h"

namespace gpuperf::injector {
namespace {

// Field 22 of /proc/self/stat; 0 = not readable.
uint64_t read_start_ticks() {
  const int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[1024];
  const ssize_t count = read(fd, text, sizeof(text) - 1);
  (void)close(fd);
  if (count <= 0) return 0;
  text[count] = '\0';
  const char* at = std::strrchr(text, ')');  // the name before it may contain anything
  for (int field = 2; at != nullptr && field < 22; ++field) at = std::strchr(at + 1, ' ');
  return at != nullptr ? std::strtoull(at, nullptr, 10) : 0;
}

void read_comm(char (&comm)[16]) {
  const int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  const ssize_t count = read(fd, comm, sizeof(comm) - 1);
  (void)close(fd);
  for (ssize_t i = 0; i < count; ++i) {
    if (comm[i] == '\n') comm[i] = '\0';
  }
}

}  // namespace

void DaemonLink::set_up(const char* path) { std::snprintf(path_, sizeof(path_), "%s", path); }

void DaemonLink::set_up_attached(gpuperf_attach_block* block) {
  block_ = block;
  next_try_ms_ = 0;
  retry_ms_ = kRetryFirstMs;
}

int DaemonLink::connect_to_path() {
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path_, sizeof(path_));
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
  (void)close(fd);
  return -1;
}

// The worker's connection; the copy of its end, which it has by now, is of no more use.
int DaemonLink::take_given() {
  const int fd = block_->socket_fd;
  if (block_->daemon_fd >= 0) (void)close(block_->daemon_fd);
  block_->socket_fd = block_->daemon_fd = -1;
  return fd;
}

int DaemonLink::offer() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return -1;
  offered_fd_ = ends[1];
  ++block_->offers;
  __atomic_store_n(&block_->daemon_fd, offered_fd_, __ATOMIC_RELEASE);
  return ends[0];
}

void DaemonLink::withdraw_offer() {
  if (offered_fd_ < 0) return;
  __atomic_store_n(&block_->daemon_fd, -1, __ATOMIC_RELEASE);
  (void)close(offered_fd_);
  offered_fd_ = -1;
}

bool DaemonLink::try_connect(uint64_t now_ms) {
  if (state_ != State::kApart || now_ms < next_try_ms_) return false;
  next_try_ms_ = now_ms + retry_ms_;
  retry_ms_ = retry_ms_ * 2 > kRetryLastMs ? kRetryLastMs : retry_ms_ * 2;
  if (block_ == nullptr) {
    fd_ = connect_to_path();
  } else {
    fd_ = block_->socket_fd >= 0 ? take_given() : offer();
  }
  if (fd_ < 0) {
    disconnect(now_ms);
    return false;
  }
  // A larger buffer absorbs a daemon that is briefly busy; the kernel caps it.
  const int buffer_bytes = 1 << 20;
  (void)setsockopt(fd_, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof(buffer_bytes));
  sequence_ = 0;
  state_ = State::kWaiting;
  hello_ms_ = now_ms;
  last_taken_ms_ = now_ms;
  if (!send_hello()) {
    disconnect(now_ms);
    return false;
  }
  return true;
}

bool DaemonLink::send_hello() {
  gpuperf_hello hello = {};
  hello.header = {GPUPERF_SESSION_MAGIC, GPUPERF_SESSION_VERSION, GPUPERF_MESSAGE_HELLO,
                  sizeof(hello), sequence_++};
  hello.capabilities = GPUPERF_SESSION_ALL_KINDS;
  hello.process_start_ticks = read_start_ticks();
  hello.mono_ns = read_mono_ns();
  hello.unix_ns = read_unix_ns();
  hello.pid = static_cast<uint32_t>(getpid());
  hello.oldest_version = 1;
  hello.connection = connections_++;
  std::snprintf(hello.injector_version, sizeof(hello.injector_version), "%s", GPUPERF_VERSION);
  read_comm(hello.comm);
  return ::send(fd_, &hello, sizeof(hello), MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(hello);
}

bool DaemonLink::receive(uint64_t now_ms) {
  bool has_news = false;
  while (state_ != State::kApart) {
    alignas(8) uint8_t bytes[4096];
    const ssize_t count = recv(fd_, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      disconnect(now_ms);
      break;
    }
    has_news |= take_message(bytes, static_cast<size_t>(count), now_ms);
  }
  const uint64_t answer_ms = offered_fd_ >= 0 ? kOfferMs : kAnswerMs;
  if (state_ == State::kWaiting && now_ms - hello_ms_ > answer_ms) disconnect(now_ms);
  return has_news;
}

bool DaemonLink::take_message(const uint8_t* bytes, size_t length_bytes, uint64_t now_ms) {
  gpuperf_message header;
  if (length_bytes < sizeof(header)) return false;
  std::memcpy(&header, bytes, sizeof(header));
  if (header.magic != GPUPERF_SESSION_MAGIC || header.length_bytes > length_bytes) {
    disconnect(now_ms);  // not our daemon
    return false;
  }
  if (header.kind == GPUPERF_MESSAGE_REFUSE && header.length_bytes >= sizeof(gpuperf_refuse)) {
    gpuperf_refuse refuse;
    std::memcpy(&refuse, bytes, sizeof(refuse));
    disconnect(now_ms);
    next_try_ms_ = refuse.retry_ms == 0 ? UINT64_MAX : now_ms + refuse.retry_ms;
    return false;
  }
  const bool is_ruling = header.kind == GPUPERF_MESSAGE_WELCOME ||
                         (header.kind == GPUPERF_MESSAGE_CONTROL && state_ == State::kTogether);
  if (!is_ruling || header.length_bytes < sizeof(gpuperf_control)) return false;  // newer daemon
  std::memcpy(&control_, bytes, sizeof(control_));
  if (header.kind == GPUPERF_MESSAGE_WELCOME) {
    withdraw_offer();
    state_ = State::kTogether;
    retry_ms_ = kRetryFirstMs;
    last_taken_ms_ = now_ms;
  }
  return true;
}

bool DaemonLink::send_now(const void* bytes, size_t length_bytes, uint64_t now_ms) {
  const ssize_t count = ::send(fd_, bytes, length_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (count == static_cast<ssize_t>(length_bytes)) {
    last_taken_ms_ = now_ms;
    return true;
  }
  if (errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS && errno != EINTR) {
    disconnect(now_ms);
  }
  return false;
}

bool DaemonLink::send(gpuperf_message* message, uint64_t now_ms) {
  if (state_ != State::kTogether) return false;
  send_queued(now_ms);
  if (state_ != State::kTogether) return false;
  message->magic = GPUPERF_SESSION_MAGIC;
  message->version = GPUPERF_SESSION_VERSION;
  message->sequence = sequence_;
  const uint32_t length_bytes = message->length_bytes;
  if (queued_bytes_ == 0 && send_now(message, length_bytes, now_ms)) {
    ++sequence_;
    return true;
  }
  if (state_ != State::kTogether) return false;
  if (queued_bytes_ + sizeof(length_bytes) + length_bytes > kQueueBytes) return false;
  if (queue_ == nullptr) {
    queue_ = static_cast<uint8_t*>(map_zeroes(kQueueBytes));
    if (queue_ == nullptr) return false;
  }
  const auto append = [this](const void* bytes, size_t count) {
    const size_t at = (queue_first_ + queued_bytes_) % kQueueBytes;
    const size_t until_end = kQueueBytes - at < count ? kQueueBytes - at : count;
    std::memcpy(queue_ + at, bytes, until_end);
    std::memcpy(queue_, static_cast<const uint8_t*>(bytes) + until_end, count - until_end);
    queued_bytes_ += count;
  };
  append(&length_bytes, sizeof(length_bytes));
  append(message, length_bytes);
  ++sequence_;
  return true;
}

void DaemonLink::send_queued(uint64_t now_ms) {
  static uint8_t bytes[GPUPERF_MESSAGE_BYTES_MAX];  // the thread's stack is small
  while (queued_bytes_ > 0 && state_ == State::kTogether) {
    const auto copy = [this](size_t offset, void* target, size_t count) {
      const size_t at = (queue_first_ + offset) % kQueueBytes;
      const size_t until_end = kQueueBytes - at < count ? kQueueBytes - at : count;
      std::memcpy(target, queue_ + at, until_end);
      std::memcpy(static_cast<uint8_t*>(target) + until_end, queue_, count - until_end);
    };
    uint32_t length_bytes = 0;
    copy(0, &length_bytes, sizeof(length_bytes));
    copy(sizeof(length_bytes), bytes, length_bytes);
    if (!send_now(bytes, length_bytes, now_ms)) return;
    queue_first_ = (queue_first_ + sizeof(length_bytes) + length_bytes) % kQueueBytes;
    queued_bytes_ -= sizeof(length_bytes) + length_bytes;
  }
  if (queued_bytes_ == 0 && queue_ != nullptr) {
    (void)munmap(queue_, kQueueBytes);  // our own mapping
    queue_ = nullptr;
    queue_first_ = 0;
  }
}

void DaemonLink::leave_block(uint64_t now_ms) {
  disconnect(now_ms);
  block_ = nullptr;
  next_try_ms_ = UINT64_MAX;
}

void DaemonLink::disconnect(uint64_t now_ms) {
  withdraw_offer();
  if (fd_ >= 0) (void)close(fd_);
  fd_ = -1;
  state_ = State::kApart;
  queued_bytes_ = 0;  // its ids mean nothing to another connection
  if (queue_ != nullptr) (void)munmap(queue_, kQueueBytes);
  queue_ = nullptr;
  queue_first_ = 0;
  if (next_try_ms_ <= now_ms) next_try_ms_ = now_ms + retry_ms_;
  // An offer costs nothing and may be what a daemon waits for.
  if (block_ != nullptr && next_try_ms_ > now_ms + kRetryFirstMs) {
    next_try_ms_ = now_ms + kRetryFirstMs;
  }
}

void DaemonLink::abandon_after_fork() {
  if (fd_ >= 0) (void)close(fd_);
  if (offered_fd_ >= 0) (void)close(offered_fd_);  // the block is the parent's, too
  fd_ = offered_fd_ = -1;
  block_ = nullptr;
  state_ = State::kApart;
}

}  // namespace gpuperf::injector
