#include "daemon/rpc/step_list.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <deque>
#include <string>

#include "daemon/rpc/request_list.h"
#include "daemon/rpc/stack_to_proto.h"
#include "daemon/rpc/step_source.h"
#include "daemon/rpc/to_proto.h"

namespace gpuperf {
namespace {

uint64_t get_age_ns(const Snapshot& snapshot, uint64_t mono_ns) {
  const auto now_ns = static_cast<uint64_t>(snapshot.taken_mono_ns);
  return now_ns - std::min(now_ns, mono_ns);
}

v1::StepQuality to_proto(StepQuality quality) { return static_cast<v1::StepQuality>(quality); }
static_assert(static_cast<int>(StepQuality::kExact) == v1::STEP_QUALITY_EXACT);

// The longest slow call of the step's thread that overlaps it; null = none in memory.
const SlowCall* find_slow_call(const Snapshot& snapshot, const Step& step) {
  const SlowCall* longest = nullptr;
  for (const auto& call : snapshot.slow_calls) {
    const SlowCallEvent& event = call->event;
    if (event.process != step.process || event.tid != step.tid) continue;
    const bool overlaps = event.start_mono_ns < step.completed_mono_ns &&
                          event.start_mono_ns + event.duration_ns > step.start_mono_ns;
    const bool is_longer = longest == nullptr || event.duration_ns > longest->event.duration_ns;
    if (overlaps && is_longer) longest = call.get();
  }
  return longest;
}

v1::Step to_proto(const Snapshot& snapshot, const Clock& clock, const Step& step) {
  v1::Step message;
  message.set_id(step.id);
  message.set_tid(step.tid);
  set_step_source(snapshot, step.process, step.function_id, message);
  message.set_phase(to_proto(step.phase));
  message.set_phase_quality(to_proto(step.phase_quality));
  message.set_start_unix_ns(
      static_cast<uint64_t>(clock.unix_from_mono_ns(static_cast<int64_t>(step.start_mono_ns))));
  message.set_duration_ns(get_duration_ns(step));
  message.set_duration_quality(to_proto(step.completed_quality));
  message.set_call_ns(step.returned_mono_ns - step.start_mono_ns);
  message.set_calls(step.calls);
  message.set_tokens(step.tokens.value);
  message.set_tokens_quality(to_proto(step.tokens.quality));
  message.set_sequences(step.sequences.value);
  message.set_sequences_quality(to_proto(step.sequences.quality));
  message.set_threshold_ns(step.threshold_ns);
  message.set_slow(is_slow(step));
  message.set_learned(step.is_learned);
  const SlowCall* call = find_slow_call(snapshot, step);
  if (call != nullptr) message.set_slow_call_id(call->id);
  return message;
}

v1::StepPhaseStats to_proto(StepPhase phase, const StepTotals& totals) {
  v1::StepPhaseStats message;
  message.set_phase(to_proto(phase));
  message.set_steps(totals.durations.count());
  message.set_total_ns(totals.total_ns);
  message.set_p50_ns(totals.durations.quantile_ns(0.5));
  message.set_p99_ns(totals.durations.quantile_ns(0.99));
  message.set_tokens(get_token_count(totals));
  message.set_exact_tokens(totals.tokens[static_cast<size_t>(StepQuality::kExact)]);
  message.set_slow_steps(totals.slow);
  return message;
}

void set_rates(const Snapshot& snapshot, const StepProcess& row, v1::StepProcess& message) {
  if (row.recent.empty()) return;
  uint64_t steps = 0, tokens = 0;
  for (const Step& step : row.recent) {
    if (get_age_ns(snapshot, step.completed_mono_ns) > kRateWindowNs) continue;
    steps += 1;
    tokens += step.tokens.value;
  }
  const uint64_t covered_ns =
      get_rate_span_ns(get_age_ns(snapshot, row.recent.front().start_mono_ns));
  const double seconds = static_cast<double>(covered_ns) / 1e9;
  message.set_steps_per_second(static_cast<double>(steps) / seconds);
  message.set_tokens_per_second(static_cast<double>(tokens) / seconds);
}

v1::StepProcess to_proto(const Snapshot& snapshot, const StepProcess& row) {
  v1::StepProcess message;
  message.set_exited(row.exited);
  set_step_source(snapshot, row.process, row.function_id, message);
  StepTotals all;
  for (size_t i = 0; i < kStepPhases; ++i) {
    const StepTotals& totals = row.phases[i];
    if (totals.durations.count() == 0) continue;
    *message.add_phases() = to_proto(static_cast<StepPhase>(i), totals);
    all.durations.merge(totals.durations);
    all.slow += totals.slow;
  }
  message.set_steps(all.durations.count());
  message.set_p50_ns(all.durations.quantile_ns(0.5));
  message.set_p99_ns(all.durations.quantile_ns(0.99));
  message.set_slow_steps(all.slow);
  set_rates(snapshot, row, message);
  message.set_last_step_age_ns(get_age_ns(snapshot, row.last_start_mono_ns));
  message.set_stall(std::string(get_step_stall_name(row.stall)));
  if (row.stall != StepStall::kNone) {
    message.set_stall_ns(get_age_ns(snapshot, row.stalled_mono_ns));
  }
  message.set_stalls(row.stalls);
  message.set_learned(row.recent.back().is_learned);
  add_frames(get_frames(find_named_stack(snapshot, row.recent.back().site)),
             *message.mutable_site());
  return message;
}

}  // namespace

std::vector<v1::StepProcess> list_step_processes(const Snapshot& snapshot,
                                                 const RowFilter& filter) {
  std::vector<v1::StepProcess> processes;
  for (const auto& row : snapshot.steps.processes) {
    if (row->recent.empty()) continue;  // its first step has not ended
    if (!matches_step_row(snapshot, filter, row->process, row->function_id)) continue;
    processes.push_back(to_proto(snapshot, *row));
  }
  std::ranges::stable_sort(processes, [](const v1::StepProcess& a, const v1::StepProcess& b) {
    if (a.exited() != b.exited()) return b.exited();
    return a.steps_per_second() > b.steps_per_second();
  });
  return processes;
}

std::vector<v1::Step> list_steps(const Snapshot& snapshot, const Clock& clock,
                                 const v1::Filter& filter, bool slow_only) {
  const RowFilter rows(filter);
  std::vector<const Step*> found;
  for (const auto& process : snapshot.steps.processes) {
    const std::vector<const Step*> kept = slow_only
                                              ? list_once<Step>(process->slow)
                                              : list_once<Step>(process->slow, process->recent);
    found.insert(found.end(), kept.begin(), kept.end());
  }
  std::ranges::sort(found, [slow_only](const Step* a, const Step* b) {
    return slow_only ? get_duration_ns(*a) > get_duration_ns(*b) : a->id > b->id;
  });
  std::vector<v1::Step> steps;
  for (const Step* step : found) {
    if (!matches_step_row(snapshot, rows, step->process, step->function_id)) continue;
    if (!rows.matches_age(get_duration_ns(*step))) continue;
    const auto start = clock.unix_from_mono_ns(static_cast<int64_t>(step->start_mono_ns));
    if (static_cast<uint64_t>(start) < filter.since_unix_ns()) continue;
    steps.push_back(to_proto(snapshot, clock, *step));
  }
  return steps;
}

Status get_step(const Snapshot& snapshot, const Clock& clock, uint64_t id,
                v1::GetStepResponse& response) {
  for (const auto& process : snapshot.steps.processes) {
    for (const std::deque<Step>* steps : {&process->recent, &process->slow}) {
      const auto step = std::ranges::find(*steps, id, &Step::id);
      if (step == steps->end()) continue;
      *response.mutable_step() = to_proto(snapshot, clock, *step);
      *response.mutable_usual() =
          to_proto(step->phase, process->phases[static_cast<size_t>(step->phase)]);
      const SlowCall* call = find_slow_call(snapshot, *step);
      if (call != nullptr) *response.mutable_slow_call() = to_proto(*call);
      add_frames(get_frames(find_named_stack(snapshot, step->site)), *response.mutable_site());
      response.set_held_up_requests(count_held_up(snapshot, id));
      return absl::OkStatus();
    }
  }
  return absl::NotFoundError(fmt::format(
      "step {}: never existed or no longer kept (the newest 512 and the newest 64 slow ones of a "
      "process are)",
      id));
}

}  // namespace gpuperf
