#include "daemon/state/qos_watch.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace gpuperf {
namespace {

// Of what came between two samples, interpolated within its bucket, as Prometheus does; what is
// beyond the last finite bound counts as that bound. nullopt: nothing came.
std::optional<double> find_quantile(const std::vector<QosBucket>& before,
                                    const std::vector<QosBucket>& after, double quantile) {
  std::vector<QosBucket> more;
  for (const QosBucket& bucket : after) {
    const auto same = std::ranges::find(before, bucket.bound, &QosBucket::bound);
    const uint64_t count = same == before.end() ? 0 : std::min(same->count, bucket.count);
    more.push_back({bucket.bound, bucket.count - count});
  }
  if (more.empty() || more.back().count == 0) return std::nullopt;
  const double rank = quantile * static_cast<double>(more.back().count);
  QosBucket lower;
  for (const QosBucket& bucket : more) {
    if (!std::isfinite(bucket.bound)) break;
    if (static_cast<double>(bucket.count) < rank || bucket.count <= lower.count) {
      lower = bucket;
      continue;
    }
    const double share =
        (rank - static_cast<double>(lower.count)) / static_cast<double>(bucket.count - lower.count);
    return lower.bound + (bucket.bound - lower.bound) * share;
  }
  return lower.bound;
}

}  // namespace

// Another program has started again, or series have gone: totals do not fall otherwise.
bool QosWatch::began_anew(const QosSample& sample) const {
  if (samples_.empty() || row_.rule.reading == QosRule::Reading::kValue) return false;
  const QosSample& last = samples_.back();
  const auto get_count = [](const QosSample& of) {
    return of.buckets.empty() ? of.count : of.buckets.back().count;
  };
  return get_count(sample) < get_count(last) || sample.sum < last.sum;
}

// Those within a fraction of the window of the one before are left out, but for the newest.
void QosWatch::keep(QosSample sample) {
  if (began_anew(sample)) samples_.clear();
  const int64_t step_ns = row_.rule.window_ns / static_cast<int64_t>(kSamples - 4);
  if (samples_.size() >= 2 && sample.mono_ns - samples_[samples_.size() - 2].mono_ns < step_ns) {
    samples_.pop_back();
  }
  samples_.push_back(std::move(sample));
  const int64_t begin_mono_ns = samples_.back().mono_ns - row_.rule.window_ns;
  while (samples_.size() > 2 && samples_[1].mono_ns <= begin_mono_ns) samples_.pop_front();
  while (samples_.size() > kSamples) samples_.pop_front();
}

// nullopt: there is nothing to read, or not for a whole window yet.
std::optional<double> QosWatch::read() const {
  const QosSample& first = samples_.front();
  const QosSample& last = samples_.back();
  const int64_t length_ns = last.mono_ns - first.mono_ns;
  if (length_ns < row_.rule.window_ns) return std::nullopt;
  switch (row_.rule.reading) {
    case QosRule::Reading::kValue: {
      // What held throughout.
      std::optional<double> least;
      for (const QosSample& sample : samples_) {
        if (!sample.value) return std::nullopt;
        const double before = least.value_or(*sample.value);
        least =
            row_.rule.is_upper ? std::min(before, *sample.value) : std::max(before, *sample.value);
      }
      return least;
    }
    case QosRule::Reading::kRate: {
      const bool is_histogram =
          row_.rule.url.empty() && get_metric(row_.rule.metric).type == MetricType::kHistogram;
      const double more = is_histogram
                              ? static_cast<double>(last.count) - static_cast<double>(first.count)
                              : last.sum - first.sum;
      return more / (static_cast<double>(length_ns) / 1e9);
    }
    case QosRule::Reading::kMean:
      if (last.count <= first.count) return std::nullopt;
      return (last.sum - first.sum) / static_cast<double>(last.count - first.count);
    case QosRule::Reading::kQuantile: {
      if (!row_.rule.url.empty()) {
        return find_quantile(first.buckets, last.buckets, row_.rule.quantile);
      }
      const Histogram durations = last.durations.without(first.durations);
      if (durations.count() == 0) return std::nullopt;
      return static_cast<double>(durations.quantile_ns(row_.rule.quantile)) / 1e9;
    }
  }
  return std::nullopt;
}

bool QosWatch::is_past(double value, double margin) const {
  const double margin_value = margin * std::abs(row_.rule.limit);
  return row_.rule.is_upper ? value > row_.rule.limit - margin_value
                            : value < row_.rule.limit + margin_value;
}

bool QosWatch::set_fault(std::string fault) {
  loop_thread_.check();
  return std::exchange(row_.fault, std::move(fault)) != row_.fault;
}

QosWatch::Change QosWatch::apply(std::optional<QosSample> sample, int64_t now_mono_ns) {
  loop_thread_.check();
  if (sample) {
    keep(*std::move(sample));
    row_.value = read();
  } else if (now_mono_ns - last_mono_ns() > row_.rule.window_ns) {
    row_.value.reset();
  }
  if (row_.value && is_past(*row_.value, row_.is_breached ? kHysteresis : 0)) {
    past_mono_ns_ = now_mono_ns;
    if (row_.is_breached) return Change::kNone;
    const bool is_soon = row_.breaches > 0 && now_mono_ns - row_.since_mono_ns < hold_ns_;
    hold_ns_ = is_soon ? std::min(2 * hold_ns_, kLongestHold * release_ns_) : release_ns_;
    row_.is_breached = true;
    row_.since_mono_ns = now_mono_ns;
    ++row_.breaches;
    return Change::kBreached;
  }
  if (!row_.is_breached || now_mono_ns - past_mono_ns_ < hold_ns_) return Change::kNone;
  row_.is_breached = row_.is_ours = false;
  row_.since_mono_ns = now_mono_ns;
  return Change::kReleased;
}

}  // namespace gpuperf
