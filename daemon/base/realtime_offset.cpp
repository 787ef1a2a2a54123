#include "daemon/base/realtime_offset.h"

#include <algorithm>

namespace gpuperf {
namespace {

// Less is no step: the kernel rounds both clocks to whole nanoseconds on its own, and intervals
// that have become this narrow may miss each other by that.
constexpr int64_t kSmallestStepNs = 100;

}  // namespace

RealtimeOffset::RealtimeOffset(const Clock& clock) : clock_(clock) {
  const int64_t before_ns = clock_.mono_ns();
  const int64_t unix_ns = clock_.unix_ns();
  const int64_t after_ns = clock_.mono_ns();
  segments_.push_back({.after_mono_ns = before_ns,
                       .from_mono_ns = before_ns,
                       .offset = {unix_ns - after_ns, unix_ns - before_ns}});
  last_mono_ns_ = after_ns;
  settle();
}

void RealtimeOffset::settle() {
  const Segment& last = segments_.back();
  newest_ns_ = last.offset.middle_ns();
  if (segments_.size() == 1) return;
  const int64_t before_ns = segments_[segments_.size() - 2].offset.middle_ns();
  settled_unix_ns_ = last.from_mono_ns + std::max(newest_ns_, before_ns) + 1;
}

std::optional<RealtimeOffset::Step> RealtimeOffset::sample() {
  const int64_t before_ns = clock_.mono_ns();
  const int64_t unix_ns = clock_.unix_ns();
  const int64_t after_ns = clock_.mono_ns();
  const Interval seen{unix_ns - after_ns, unix_ns - before_ns};
  Interval& known = segments_.back().offset;
  const int64_t apart_ns = std::max(seen.low_ns - known.high_ns, known.low_ns - seen.high_ns);
  const int64_t last_ns = last_mono_ns_;
  last_mono_ns_ = after_ns;
  if (apart_ns <= 0) {
    known = {std::max(known.low_ns, seen.low_ns), std::min(known.high_ns, seen.high_ns)};
    settle();
    return std::nullopt;
  }
  if (apart_ns <= kSmallestStepNs) {
    known = {std::min(known.low_ns, seen.low_ns), std::max(known.high_ns, seen.high_ns)};
    settle();
    return std::nullopt;
  }
  const Step step{.mono_ns = after_ns, .step_ns = seen.middle_ns() - known.middle_ns()};
  segments_.push_back({.after_mono_ns = last_ns, .from_mono_ns = after_ns, .offset = seen});
  if (segments_.size() > kMaxSegments) segments_.pop_front();
  settle();
  return step;
}

RealtimeOffset::Moment RealtimeOffset::convert(int64_t unix_ns) const {
  for (size_t i = segments_.size() - 1; i > 0; --i) {
    const Segment& segment = segments_[i];
    const int64_t mono_ns = unix_ns - segment.offset.middle_ns();
    // Set back, the wall clock shows a time twice: by the offset before, it had been shown already.
    const int64_t before_ns = unix_ns - segments_[i - 1].offset.middle_ns();
    const bool was_before = before_ns <= segment.from_mono_ns;
    if (mono_ns >= segment.after_mono_ns) {
      const bool is_before_next =
          i + 1 == segments_.size() || mono_ns <= segments_[i + 1].after_mono_ns;
      return {mono_ns, mono_ns < segment.from_mono_ns || was_before || !is_before_next};
    }
    // Set forward, it never shows the times between.
    if (!was_before) return {segment.from_mono_ns, true};
  }
  const int64_t mono_ns = unix_ns - segments_.front().offset.middle_ns();
  return {mono_ns, segments_.size() > 1 && mono_ns > segments_[1].after_mono_ns};
}

int64_t RealtimeOffset::error_ns() const {
  const Interval& offset = segments_.back().offset;
  return (offset.high_ns - offset.low_ns + 1) / 2;
}

}  // namespace gpuperf
