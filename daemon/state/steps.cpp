#include "daemon/state/steps.h"

#include <algorithm>

#include "daemon/model/step_role.h"
#include "daemon/state/exited_rows.h"
#include "daemon/state/newest_rows.h"

namespace gpuperf {
namespace {

uint64_t get_threshold_ns(const Function& function, std::span<const uint64_t> adaptive) {
  const uint64_t adaptive_ns = function.id < adaptive.size() ? adaptive[function.id] : 0;
  if (adaptive_ns == 0 || function.slow_threshold_ns == 0) {
    return std::max(adaptive_ns, function.slow_threshold_ns);
  }
  return std::min(adaptive_ns, function.slow_threshold_ns);
}

// How long something may take that mostly takes as long as in `known`; 0 = not known.
uint64_t get_stall_limit_ns(const Histogram& known) {
  if (known.count() < Steps::kStallMinSteps) return 0;
  return std::max(Steps::kStallFloorNs, Steps::kStallFactor * known.quantile_ns(0.99));
}

Histogram merge_durations(const StepProcess& row) {
  Histogram all;
  for (const StepTotals& phase : row.phases) all.merge(phase.durations);
  return all;
}

bool trains(const StepProcess& row) {
  const auto count = [&row](StepPhase phase) {
    return row.phases[static_cast<size_t>(phase)].durations.count();
  };
  return count(StepPhase::kTrain) + count(StepPhase::kOptimizer) > 0;
}

}  // namespace

void Steps::apply(const ReportedCalls& calls, const FunctionList& functions,
                  std::span<const uint64_t> adaptive_threshold_ns) {
  loop_thread_.check();
  for (const ReportedCall& call : calls.calls) {
    const StepRole role = get_step_role(functions, call.function_id);
    if (role == StepRole::kNone || role == StepRole::kOperator) continue;
    const Function& function = functions[call.function_id];
    Process* process =
        find_or_add(call.process, static_cast<int64_t>(call.start_mono_ns + call.duration_ns));
    if (process == nullptr) {
      drops_.add(DropCause::kStepsProcessesFull);
      continue;
    }
    if (is_learned_from(role)) {
      learn(*process, call, function, role);
      continue;
    }
    process->has_marked |= is_step(role) || role == StepRole::kPart;
    find_thread(*process, call.tid)
        .take({.call = call,
               .plan = *function.arguments,
               .threshold_ns = get_threshold_ns(function, adaptive_threshold_ns),
               .is_inside_step =
                   call.depth > 0 && is_step(get_step_role(functions, call.outermost_id))},
              ended_);
    add_ended(*process);
  }
}

void Steps::apply(const InFlightCalls& look, const FunctionList& functions) {
  loop_thread_.check();
  std::map<ProcessKey, uint64_t> oldest;  // start of the longest step in flight
  for (const InFlightCall& call : look.calls) {
    const StepRole role = get_step_role(functions, call.function_id);
    if (!is_step(role) && !(role == StepRole::kResultWait && ends_in_waits(call.process))) continue;
    const auto [entry, is_first] = oldest.try_emplace(call.process, call.start_mono_ns);
    entry->second = std::min(entry->second, call.start_mono_ns);
  }
  for (auto& [key, process] : processes_) {
    const auto is_longer = [&look](uint64_t since_mono_ns, uint64_t limit_ns) {
      return limit_ns != 0 && look.look_mono_ns > since_mono_ns + limit_ns;
    };
    const StepProcess& row = *process.row;
    const auto in_step = oldest.find(key);
    if (in_step != oldest.end()) {
      const bool hangs = is_longer(in_step->second, get_stall_limit_ns(merge_durations(row)));
      set_stall(process, hangs ? StepStall::kInStep : StepStall::kNone, in_step->second);
    } else {
      // A server without requests has no steps either, so only training must go on.
      const bool hangs = !row.exited && trains(row) &&
                         is_longer(row.last_start_mono_ns, get_stall_limit_ns(row.periods));
      set_stall(process, hangs ? StepStall::kBetweenSteps : StepStall::kNone,
                row.last_start_mono_ns);
    }
  }
}

void Steps::apply(const ProcessExited& exited, int64_t now_mono_ns) {
  loop_thread_.check();
  exited_.add(exited.process);
  const auto found = processes_.find(exited.process);
  if (found == processes_.end()) return;
  Process& process = found->second;
  for (auto& [tid, thread] : process.threads) thread.end(ended_);
  process.threads.clear();
  process.learned.end(ended_);
  add_ended(process);
  set_stall(process, StepStall::kNone, 0);
  change(process).exited = true;
  process.exited_mono_ns = now_mono_ns;
}

void Steps::expire(int64_t now_mono_ns) {
  loop_thread_.check();
  for (auto& [key, process] : processes_) {
    for (auto& [tid, thread] : process.threads) {
      thread.expire(static_cast<uint64_t>(now_mono_ns), ended_);
    }
    process.learned.expire(static_cast<uint64_t>(now_mono_ns), ended_);
    add_ended(process);
  }
  erase_exited(processes_, limits_.keep_exited, now_mono_ns);
}

const StepProcess* Steps::find(const ProcessKey& process) const {
  const auto found = processes_.find(process);
  return found == processes_.end() ? nullptr : found->second.row.get();
}

std::vector<ProcessKey> Steps::list_running() const {
  std::vector<ProcessKey> running;
  for (const auto& [key, process] : processes_) {
    if (!process.row->exited && !process.row->recent.empty()) running.push_back(key);
  }
  return running;
}

std::map<uint64_t, ProcessKey> Steps::list_sites() const {
  std::map<uint64_t, ProcessKey> sites;
  for (const auto& [key, process] : processes_) {
    if (process.row->exited || process.row->recent.empty()) continue;
    const Step& newest = process.row->recent.back();
    if (newest.site != 0) sites.emplace(newest.site, key);
  }
  return sites;
}

void Steps::fill(Snapshot& snapshot) const {
  snapshot.self.add(Bound::kStepProcesses, processes_.size(), limits_.max_processes);
  for (const auto& [key, process] : processes_) {
    process.is_shared = true;
    snapshot.steps.processes.push_back(process.row);
    ++snapshot.steps.stalled[static_cast<size_t>(process.row->stall)];
  }
  for (const auto& [key, totals] : totals_) {
    snapshot.steps.series.push_back({key.first, key.second, totals});
  }
  snapshot.steps.stalls = stalls_;
}

StepProcess& Steps::change(Process& process) {
  if (std::exchange(process.is_shared, false)) {
    process.row = std::make_shared<StepProcess>(*process.row);
  }
  return *process.row;
}

Steps::Process* Steps::find_or_add(const ProcessKey& key, int64_t now_mono_ns) {
  const auto known = processes_.find(key);
  if (known != processes_.end()) return &known->second;
  if (!make_room(processes_, limits_.max_processes)) return nullptr;
  Process& process = processes_[key];
  process.row = std::make_shared<StepProcess>(StepProcess{.process = key});
  if (exited_.contains(key)) {
    process.row->exited = true;
    process.exited_mono_ns = now_mono_ns;
  }
  return &process;
}

void Steps::learn(Process& process, const ReportedCall& call, const Function& function,
                  StepRole role) {
  if (process.has_marked) return;
  if (role == StepRole::kResultCopy) process.learned.take_copy(call, function, ended_);
  if (role == StepRole::kResultWait) process.learned.take_wait(call, function, ended_);
  for (Step& step : ended_) {
    const StepTotals& phase = process.row->phases[static_cast<size_t>(step.phase)];
    if (phase.durations.count() < kStallMinSteps) continue;
    step.threshold_ns = kSlowFactor * phase.durations.quantile_ns(0.5);
  }
  add_ended(process);
}

// Whether its newest step ended with a wait for results: one in flight is within a step.
bool Steps::ends_in_waits(const ProcessKey& key) const {
  const StepProcess* const row = find(key);
  return row != nullptr && !row->recent.empty() && row->recent.back().is_learned;
}

StepAssembly& Steps::find_thread(Process& process, uint32_t tid) {
  if (process.threads.size() >= kMaxThreads && !process.threads.contains(tid)) {
    const auto idlest = std::ranges::min_element(
        process.threads, {}, [](const auto& entry) { return entry.second.last_mono_ns(); });
    idlest->second.end(ended_);
    process.threads.erase(idlest);
  }
  return process.threads[tid];
}

void Steps::add_ended(Process& process) {
  if (ended_.empty()) return;
  StepProcess& row = change(process);
  for (Step& step : ended_) {
    step.id = ++last_id_;
    add_step(totals_[{step.function_id, step.phase}], step);
    add_step(row.phases[static_cast<size_t>(step.phase)], step);
    if (row.last_start_mono_ns != 0 && step.start_mono_ns > row.last_start_mono_ns) {
      row.periods.add(bucket_of(step.start_mono_ns - row.last_start_mono_ns), 1);
    }
    row.last_start_mono_ns = std::max(row.last_start_mono_ns, step.start_mono_ns);
    row.function_id = step.function_id;
    keep_newest(row.recent, step, kRecent);
    if (is_slow(step)) keep_newest(row.slow, step, kSlow);
    on_step_(step);
  }
  ended_.clear();
}

void Steps::set_stall(Process& process, StepStall stall, uint64_t since_mono_ns) {
  if (process.row->stall == stall) return;
  StepProcess& row = change(process);
  row.stall = stall;
  row.stalled_mono_ns = stall == StepStall::kNone ? 0 : since_mono_ns;
  if (stall == StepStall::kNone) return;
  ++row.stalls;
  ++stalls_[static_cast<size_t>(stall)];
}

}  // namespace gpuperf
