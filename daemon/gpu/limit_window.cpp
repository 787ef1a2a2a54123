#include "daemon/gpu/limit_window.h"

#include <algorithm>

namespace gpuperf {
namespace {

// Time a limit was active between two looks.
uint64_t measure_active(size_t limit, bool is_active, uint64_t elapsed_ns,
                        const LimitWindow::Look& before, const LimitWindow::Look& now) {
  const auto& old_total = before.total_ns[limit];
  const auto& new_total = now.total_ns[limit];
  if (!old_total || !new_total) return is_active ? elapsed_ns : 0;
  // Smaller than before: the driver was loaded anew. More than the time that passed: the driver
  // advances its counters in steps.
  const uint64_t gained = *new_total >= *old_total ? *new_total - *old_total : *new_total;
  return std::min(gained, elapsed_ns);
}

}  // namespace

void LimitWindow::add(const Look& look) {
  Step step{.mono_ns = look.mono_ns};
  if (last_)
    step.elapsed_ns = static_cast<uint64_t>(std::max<int64_t>(look.mono_ns - last_->mono_ns, 0));
  for (const ClockLimitRow& row : clock_limit_rows()) {
    const auto limit = static_cast<size_t>(row.limit);
    ClockLimitState& state = states_[limit];
    const bool is_active = look.active_bits && (*look.active_bits & row.bit) != 0;
    if (last_) {
      step.active_ns[limit] = measure_active(limit, is_active, step.elapsed_ns, *last_, look);
    }
    state.since_mono_ns = !is_active ? 0 : state.is_active ? state.since_mono_ns : look.mono_ns;
    state.is_active = is_active;
    state.total_ns = look.total_ns[limit];
  }
  if (last_) steps_.push_back(step);
  last_ = look;
  while (!steps_.empty() && steps_.front().mono_ns <= look.mono_ns - kSpan.count()) {
    steps_.pop_front();
  }
  uint64_t elapsed_ns = 0;
  std::array<uint64_t, kClockLimits> active_ns{};
  for (const Step& kept : steps_) {
    elapsed_ns += kept.elapsed_ns;
    for (size_t i = 0; i < kClockLimits; ++i) active_ns[i] += kept.active_ns[i];
  }
  for (size_t i = 0; i < kClockLimits; ++i) {
    states_[i].minute_ratio =
        elapsed_ns == 0 ? 0 : static_cast<double>(active_ns[i]) / static_cast<double>(elapsed_ns);
  }
}

}  // namespace gpuperf
