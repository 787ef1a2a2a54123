#pragma once

// Whether CUPTI's times are CLOCK_REALTIME, and their conversion where they are not.
//
// CUPTI takes CLOCK_REALTIME unless a client registers a clock of its own, as PyTorch's profiler
// does (the CPU's cycle counter), for the rest of the process's life. Such a clock is converted by
// two readings a while apart. Injector's thread.

#include <cstdint>

namespace gpuperf::injector {

// One reading of both clocks.
struct ClockPair {
  uint64_t cupti = 0;     // in whatever unit
  uint64_t unix_ns = 0;   // in the middle of the reading
  uint64_t error_ns = 0;  // half of how long the reading took
  int64_t offset_ns = 0;  // CLOCK_REALTIME - CLOCK_MONOTONIC
};

class CuptiClock {
 public:
  // Reads both clocks again. `read` is cuptiGetTimestamp. Without an answer nothing changes.
  using Read = bool (*)(uint64_t& cupti);
  void check(Read read);
  // Another clock may be in force: what was learned is forgotten.
  void forget();

  // False: a second reading is needed first.
  bool can_convert() const;
  bool is_foreign() const { return is_foreign_; }
  // How far a converted time may be off; 0 = not known.
  uint64_t error_ns() const { return error_ns_; }
  // CLOCK_REALTIME of a time of CUPTI; 0 = cannot be told yet, or no time.
  uint64_t to_unix_ns(uint64_t cupti) const;

 private:
  static constexpr uint64_t kShortestBaseNs = 50'000'000;  // of two pairs: below, errors dominate

  ClockPair first_;
  ClockPair last_;
  uint32_t pairs_ = 0;
  bool is_foreign_ = false;
  uint64_t error_ns_ = 0;
};

}  // namespace gpuperf::injector
