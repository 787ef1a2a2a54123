#include "daemon/rpc/gpu_to_proto.h"

#include <algorithm>
#include <string>

#include "daemon/model/display_text.h"
#include "daemon/model/session_names.h"
#include "daemon/rpc/kernel_limits.h"
#include "daemon/rpc/owner_to_proto.h"
#include "injector/session_abi.h"

namespace gpuperf {
namespace {

uint64_t get_count(const DurationTotals& totals) { return totals.histogram.count(); }

template <typename Message>
void set_durations(const DurationTotals& totals, Message& message) {
  message.set_total_ns(totals.total_ns);
  message.set_p50_ns(get_quantile_ns(totals, 0.5));
  message.set_p99_ns(get_quantile_ns(totals, 0.99));
  message.set_max_ns(totals.max_ns);
}

uint64_t get_span_ns(int64_t from_mono_ns, int64_t to_mono_ns) {
  return static_cast<uint64_t>(std::max<int64_t>(to_mono_ns - from_mono_ns, 0));
}

void add_losses(const SessionStatus& status, v1::Session& session) {
  uint64_t lost = 0;
  for (size_t i = 0; i < status.losses.size(); ++i) {
    if (status.losses[i] == 0) continue;
    if (i != GPUPERF_SESSION_LOSS_SAMPLED) lost += status.losses[i];
    v1::SessionLoss& loss = *session.add_losses();
    loss.set_reason(std::string(get_session_loss_name(i)));
    loss.set_count(status.losses[i]);
  }
  session.set_lost_records(lost);
}

void add_gaps(const SessionRow& row, v1::Session& session) {
  for (uint32_t cause = 0; cause < row.gaps.size(); ++cause) {
    if (row.gaps[cause].count == 0) continue;
    v1::SessionGap& gap = *session.add_gaps();
    gap.set_cause(std::string(get_session_cause_name(cause)));
    gap.set_count(row.gaps[cause].count);
    gap.set_total_ns(row.gaps[cause].total_ns);
  }
}

void add_copies(const GpuProcessTotals& totals, v1::Session& session) {
  for (const CopyTotals& copy : totals.copies) {
    v1::CopyStats& added = *session.add_copies();
    added.set_direction(std::string(get_copy_direction_name(copy.is_set, copy.direction)));
    if (!copy.is_set) {
      added.set_source_memory(std::string(get_memory_kind_name(copy.source_memory)));
    }
    added.set_target_memory(std::string(get_memory_kind_name(copy.target_memory)));
    added.set_count(get_count(copy.duration));
    added.set_bytes(copy.bytes);
    set_durations(copy.duration, added);
  }
}

void add_graphs(const GpuProcessTotals& totals, v1::Session& session) {
  for (const GraphTotals& graph : totals.graphs) {
    v1::GraphStats& added = *session.add_graphs();
    added.set_graph_id(graph.graph_id);
    added.set_launches(get_count(graph.duration));
    set_durations(graph.duration, added);
    added.set_launch_latency_p50_ns(get_quantile_ns(graph.launch_latency, 0.5));
    added.set_launch_latency_p99_ns(get_quantile_ns(graph.launch_latency, 0.99));
  }
}

void add_process(const GpuProcessRow& process, v1::Session& session) {
  const GpuProcessTotals& totals = process.totals;
  add_copies(totals, session);
  for (uint32_t type = 0; type < totals.syncs.size(); ++type) {
    if (get_count(totals.syncs[type]) == 0) continue;
    v1::SyncStats& sync = *session.add_syncs();
    sync.set_type(std::string(get_sync_type_name(type)));
    sync.set_count(get_count(totals.syncs[type]));
    set_durations(totals.syncs[type], sync);
  }
  add_graphs(totals, session);
  for (uint32_t type = 0; type < totals.overheads.size(); ++type) {
    if (totals.overheads[type].count == 0) continue;
    v1::GpuOverhead& overhead = *session.add_overheads();
    overhead.set_type(std::string(get_overhead_type_name(type)));
    overhead.set_count(totals.overheads[type].count);
    overhead.set_total_ns(totals.overheads[type].total_ns);
  }
  for (const GpuMemoryRow& row : process.memory) {
    v1::GpuMemory& memory = *session.add_memory();
    memory.set_gpu_uuid(format_gpu_uuid(row.uuid));
    memory.set_gpu_ordinal(row.ordinal);
    memory.set_memory(std::string(get_memory_kind_name(row.memory)));
    memory.set_used_bytes(row.used_bytes);
    memory.set_peak_bytes(row.peak_bytes);
    memory.set_allocations(row.allocations);
    memory.set_releases(row.releases);
  }
  // Without one allocation seen, they may not be recorded at all (ingest.allocations).
  session.set_memory_complete(process.memory_complete && !process.memory.empty());
  session.set_api_calls(totals.api_calls);
  session.set_api_errors(totals.api_errors);
}

}  // namespace

v1::KernelStats to_proto(const KernelText& name, const KernelTotals& totals) {
  const uint64_t launches = get_launches(totals);
  v1::KernelStats stats;
  stats.set_kernel(to_valid_utf8(name.full));
  stats.set_short_name(to_valid_utf8(name.brief));
  stats.set_launches(launches);
  stats.set_graph_launches(totals.graph_launches);
  stats.set_coverage(get_coverage(totals));
  stats.set_estimated_launches(totals.estimated_launches);
  set_durations(totals.duration, stats);
  stats.set_min_ns(totals.duration.min_ns);
  stats.set_avg_ns(launches == 0 ? 0 : totals.duration.total_ns / launches);
  stats.set_p90_ns(get_quantile_ns(totals.duration, 0.9));
  stats.set_joined_launches(get_count(totals.launch_latency));
  stats.set_launch_latency_p50_ns(get_quantile_ns(totals.launch_latency, 0.5));
  stats.set_launch_latency_p99_ns(get_quantile_ns(totals.launch_latency, 0.99));
  stats.set_launch_latency_max_ns(totals.launch_latency.max_ns);
  stats.set_queue_delay_p50_ns(get_quantile_ns(totals.queue_delay, 0.5));
  stats.set_queue_delay_p99_ns(get_quantile_ns(totals.queue_delay, 0.99));
  stats.set_queue_delay_max_ns(totals.queue_delay.max_ns);
  return stats;
}

v1::KernelStats to_proto(const KernelRow& row) {
  v1::KernelStats stats = to_proto(*row.name, row.totals);
  stats.set_pid(row.process.pid);
  stats.set_comm(to_valid_utf8(row.owner.comm));
  set_owner(row.owner, stats);
  stats.set_exited(row.exited);
  set_limits(row.shape, row.sm, row.stalls.get(), stats);
  return stats;
}

v1::Session to_proto(const SessionRow& row, const GpuProcessRow* process, int64_t now_mono_ns) {
  const SessionStatus& status = row.status;
  const int64_t end_mono_ns = row.open ? now_mono_ns : row.closed_mono_ns;
  v1::Session session;
  session.set_sampled_ns(row.sampling.duration_ns);
  session.set_samples(row.sampling.samples);
  session.set_dropped_samples(row.sampling.dropped_samples);
  session.set_other_samples(row.sampling.other_samples);
  session.set_sample_buffer_full(row.sampling.full_count);
  session.set_id(row.facts.session_id);
  session.set_pid(row.facts.process.pid);
  session.set_comm(to_valid_utf8(row.facts.owner.comm));
  set_owner(row.facts.owner, session);
  session.set_state(row.open ? std::string(get_session_state_name(status.state)) : "closed");
  session.set_cause(std::string(get_session_cause_name(status.cause)));
  session.set_detail(to_valid_utf8(row.open ? status.detail : row.closed_reason));
  for (const std::string_view level : list_session_levels(status.level)) {
    session.add_level(std::string(level));
  }
  session.set_sample_every(std::max<uint32_t>(status.sample_every, 1));
  session.set_received_records(status.received_records);
  session.set_rejected_records(status.rejected_records);
  add_losses(status, session);
  add_gaps(row, session);
  session.set_age_ns(get_span_ns(row.facts.mono_ns, end_mono_ns));
  session.set_state_age_ns(
      get_span_ns(row.open ? row.state_since_mono_ns : row.closed_mono_ns, now_mono_ns));
  session.set_collected_ns(get_collected_ns(row, end_mono_ns));
  session.set_in_windows(row.is_in_windows);
  session.set_launch_cost_ns(static_cast<uint64_t>(std::max(row.launch_cost.ns, 0.0)));
  session.set_launch_cost_error_ns(static_cast<uint64_t>(row.launch_cost.error_ns));
  session.set_launch_cost_windows(row.launch_cost.windows);
  session.set_injector_cpu_ns(status.injector_cpu_ns);
  session.set_cupti_overhead_ns(status.cupti_overhead_ns);
  session.set_clock_error_ns(std::max(status.clock_error_ns, row.join.clock_worst_ns));
  session.set_clock_violations(row.join.clock_violations);
  session.set_joined_launches(row.join.joined);
  session.set_yields(status.yields);
  session.set_cupti_version(status.cupti_version);
  session.set_driver_version(status.driver_version);
  session.set_attached_unix_ns(row.facts.attach.attached_unix_ns);
  session.set_attach_held_ns(row.facts.attach.held_ns);
  session.set_injector_version(to_valid_utf8(row.facts.injector_version));
  session.set_buffer_mib(status.buffer_mib);
  session.set_uid(row.facts.uid);
  session.set_clock_foreign(status.is_clock_foreign);
  if (process != nullptr) add_process(*process, session);
  return session;
}

v1::GpuActivity to_proto(const GpuActivity& activity) {
  v1::GpuActivity message;
  message.set_gpu_uuid(format_gpu_uuid(activity.uuid));
  message.set_gpu_ordinal(activity.ordinal);
  message.set_pid(activity.process.pid);
  message.set_busy_ns(activity.busy_ns);
  message.set_without_nccl_ns(activity.without_nccl_ns);
  message.set_kernel_ns(activity.kernel_ns);
  message.set_copy_ns(activity.copy_ns);
  message.set_graph_ns(activity.graph_ns);
  message.set_span_ns(get_span_ns(activity.since_mono_ns, activity.newest_mono_ns));
  message.set_late_ns(activity.late_ns);
  message.set_observed_ns(activity.observed_ns);
  for (const ProcessKey& process : activity.processes) message.add_pids(process.pid);
  return message;
}

void set_gpu(const GpuReport& report, v1::GetStatusResponse& response) {
  const auto counts = count_sessions(report);
  v1::SessionCounts& sessions = *response.mutable_sessions();
  sessions.set_starting(counts[0]);
  sessions.set_waiting(counts[GPUPERF_SESSION_STATE_WAITING]);
  sessions.set_collecting(counts[GPUPERF_SESSION_STATE_COLLECTING]);
  sessions.set_paused(counts[GPUPERF_SESSION_STATE_PAUSED]);
  sessions.set_yielded(counts[GPUPERF_SESSION_STATE_YIELDED]);
  sessions.set_off(counts[GPUPERF_SESSION_STATE_OFF]);
  sessions.set_failed(counts[GPUPERF_SESSION_STATE_FAILED]);
  uint64_t lost = 0;
  for (size_t i = 0; i < report.lost_records.size(); ++i) {
    if (i != GPUPERF_SESSION_LOSS_SAMPLED) lost += report.lost_records[i];
  }
  response.set_session_lost_records(lost);
  uint64_t launches = 0;
  for (const auto* rows : {&report.kernels, &report.retired_kernels}) {
    for (const auto& row : *rows) launches += get_launches(row->totals);
  }
  response.set_kernel_launches(launches);
}

}  // namespace gpuperf
