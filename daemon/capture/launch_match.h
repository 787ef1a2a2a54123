#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/model/capture.h"

namespace gpuperf {

// A probe's hit on a launch function of the driver.
struct LaunchHit {
  uint64_t mono_ns = 0;
  uint32_t tid = 0;
  uint32_t function = 0;  // of the caller's numbering, as in LaunchCall::driver_function
  uint64_t site_id = 0;
  uint32_t captured =
      0;  // of the caller's numbering: the graph it launches, 0 = none that is known
};

// An API record of a call that may launch.
struct LaunchCall {
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  uint32_t tid = 0;
  uint32_t correlation_id = 0;
  uint32_t callback_id = 0;
  bool is_driver = false;
  bool is_hooked = false;  // seen by the hook that made the hit: it starts when the hit was made
  bool has_failed = false;
  uint32_t driver_function = kNoIndex;  // of a driver call: the function whose hit it must be
};

struct MatchOptions {
  uint64_t clock_error_ns = 0;  // how far the two clocks may be apart
  bool has_lost_hits = false;   // of this process, in that time
  bool has_lost_records = false;
};

struct LaunchMatches {
  static constexpr uint32_t kNone = kNoIndex;
  std::vector<uint32_t> hit_of_call;  // by call: its hit
  std::vector<LaunchMatch> kind;      // by call
  std::vector<bool> is_hit_used;      // by hit: it belongs to a call, alone or with others
};

// Finds for every call the hit that was made in it, per thread.
//
// On one thread launch calls do not overlap, so the hit of a call comes after the end of the call
// before and before its own end: right before the start of a driver call, whose stamp is taken
// inside, or within a runtime call, which makes the driver call. The nearest such hit before a
// call's end is its own. Nothing is counted along, so what is lost costs its own match and shifts
// no other. Both are sorted: by tid, then hits by time and calls by end.
// A hooked call starts with its hit, so only hits in its first half count: the next hit may be
// closer to its end than the conversion between the clocks is exact. A driver call's hit must be of
// the very function the call is of; otherwise, or where times are closer than the clocks are known,
// the match is kAmbiguous. So is that of a hit unusually far from its call where hits were lost, or
// are missing beside lost records: it may be that of a call without a record. Records alone may be
// lost: each call's own hit is there.
LaunchMatches match_launches(std::span<const LaunchHit> hits, std::span<const LaunchCall> calls,
                             const MatchOptions& options);

}  // namespace gpuperf
