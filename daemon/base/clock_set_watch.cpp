#include "daemon/base/clock_set_watch.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace gpuperf {
namespace {

// The year 2255: never, and still below what the kernel's nanoseconds can hold.
constexpr time_t kNever = 9'000'000'000;

bool arm(int timer) {
  const itimerspec when{.it_interval = {}, .it_value = {.tv_sec = kNever, .tv_nsec = 0}};
  return timerfd_settime(timer, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &when, nullptr) == 0;
}

}  // namespace

Result<ClockSetWatch> ClockSetWatch::make() {
  Fd timer(timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer.valid()) return errno_status(errno, "wall clock: make a timer that sees it set");
  if (!arm(timer.get())) return errno_status(errno, "wall clock: arm the timer that sees it set");
  return ClockSetWatch(std::move(timer));
}

void ClockSetWatch::rearm() {
  uint64_t expired = 0;
  // ECANCELED is the news itself. Armed anew it fails with the same error when the clock was set
  // once more meanwhile, and is armed all the same.
  (void)!read(timer_.get(), &expired, sizeof expired);
  (void)arm(timer_.get());
}

}  // namespace gpuperf
