#include "daemon/gpu/call_pace.h"

#include <algorithm>
#include <iterator>
#include <string>

namespace gpuperf {
namespace {

struct Row {
  GpuCall call;
  std::string_view name;
  std::chrono::seconds period;  // 0 = the interval of the source
};

// Periods: what can change while a kernel runs is read every interval; error counts and processes
// change rarely, and their calls hold the driver's lock longest; the rest changes by hand only.
constexpr Row kRows[] = {
    {GpuCall::kFields, "field values", std::chrono::seconds(0)},
    {GpuCall::kUtilization, "utilization", std::chrono::seconds(0)},
    {GpuCall::kMemory, "memory", std::chrono::seconds(0)},
    {GpuCall::kClocks, "clocks", std::chrono::seconds(0)},
    {GpuCall::kClockLimits, "clock limits", std::chrono::seconds(0)},
    {GpuCall::kTemperature, "temperature", std::chrono::seconds(0)},
    {GpuCall::kEcc, "memory errors", std::chrono::seconds(10)},
    {GpuCall::kProcesses, "processes", std::chrono::seconds(10)},
    {GpuCall::kPcie, "PCIe link", std::chrono::seconds(10)},
    // The shortest window that GPM's counters are exact for is 100 ms; a second costs a tenth of
    // it.
    {GpuCall::kCounters, "hardware counters", std::chrono::seconds(1)},
    {GpuCall::kRepair, "remapped rows", std::chrono::seconds(60)},
    {GpuCall::kInventory, "inventory", std::chrono::seconds(60)},
};
static_assert(std::size(kRows) == kGpuCalls);

}  // namespace

CallPace::CallPace(std::chrono::nanoseconds interval) : interval_(interval) {}

bool CallPace::is_due(GpuCall call, int64_t now_mono_ns) const {
  return now_mono_ns >= kinds_[static_cast<size_t>(call)].due_mono_ns;
}

void CallPace::finish(int64_t now_mono_ns) {
  for (const Row& row : kRows) {
    Kind& kind = kinds_[static_cast<size_t>(row.call)];
    if (now_mono_ns < kind.due_mono_ns) continue;
    const std::chrono::nanoseconds period =
        std::max<std::chrono::nanoseconds>(row.period, interval_);
    // Half an interval early: rounds come a little early or late, and none is to be missed.
    kind.due_mono_ns = now_mono_ns + (period * kind.slow_down - interval_ / 2).count();
  }
}

void CallPace::reset() {
  for (Kind& kind : kinds_) kind.due_mono_ns = 0;
}

void CallPace::add(GpuCall call, std::chrono::nanoseconds duration) {
  Kind& kind = kinds_[static_cast<size_t>(call)];
  const auto duration_ns = static_cast<uint64_t>(std::max<int64_t>(duration.count(), 0));
  if (kind.recent_ns.size() < kWindow) {
    kind.recent_ns.push_back(duration_ns);
  } else {
    kind.recent_ns[kind.calls % kWindow] = duration_ns;
  }
  ++kind.calls;
  kind.max_ns = std::max(kind.max_ns, duration_ns);
  const bool far_too_slow = duration > kFarTooSlow;
  if (!far_too_slow && (kind.recent_ns.size() < kWindow || kind.calls % kWindow != 0)) return;
  const auto p99 = std::chrono::nanoseconds(get_p99_ns(kind));
  if (far_too_slow || p99 > kSlow) {
    kind.slow_down = std::min(kind.slow_down * 2, kMaxSlowDown);
  } else if (p99 < kSlow / 2) {
    kind.slow_down = std::max(kind.slow_down / 2, 1u);
  }
}

uint64_t CallPace::get_p99_ns(const Kind& kind) {
  if (kind.recent_ns.empty()) return 0;
  std::vector<uint64_t> sorted = kind.recent_ns;
  const size_t rank = (sorted.size() * 99 + 99) / 100 - 1;  // nearest rank, from 0
  std::ranges::nth_element(sorted, sorted.begin() + static_cast<std::ptrdiff_t>(rank));
  return sorted[rank];
}

std::vector<GpuCallCost> CallPace::costs() const {
  std::vector<GpuCallCost> costs;
  for (const Row& row : kRows) {
    const Kind& kind = kinds_[static_cast<size_t>(row.call)];
    if (kind.calls == 0) continue;
    costs.push_back({.call = std::string(row.name),
                     .calls = kind.calls,
                     .p99_ns = get_p99_ns(kind),
                     .max_ns = kind.max_ns,
                     .slow_down = kind.slow_down});
  }
  return costs;
}

}  // namespace gpuperf
