#include "daemon/state/budget.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

namespace gpuperf {
namespace {

// A reading older than this says too little about the CPU time of now.
constexpr int64_t kKeepReadingNs = 300'000'000'000;
// Between two readings the budget is that of a whole second: a process that does little may do it
// at once.
constexpr double kSecondNs = 1e9;
// Of their part of the budget, what is left to probes however often hooked functions are called:
// hooks cannot be suspended.
constexpr double kProbesShareMin = 0.25;

}  // namespace

Budget::Budget(const OverheadLimits& limits, int64_t now_mono_ns)
    : limits_(limits), reading_start_ns_(now_mono_ns) {}

void Budget::set_cost(uint32_t function_id, uint64_t cost_ns, int64_t now_mono_ns) {
  loop_thread_.check();
  FunctionState& state = functions_[function_id];
  state.cost_ns = cost_ns;
  if (!state.probed_since_ns) state.probed_since_ns = now_mono_ns;
}

void Budget::set_standing_down(bool is_standing_down, int64_t now_mono_ns) {
  loop_thread_.check();
  if (std::exchange(is_standing_down_, is_standing_down) == is_standing_down) return;
  for (auto& [function_id, state] : functions_) {
    if (is_standing_down && state.probed_since_ns && !state.sampled) {
      state.is_standing_down = true;
      state.sampled.emplace(0.0);
      state.sampled->begin_gap(now_mono_ns);
    } else if (std::exchange(state.is_standing_down, false) && state.sampled) {
      end_sampling(function_id, now_mono_ns);
    }
  }
}

void Budget::set_sampled(uint32_t function_id, bool is_sampled, int64_t now_mono_ns) {
  loop_thread_.check();
  FunctionState& state = functions_[function_id];
  state.is_always_sampled = is_sampled;
  if (is_sampled && !state.sampled && is_on()) {
    state.sampled.emplace(0.0);
    state.allowed_ratio = limits_.get_least_percent() / 100;
    state.due_ns = now_mono_ns;
  }
  if (!is_sampled && state.sampled && !state.suspension && !state.is_standing_down) {
    end_sampling(function_id, now_mono_ns);
  }
}

std::optional<Suspension> Budget::restore(const Suspension& earlier, int64_t now_mono_ns) {
  loop_thread_.check();
  FunctionState& state = functions_[earlier.function_id];
  if (!is_on() || state.sampled) return std::nullopt;
  state.times = earlier.times;
  state.sampled.emplace(earlier.share_ratio);
  state.allowed_ratio = limits_.get_least_percent() / 100;
  state.due_ns = now_mono_ns + find_gap_ns(state);
  state.suspension = earlier;
  state.suspension->until_mono_ns = state.due_ns;
  return state.suspension;
}

void Budget::set_shows_steps(uint32_t function_id, bool shows_steps) {
  loop_thread_.check();
  functions_[function_id].shows_steps = shows_steps;
}

void Budget::note_suspended(uint32_t function_id, int64_t now_mono_ns) {
  loop_thread_.check();
  const auto known = functions_.find(function_id);
  if (known != functions_.end() && known->second.sampled) {
    known->second.sampled->begin_gap(now_mono_ns);
  }
}

void Budget::end_window(uint32_t function_id, int64_t begin_mono_ns, int64_t end_mono_ns) {
  loop_thread_.check();
  if (!sampling_window_ || sampling_window_->function_id != function_id) return;
  sampling_window_->span_ns.emplace(begin_mono_ns, end_mono_ns);
}

void Budget::apply(const CellDelta& delta) {
  loop_thread_.check();
  const uint64_t trapped = delta.calls - std::min(delta.calls, delta.hooked);
  if (delta.calls == 0) return;
  ProcessCalls& process = calls_[delta.process];
  process.owner = delta.owner;
  process.hooked += delta.hooked;
  if (trapped == 0) return;
  process.calls[delta.function_id] += trapped;
  thread_calls_[delta.process][delta.function_id] += trapped;
  FunctionState& state = functions_[delta.function_id];
  if (!state.probed_since_ns) state.probed_since_ns = reading_start_ns_;
  if (state.sampled) state.sampled->apply(delta);
}

void Budget::apply(const ProcessExited& exited) {
  loop_thread_.check();
  cpu_.erase(exited.process);
  corrections_.erase(exited.process);
  thread_calls_.erase(exited.process);
  thread_shares_.erase(exited.process);
  for (auto& [function_id, state] : functions_) {
    if (!state.sampled) continue;
    const CallsEstimate missed = state.sampled->forget(exited.process, reading_start_ns_);
    if (missed.calls > 0) estimates_.push_back({function_id, exited.process, missed});
  }
}

void Budget::apply(const ThreadCosts& costs) {
  loop_thread_.check();
  const auto elapsed_ns = static_cast<double>(costs.mono_ns - thread_costs_mono_ns_);
  const bool is_first = std::exchange(thread_costs_mono_ns_, costs.mono_ns) == 0;
  std::map<std::pair<ProcessKey, uint32_t>, uint64_t> now_ns;
  thread_shares_.clear();
  for (const ThreadCosts::Thread& thread : costs.threads) {
    const auto key = std::pair(thread.process, thread.tid);
    now_ns[key] = thread.cost_ns;
    const auto before = thread_costs_ns_.find(key);
    const uint64_t before_ns = before == thread_costs_ns_.end() ? 0 : before->second;
    if (is_first || thread.cost_ns <= before_ns || elapsed_ns <= 0) continue;
    ThreadShare& share = thread_shares_[thread.process];
    share.ratio =
        std::max(share.ratio, static_cast<double>(thread.cost_ns - before_ns) / elapsed_ns);
  }
  for (auto& [process, share] : thread_shares_) share.calls = std::move(thread_calls_[process]);
  thread_calls_.clear();
  thread_costs_ns_ = std::move(now_ns);
}

Budget::Decision Budget::judge(int64_t now_mono_ns, const ReadCpu& read_cpu_ns) {
  loop_thread_.check();
  Decision decision;
  if (now_mono_ns <= reading_start_ns_) return decision;
  close_window(now_mono_ns, read_cpu_ns, decision);
  Reading reading = add_up(now_mono_ns, 0, [&](const ProcessKey& process) {
    return read_process_time_ns(process, now_mono_ns, read_cpu_ns);
  });
  overhead_ = std::move(reading.overhead);
  for (const Offender& offender : reading.offenders) relieve(offender, now_mono_ns, decision);
  if (!is_on()) {
    resume_all(now_mono_ns, decision);
  } else {
    open_window(now_mono_ns, decision);
  }
  std::erase_if(
      cpu_, [&](const auto& entry) { return now_mono_ns - entry.second.mono_ns > kKeepReadingNs; });
  calls_.clear();
  reading_start_ns_ = now_mono_ns;
  decision.estimates = std::exchange(estimates_, {});
  return decision;
}

Budget::Decision Budget::judge_early(int64_t now_mono_ns, const ReadCpu& read_cpu_ns) {
  loop_thread_.check();
  Decision decision;
  if (!is_on() || now_mono_ns <= reading_start_ns_) return decision;
  const Reading reading = add_up(now_mono_ns, kSecondNs, [&](const ProcessKey& process) {
    return estimate_process_time_ns(process, now_mono_ns, read_cpu_ns);
  });
  for (const Offender& offender : reading.offenders) relieve(offender, now_mono_ns, decision);
  return decision;
}

// Rounded up: below it no process is over the budget.
uint32_t Budget::get_alarm_mask(double budget_percent, uint64_t cost_ns) {
  if (budget_percent <= 0 || cost_ns == 0) return 0;
  const double calls = budget_percent / 100 * kSecondNs / static_cast<double>(cost_ns);
  return static_cast<uint32_t>(std::bit_ceil(static_cast<uint64_t>(std::clamp(calls, 2., 1e9)))) -
         1;
}

Budget::Reading Budget::add_up(int64_t now_mono_ns, double least_ns, const GetTime& get_time_ns) {
  const auto elapsed_ns = static_cast<double>(now_mono_ns - reading_start_ns_);
  Reading reading;
  for (const auto& [process, made] : calls_) {
    Offender offender{.process = process,
                      .comm = made.owner.comm,
                      .time_ns = elapsed_ns,
                      .allowed_ratio = get_probes_ratio(process, made.owner)};
    const double correction = get_correction(process);
    double all_ns = 0;
    double& in_ns = offender.in_ns;
    for (const auto& [function_id, calls] : made.calls) {
      const FunctionState& state = functions_[function_id];
      const double cost_ns =
          correction * static_cast<double>(calls) * static_cast<double>(state.cost_ns);
      all_ns += cost_ns;
      if (state.sampled) continue;  // in a window, or before it was out
      in_ns += cost_ns;
      offender.costs.push_back({function_id, cost_ns});
    }
    const auto hook = hooked_call_costs_.find(process);
    const double hook_ns =
        hook == hooked_call_costs_.end() ? double{kHookedCallCostNs} : hook->second;
    const double hooks_ns = correction * static_cast<double>(made.hooked) * hook_ns;
    const double ratio = offender.allowed_ratio;
    const auto allow = [&](double time_ns) {
      return std::max(ratio * time_ns - hooks_ns, kProbesShareMin * ratio * time_ns);
    };
    offender.allowed_ns = allow(std::max(elapsed_ns, least_ns));
    if (ratio > 0 && in_ns > offender.allowed_ns) {
      offender.time_ns = std::max(elapsed_ns, get_time_ns(process));
    }
    offender.allowed_ns = std::max(offender.allowed_ns, allow(offender.time_ns));
    const auto share = thread_shares_.find(process);
    const bool pays = share != thread_shares_.end();
    const double thread_ns = pays ? get_thread_ratio_in(share->second) * elapsed_ns : 0;
    const double thread_allowed_ns = allow(std::max(elapsed_ns, least_ns));
    if (ratio > 0 && thread_ns > thread_allowed_ns) {
      offender.allowed_ns = std::min(offender.allowed_ns, in_ns * thread_allowed_ns / thread_ns);
    }
    reading.overhead.push_back({.process = process,
                                .owner = made.owner,
                                .ratio = (all_ns + hooks_ns) / offender.time_ns,
                                .hooks_ratio = hooks_ns / offender.time_ns,
                                .thread_ratio = pays ? share->second.ratio : 0,
                                .budget_ratio = limits_.get_ratio(made.owner.comm),
                                .correction = correction});
    if (ratio > 0 && in_ns > offender.allowed_ns) {
      reading.offenders.push_back(std::move(offender));
    }
  }
  std::ranges::stable_sort(reading.offenders, std::ranges::greater{}, &Offender::get_share);
  return reading;
}

double Budget::get_thread_ratio_in(const ThreadShare& share) const {
  double all_ns = 0, in_ns = 0;
  for (const auto& [function_id, calls] : share.calls) {
    const FunctionState& state = functions_.at(function_id);
    const double cost_ns = static_cast<double>(calls) * static_cast<double>(state.cost_ns);
    all_ns += cost_ns;
    if (!state.sampled) in_ns += cost_ns;
  }
  return all_ns > 0 ? share.ratio * in_ns / all_ns : 0;
}

double Budget::get_correction(const ProcessKey& process) const {
  const auto known = corrections_.find(process);
  return known == corrections_.end() ? 1 : known->second;
}

void Budget::correct(const OverheadMeasurement& measured) {
  loop_thread_.check();
  if (measured.agrees_with_estimate() || measured.estimated_ratio <= 0) return;
  const double factor = measured.ratio / measured.estimated_ratio;
  corrections_[measured.process] =
      std::clamp(get_correction(measured.process) * factor, kCorrectionMin, kCorrectionMax);
}

void Budget::set_hooked_call_cost(const ProcessKey& process, std::optional<double> cost_ns) {
  loop_thread_.check();
  if (cost_ns) {
    hooked_call_costs_[process] = *cost_ns;
  } else {
    hooked_call_costs_.erase(process);
  }
}

// Without a limit 0.
double Budget::get_probes_ratio(const ProcessKey& process, const Owner& owner) const {
  const double ratio = limits_.get_ratio(owner.comm);
  return recorded_.contains(process) ? (1 - kCuptiShare) * ratio : ratio;
}

// CPU time since the reading before. Without one, since the process began: what is too much of that
// is too much of any part of it, and the next reading knows better.
double Budget::read_process_time_ns(const ProcessKey& process, int64_t now_mono_ns,
                                    const ReadCpu& read_cpu_ns) {
  const uint64_t cpu_ns = read_cpu_ns(process);
  CpuReading& reading = cpu_[process];
  const double used_ns = cpu_ns > reading.cpu_ns ? static_cast<double>(cpu_ns - reading.cpu_ns) : 0;
  const bool is_first = reading.mono_ns == 0;
  if (!is_first && now_mono_ns > reading.mono_ns) {
    reading.cpus = used_ns / static_cast<double>(now_mono_ns - reading.mono_ns);
  }
  reading.cpu_ns = cpu_ns;
  reading.mono_ns = now_mono_ns;
  return used_ns;
}

// At the mean since the reading before, or since the process began: it changes nothing for the
// reading that follows.
double Budget::estimate_process_time_ns(const ProcessKey& process, int64_t now_mono_ns,
                                        const ReadCpu& read_cpu_ns) const {
  const auto known = cpu_.find(process);
  // Boot time is ahead of monotonic time on a machine that was asleep: that only makes it younger.
  const CpuReading since = known != cpu_.end()
                               ? known->second
                               : CpuReading{.mono_ns = static_cast<int64_t>(process.start_boot_ns)};
  const uint64_t cpu_ns = read_cpu_ns(process);
  if (now_mono_ns <= since.mono_ns || cpu_ns <= since.cpu_ns) return 0;
  return static_cast<double>(cpu_ns - since.cpu_ns) /
         static_cast<double>(now_mono_ns - since.mono_ns) *
         static_cast<double>(now_mono_ns - reading_start_ns_);
}

void Budget::relieve(const Offender& offender, int64_t now_mono_ns, Decision& decision) {
  std::vector<Cost> costs;
  for (const Cost& cost : offender.costs) {
    if (!functions_[cost.function_id].sampled) costs.push_back(cost);
  }
  double left_ns = std::accumulate(costs.begin(), costs.end(), 0.0,
                                   [](double sum, const Cost& cost) { return sum + cost.ns; });
  if (left_ns <= offender.allowed_ns) return;  // what a worse process lost was enough
  std::ranges::stable_sort(costs, std::ranges::greater{}, [this](const Cost& cost) {
    return std::pair(!functions_[cost.function_id].shows_steps, cost.ns);
  });
  for (const Cost& cost : costs) {
    if (left_ns <= kTarget * offender.allowed_ns) break;
    left_ns -= cost.ns;
    suspend(offender, cost, now_mono_ns, decision);
  }
}

void Budget::suspend(const Offender& offender, const Cost& cost, int64_t now_mono_ns,
                     Decision& decision) {
  FunctionState& state = functions_[cost.function_id];
  const double share_ratio = cost.ns / offender.time_ns;
  state.times += 1;
  state.cheap_windows = 0;
  state.sampled.emplace(share_ratio);
  state.allowed_ratio = offender.allowed_ratio;
  state.due_ns = now_mono_ns + find_gap_ns(state);
  state.suspension = Suspension{.function_id = cost.function_id,
                                .process = offender.process,
                                .comm = offender.comm,
                                .share_ratio = share_ratio,
                                .until_mono_ns = state.due_ns,
                                .times = state.times};
  decision.suspend.push_back(*state.suspension);
}

// So long that all windows together cost no more than their share of the budget.
int64_t Budget::find_gap_ns(const FunctionState& state) const {
  const auto sampled = static_cast<double>(std::ranges::count_if(
      functions_, [](const auto& entry) { return entry.second.sampled.has_value(); }));
  const auto window_ns =
      static_cast<double>(std::chrono::nanoseconds(kWindow + kWindowTail).count());
  const double gap_ns = std::min(state.sampled->worst_share_ratio(), 1.0) * window_ns *
                        std::max(sampled, 1.0) / (kWindowsShare * state.allowed_ratio);
  const auto shortest_ns = static_cast<double>(std::chrono::nanoseconds(kShortestGap).count());
  const auto longest_ns = static_cast<double>(std::chrono::nanoseconds(kLongestGap).count());
  return static_cast<int64_t>(std::clamp(gap_ns, shortest_ns, longest_ns));
}

// Once the reading has everything of it.
void Budget::close_window(int64_t now_mono_ns, const ReadCpu& read_cpu_ns, Decision& decision) {
  if (!sampling_window_ || !sampling_window_->span_ns) return;
  const auto [begin_ns, end_ns] = *sampling_window_->span_ns;
  if (end_ns >= reading_start_ns_) return;
  const uint32_t function_id = sampling_window_->function_id;
  sampling_window_.reset();
  FunctionState& state = functions_[function_id];
  if (!state.sampled) return;  // resumed meanwhile
  const auto get_cpus = [&](const ProcessKey& process) {
    read_process_time_ns(process, now_mono_ns, read_cpu_ns);
    return cpu_[process].cpus;
  };
  for (const auto& [process, missed] :
       state.sampled->close_window(begin_ns, end_ns, state.cost_ns, get_cpus)) {
    estimates_.push_back({function_id, process, missed});
  }
  state.due_ns = now_mono_ns + find_gap_ns(state);
  if (state.suspension) state.suspension->until_mono_ns = state.due_ns;
  const bool is_cheap = state.sampled->last_share_ratio() <= kTarget * state.allowed_ratio;
  state.cheap_windows = is_cheap ? state.cheap_windows + 1 : 0;
  const uint32_t needed = kCheapWindows << std::min(std::max(state.times, 1u) - 1, kMostDoublings);
  if (!state.is_always_sampled && state.cheap_windows >= needed) {
    resume(function_id, now_mono_ns, decision);
  }
}

void Budget::open_window(int64_t now_mono_ns, Decision& decision) {
  if (sampling_window_ || is_standing_down_) return;
  auto next = functions_.end();
  for (auto entry = functions_.begin(); entry != functions_.end(); ++entry) {
    FunctionState& state = entry->second;
    if (state.is_always_sampled) set_sampled(entry->first, true, now_mono_ns);  // budget was off
    if (!state.sampled || state.due_ns > now_mono_ns) continue;
    if (next == functions_.end() || state.due_ns < next->second.due_ns) next = entry;
  }
  if (next == functions_.end()) return;
  next->second.sampled->open_window();
  sampling_window_.emplace(Window{.function_id = next->first});
  decision.window = next->first;
}

void Budget::end_sampling(uint32_t function_id, int64_t now_mono_ns) {
  FunctionState& state = functions_[function_id];
  for (const auto& [process, missed] : state.sampled->leave(now_mono_ns)) {
    estimates_.push_back({function_id, process, missed});
  }
  state.out_ns += state.sampled->get_out_ns(now_mono_ns);
  state.sampled.reset();
}

void Budget::resume(uint32_t function_id, int64_t now_mono_ns, Decision& decision) {
  end_sampling(function_id, now_mono_ns);
  FunctionState& state = functions_[function_id];
  state.suspension.reset();
  state.cheap_windows = 0;
  decision.resume.push_back(function_id);
}

void Budget::resume_all(int64_t now_mono_ns, Decision& decision) {
  for (const auto& [function_id, state] : functions_) {
    if (state.sampled && !state.is_standing_down) resume(function_id, now_mono_ns, decision);
  }
}

std::vector<Suspension> Budget::list_suspensions() const {
  std::vector<Suspension> suspensions;
  for (const auto& [function_id, state] : functions_) {
    if (state.suspension) suspensions.push_back(*state.suspension);
  }
  return suspensions;
}

void Budget::fill(Snapshot& snapshot) const {
  snapshot.suspensions = list_suspensions();
  for (const OverheadRow& row : overhead_) add_overhead(snapshot, row);
  for (const auto& [function_id, state] : functions_) {
    if (!state.probed_since_ns) continue;
    const int64_t since_ns = snapshot.taken_mono_ns - *state.probed_since_ns;
    const int64_t out_ns =
        state.out_ns + (state.sampled ? state.sampled->get_out_ns(snapshot.taken_mono_ns) : 0);
    if (since_ns <= 0 || out_ns <= 0) continue;  // never out: a missing entry says 1
    if (snapshot.coverage.size() <= function_id) snapshot.coverage.resize(function_id + 1, 1.0);
    snapshot.coverage[function_id] =
        static_cast<double>(since_ns - out_ns) / static_cast<double>(since_ns);
  }
}

}  // namespace gpuperf
