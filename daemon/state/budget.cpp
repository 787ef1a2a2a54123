#include "daemon/state/budget.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace gpuperf {
namespace {

// A reading older than this says too little about the CPU time of the last window.
constexpr int64_t kKeepReadingNs = 60'000'000'000;
constexpr uint32_t kTrialWindows = 2;

}  // namespace

Budget::Budget(const Limits& limits, int64_t now_mono_ns)
    : limits_(limits), window_start_ns_(now_mono_ns) {}

void Budget::set_cost(uint32_t function_id, uint64_t cost_ns, int64_t now_mono_ns) {
  loop_thread_.check();
  FunctionState& state = functions_[function_id];
  state.cost_ns = cost_ns;
  if (!state.probed_since_ns) state.probed_since_ns = now_mono_ns;
}

void Budget::apply(const CellDelta& delta) {
  loop_thread_.check();
  const uint64_t trapped = delta.calls - std::min(delta.calls, delta.hooked);
  if (trapped == 0) return;
  ProcessWindow& process = window_[delta.process];
  process.owner = delta.owner;
  process.calls[delta.function_id] += trapped;
  FunctionState& state = functions_[delta.function_id];
  if (!state.probed_since_ns) state.probed_since_ns = window_start_ns_;
}

Budget::Decision Budget::judge(int64_t now_mono_ns, const ReadCpu& read_cpu_ns) {
  loop_thread_.check();
  Decision decision;
  if (now_mono_ns <= window_start_ns_) return decision;
  std::set<uint32_t> called;
  for (const auto& [process, window] : window_) {
    for (const auto& [function_id, calls] : window.calls) called.insert(function_id);
  }
  for (const Offender& offender : find_offenders(now_mono_ns, read_cpu_ns)) {
    relieve(offender, now_mono_ns, decision);
  }
  end_trials(called);
  resume_due(now_mono_ns, decision);
  std::erase_if(
      cpu_, [&](const auto& entry) { return now_mono_ns - entry.second.mono_ns > kKeepReadingNs; });
  window_.clear();
  window_start_ns_ = now_mono_ns;
  return decision;
}

// Sets overhead_. Those over the budget, the worst first: relieving them may be enough for the
// rest.
std::vector<Budget::Offender> Budget::find_offenders(int64_t now_mono_ns,
                                                     const ReadCpu& read_cpu_ns) {
  const auto elapsed_ns = static_cast<double>(now_mono_ns - window_start_ns_);
  std::vector<std::pair<double, Offender>> found;
  overhead_.clear();
  for (const auto& [process, window] : window_) {
    Offender offender{.process = process, .comm = window.owner.comm, .time_ns = elapsed_ns};
    double all_ns = 0, in_ns = 0;
    for (const auto& [function_id, calls] : window.calls) {
      const FunctionState& state = functions_[function_id];
      const double cost_ns = static_cast<double>(calls) * static_cast<double>(state.cost_ns);
      all_ns += cost_ns;
      if (state.suspension) continue;  // calls made before it was out
      in_ns += cost_ns;
      offender.costs.push_back({function_id, cost_ns});
    }
    if (limits_.percent > 0 && in_ns > allowed_ratio() * elapsed_ns) {
      offender.time_ns =
          std::max(elapsed_ns, read_process_time_ns(process, now_mono_ns, read_cpu_ns));
    }
    overhead_.push_back({process, window.owner, all_ns / offender.time_ns});
    if (limits_.percent <= 0 || in_ns <= allowed_ratio() * offender.time_ns) continue;
    found.emplace_back(in_ns / offender.time_ns, std::move(offender));
  }
  std::ranges::stable_sort(found, std::ranges::greater{}, &decltype(found)::value_type::first);
  std::vector<Offender> offenders;
  for (auto& [ratio, offender] : found) offenders.push_back(std::move(offender));
  return offenders;
}

// CPU time since the reading before. Without one, since the process began: what is too much of that
// is too much of any part of it, and the next window knows better.
double Budget::read_process_time_ns(const ProcessKey& process, int64_t now_mono_ns,
                                    const ReadCpu& read_cpu_ns) {
  const uint64_t cpu_ns = read_cpu_ns(process);
  const CpuReading before = std::exchange(cpu_[process], {cpu_ns, now_mono_ns});
  return cpu_ns > before.cpu_ns ? static_cast<double>(cpu_ns - before.cpu_ns) : 0;
}

void Budget::relieve(const Offender& offender, int64_t now_mono_ns, Decision& decision) {
  std::vector<Cost> costs;
  for (const Cost& cost : offender.costs) {
    if (!functions_[cost.function_id].suspension) costs.push_back(cost);
  }
  double left_ns = std::accumulate(costs.begin(), costs.end(), 0.0,
                                   [](double sum, const Cost& cost) { return sum + cost.ns; });
  const double allowed_ns = allowed_ratio() * offender.time_ns;
  if (left_ns <= allowed_ns) return;  // what a worse process lost was enough
  std::ranges::stable_sort(costs, std::ranges::greater{}, &Cost::ns);
  for (const Cost& cost : costs) {
    if (left_ns <= kTarget * allowed_ns) break;
    left_ns -= cost.ns;
    suspend(offender, cost, now_mono_ns, decision);
  }
}

void Budget::suspend(const Offender& offender, const Cost& cost, int64_t now_mono_ns,
                     Decision& decision) {
  FunctionState& state = functions_[cost.function_id];
  const std::chrono::nanoseconds in{now_mono_ns - state.returned_ns};
  if (state.pause.count() == 0 || in >= limits_.quiet) {
    state.pause = limits_.first_pause;
  } else if (state.trial_windows > 0) {
    state.pause = std::min<std::chrono::nanoseconds>(2 * state.pause, limits_.longest_pause);
  }
  state.times += 1;
  state.out_since_ns = now_mono_ns;
  state.suspension = Suspension{.function_id = cost.function_id,
                                .process = offender.process,
                                .comm = offender.comm,
                                .share_ratio = cost.ns / offender.time_ns,
                                .until_mono_ns = now_mono_ns + state.pause.count(),
                                .times = state.times};
  decision.suspend.push_back(*state.suspension);
}

void Budget::resume_due(int64_t now_mono_ns, Decision& decision) {
  const bool off = limits_.percent <= 0;
  for (auto& [function_id, state] : functions_) {
    if (!state.suspension || (!off && state.suspension->until_mono_ns > now_mono_ns)) continue;
    state.suspension.reset();
    state.out_ns += now_mono_ns - state.out_since_ns;
    state.returned_ns = now_mono_ns;
    state.trial_windows = kTrialWindows;
    decision.resume.push_back(function_id);
  }
}

void Budget::end_trials(const std::set<uint32_t>& called) {
  for (const uint32_t function_id : called) {
    FunctionState& state = functions_[function_id];
    if (!state.suspension && state.trial_windows > 0) --state.trial_windows;
  }
}

void Budget::fill(Snapshot& snapshot) const {
  snapshot.overhead = overhead_;
  for (const auto& [function_id, state] : functions_) {
    if (state.suspension) snapshot.suspensions.push_back(*state.suspension);
    if (state.times == 0) continue;  // never out: a missing entry says 1
    const int64_t now_ns = snapshot.taken_mono_ns;
    const int64_t since_ns = now_ns - *state.probed_since_ns;
    const int64_t out_ns = state.out_ns + (state.suspension ? now_ns - state.out_since_ns : 0);
    if (since_ns <= 0) continue;
    if (snapshot.coverage.size() <= function_id) snapshot.coverage.resize(function_id + 1, 1.0);
    snapshot.coverage[function_id] =
        static_cast<double>(since_ns - out_ns) / static_cast<double>(since_ns);
  }
}

}  // namespace gpuperf
