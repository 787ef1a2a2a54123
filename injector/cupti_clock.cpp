#include "injector/cupti_clock.h"

#include <algorithm>

#include "injector/clocks.h"

namespace gpuperf::injector {
namespace {

// Takes the best of a few readings: an interrupted one takes longer than the others, and where the
// machine is busy several in a row are.
constexpr int kReadings = 16;

bool read_pair(CuptiClock::Read read, ClockPair& best, bool& is_inside) {
  best = {};
  for (int i = 0; i < kReadings; ++i) {
    uint64_t cupti = 0;
    const uint64_t before = read_unix_ns();
    if (!read(cupti)) return false;
    const uint64_t after = read_unix_ns();
    if (after < before) continue;  // the wall clock was set back meanwhile
    const ClockPair pair = {cupti, before + (after - before) / 2, (after - before) / 2 + 1};
    if (best.error_ns != 0 && pair.error_ns >= best.error_ns) continue;
    best = pair;
    is_inside = cupti >= before && cupti <= after;
  }
  best.offset_ns = static_cast<int64_t>(read_mono_to_unix_ns());
  return best.error_ns != 0;
}

// Well above what two consecutive readings may differ by, below what matters to anyone.
constexpr int64_t kStepNs = 1'000'000;

}  // namespace

void CuptiClock::forget() { *this = {}; }

void CuptiClock::check(Read read) {
  ClockPair pair;
  bool is_inside = false;
  if (!read_pair(read, pair, is_inside)) return;
  if (pairs_ > 0 && is_inside == is_foreign_) forget();  // the clock was replaced
  // The wall clock was set: pairs from before and after give no slope.
  const int64_t step_ns = pair.offset_ns - last_.offset_ns;
  if (pairs_ > 0 && (step_ns > kStepNs || step_ns < -kStepNs)) forget();
  is_foreign_ = !is_inside;
  if (pairs_ == 0) first_ = pair;
  last_ = pair;
  if (pairs_ < 2) ++pairs_;
  if (is_foreign_) {
    error_ns_ = first_.error_ns + last_.error_ns;
    return;
  }
  // Inside the brackets: CUPTI reads the same clock, at most one call's duration apart. What a
  // short reading has shown holds until the clock is replaced, however long later ones take.
  const uint64_t seen_ns = pair.error_ns * 2;
  error_ns_ = error_ns_ == 0 ? seen_ns : std::min(error_ns_, seen_ns);
}

bool CuptiClock::can_convert() const {
  if (!is_foreign_) return true;
  return pairs_ == 2 && last_.unix_ns - first_.unix_ns >= kShortestBaseNs &&
         last_.cupti > first_.cupti;
}

uint64_t CuptiClock::to_unix_ns(uint64_t cupti) const {
  if (cupti == 0 || !is_foreign_) return cupti;
  if (!can_convert()) return 0;
  const uint64_t base_ns = last_.unix_ns - first_.unix_ns;
  const long double ns_per_tick =
      static_cast<long double>(base_ns) / static_cast<long double>(last_.cupti - first_.cupti);
  const long double since_last =
      static_cast<long double>(static_cast<int64_t>(cupti - last_.cupti)) * ns_per_tick;
  return last_.unix_ns + static_cast<uint64_t>(static_cast<int64_t>(since_last));
}

}  // namespace gpuperf::injector
