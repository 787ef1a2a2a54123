#pragma once

// Tells whether CUPTI's timestamps are CLOCK_REALTIME, and converts them where they are not.
//
// CUPTI uses CLOCK_REALTIME unless a client registers its own clock, as PyTorch's profiler does
// (the CPU's cycle counter), which then stays for the rest of the process's life. Such a clock is
// converted from two readings taken some time apart. Injector's thread.

#include <cstdint>

namespace gpuperf::injector {

// One reading of both clocks.
struct ClockPair {
  uint64_t cupti = 0;     // in any unit
  uint64_t unix_ns = 0;   // at the midpoint of the reading
  uint64_t error_ns = 0;  // half the duration of the reading
  int64_t offset_ns = 0;  // CLOCK_REALTIME - CLOCK_MONOTONIC
};

class CuptiClock {
 public:
  // Reads both clocks again. `read` is cuptiGetTimestamp. If it fails, nothing changes.
  using Read = bool (*)(uint64_t& cupti);
  void check(Read read);
  // Discards all readings, because another clock may be in use.
  void forget();

  // False: a second reading is needed first.
  bool can_convert() const;
  bool is_foreign() const { return is_foreign_; }
  // Maximum error of a converted time; 0 = unknown.
  uint64_t error_ns() const { return error_ns_; }
  // Converts a CUPTI time to CLOCK_REALTIME; 0 = not convertible yet, or no time.
  uint64_t to_unix_ns(uint64_t cupti) const;

 private:
  static constexpr uint64_t kShortestBaseNs = 50'000'000;  // between pairs; below, errors dominate

  ClockPair first_;
  ClockPair last_;
  uint32_t pairs_ = 0;
  bool is_foreign_ = false;
  uint64_t error_ns_ = 0;
};

}  // namespace gpuperf::injector
