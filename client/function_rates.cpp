#include "client/function_rates.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace gpuperf::client {
namespace {

constexpr double kNsPerSecond = 1e9;

// What came between two readings of a counter. One that has fallen began anew: the daemon was
// restarted.
uint64_t subtract(uint64_t now, uint64_t before) { return now >= before ? now - before : now; }

uint64_t count_completed(const v1::FunctionStats& row) {
  const uint64_t open = row.in_flight() + row.abandoned() + row.untimed();
  return row.calls() > open ? row.calls() - open : 0;
}

// The daemon's own moments, because its totals are up to a second older than the answer. While
// nothing happens it goes on showing the same moment: then our clock is nearer to the truth.
double find_interval_seconds(const FunctionTotalsSample& before, const FunctionTotalsSample& now) {
  const double asked = static_cast<double>(now.asked_mono_ns - before.asked_mono_ns) / kNsPerSecond;
  if (now.taken_mono_ns <= before.taken_mono_ns) return asked;
  const double taken = static_cast<double>(now.taken_mono_ns - before.taken_mono_ns) / kNsPerSecond;
  return taken > 2 * asked ? asked : taken;
}

// Of the calls that completed between the two; 0 = none.
uint64_t compute_p99_ns(const v1::FunctionStats& before, const v1::FunctionStats& now) {
  std::map<uint64_t, uint64_t> earlier;  // calls by duration
  for (const v1::DurationBucket& bucket : before.buckets()) {
    earlier[bucket.duration_ns()] = bucket.calls();
  }
  std::map<uint64_t, uint64_t> counts;
  uint64_t total = 0;
  for (const v1::DurationBucket& bucket : now.buckets()) {
    const uint64_t count = subtract(bucket.calls(), earlier[bucket.duration_ns()]);
    counts[bucket.duration_ns()] = count;
    total += count;
  }
  const uint64_t above = total / 100;  // calls that may be longer
  uint64_t seen = 0;
  for (const auto& [duration_ns, count] : counts) {
    seen += count;
    if (count != 0 && seen + above >= total) return duration_ns;
  }
  return 0;
}

FunctionRate compute_rate(const v1::FunctionStats& before, const v1::FunctionStats& now,
                          double seconds) {
  const auto per_second = [&](uint64_t now_count, uint64_t before_count) {
    return seconds > 0 ? static_cast<double>(subtract(now_count, before_count)) / seconds : 0;
  };
  const uint64_t completed = subtract(count_completed(now), count_completed(before));
  const uint64_t time_ns = subtract(now.total_ns(), before.total_ns());
  return {.category = now.category(),
          .function = now.function(),
          .pid = now.pid(),
          .comm = now.comm(),
          .time_ratio = per_second(now.total_ns(), before.total_ns()) / kNsPerSecond,
          .calls_per_second = per_second(now.calls(), before.calls()),
          .errors_per_second = per_second(now.errors(), before.errors()),
          .bytes_per_second = per_second(now.bytes(), before.bytes()),
          .avg_ns = completed == 0 ? 0 : time_ns / completed,
          .p99_ns = compute_p99_ns(before, now),
          .in_flight = now.in_flight(),
          .oldest_in_flight_ns = now.oldest_in_flight_ns(),
          .coverage = now.coverage()};
}

}  // namespace

FunctionRates compute_rates(const FunctionTotalsSample& before, const FunctionTotalsSample& now) {
  std::map<std::tuple<std::string, std::string, uint32_t>, const v1::FunctionStats*> known;
  for (const v1::FunctionStats& row : before.functions) {
    known[{row.category(), row.function(), row.pid()}] = &row;
  }
  FunctionRates rates = {.interval_seconds = find_interval_seconds(before, now), .functions = {}};
  for (const v1::FunctionStats& row : now.functions) {
    const auto found = known.find({row.category(), row.function(), row.pid()});
    const v1::FunctionStats& earlier =
        found == known.end() ? v1::FunctionStats::default_instance() : *found->second;
    FunctionRate rate = compute_rate(earlier, row, rates.interval_seconds);
    const bool idle = rate.calls_per_second == 0 && rate.time_ratio == 0 && rate.in_flight == 0;
    if (!idle) rates.functions.push_back(std::move(rate));
  }
  std::ranges::stable_sort(rates.functions, std::greater(), [](const FunctionRate& rate) {
    return std::tuple(rate.time_ratio, rate.calls_per_second);
  });
  return rates;
}

}  // namespace gpuperf::client
