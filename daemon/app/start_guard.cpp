#include "daemon/app/start_guard.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "daemon/base/log.h"

namespace gpuperf {
namespace {

constexpr int kPatienceMs = 1'000;

sigset_t make_stop_signals() {
  sigset_t signals;
  (void)sigemptyset(&signals);
  (void)sigaddset(&signals, SIGTERM);
  (void)sigaddset(&signals, SIGINT);
  return signals;
}

Fd open_stop_signals() {
  const sigset_t signals = make_stop_signals();
  return Fd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
}

bool is_readable(int fd, int timeout_ms) {
  pollfd waited{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&waited, 1, timeout_ms) > 0 && (waited.revents & POLLIN) != 0;
}

}  // namespace

StartGuard::StartGuard()
    : signals_(open_stop_signals()),
      over_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { run(); }) {}

StartGuard::~StartGuard() {
  (void)eventfd_write(over_.get(), 1);  // cannot fail: the counter is far from full
  thread_.join();
}

bool StartGuard::is_stopping() const { return is_readable(signals_.get(), 0); }

void StartGuard::run() const {
  if (!signals_.valid() || !over_.valid()) return;  // no descriptors left: the start is waited for
  pollfd waited[] = {{signals_.get(), POLLIN, 0}, {over_.get(), POLLIN, 0}};
  (void)poll(waited, 2, -1);
  if (waited[0].revents == 0 || is_readable(over_.get(), kPatienceMs)) return;
  log_info("gpuperfd stopped before it was ready");
  _exit(0);
}

}  // namespace gpuperf
