#include "injector/launch_gate.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "injector/clocks.h"

namespace gpuperf::injector {
namespace {

constexpr uint64_t kWaitingMs = 3;

// Makes every running thread of the process pass a full barrier.
bool have_all_threads_see() {
  const auto order = [](int command) { return syscall(SYS_membarrier, command, 0, 0) == 0; };
  if (order(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) return true;
  return order(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) &&
         order(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

}  // namespace

bool LaunchGate::close(IsInFlight is_in_flight, uint64_t patience_ms, uint64_t held_ms_max) {
  closer_.store(pthread_self());
  held_ms_max_.store(held_ms_max);
  was_passed_.store(false);
  set_special(kHeld, true);
  bool is_still = have_all_threads_see();
  const uint64_t start_ms = read_mono_ms();
  uint64_t waiting_since_ms = UINT64_MAX;
  while (is_still && is_in_flight()) {
    const uint64_t now_ms = read_mono_ms();
    if (waiting_count_.load() > 0 && waiting_since_ms == UINT64_MAX) waiting_since_ms = now_ms;
    is_still = now_ms - start_ms < patience_ms &&
               (waiting_since_ms == UINT64_MAX || now_ms - waiting_since_ms < kWaitingMs);
    sleep_until_next_look();
  }
  if (!is_still) (void)open();
  return is_still;
}

bool LaunchGate::open() {
  set_special(kHeld, false);
  return !was_passed_.load();
}

__attribute__((noinline, cold)) void LaunchGate::wait(std::atomic<bool>& is_waiting) {
  if (pthread_equal(closer_.load(), pthread_self()) != 0) return;
  const int error = errno;
  waiting_count_.fetch_add(1);
  const uint64_t start_ms = read_mono_ms();
  const auto has_patience = [this, start_ms] {
    return read_mono_ms() - start_ms < held_ms_max_.load();
  };
  do {
    is_waiting.store(true);
    while (is_special(kHeld) && has_patience()) sleep_until_next_look();
    is_waiting.store(false);
    // Check again: the gate may have been closed anew, by a close() that saw this thread as
    // waiting.
  } while (is_special(kHeld) && has_patience());
  if (!has_patience()) was_passed_.store(true);
  waiting_count_.fetch_sub(1);
  errno = error;
}

}  // namespace gpuperf::injector
