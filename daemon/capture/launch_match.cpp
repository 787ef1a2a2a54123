#include "daemon/capture/launch_match.h"

#include <algorithm>

namespace gpuperf {
namespace {

// From a hit to the start of its driver call there are some hundred ns, unless the thread lost the
// CPU in between; from one launch to the next 2.5 us at least (an empty kernel in a loop, H200).
constexpr uint64_t kUsualDelayNs = 2'000;

uint64_t find_last_hit_ns(const LaunchCall& call) {
  return call.is_hooked ? call.start_ns + (call.end_ns - call.start_ns) / 2 : call.end_ns;
}

class ThreadMatcher {
 public:
  ThreadMatcher(std::span<const LaunchHit> hits, const MatchOptions& options,
                LaunchMatches& matches)
      : hits_(hits), options_(options), matches_(matches) {}

  // Hits [first, end) come after the call before this one's end, and not after its own.
  void match(size_t first, size_t end, const LaunchCall& call, size_t call_index,
             uint64_t previous_end_ns) {
    if (first == end || !is_within(hits_[end - 1], call)) return;
    const LaunchHit& hit = hits_[end - 1];
    matches_.hit_of_call[call_index] = static_cast<uint32_t>(end - 1);
    matches_.kind[call_index] =
        is_sure(hit, call, previous_end_ns) ? LaunchMatch::kExact : LaunchMatch::kAmbiguous;
    if (call.is_driver && hit.mono_ns + kUsualDelayNs < call.start_ns) far_.push_back(call_index);
    // A runtime call may make several driver calls, for one copy in parts.
    for (size_t i = end; i-- > first && is_within(hits_[i], call);) {
      matches_.is_hit_used[i] = true;
      if (call.is_driver) break;
    }
  }

  void finish() {
    const bool are_hits_missing =
        options_.has_lost_hits ||
        (options_.has_lost_records &&
         std::ranges::find(matches_.kind, LaunchMatch::kNoHit) != matches_.kind.end());
    if (!are_hits_missing) return;
    for (const size_t call_index : far_) matches_.kind[call_index] = LaunchMatch::kAmbiguous;
  }

 private:
  bool is_within(const LaunchHit& hit, const LaunchCall& call) const {
    return call.is_driver || hit.mono_ns + options_.clock_error_ns >= call.start_ns;
  }

  bool is_sure(const LaunchHit& hit, const LaunchCall& call, uint64_t previous_end_ns) const {
    const uint64_t error_ns = options_.clock_error_ns;
    const bool is_next_to_another =
        hit.mono_ns < previous_end_ns + error_ns || hit.mono_ns + error_ns > call.end_ns;
    if (is_next_to_another && !call.is_hooked) return false;
    return !call.is_driver || call.driver_function == kNoIndex ||
           call.driver_function == hit.function;
  }

  const std::span<const LaunchHit> hits_;
  const MatchOptions& options_;
  LaunchMatches& matches_;
  std::vector<size_t> far_;  // calls whose hit is unusually far away
};

}  // namespace

LaunchMatches match_launches(std::span<const LaunchHit> hits, std::span<const LaunchCall> calls,
                             const MatchOptions& options) {
  LaunchMatches matches{.hit_of_call = std::vector<uint32_t>(calls.size(), LaunchMatches::kNone),
                        .kind = std::vector<LaunchMatch>(calls.size(), LaunchMatch::kNoHit),
                        .is_hit_used = std::vector<bool>(hits.size(), false)};
  ThreadMatcher matcher(hits, options, matches);
  size_t next = 0;
  uint32_t tid = 0;
  uint64_t previous_end_ns = 0;
  for (size_t i = 0; i < calls.size(); ++i) {
    const LaunchCall& call = calls[i];
    if (i == 0 || call.tid != tid) {
      tid = call.tid;
      previous_end_ns = 0;
      while (next < hits.size() && hits[next].tid < tid) ++next;
    }
    const size_t first = next;
    const uint64_t last_hit_ns = find_last_hit_ns(call);
    while (next < hits.size() && hits[next].tid == tid && hits[next].mono_ns <= last_hit_ns) ++next;
    matcher.match(first, next, call, i, previous_end_ns);
    previous_end_ns = call.end_ns;
  }
  matcher.finish();
  return matches;
}

}  // namespace gpuperf
