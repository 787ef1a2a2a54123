#include "daemon/state/overhead_trial.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace gpuperf {
namespace {

// How many of `pairs` sorted values, of kPairsMin at least, lie outside of the 95 % interval of the
// median, at either end: the most that leave 2.5 % at most to chance there, by the binomial
// distribution.
uint32_t count_outside(uint32_t pairs) {
  double probability = std::pow(0.5, pairs);  // that so many lie below the true median
  double sum = probability;
  for (uint32_t outside = 0;; ++outside) {
    probability *= static_cast<double>(pairs - outside) / (outside + 1);
    sum += probability;
    if (sum > 0.025) return outside;
  }
}

}  // namespace

void OverheadTrial::add_estimate(const ProcessKey& process, double ratio) {
  Estimate& estimate = estimates_[process];
  estimate.sum += ratio;
  ++estimate.count;
}

void OverheadTrial::begin_slice(bool is_observed) {
  is_in_slice_ = true;
  is_observed_ = is_observed;
  for (auto& [key, process] : processes_) process.slice.reset();
}

void OverheadTrial::apply(const ProcessKey& key, const Owner& owner, const Progress& progress) {
  if (!is_in_slice_ || progress.calls == 0) return;
  Process& process = processes_[key];
  process.owner = owner;
  if (!process.slice) process.slice = Slice{.first = progress, .last = progress};
  process.slice->last = progress;
}

void OverheadTrial::end_slice() {
  if (!std::exchange(is_in_slice_, false)) return;
  ++slices_;
  for (auto& [key, process] : processes_) {
    end_slice(process);
    if (slices_ % 2 != 0) continue;  // half a pair
    if (process.rates[0] && process.rates[1]) {
      process.lost_ratios.push_back(1 - *process.rates[1] / *process.rates[0]);
    }
    process.rates[0].reset();
    process.rates[1].reset();
  }
}

void OverheadTrial::end_slice(Process& process) const {
  std::optional<double>& rate = process.rates[is_observed_ ? 1 : 0];
  rate.reset();
  if (!process.slice) return;
  const auto& [first, last] = *process.slice;
  // Both are what the process says.
  if (last.mono_ns < first.mono_ns || last.mono_ns - first.mono_ns < kSliceNsMin) return;
  if (last.calls <= first.calls) return;
  const auto calls = static_cast<double>(last.calls - first.calls);
  const double seconds = static_cast<double>(last.mono_ns - first.mono_ns) / 1e9;
  rate = calls / seconds;
  if (is_observed_) return;
  process.calls += calls;
  process.seconds += seconds;
}

std::vector<OverheadMeasurement> OverheadTrial::measure() const {
  std::vector<OverheadMeasurement> measured;
  for (const auto& [key, process] : processes_) {
    const auto pairs = static_cast<uint32_t>(process.lost_ratios.size());
    if (pairs < kPairsMin) continue;
    std::vector<double> sorted = process.lost_ratios;
    std::ranges::sort(sorted);
    const uint32_t outside = count_outside(pairs);
    const auto estimate = estimates_.find(key);
    measured.push_back({.process = key,
                        .owner = process.owner,
                        .ratio = (sorted[(pairs - 1) / 2] + sorted[pairs / 2]) / 2,
                        .low_ratio = sorted[outside],
                        .high_ratio = sorted[pairs - 1 - outside],
                        .estimated_ratio = estimate == estimates_.end()
                                               ? 0
                                               : estimate->second.sum / estimate->second.count,
                        .pairs = pairs,
                        .calls_per_second = process.calls / process.seconds});
  }
  return measured;
}

}  // namespace gpuperf
