#pragma once

// Keeps launches back for a moment, so that something of CUPTI changes between two of them: what
// begins after it has a record, what began before it has none.
//
// A launching thread passes the gate in its hook, once the call counts as begun. A gate that closes
// has every core of the process see it (membarrier) and then looks which calls are in flight: a
// thread either sees the gate closed or is seen. That costs launches nothing but the look at a
// word. Threads that wait sleep, and go on by themselves after kHeldMsMax.
//
// Thread: closed and opened by the injector's thread.

#include <atomic>
#include <cstdint>

namespace gpuperf::injector {

class LaunchGate {
 public:
  static constexpr uint64_t kHeldMsMax = 40;

  // Launching thread, with its call begun. `is_waiting` is set meanwhile.
  void pass(std::atomic<bool>& is_waiting) {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (is_closed_.load(std::memory_order_relaxed)) [[unlikely]]
      wait(is_waiting);
  }

  // Closes it once no call is in flight. False, and open: one still was when threads had waited for
  // 3 ms, or after 100; or the kernel cannot do it (before 4.14, or forbidden).
  using IsInFlight = bool (*)();
  bool close(IsInFlight is_in_flight);
  // False: a thread's patience was at an end before.
  bool open();

 private:
  void wait(std::atomic<bool>& is_waiting);

  std::atomic<bool> is_closed_ = false;
  std::atomic<bool> was_passed_ = false;
  std::atomic<uint32_t> waiting_count_ = 0;
};

}  // namespace gpuperf::injector
