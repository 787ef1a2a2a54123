#include "daemon/base/task_loop.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

#include <cassert>
#include <cerrno>
#include <csignal>
#include <utility>

#include "daemon/base/work_watch.h"

namespace gpuperf {
namespace {

// Once it stops, for tasks that post others: those that never end do not keep it from ending.
constexpr int kLastRounds = 16;

// Since the first of the times that it was due and did not run.
std::chrono::nanoseconds find_delay(int timer, std::chrono::nanoseconds period, uint64_t missed) {
  itimerspec next{};
  (void)timerfd_gettime(timer, &next);  // cannot fail for our own timer
  const std::chrono::nanoseconds remaining =
      std::chrono::seconds(next.it_value.tv_sec) + std::chrono::nanoseconds(next.it_value.tv_nsec);
  return static_cast<int64_t>(missed) * period - remaining;
}

}  // namespace

struct TaskLoop::Watch {
  Fd owned;  // timers and signals own theirs; readers do not
  std::function<void()> on_ready;
};

Result<std::unique_ptr<TaskLoop>> TaskLoop::make() {
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return errno_status(errno, "loop: epoll_create1");
  Fd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return errno_status(errno, "loop: eventfd");
  const int wake_fd = wake.get();
  auto loop = std::unique_ptr<TaskLoop>(new TaskLoop(std::move(epoll), std::move(wake)));
  RETURN_IF_ERROR(loop->add_reader(wake_fd, [wake_fd] {
    eventfd_t count = 0;
    // EAGAIN only means another wake-up consumed it.
    (void)eventfd_read(wake_fd, &count);
  }));
  return loop;
}

TaskLoop::TaskLoop(Fd epoll, Fd wake) : epoll_(std::move(epoll)), wake_(std::move(wake)) {}
TaskLoop::~TaskLoop() = default;

void TaskLoop::post(std::function<void()> task) {
  {
    const MutexLock lock(mutex_);
    posted_.push_back(std::move(task));
  }
  // Fails only when the counter is full, and then the loop is awake anyway.
  (void)eventfd_write(wake_.get(), 1);
}

void TaskLoop::stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  (void)eventfd_write(wake_.get(), 1);
}

Status TaskLoop::add_reader(int fd, std::function<void()> on_readable) {
  assert(on_loop());
  auto watch = std::make_unique<Watch>();
  watch->on_ready = std::move(on_readable);
  epoll_event event{.events = EPOLLIN, .data = {.ptr = watch.get()}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return errno_status(errno, "loop: epoll_ctl add");
  }
  watches_.push_back(std::move(watch));
  return absl::OkStatus();
}

Status TaskLoop::add_timer(std::chrono::milliseconds period, std::function<void()> on_tick) {
  Fd timer(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer.valid()) return errno_status(errno, "loop: timerfd_create");
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(period);
  const timespec every{.tv_sec = seconds.count(),
                       .tv_nsec = std::chrono::nanoseconds(period - seconds).count()};
  const itimerspec spec{.it_interval = every, .it_value = every};
  if (timerfd_settime(timer.get(), 0, &spec, nullptr) != 0) {
    return errno_status(errno, "loop: timerfd_settime");
  }
  const int fd = timer.get();
  RETURN_IF_ERROR(
      add_reader(fd, [this, fd, period, is_first = true, tick = std::move(on_tick)]() mutable {
        uint64_t missed = 0;
        if (::read(fd, &missed, sizeof missed) != sizeof missed) return;
        // The first may have been due before the loop ran.
        if (!std::exchange(is_first, false)) timer_delays_.add(find_delay(fd, period, missed));
        tick();
      }));
  watches_.back()->owned = std::move(timer);
  return absl::OkStatus();
}

Status TaskLoop::add_signals(std::initializer_list<int> signals,
                             std::function<void(int)> on_signal) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  if (const int error = pthread_sigmask(SIG_BLOCK, &set, nullptr); error != 0) {
    return errno_status(error, "loop: pthread_sigmask");
  }
  Fd signal_fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signal_fd.valid()) return errno_status(errno, "loop: signalfd");
  const int fd = signal_fd.get();
  RETURN_IF_ERROR(add_reader(fd, [fd, on_signal = std::move(on_signal)] {
    signalfd_siginfo info{};
    while (::read(fd, &info, sizeof info) == sizeof info) {
      on_signal(static_cast<int>(info.ssi_signo));
    }
  }));
  watches_.back()->owned = std::move(signal_fd);
  return absl::OkStatus();
}

void TaskLoop::run_posted() {
  assert(on_loop());
  std::vector<std::function<void()>> tasks;
  {
    const MutexLock lock(mutex_);
    tasks.swap(posted_);
  }
  for (auto& task : tasks) {
    const Work work("loop");
    task();
  }
}

bool TaskLoop::is_stopping() {
  const MutexLock lock(mutex_);
  return stopping_;
}

bool TaskLoop::has_posted() {
  const MutexLock lock(mutex_);
  return !posted_.empty();
}

void TaskLoop::run() {
  loop_thread_ = std::this_thread::get_id();
  int rounds_left = kLastRounds;
  while (true) {
    const bool is_ending = is_stopping();
    run_posted();
    if (is_ending && (!has_posted() || --rounds_left == 0)) return;
    const int timeout_ms = has_posted() || is_ending ? 0 : -1;
    epoll_event events[16];
    const int count = epoll_wait(epoll_.get(), events, std::size(events), timeout_ms);
    for (int i = 0; i < count; ++i) {
      const Work work("loop");
      static_cast<Watch*>(events[i].data.ptr)->on_ready();
    }
  }
}

}  // namespace gpuperf
