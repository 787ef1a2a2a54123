#include "daemon/state/sampled_function.h"

#include <algorithm>
#include <limits>

namespace gpuperf {
namespace {

// A process that uses so many CPUs does nothing but run: what the probe takes, it has less of.
constexpr double kBusyCpus = 0.9;
// A probe may cost so many times what was calibrated: 30 us a call instead of 12.5 was seen for a
// stepped instruction in a virtual machine.
constexpr double kCostFactor = 2.5;
// A probe that may take more of a window than this says nothing of how often its function would be
// called without it.
constexpr double kMaxShare = 0.6;

double fit_share(double share) { return std::min(share, kMaxShare); }

}  // namespace

void SampledFunction::begin_gap(int64_t now_mono_ns) {
  if (gap_begin_ns_ == 0 && !is_window_open_) gap_begin_ns_ = now_mono_ns;
}

void SampledFunction::open_window() {
  is_window_open_ = true;
  counts_.clear();
}

void SampledFunction::apply(const CellDelta& delta) {
  const uint64_t trapped = delta.calls - std::min(delta.calls, delta.hooked);
  if (!is_window_open_ || trapped == 0) return;
  Count& count = counts_[delta.process];
  count.calls += trapped;
  count.slow_calls += delta.slow_calls;
}

SampledFunction::Estimates SampledFunction::close_window(int64_t begin_mono_ns, int64_t end_mono_ns,
                                                         uint64_t cost_ns,
                                                         const GetCpus& get_cpus) {
  is_window_open_ = false;
  if (end_mono_ns <= begin_mono_ns) return {};  // it is in no file
  const auto length_ns = static_cast<double>(end_mono_ns - begin_mono_ns);
  std::map<ProcessKey, Rate> rates;
  double worst = 0;
  for (const auto& [process, count] : counts_) {
    const double cpus = get_cpus(process);
    const auto calls = static_cast<double>(count.calls);
    const double share = calls * static_cast<double>(cost_ns) / (length_ns * std::max(cpus, 1.0));
    worst = std::max(worst, share);
    // Without the probe, if the process runs all the time; one that waits may call no more often.
    const double counted = calls / length_ns;
    const double free = counted / (1 - fit_share(share));
    const double most = counted / (1 - fit_share(kCostFactor * share));
    const double expected = cpus >= kBusyCpus ? free : (counted + free) / 2;
    const bool is_known = kCostFactor * share <= kMaxShare;
    rates[process] = {.calls_per_ns = expected,
                      .slow_per_ns = static_cast<double>(count.slow_calls) / length_ns,
                      .variance = calls / (length_ns * length_ns),
                      .bias_per_ns = is_known ? std::max(most - expected, expected - counted)
                                              : std::numeric_limits<double>::infinity()};
  }
  shares_.push_back(worst);
  if (shares_.size() > kRememberedWindows) shares_.pop_front();
  Estimates estimates = fill_gaps(begin_mono_ns, rates);
  gap_begin_ns_ = end_mono_ns;
  rates_ = std::move(rates);
  counts_.clear();
  return estimates;
}

SampledFunction::Estimates SampledFunction::leave(int64_t now_mono_ns) {
  return fill_gaps(now_mono_ns, rates_);
}

CallsEstimate SampledFunction::forget(const ProcessKey& process, int64_t now_mono_ns) {
  CallsEstimate missed;
  const auto known = rates_.find(process);
  if (known != rates_.end()) {
    if (gap_begin_ns_ != 0 && now_mono_ns > gap_begin_ns_) {
      const auto gap_ns = static_cast<double>(now_mono_ns - gap_begin_ns_);
      missed = fill_gap(gap_ns, known->second, known->second);
    }
    rates_.erase(known);
  }
  counts_.erase(process);
  return missed;
}

double SampledFunction::worst_share_ratio() const { return *std::ranges::max_element(shares_); }

int64_t SampledFunction::get_out_ns(int64_t now_mono_ns) const {
  return out_ns_ + (gap_begin_ns_ == 0 ? 0 : std::max<int64_t>(now_mono_ns - gap_begin_ns_, 0));
}

CallsEstimate SampledFunction::fill_gap(double gap_ns, const Rate& before, const Rate& after) {
  const double step = before.calls_per_ns - after.calls_per_ns;
  return {.calls = gap_ns * (before.calls_per_ns + after.calls_per_ns) / 2,
          .slow_calls = gap_ns * (before.slow_per_ns + after.slow_per_ns) / 2,
          .variance = gap_ns * gap_ns * (step * step / 2 + (before.variance + after.variance) / 4),
          .bias_calls = gap_ns * (before.bias_per_ns + after.bias_per_ns) / 2};
}

// Ends the gap.
SampledFunction::Estimates SampledFunction::fill_gaps(int64_t end_mono_ns,
                                                      const std::map<ProcessKey, Rate>& after) {
  Estimates estimates;
  if (gap_begin_ns_ == 0 || end_mono_ns <= gap_begin_ns_) return estimates;
  const auto gap_ns = static_cast<double>(end_mono_ns - gap_begin_ns_);
  out_ns_ += end_mono_ns - gap_begin_ns_;
  gap_begin_ns_ = 0;
  const bool is_first = std::exchange(is_first_gap_, false);
  for (const auto& [process, rate] : after) {
    const auto before = rates_.find(process);
    const Rate none;
    const Rate& first = is_first ? rate : none;
    estimates.emplace_back(process,
                           fill_gap(gap_ns, before == rates_.end() ? first : before->second, rate));
  }
  for (const auto& [process, rate] : rates_) {
    if (!after.contains(process)) estimates.emplace_back(process, fill_gap(gap_ns, rate, {}));
  }
  return estimates;
}

}  // namespace gpuperf
