#include "injector/launch_gate.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

namespace gpuperf::injector {
namespace {

constexpr uint64_t kLookUs = 50;
constexpr uint64_t kInFlightUsMax = 100'000;
constexpr uint64_t kWaitingUsMax = 3'000;

// Every thread of the process that runs has passed a full barrier.
bool have_all_threads_see() {
  const auto order = [](int command) { return syscall(SYS_membarrier, command, 0, 0) == 0; };
  if (order(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) return true;
  return order(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) &&
         order(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

// No place where a thread of the workload can be cancelled, as libc's functions are.
void sleep_until_next_look() {
  const timespec length = {.tv_sec = 0, .tv_nsec = kLookUs * 1'000};
  (void)syscall(SYS_nanosleep, &length, nullptr);
}

}  // namespace

bool LaunchGate::close(IsInFlight is_in_flight) {
  was_passed_.store(false);
  is_closed_.store(true);
  bool is_still = have_all_threads_see();
  uint64_t waiting_us = 0;
  for (uint64_t us = 0; is_still && is_in_flight(); us += kLookUs) {
    if (waiting_count_.load() > 0) waiting_us += kLookUs;
    is_still = us < kInFlightUsMax && waiting_us < kWaitingUsMax;
    sleep_until_next_look();
  }
  if (!is_still) (void)open();
  return is_still;
}

bool LaunchGate::open() {
  is_closed_.store(false);
  return !was_passed_.load();
}

__attribute__((noinline, cold)) void LaunchGate::wait(std::atomic<bool>& is_waiting) {
  const int error = errno;
  waiting_count_.fetch_add(1);
  uint64_t us = 0;
  do {
    is_waiting.store(true);
    for (; is_closed_.load() && us < kHeldMsMax * 1'000; us += kLookUs) sleep_until_next_look();
    is_waiting.store(false);
    // Seen again: it may have been closed anew, for a look that found this thread waiting.
  } while (is_closed_.load() && us < kHeldMsMax * 1'000);
  if (us >= kHeldMsMax * 1'000) was_passed_.store(true);
  waiting_count_.fetch_sub(1);
  errno = error;
}

}  // namespace gpuperf::injector
