#include "daemon/model/snapshot.h"

#include <algorithm>
#include <cmath>

#include "daemon/model/trace_event.h"

namespace gpuperf {

const std::vector<StackFrame>& get_frames(const StackPtr& stack) {
  static const std::vector<StackFrame> kNone;
  return stack ? stack->frames : kNone;
}
namespace {

uint64_t min_of_set(uint64_t a, uint64_t b) {
  if (a == 0 || b == 0) return std::max(a, b);
  return std::min(a, b);
}

}  // namespace

CallsEstimate& CallsEstimate::operator+=(const CallsEstimate& other) {
  calls += other.calls;
  slow_calls += other.slow_calls;
  variance += other.variance;
  bias_calls += other.bias_calls;
  return *this;
}

double get_error_calls(const CallsEstimate& estimate) {
  constexpr double kDeviations = 1.96;
  return kDeviations * std::sqrt(estimate.variance) + estimate.bias_calls;
}

uint64_t get_error_count(const FunctionTotals& totals) {
  uint64_t sum = totals.other_errors;
  for (const auto& [code, count] : totals.errors) sum += count;
  return sum;
}

uint64_t get_in_flight(const FunctionTotals& totals) {
  const uint64_t ended = totals.histogram.count() + totals.abandoned + totals.untimed;
  return totals.calls > ended ? totals.calls - ended : 0;
}

void add_overhead(Snapshot& snapshot, const OverheadRow& row) {
  const auto known = std::ranges::find_if(snapshot.overhead, [&row](const OverheadRow& other) {
    return is_same_process(other.process, row.process);
  });
  if (known == snapshot.overhead.end()) return snapshot.overhead.push_back(row);
  known->ratio += row.ratio;
  known->hooks_ratio += row.hooks_ratio;
  known->cupti_ratio += row.cupti_ratio;
  known->thread_ratio = std::max(known->thread_ratio, row.thread_ratio);
  known->budget_ratio = std::max(known->budget_ratio, row.budget_ratio);
  known->correction *= row.correction;  // rows of other kinds of cost have 1
}

uint64_t count_running_processes(const Snapshot& snapshot) {
  const auto running = [](const ProcessRow& row) { return !row.exited && row.process.pid != 0; };
  return static_cast<uint64_t>(std::ranges::count_if(snapshot.processes, running));
}

const ProcessRow* find_process(const Snapshot& snapshot, const ProcessKey& process) {
  const auto found =
      std::ranges::lower_bound(snapshot.processes, process, {}, &ProcessRow::process);
  const bool known = found != snapshot.processes.end() && found->process == process;
  return known ? &*found : nullptr;
}

const Owner& get_owner(const Snapshot& snapshot, const ProcessKey& process) {
  static const Owner kUnknown;
  const ProcessRow* row = find_process(snapshot, process);
  return row == nullptr ? kUnknown : row->owner;
}

double get_coverage(const Snapshot& snapshot, uint32_t function_id) {
  return function_id < snapshot.coverage.size() ? snapshot.coverage[function_id] : 1;
}

uint64_t get_adaptive_threshold_ns(const Snapshot& snapshot, uint32_t function_id) {
  const auto& thresholds_ns = snapshot.adaptive_threshold_ns;
  return function_id < thresholds_ns.size() ? thresholds_ns[function_id] : 0;
}

uint64_t get_age_ns(const InFlightCalls& look, const InFlightCall& call) {
  // A call may begin while the look goes on.
  return look.look_mono_ns - std::min(look.look_mono_ns, call.start_mono_ns);
}

long double get_flops(const ShapeRow& row) {
  const auto& [m, n, k, batch] = row.dimensions;
  // One call's as the kernel computes it.
  return static_cast<long double>(2 * m * n * k * batch) * static_cast<long double>(row.calls);
}

void add_delta(FunctionTotals& totals, const CellDelta& delta) {
  totals.calls += delta.calls;
  totals.hooked += delta.hooked;
  // A call given up for lost may come back, and then may be counted elsewhere: never below nothing.
  const auto came_back = static_cast<uint64_t>(std::max<int64_t>(-delta.abandoned, 0));
  totals.abandoned += static_cast<uint64_t>(std::max<int64_t>(delta.abandoned, 0));
  totals.abandoned -= std::min(totals.abandoned, came_back);
  totals.untimed += delta.untimed;
  totals.total_ns += delta.total_ns;
  totals.self_ns += delta.self_ns;
  totals.min_ns = min_of_set(totals.min_ns, delta.min_ns);
  totals.max_ns = std::max(totals.max_ns, delta.max_ns);
  totals.slow_calls += delta.slow_calls;
  totals.other_errors += delta.other_errors;
  totals.flops += static_cast<long double>(delta.flops);
  for (size_t i = 0; i < totals.bytes.size(); ++i) totals.bytes[i] += delta.bytes[i];
  for (const auto& [code, count] : delta.errors) totals.errors[code] += count;
  for (const auto& [bucket, count] : delta.buckets) totals.histogram.add(bucket, count);
}

void merge_totals(FunctionTotals& totals, const FunctionTotals& other) {
  totals.calls += other.calls;
  totals.hooked += other.hooked;
  totals.past_hooks += other.past_hooks;
  totals.missed += other.missed;
  totals.abandoned += other.abandoned;
  totals.untimed += other.untimed;
  totals.total_ns += other.total_ns;
  totals.self_ns += other.self_ns;
  totals.min_ns = min_of_set(totals.min_ns, other.min_ns);
  totals.max_ns = std::max(totals.max_ns, other.max_ns);
  totals.slow_calls += other.slow_calls;
  totals.other_errors += other.other_errors;
  totals.flops += other.flops;
  for (size_t i = 0; i < totals.bytes.size(); ++i) totals.bytes[i] += other.bytes[i];
  for (const auto& [code, count] : other.errors) totals.errors[code] += count;
  totals.histogram.merge(other.histogram);
}

}  // namespace gpuperf
