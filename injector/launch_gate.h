#pragma once

// Holds launches back for a moment so that CUPTI state changes between two of them: launches that
// begin after the change have a record, those that began before have none.
//
// A launching thread passes the gate in its hook, once the call counts as begun. A closing gate
// makes every core of the process see this (membarrier), then looks for calls in flight: a thread
// either sees the gate closed or is seen. Launches pay for reading one word only. Waiting threads
// sleep, and go on by themselves after some time. The thread that closed the gate passes it.
//
// Thread: closed and opened by one at a time (finalizer.h).

#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "injector/note_points.h"

namespace gpuperf::injector {

class LaunchGate {
 public:
  // Thread: the launching one, with its call begun. `is_waiting` is set while it waits.
  void pass(std::atomic<bool>& is_waiting) {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (is_special(kHeld)) [[unlikely]]
      wait(is_waiting);
  }

  // Closes the gate and waits until no call is in flight. False, with the gate open: a call still
  // was when threads had waited for 3 ms, or after `patience_ms`; or the Linux kernel cannot do it
  // (before 4.14, or forbidden). Threads wait for at most `held_ms_max`.
  using IsInFlight = bool (*)();
  bool close(IsInFlight is_in_flight, uint64_t patience_ms, uint64_t held_ms_max);
  // False: a thread gave up waiting before.
  bool open();

 private:
  void wait(std::atomic<bool>& is_waiting);

  std::atomic<pthread_t> closer_ = {};
  std::atomic<uint64_t> held_ms_max_ = 0;
  std::atomic<bool> was_passed_ = false;
  std::atomic<uint32_t> waiting_count_ = 0;
};

}  // namespace gpuperf::injector
