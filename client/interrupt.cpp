#include "client/interrupt.h"

#include <errno.h>
#include <fmt/format.h>
#include <grpcpp/client_context.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <memory>

namespace gpuperf::client {

Result<std::unique_ptr<Interrupt>> Interrupt::make(int output_fd) {
  sigset_t signals;
  sigset_t mask_before;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  const int signal_fd = signalfd(-1, &signals, SFD_CLOEXEC);
  const int stop_fd = eventfd(0, EFD_CLOEXEC);
  const int happened_fd = eventfd(0, EFD_CLOEXEC);
  if (signal_fd < 0 || stop_fd < 0 || happened_fd < 0) {
    const int error_number = errno;
    for (const int fd : {signal_fd, stop_fd, happened_fd}) {
      if (fd >= 0) close(fd);
    }
    return absl::InternalError(fmt::format("cannot watch for signals: {}", strerror(error_number)));
  }
  pthread_sigmask(SIG_BLOCK, &signals, &mask_before);
  return std::unique_ptr<Interrupt>(
      new Interrupt(signal_fd, stop_fd, happened_fd, output_fd, mask_before));
}

Interrupt::Interrupt(int signal_fd, int stop_fd, int happened_fd, int output_fd,
                     const sigset_t& mask_before)
    : signal_fd_(signal_fd),
      stop_fd_(stop_fd),
      happened_fd_(happened_fd),
      mask_before_(mask_before),
      thread_([this, output_fd] { wait_for_event(output_fd); }) {}

Interrupt::~Interrupt() {
  (void)eventfd_write(stop_fd_, 1);  // cannot fail: the counter is far from full
  thread_.join();
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
  close(signal_fd_);
  close(stop_fd_);
  close(happened_fd_);
}

void Interrupt::wait_for_event(int output_fd) {
  // No events asked of the output: POLLERR and POLLHUP come unasked when its reader has left.
  std::array<pollfd, 3> watched = {
      {{stop_fd_, POLLIN, 0}, {signal_fd_, POLLIN, 0}, {output_fd, 0, 0}}};
  while (poll(watched.data(), watched.size(), -1) < 0) {
    if (errno != EINTR) return;
  }
  if (watched[0].revents != 0) return;
  if (watched[1].revents != 0) {
    // Taken from the queue: left there, it would kill the process once the mask is restored.
    signalfd_siginfo taken = {};
    if (read(signal_fd_, &taken, sizeof(taken)) < 0) return;
  }
  const std::lock_guard lock(mutex_);
  happened_ = true;
  (void)eventfd_write(happened_fd_, 1);  // cannot fail: the counter is far from full
  if (call_ != nullptr) call_->TryCancel();
  changed_.notify_all();
}

bool Interrupt::happened() const {
  const std::lock_guard lock(mutex_);
  return happened_;
}

bool Interrupt::wait_for(std::chrono::nanoseconds duration) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, duration, [this] { return happened_; });
}

bool Interrupt::wait_for_input(int input_fd, std::chrono::nanoseconds duration) {
  std::array<pollfd, 2> watched = {{{happened_fd_, POLLIN, 0}, {input_fd, POLLIN, 0}}};
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(duration).count();
  (void)poll(watched.data(), watched.size(), static_cast<int>(ms));  // a signal only wakes it early
  return !happened();
}

void Interrupt::set_call(grpc::ClientContext* context) {
  const std::lock_guard lock(mutex_);
  call_ = context;
  if (call_ != nullptr && happened_) call_->TryCancel();
}

}  // namespace gpuperf::client
