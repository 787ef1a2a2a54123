#pragma once

// CLOCK_MONOTONIC from the CPU's cycle counter, in a third of the time of clock_gettime, which at
// two time stamps per launch would take 1 % of a launch.
//
// Thread: read() from any, tune() from one. If the counter is not invariant, or does not keep pace
// with CLOCK_MONOTONIC (a migrated virtual machine), read() asks the system instead.

#include <x86intrin.h>

#include <atomic>
#include <cstdint>

#include "injector/clocks.h"

namespace gpuperf::injector {

__extension__ typedef __int128 Wide;

class CycleClock {
 public:
  // Nanoseconds of CLOCK_MONOTONIC, within a microsecond. Right after a tune() the clock may step
  // back by some nanoseconds.
  uint64_t read() const {
    const uint32_t before = sequence_.load(std::memory_order_acquire);
    // Loaded before the sequence is checked again.
    const uint64_t ratio = ratio_q32_.load(std::memory_order_acquire);
    const uint64_t base_cycles = base_cycles_.load(std::memory_order_acquire);
    const uint64_t base_ns = base_ns_.load(std::memory_order_acquire);
    if (ratio == 0 || (before & 1) != 0 || sequence_.load(std::memory_order_relaxed) != before)
        [[unlikely]] {
      return ask_system();
    }
    // Signed: another CPU's counter may be a little behind the base.
    const auto cycles = static_cast<int64_t>(__rdtsc() - base_cycles);
    return base_ns +
           static_cast<uint64_t>((static_cast<Wide>(cycles) * static_cast<int64_t>(ratio)) >> 32);
  }

  // Compares both clocks. The counter is used from the second call on that comes kTuneNs after the
  // previous one; more frequent calls are cheap.
  void tune();

 private:
  // Kept out of line of read().
  static uint64_t ask_system();
  static constexpr uint64_t kTuneNs = 100'000'000;
  // A counter this far off in one second no longer runs as it did.
  static constexpr uint64_t kErrorNsMax = 1'000'000;

  std::atomic<uint32_t> sequence_ = 0;   // odd while the three below change
  std::atomic<uint64_t> ratio_q32_ = 0;  // nanoseconds per cycle; 0 = the counter is not used
  std::atomic<uint64_t> base_cycles_ = 0;
  std::atomic<uint64_t> base_ns_ = 0;
  // Used by tune() only.
  bool is_given_up_ = false;
  uint64_t last_cycles_ = 0;
  uint64_t last_ns_ = 0;
};

}  // namespace gpuperf::injector
