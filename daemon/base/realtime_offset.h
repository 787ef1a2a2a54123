#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "daemon/base/clock.h"

namespace gpuperf {

// Turns CLOCK_REALTIME stamps of this host into CLOCK_MONOTONIC ones.
//
// Thread: one. The clock must outlive it.
// REALTIME - MONOTONIC is one constant integer for as long as nobody sets the wall clock: slewing
// (NTP) moves both clocks alike. So each sample, a REALTIME read between two MONOTONIC reads, only
// narrows the interval in which that integer lies, and one that contradicts it is a step: set time,
// a leap second, a suspend. Stamps from before a step are converted with the offset of then.
// Bounds: kMaxSegments steps are remembered; stamps from before the oldest are off by what the
// forgotten steps were.
class RealtimeOffset {
 public:
  static constexpr size_t kMaxSegments = 64;

  struct Step {
    int64_t mono_ns = 0;  // when it was seen
    int64_t step_ns = 0;  // above 0: the wall clock went forward
    bool operator==(const Step&) const = default;
  };
  struct Moment {
    int64_t mono_ns = 0;
    bool is_near_step = false;  // may be off by the step: it has two meanings, or none
    bool operator==(const Moment&) const = default;
  };

  explicit RealtimeOffset(const Clock& clock);

  // Costs three clock reads. The step, when there was one since the last sample.
  std::optional<Step> sample();
  // |unix_ns| must be below 2^62.
  Moment mono_from_unix_ns(int64_t unix_ns) const {
    if (unix_ns >= settled_unix_ns_) return {unix_ns - newest_ns_, false};
    return convert(unix_ns);
  }
  // A converted stamp is off by no more, steps aside.
  int64_t error_ns() const;

 private:
  struct Interval {
    int64_t low_ns = 0;
    int64_t high_ns = 0;
    int64_t middle_ns() const { return low_ns + (high_ns - low_ns) / 2; }
  };
  struct Segment {
    int64_t after_mono_ns = 0;  // the offset before was still seen in force then
    int64_t from_mono_ns = 0;   // seen in force from then on
    Interval offset;
  };

  Moment convert(int64_t unix_ns) const;
  void settle();

  const Clock& clock_;
  // Stamps from here on can only be of after the last step: all of them, but while one is new.
  int64_t settled_unix_ns_ = INT64_MIN;
  int64_t newest_ns_ = 0;         // the newest offset
  std::deque<Segment> segments_;  // ascending, never empty
  int64_t last_mono_ns_ = 0;      // of the last sample
};

}  // namespace gpuperf
