#pragma once

// CLOCK_MONOTONIC from the CPU's cycle counter, in a third of the time of clock_gettime, which at
// two time stamps per launch would take 1 % of a launch.
//
// Thread: read() from any, tune() from one. If the counter is not invariant, or does not keep pace
// with CLOCK_MONOTONIC (a migrated virtual machine), read() asks the system instead.

#include <x86intrin.h>

#include <cstdint>

#include "injector/clocks.h"

namespace gpuperf::injector {

__extension__ typedef unsigned __int128 Wide;

class CycleClock {
 public:
  // Read and replaced as a whole.
  struct alignas(16) Scale {
    uint64_t ns_per_cycle_q32 = 0;  // 0 = the counter is not used
    uint64_t base_ns = 0;           // at cycle 0; wraps
  };

  // Nanoseconds of CLOCK_MONOTONIC, within a microsecond. Right after a tune() the clock may step
  // back by some nanoseconds.
  uint64_t read() const {
    uint64_t now_ns = 0;
    return read_counter(now_ns) ? now_ns : ask_system();
  }
  // False: the counter is not used.
  bool read_counter(uint64_t& now_ns) const {
    const Scale scale = load(scale_);
    if (scale.ns_per_cycle_q32 == 0) [[unlikely]]
      return false;
    now_ns = scale.base_ns + to_ns(__rdtsc(), scale.ns_per_cycle_q32);
    return true;
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

  static uint64_t to_ns(uint64_t cycles, uint64_t ns_per_cycle_q32) {
    return static_cast<uint64_t>(static_cast<Wide>(cycles) * ns_per_cycle_q32 >> 32);
  }
  // One instruction each, and one access of memory on every CPU with AVX (Intel SDM vol. 3, 9.1.1;
  // AMD64 vol. 2, 7.3.2). is_usable() says so.
  static Scale load(const Scale& scale) {
    __m128i both;
    __asm__ volatile("movdqa %1, %0" : "=x"(both) : "m"(scale));
    return {.ns_per_cycle_q32 = static_cast<uint64_t>(_mm_cvtsi128_si64(both)),
            .base_ns = static_cast<uint64_t>(_mm_cvtsi128_si64(_mm_unpackhi_epi64(both, both)))};
  }
  static void store(Scale& scale, const Scale& value) {
    const __m128i both = _mm_set_epi64x(static_cast<long long>(value.base_ns),
                                        static_cast<long long>(value.ns_per_cycle_q32));
    __asm__ volatile("movdqa %1, %0" : "=m"(scale) : "x"(both));
  }

  Scale scale_;
  // Used by tune() only.
  bool is_given_up_ = false;
  uint64_t last_cycles_ = 0;
  uint64_t last_ns_ = 0;
};

}  // namespace gpuperf::injector
