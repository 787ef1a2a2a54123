#include "injector/cycle_clock.h"

#include <cpuid.h>

namespace gpuperf::injector {
namespace {

// The counter runs at one rate in all power states (CPUID 8000_0007h, EDX bit 8), and 16 bytes are
// read and written at once, as with AVX (CPUID 1, ECX bit 28; Intel SDM vol. 2).
bool is_usable() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool is_invariant = __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & 1u << 8) != 0;
  return is_invariant && __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & 1u << 28) != 0;
}

struct Pair {
  uint64_t cycles = 0;
  uint64_t mono_ns = 0;
};

// Both clocks at one moment: the one of three tries that took the fewest cycles.
Pair read_pair() {
  Pair best;
  uint64_t best_cycles = UINT64_MAX;
  for (int i = 0; i < 3; ++i) {
    const uint64_t before = __rdtsc();
    const uint64_t mono_ns = read_mono_ns();
    const uint64_t took = __rdtsc() - before;
    if (took >= best_cycles) continue;
    best_cycles = took;
    best = {before + took / 2, mono_ns};
  }
  return best;
}

}  // namespace

__attribute__((noinline, cold)) uint64_t CycleClock::ask_system() { return read_mono_ns(); }

void CycleClock::tune() {
  if (is_given_up_) return;
  if (last_ns_ == 0) {
    is_given_up_ = !is_usable();
    const Pair first = read_pair();
    last_cycles_ = first.cycles;
    last_ns_ = first.mono_ns;
    return;
  }
  const Pair now = read_pair();
  if (now.mono_ns - last_ns_ < kTuneNs) return;
  uint64_t ratio = 0;
  if (now.cycles > last_cycles_) {
    ratio = static_cast<uint64_t>((static_cast<Wide>(now.mono_ns - last_ns_) << 32) /
                                  static_cast<Wide>(now.cycles - last_cycles_));
  }
  const bool is_first = scale_.ns_per_cycle_q32 == 0;
  const uint64_t predicted = is_first ? now.mono_ns : read();
  const uint64_t error_ns =
      predicted > now.mono_ns ? predicted - now.mono_ns : now.mono_ns - predicted;
  is_given_up_ = ratio == 0 || error_ns > kErrorNsMax + (now.mono_ns - last_ns_) / 1000;
  store(scale_, is_given_up_ ? Scale{}
                             : Scale{.ns_per_cycle_q32 = ratio,
                                     .base_ns = now.mono_ns - to_ns(now.cycles, ratio)});
  last_cycles_ = now.cycles;
  last_ns_ = now.mono_ns;
}

}  // namespace gpuperf::injector
