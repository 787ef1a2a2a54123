#include "daemon/rpc/to_proto.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "daemon/model/data_types.h"
#include "daemon/model/display_text.h"
#include "daemon/model/status_names.h"
#include "daemon/rpc/gpu_list.h"
#include "daemon/rpc/gpu_to_proto.h"
#include "daemon/rpc/owner_to_proto.h"
#include "daemon/rpc/self_to_proto.h"
#include "daemon/rpc/stack_to_proto.h"
#include "daemon/store/capture_proto.h"

namespace gpuperf {
namespace {

// The middle of a bucket may lie outside what was measured, most of all with few calls.
uint64_t get_quantile_ns(const FunctionTotals& totals, double quantile) {
  const uint64_t middle_ns = totals.histogram.quantile_ns(quantile);
  // The kernel counts a call before it raises the maximum: a reading in between has one and not
  // the other.
  if (totals.max_ns < totals.min_ns) return middle_ns;
  return std::clamp(middle_ns, totals.min_ns, totals.max_ns);
}

void add_error_counts(const Function& function, const FunctionTotals& totals,
                      v1::FunctionStats& stats) {
  for (const auto& [code, count] : totals.errors) {
    v1::ErrorCount& error = *stats.add_error_counts();
    error.set_error(get_status_name(function.status, code));
    error.set_code(code);
    error.set_count(count);
  }
  if (totals.other_errors != 0) {
    v1::ErrorCount& other = *stats.add_error_counts();
    other.set_error("other");
    other.set_count(totals.other_errors);
  }
  std::ranges::stable_sort(*stats.mutable_error_counts(), std::ranges::greater(),
                           &v1::ErrorCount::count);
}

void add_bytes(const FunctionTotals& totals, v1::FunctionStats& stats) {
  uint64_t sum = 0;
  for (size_t slot = 0; slot < totals.bytes.size(); ++slot) {
    if (totals.bytes[slot] == 0) continue;
    sum += totals.bytes[slot];
    v1::DirectionBytes& direction = *stats.add_bytes_by_direction();
    direction.set_direction(std::string(get_direction_name(slot)));
    direction.set_bytes(totals.bytes[slot]);
  }
  stats.set_bytes(sum);
  std::ranges::stable_sort(*stats.mutable_bytes_by_direction(), std::ranges::greater(),
                           &v1::DirectionBytes::bytes);
}

v1::ProbeState to_proto(ProbeState state) {
  switch (state) {
    case ProbeState::kAttached:
      return v1::PROBE_STATE_ATTACHED;
    case ProbeState::kEntryOnly:
      return v1::PROBE_STATE_ENTRY_ONLY;
    case ProbeState::kWaiting:
      return v1::PROBE_STATE_WAITING;
    case ProbeState::kSymbolMissing:
      return v1::PROBE_STATE_SYMBOL_MISSING;
    case ProbeState::kFailed:
      return v1::PROBE_STATE_FAILED;
    case ProbeState::kDisabled:
      return v1::PROBE_STATE_DISABLED;
    case ProbeState::kSuspended:
      return v1::PROBE_STATE_SUSPENDED;
    case ProbeState::kAlias:
      return v1::PROBE_STATE_ALIAS;
  }
  return v1::PROBE_STATE_UNSPECIFIED;  // only reached with a value outside the enum
}

v1::ProbeCounts count_probes(const std::vector<ProbeRow>& probes) {
  const auto count = [&probes](ProbeState state) {
    return static_cast<uint32_t>(std::ranges::count(probes, state, &ProbeRow::state));
  };
  v1::ProbeCounts counts;
  counts.set_attached(count(ProbeState::kAttached));
  counts.set_entry_only(count(ProbeState::kEntryOnly));
  counts.set_waiting(count(ProbeState::kWaiting));
  counts.set_symbol_missing(count(ProbeState::kSymbolMissing));
  counts.set_failed(count(ProbeState::kFailed));
  counts.set_disabled(count(ProbeState::kDisabled));
  counts.set_suspended(count(ProbeState::kSuspended));
  counts.set_alias(count(ProbeState::kAlias));
  return counts;
}

v1::Waker to_proto(const Waker& waker, const StackPtr& stack) {
  v1::Waker message;
  message.set_pid(waker.pid);
  message.set_tid(waker.tid);
  message.set_comm(to_valid_utf8(waker.comm));
  message.set_kernel_thread(waker.is_kernel);
  add_frames(get_frames(stack), *message.mutable_stack());
  message.set_stack_id(format_stack_id(stack));
  return message;
}

v1::Wait to_proto(const Wait& wait, const WaitStacks& stacks) {
  v1::Wait message;
  message.set_start_mono_ns(wait.start_mono_ns);
  message.set_duration_ns(wait.duration_ns);
  message.set_kind(std::string(get_wait_kind_name(wait.kind)));
  message.set_syscall(get_syscall_name(wait.syscall));
  message.set_file_kind(std::string(get_file_kind_name(wait.file_mode)));
  message.set_file(to_valid_utf8(wait.file_name));
  if (wait.waker.tid != 0) *message.mutable_waker() = to_proto(wait.waker, stacks.waker);
  add_frames(get_frames(stacks.kernel), *message.mutable_kernel_stack());
  message.set_kernel_stack_id(format_stack_id(stacks.kernel));
  return message;
}

v1::TimeSplit make_time_split(const SlowCall& call) {
  const TimeSplit& split = *call.event.split;
  const TimeParts parts = make_time_parts(split, call.event.duration_ns);
  v1::TimeSplit message;
  message.set_on_cpu_user_ns(parts.on_cpu_user_ns);
  message.set_on_cpu_kernel_ns(parts.on_cpu_kernel_ns);
  message.set_on_cpu_fault_ns(parts.on_cpu_fault_ns);
  message.set_runnable_ns(parts.runnable_ns);
  message.set_throttled_ns(parts.throttled_ns);
  message.set_blocked_ns(get_blocked_ns(parts));
  if (const auto main = find_main_wait(parts)) {
    message.set_blocked_on(std::string(get_wait_kind_name(*main)));
  }
  for (size_t kind = 0; kind < kWaitKinds; ++kind) {
    if (parts.blocked_ns[kind] == 0) continue;
    v1::BlockedTime& blocked = *message.add_blocked();
    blocked.set_kind(std::string(get_wait_kind_name(static_cast<WaitKind>(kind))));
    blocked.set_total_ns(parts.blocked_ns[kind]);
  }
  std::ranges::stable_sort(*message.mutable_blocked(), std::ranges::greater(),
                           &v1::BlockedTime::total_ns);
  for (size_t i = 0; i < call.event.waits.size(); ++i) {
    const WaitStacks stacks = i < call.wait_stacks.size() ? call.wait_stacks[i] : WaitStacks();
    *message.add_waits() = to_proto(call.event.waits[i], stacks);
  }
  if (message.waits_size() > 0 && message.waits(0).has_waker()) {
    *message.mutable_waker() = message.waits(0).waker();
  }
  message.set_cpu_samples(std::accumulate(split.ticks.begin(), split.ticks.end(), uint32_t{0}));
  message.set_preemptions(split.preemptions);
  message.set_migrations(split.migrations);
  message.set_minor_faults(split.minor_faults);
  message.set_major_faults(split.major_faults);
  return message;
}

v1::NestedCalls to_proto(const NamedCalls& calls) {
  v1::NestedCalls message;
  message.set_category(to_valid_utf8(calls.category));
  message.set_function(to_valid_utf8(calls.function));
  message.set_calls(calls.calls);
  message.set_total_ns(calls.total_ns);
  return message;
}

v1::Suspension to_proto(const Suspension& suspension, const FunctionList* functions,
                        int64_t now_mono_ns) {
  v1::Suspension message;
  if (functions != nullptr && suspension.function_id < functions->size()) {
    const Function& function = (*functions)[suspension.function_id];
    message.set_category(to_valid_utf8(function.category));
    message.set_function(to_valid_utf8(function.name));
  }
  message.set_pid(suspension.process.pid);
  message.set_comm(to_valid_utf8(suspension.comm));
  message.set_share_ratio(suspension.share_ratio);
  message.set_remaining_ns(
      static_cast<uint64_t>(std::max<int64_t>(suspension.until_mono_ns - now_mono_ns, 0)));
  message.set_times(suspension.times);
  return message;
}

v1::OverheadDemand to_proto(OverheadDemand::Kind kind) {
  switch (kind) {
    case OverheadDemand::Kind::kNone:
      break;
    case OverheadDemand::Kind::kStandDown:
      return v1::OVERHEAD_DEMAND_STAND_DOWN;
    case OverheadDemand::Kind::kDetail:
      return v1::OVERHEAD_DEMAND_DETAIL;
  }
  return v1::OVERHEAD_DEMAND_NONE;
}

v1::OverheadMeasurement to_proto(const OverheadMeasurement& measured) {
  v1::OverheadMeasurement message;
  message.set_pid(measured.process.pid);
  message.set_comm(to_valid_utf8(measured.owner.comm));
  message.set_pod(to_valid_utf8(measured.owner.pod));
  message.set_ratio(measured.ratio);
  message.set_low_ratio(measured.low_ratio);
  message.set_high_ratio(measured.high_ratio);
  message.set_estimated_ratio(measured.estimated_ratio);
  message.set_pairs(measured.pairs);
  message.set_calls_per_second(measured.calls_per_second);
  return message;
}

void set_overhead_trial(const OverheadTrialReport& report, int64_t now_mono_ns,
                        v1::GetStatusResponse& response) {
  if (report.end_mono_ns == 0) return;
  v1::OverheadTrial& trial = *response.mutable_overhead_trial();
  trial.set_running(report.is_running);
  const int64_t left_ns = report.end_mono_ns - now_mono_ns;
  if (report.is_running) {
    trial.set_remaining_ns(static_cast<uint64_t>(std::max<int64_t>(left_ns, 1)));
  } else {
    trial.set_age_ns(static_cast<uint64_t>(std::max<int64_t>(-left_ns, 1)));
  }
  trial.set_stopped_by(to_valid_utf8(report.stopped_by));
  for (const OverheadMeasurement& measured : report.measurements) {
    *trial.add_measurements() = to_proto(measured);
  }
}

v1::QosRule to_proto(const QosRow& row, int64_t now_mono_ns) {
  v1::QosRule rule;
  rule.set_name(row.rule.name);
  rule.set_text(to_valid_utf8(row.rule.text));
  if (row.value) rule.set_value(*row.value);
  rule.set_limit(row.rule.limit);
  rule.set_breached(row.is_breached);
  if (row.since_mono_ns != 0) {
    rule.set_age_ns(static_cast<uint64_t>(std::max<int64_t>(now_mono_ns - row.since_mono_ns, 1)));
  }
  rule.set_breaches(row.breaches);
  rule.set_caused_by_gpuperf(row.is_ours);
  rule.set_fault(to_valid_utf8(row.fault));
  return rule;
}

void set_overhead(const Snapshot& snapshot, int64_t now_mono_ns, v1::GetStatusResponse& response) {
  set_overhead_trial(snapshot.overhead_trial, now_mono_ns, response);
  for (const Suspension& suspension : snapshot.suspensions) {
    *response.add_suspensions() = to_proto(suspension, snapshot.functions.get(), now_mono_ns);
  }
  for (const QosRow& row : snapshot.qos_rules) {
    *response.add_qos_rules() = to_proto(row, now_mono_ns);
  }
  response.set_overhead_demand(to_proto(snapshot.demand.kind));
  if (snapshot.demand.kind != OverheadDemand::Kind::kNone) {
    response.set_overhead_demand_remaining_ns(
        static_cast<uint64_t>(std::max<int64_t>(snapshot.demand.until_mono_ns - now_mono_ns, 0)));
    response.set_overhead_demand_percent(snapshot.demand.percent);
    response.set_overhead_demand_reason(to_valid_utf8(snapshot.demand.reason));
  }
  const auto most = std::ranges::max_element(snapshot.overhead, {}, &OverheadRow::ratio);
  if (most == snapshot.overhead.end() || most->ratio <= 0) return;
  response.set_overhead_ratio(most->ratio);
  response.set_overhead_hooks_ratio(most->hooks_ratio);
  response.set_overhead_cupti_ratio(most->cupti_ratio);
  response.set_overhead_pid(most->process.pid);
}

void set_facts(const DaemonFacts& facts, v1::GetStatusResponse& response) {
  response.set_version(facts.version);
  response.set_pid(facts.pid);
  response.set_start_unix_ns(facts.start_unix_ns);
  response.set_config_path(to_valid_utf8(facts.config_path));
  response.set_metrics_address(facts.metrics_address);
  response.set_kernel(facts.kernel);
}

void add_problems(const std::vector<Problem>& problems, v1::GetStatusResponse& response) {
  for (const Problem& problem : problems) {
    v1::Problem& added = *response.add_problems();
    added.set_subject(to_valid_utf8(problem.subject));
    added.set_message(to_valid_utf8(problem.message));
    added.set_hint(to_valid_utf8(problem.hint));
  }
}

void set_probes(const ProbeReport& report, v1::GetStatusResponse& response) {
  response.set_mechanism(report.mechanism);
  response.set_files(report.files);
  *response.mutable_probes() = count_probes(report.probes);
  add_problems(report.problems, response);
}

}  // namespace

v1::FunctionStats to_proto(const Function& function, const FunctionTotals& totals,
                           const FunctionNow& now) {
  const uint64_t completed = totals.histogram.count();
  v1::FunctionStats stats;
  stats.set_category(to_valid_utf8(function.category));
  stats.set_function(to_valid_utf8(function.name));
  stats.set_calls(totals.calls);
  stats.set_errors(get_error_count(totals));
  stats.set_total_ns(totals.total_ns);
  stats.set_self_ns(totals.self_ns);
  stats.set_min_ns(totals.min_ns);
  stats.set_avg_ns(completed == 0 ? 0 : totals.total_ns / completed);
  stats.set_p50_ns(get_quantile_ns(totals, 0.5));
  stats.set_p90_ns(get_quantile_ns(totals, 0.9));
  stats.set_p99_ns(get_quantile_ns(totals, 0.99));
  stats.set_p999_ns(get_quantile_ns(totals, 0.999));
  stats.set_max_ns(totals.max_ns);
  stats.set_slow_calls(totals.slow_calls);
  stats.set_in_flight(get_in_flight(totals));
  stats.set_abandoned(totals.abandoned);
  stats.set_untimed(totals.untimed);
  stats.set_calls_hooked(totals.hooked);
  stats.set_calls_past_hooks(totals.past_hooks);
  stats.set_coverage(now.coverage);
  stats.set_oldest_in_flight_ns(now.oldest_in_flight_ns);
  stats.set_flops(static_cast<double>(totals.flops));
  add_error_counts(function, totals, stats);
  add_bytes(totals, stats);
  if (totals.missed.calls > 0) {
    stats.mutable_missed()->set_calls(std::llround(totals.missed.calls));
    const double error = get_error_calls(totals.missed);
    stats.mutable_missed()->set_calls_error(
        std::isfinite(error) ? static_cast<uint64_t>(std::llround(error)) : UINT64_MAX);
    stats.mutable_missed()->set_slow_calls(std::llround(totals.missed.slow_calls));
  }
  return stats;
}

v1::FunctionStats to_proto(const Function& function, const FunctionRow& row,
                           const FunctionNow& now) {
  v1::FunctionStats stats = to_proto(function, row.totals, now);
  stats.set_pid(row.process.pid);
  stats.set_comm(to_valid_utf8(row.owner.comm));
  set_owner(row.owner, stats);
  stats.set_exited(row.exited);
  return stats;
}

v1::Process to_proto(const ProcessRow& row, const OverheadRow& overhead,
                     std::string_view session_state) {
  v1::Process process;
  process.set_pid(row.process.pid);
  process.set_start_boot_ns(row.process.start_boot_ns);
  process.set_comm(to_valid_utf8(row.owner.comm));
  set_owner(row.owner, process);
  process.set_functions(row.functions);
  process.set_calls(row.calls);
  process.set_slow_calls(row.slow_calls);
  process.set_exited(row.exited);
  process.set_overhead_ratio(overhead.ratio);
  process.set_overhead_hooks_ratio(overhead.hooks_ratio);
  process.set_overhead_cupti_ratio(overhead.cupti_ratio);
  process.set_overhead_budget_ratio(overhead.budget_ratio);
  process.set_overhead_thread_ratio(overhead.thread_ratio);
  if (overhead.measured) *process.mutable_overhead_measured() = to_proto(*overhead.measured);
  process.set_overhead_correction(overhead.correction);
  process.set_session_state(std::string(session_state));
  return process;
}

v1::Shape to_proto(const Function& function, const ShapeRow& row) {
  const auto types = get_shape_types(function.arguments.get(), row.types);
  v1::Shape shape;
  shape.set_category(to_valid_utf8(function.category));
  shape.set_function(to_valid_utf8(function.name));
  shape.set_m(row.dimensions[0]);
  shape.set_n(row.dimensions[1]);
  shape.set_k(row.dimensions[2]);
  shape.set_batch(row.dimensions[3]);
  shape.set_a_type(std::string(get_data_type_name(types[0])));
  shape.set_b_type(std::string(get_data_type_name(types[1])));
  shape.set_c_type(std::string(get_data_type_name(types[2])));
  shape.set_compute_type(std::string(get_compute_type_name(types[3])));
  shape.set_calls(row.calls);
  shape.set_total_ns(row.total_ns);
  shape.set_flops(static_cast<double>(get_flops(row)));
  return shape;
}

v1::InFlightCall to_proto(const Function& function, const InFlightCall& call, const Owner& owner,
                          uint64_t age_ns) {
  v1::InFlightCall message;
  message.set_category(to_valid_utf8(function.category));
  message.set_function(to_valid_utf8(function.name));
  message.set_pid(call.process.pid);
  message.set_tid(call.tid);
  message.set_comm(to_valid_utf8(call.comm));
  set_container(owner, message);
  message.set_age_ns(age_ns);
  message.set_start_mono_ns(call.start_mono_ns);
  message.set_depth(call.depth);
  return message;
}

v1::HitCost to_proto(HitCost cost) {
  switch (cost) {
    case HitCost::kUnknown:
      return v1::HIT_COST_UNSPECIFIED;
    case HitCost::kEmulated:
      return v1::HIT_COST_EMULATED;
    case HitCost::kStepped:
      return v1::HIT_COST_STEPPED;
  }
  return v1::HIT_COST_UNSPECIFIED;  // only reached with a value outside the enum
}

v1::Probe to_proto(const ProbeRow& row, uint64_t adaptive_threshold_ns) {
  v1::Probe probe;
  probe.set_category(to_valid_utf8(row.category));
  probe.set_function(to_valid_utf8(row.function));
  probe.set_symbol(to_valid_utf8(row.symbol));
  probe.set_state(to_proto(row.state));
  probe.set_reason(to_valid_utf8(row.reason));
  probe.set_library(to_valid_utf8(row.library));
  probe.set_offset_bytes(row.offset_bytes);
  probe.set_mechanism(row.mechanism);
  probe.set_slow_threshold_ns(row.slow_threshold_ns);
  probe.set_hit_cost(to_proto(row.hit_cost));
  probe.set_exit_sites(row.exit_sites);
  probe.set_cost_ns(row.cost_ns);
  probe.set_adaptive_threshold_ns(adaptive_threshold_ns);
  return probe;
}

v1::SlowCall to_proto(const SlowCall& call) {
  const SlowCallEvent& event = call.event;
  v1::SlowCall message;
  message.set_id(call.id);
  message.set_category(to_valid_utf8(call.category));
  message.set_function(to_valid_utf8(call.function));
  message.set_pid(event.process.pid);
  message.set_tid(event.tid);
  message.set_comm(to_valid_utf8(event.comm));
  set_owner(event.owner, message);
  message.set_start_unix_ns(call.start_unix_ns);
  message.set_start_mono_ns(event.start_mono_ns);
  message.set_duration_ns(event.duration_ns);
  message.set_threshold_ns(event.threshold_ns);
  message.set_reason(event.is_adaptive ? "adaptive" : "absolute");
  for (const ArgumentText& text : call.arguments) {
    v1::Argument& argument = *message.add_arguments();
    argument.set_name(to_valid_utf8(text.name));
    argument.set_value(to_valid_utf8(text.value));
  }
  message.set_return_value(format_return_value(call));
  add_frames(get_frames(call.user_stack), *message.mutable_user_stack());
  if (call.user_stack) {
    message.set_user_stack_end(std::string(get_stack_end_name(call.user_stack->end)));
    message.set_user_stack_id(format_stack_id(call.user_stack));
  }
  if (event.split) *message.mutable_time_split() = make_time_split(call);
  message.set_explanation(to_valid_utf8(call.explanation));
  for (const NamedCalls& child : call.children) *message.add_children() = to_proto(child);
  for (const std::string& function : call.outer) message.add_outer(to_valid_utf8(function));
  message.set_in_flight(event.in_flight && !call.is_gone);
  if (call.is_gone) {
    message.set_state("gone");
  } else if (event.in_flight) {
    message.set_state(std::string(get_thread_state_name(*event.in_flight)));
  }
  message.set_stored(call.is_stored);
  if (call.gpu != nullptr) *message.mutable_gpu() = to_proto(*call.gpu);
  return message;
}

v1::ConfigError to_proto(const ConfigError& error) {
  v1::ConfigError message;
  message.set_path(to_valid_utf8(error.path));
  message.set_message(to_valid_utf8(error.message));
  message.set_hint(to_valid_utf8(error.hint));
  return message;
}

v1::GetStatusResponse to_proto(const Snapshot& snapshot, const DropCounters& drops,
                               int64_t now_mono_ns) {
  v1::GetStatusResponse response;
  response.set_mechanism("none");
  if (snapshot.daemon != nullptr) set_facts(*snapshot.daemon, response);
  (void)response.mutable_probes();  // none yet is a number too
  if (snapshot.probes != nullptr) set_probes(*snapshot.probes, response);
  add_problems(snapshot.problems, response);
  response.set_store_path(to_valid_utf8(snapshot.store.path));
  *response.mutable_recorder() = to_proto(snapshot.recorder);
  if (snapshot.daemon != nullptr) {
    response.set_ingest_socket(to_valid_utf8(snapshot.daemon->ingest_socket));
  }
  for (const InjectionWay& way : snapshot.injection_ways) {
    v1::InjectionWay& added = *response.add_injection_ways();
    added.set_way(way.name);
    added.set_working(way.is_working);
    added.set_detail(to_valid_utf8(way.detail));
  }
  response.set_store_bytes(snapshot.store.used_bytes);
  response.set_processes(static_cast<uint32_t>(count_running_processes(snapshot)));
  uint64_t calls = 0;
  uint64_t slow_calls = 0;
  for (const auto& series : snapshot.series) {
    calls += series->totals.calls;
    slow_calls += series->totals.slow_calls;
  }
  response.set_calls(calls);
  response.set_slow_calls(slow_calls);
  set_overhead(snapshot, now_mono_ns, response);
  set_gpu(snapshot.gpu, response);
  set_gpu_summary(snapshot, now_mono_ns, response);
  response.set_cpu_ns(snapshot.cpu_ns);
  response.set_resident_bytes(snapshot.resident_bytes);
  set_self_report(snapshot.self, response);
  for (const DropRow& row : drop_rows()) {
    const uint64_t count = drops.get(row.cause);
    if (count == 0) continue;
    v1::Drop& drop = *response.add_drops();
    drop.set_stage(std::string(row.stage));
    drop.set_reason(std::string(row.reason));
    drop.set_count(count);
    drop.set_meaning(std::string(row.meaning));
  }
  return response;
}

v1::GetConfigResponse to_proto(const DaemonFacts& facts) {
  v1::GetConfigResponse response;
  response.set_path(to_valid_utf8(facts.config_path));
  response.set_json(to_valid_utf8(facts.config_json));
  response.set_effective_json(to_valid_utf8(facts.effective_json));
  for (const std::string& path : facts.config_drop_ins) {
    response.add_drop_ins(to_valid_utf8(path));
  }
  return response;
}

v1::Attachment to_proto(const AttachRow& row) {
  v1::Attachment attachment;
  attachment.set_pid(row.process.pid);
  attachment.set_comm(to_valid_utf8(row.owner.comm));
  attachment.set_state(row.state);
  attachment.set_reason(row.reason);
  attachment.set_detail(to_valid_utf8(row.detail));
  attachment.set_hint(row.hint);
  attachment.set_held_ns(row.held_ns);
  attachment.set_longest_hold_ns(row.longest_hold_ns);
  attachment.set_took_ns(row.took_ns);
  attachment.set_attached_unix_ns(row.attached_unix_ns);
  attachment.set_threads_tried(row.threads_tried);
  attachment.set_kept_kib(row.kept_kib);
  attachment.set_kept_fds(row.kept_fds);
  attachment.set_container(to_valid_utf8(row.owner.container));
  attachment.set_pod(to_valid_utf8(row.owner.pod));
  attachment.set_namespace_(to_valid_utf8(row.owner.pod_namespace));
  return attachment;
}

v1::ProbeChange to_proto(const ProbeChange& change) {
  v1::ProbeChange message;
  message.set_added(change.added);
  message.set_removed(change.removed);
  message.set_changed(change.changed);
  message.set_unchanged(change.unchanged);
  for (const std::string& setting : change.restart_needed) {
    message.add_restart_needed(to_valid_utf8(setting));
  }
  for (const std::string& warning : change.warnings) {
    message.add_warnings(to_valid_utf8(warning));
  }
  return message;
}

}  // namespace gpuperf
