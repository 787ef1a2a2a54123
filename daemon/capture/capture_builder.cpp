#include "daemon/capture/capture_builder.h"

#include <algorithm>
#include <utility>

#include "daemon/model/session_names.h"

namespace gpuperf {
CaptureBuilder::CaptureBuilder(const TraceWindow& window, const CaptureScope& scope,
                               const CaptureNames& names)
    : window_(window), scope_(scope), names_(names) {
  capture_.id = scope.id;
  capture_.name = scope.name;
  capture_.trigger = scope.trigger;
  capture_.host = names.host;
  capture_.version = names.version;
  capture_.start_unix_ns = scope.start_unix_ns;
  capture_.start_mono_ns = scope.start_mono_ns;
  capture_.duration_ns = scope.end_mono_ns - scope.start_mono_ns;
  for (const TraceWindow::Part& part : window_.parts) read(part);
  if (scope.lost_events + scope.lost_hits > 0) {
    capture_.gaps.push_back({.start_mono_ns = scope.start_mono_ns,
                             .duration_ns = capture_.duration_ns,
                             .cause = scope.lost_events > 0 ? "capture_full" : "trace_ring_full",
                             .count = scope.lost_events + scope.lost_hits});
  }
  for (uint32_t i = 0; i < processes_.size(); ++i) join(i);
  for (const auto& [key, count] : stalls_) {
    const auto& [process, kernel, stall] = key;
    capture_.stalls.push_back({.process = process,
                               .kernel = kernel,
                               .stall = stall,
                               .samples = count.samples,
                               .idle_samples = count.idle_samples});
  }
  read_gpu_counters();
}

void CaptureBuilder::read_gpu_counters() {
  if (!scope_.gpu) return;
  for (const GpuCounterRecord& record : window_.gpu_counters) {
    if (record.window.overlaps(scope_.start_mono_ns, scope_.end_mono_ns)) {
      capture_.gpu_counters.push_back(record);
    }
  }
  std::ranges::stable_sort(capture_.gpu_counters, {}, [](const GpuCounterRecord& record) {
    return record.window.start_mono_ns;
  });
}

bool CaptureBuilder::is_in_window(const TraceEvent& event) const {
  const uint64_t last_ns = event.start_mono_ns + (scope_.with_overlap ? event.duration_ns : 0);
  return last_ns >= scope_.start_mono_ns && event.start_mono_ns < scope_.end_mono_ns;
}

void CaptureBuilder::read(const TraceWindow::Part& part) {
  Epoch& epoch = epochs_[part.tables.get()];
  epoch.tables = part.tables.get();
  for (const TraceEvent& event : *part.events) {
    if (event.process >= epoch.tables->processes.size()) continue;  // cannot be
    const uint32_t process_index = get_process(epoch, event.process);
    if (process_index != kNoIndex) read(event, epoch, process_index);
  }
}

void CaptureBuilder::read(const TraceEvent& event, Epoch& epoch, uint32_t process_index) {
  Process& process = processes_[process_index];
  switch (static_cast<TraceKind>(event.kind)) {
    case TraceKind::kLaunch:
      if (!scope_.cpu) return;
      process.hits.push_back({.mono_ns = event.start_mono_ns,
                              .tid = event.first,
                              .function = get_probed(event.second).plain_name,
                              .site_id = event.third | static_cast<uint64_t>(event.fourth) << 32,
                              .captured = get_captured(epoch, event.tag)});
      return;
    case TraceKind::kCall:
      return read_call(event, epoch, process_index);
    case TraceKind::kApi:
      process.calls.push_back({.start_ns = event.start_mono_ns,
                               .end_ns = event.start_mono_ns + event.duration_ns,
                               .tid = event.second,
                               .correlation_id = event.first,
                               .callback_id = event.third,
                               .is_driver = (event.tag & kTraceDriverCall) != 0,
                               .is_hooked = (event.tag & kTraceHooked) != 0,
                               .has_failed = event.fourth != 0});
      return;
    case TraceKind::kKernel:
    case TraceKind::kCopy:
    case TraceKind::kSet:
    case TraceKind::kGraph:
      return read_work(event, epoch, process_index);
    case TraceKind::kWait:
      if (!scope_.gpu || !is_in_window(event)) return;
      process.waits.push_back({.row = {.start_mono_ns = event.start_mono_ns,
                                       .duration_ns = event.duration_ns,
                                       .type = event.second},
                               .correlation_id = event.first});
      return;
    case TraceKind::kThread:
      return read_thread_time(event, epoch, process_index);
    case TraceKind::kStall:
      return read_stall(event, epoch, process_index);
    case TraceKind::kStep:
      return read_step(event, process_index);
    case TraceKind::kGap:
    case TraceKind::kLost:
      return read_gap(event, process_index);
  }
}

bool CaptureBuilder::overlaps_window(const TraceEvent& event) const {
  return event.start_mono_ns < scope_.end_mono_ns &&
         event.start_mono_ns + event.duration_ns >= scope_.start_mono_ns;
}

void CaptureBuilder::read_call(const TraceEvent& event, const Epoch& epoch,
                               uint32_t process_index) {
  if (!scope_.cpu || !overlaps_window(event)) return;
  const auto off_cpu_ns = static_cast<uint64_t>(static_cast<double>(event.duration_ns) *
                                                (static_cast<double>(event.third) / UINT32_MAX));
  const std::vector<uint64_t>& stacks = epoch.tables->stacks;
  capture_.calls.push_back({.start_mono_ns = event.start_mono_ns,
                            .duration_ns = event.duration_ns,
                            .off_cpu_ns = off_cpu_ns,
                            .thread = get_thread(process_index, event.first),
                            .function = get_probed(event.second).function,
                            .stack = event.fourth < stacks.size()
                                         ? get_stack(process_index, stacks[event.fourth])
                                         : kNoIndex,
                            .depth = static_cast<uint32_t>(event.tag)});
}

void CaptureBuilder::read_thread_time(const TraceEvent& event, const Epoch& epoch,
                                      uint32_t process_index) {
  if (!scope_.cpu || !overlaps_window(event) || event.tag >= kHostStates) return;
  const std::vector<uint64_t>& stacks = epoch.tables->stacks;
  capture_.thread_times.push_back({.start_mono_ns = event.start_mono_ns,
                                   .duration_ns = event.duration_ns,
                                   .thread = get_thread(process_index, event.first),
                                   .state = static_cast<HostState>(event.tag),
                                   .stack = event.fourth < stacks.size()
                                                ? get_stack(process_index, stacks[event.fourth])
                                                : kNoIndex,
                                   .waker_pid = event.third,
                                   .waker_tid = event.second});
}

void CaptureBuilder::read_work(const TraceEvent& event, Epoch& epoch, uint32_t process_index) {
  if (!scope_.gpu) return;
  if (!is_in_window(event)) {
    if (scope_.with_overlap) processes_[process_index].other_work.push_back(event.first);
    return;
  }
  Work work{.row = {.start_mono_ns = event.start_mono_ns, .duration_ns = event.duration_ns},
            .correlation_id = event.first};
  CaptureWork& row = work.row;
  const auto kind = static_cast<TraceKind>(event.kind);
  if (kind == TraceKind::kKernel) {
    row.kernel = get_kernel(epoch, event.second);
    row.stream = get_stream(epoch, event.third & UINT16_MAX, process_index);
    row.shape = get_shape(epoch, event.third >> 16);
    row.node_id = event.fourth;
  } else {
    row.stream = get_stream(epoch, event.second, process_index);
    row.kind = kind == TraceKind::kCopy  ? WorkKind::kCopy
               : kind == TraceKind::kSet ? WorkKind::kSet
                                         : WorkKind::kGraph;
  }
  if (kind == TraceKind::kGraph) {
    row.graph_id = event.third;
  } else {
    row.graph_id = event.tag < epoch.tables->graphs.size() ? epoch.tables->graphs[event.tag] : 0;
  }
  if (kind == TraceKind::kCopy || kind == TraceKind::kSet) {
    const uint64_t packed = event.third | static_cast<uint64_t>(event.fourth) << 32;
    const uint64_t node = packed >> 48;
    row.bytes = packed & kTraceMaxBytes;
    row.direction = static_cast<uint8_t>(packed >> 40);
    row.node_id = node == kTraceNoCopyNode ? 0 : static_cast<uint32_t>(node);
    work.has_no_node = node == kTraceNoCopyNode;
  }
  processes_[process_index].work.push_back(work);
}

void CaptureBuilder::read_stall(const TraceEvent& event, Epoch& epoch, uint32_t process_index) {
  if (!scope_.gpu || !is_in_window(event) || event.tag >= GPUPERF_STALL_COUNT) return;
  StallCount& sum =
      stalls_[{process_index, get_kernel(epoch, event.first), static_cast<uint32_t>(event.tag)}];
  sum.samples += event.second;
  sum.idle_samples += event.third;
}

void CaptureBuilder::read_step(const TraceEvent& event, uint32_t process_index) {
  if (!scope_.cpu || !overlaps_window(event)) return;
  const TraceStepFacts facts = unpack_step_facts(event.tag);
  capture_.steps.push_back({.start_mono_ns = event.start_mono_ns,
                            .duration_ns = event.duration_ns,
                            .thread = get_thread(process_index, event.first),
                            .function = get_probed(event.second).function,
                            .phase = facts.phase,
                            .phase_quality = facts.phase_quality,
                            .duration_quality = facts.duration_quality,
                            .tokens = {event.third, facts.tokens_quality},
                            .sequences = {event.fourth, facts.sequences_quality}});
}

void CaptureBuilder::read_gap(const TraceEvent& event, uint32_t process_index) {
  if (!overlaps_window(event)) return;
  const bool is_loss = static_cast<TraceKind>(event.kind) == TraceKind::kLost;
  if (is_loss) processes_[process_index].options.has_lost_records = true;
  capture_.gaps.push_back({.start_mono_ns = event.start_mono_ns,
                           .duration_ns = event.duration_ns,
                           .process = process_index,
                           .cause = std::string(is_loss ? get_session_loss_name(event.first)
                                                        : get_session_cause_name(event.first)),
                           .count = is_loss ? event.second : 0});
}

// What a process's events say of each other.
void CaptureBuilder::join(uint32_t process_index) {
  Process& process = processes_[process_index];
  process.options.has_lost_hits = scope_.lost_events + scope_.lost_hits > 0;
  std::vector<LaunchCall> others;  // that launch nothing by themselves: waits, and all in bursts
  std::erase_if(process.calls, [&](const LaunchCall& call) {
    const bool launches = get_api(call.is_driver, call.callback_id).may_launch;
    if (!launches) others.push_back(call);
    return !launches;
  });
  for (LaunchCall& call : process.calls) {
    if (call.is_driver) call.driver_function = get_api(true, call.callback_id).plain_name;
  }
  std::ranges::stable_sort(
      process.hits, {}, [](const LaunchHit& hit) { return std::make_pair(hit.tid, hit.mono_ns); });
  std::ranges::stable_sort(process.calls, {}, [](const LaunchCall& call) {
    return std::make_pair(call.tid, call.end_ns);
  });
  const LaunchMatches matches = match_launches(process.hits, process.calls, process.options);
  add_launches(process_index, matches);
  add_lone_hits(process_index, matches);
  add_work(process_index);
  place_nodes(process_index);
  std::ranges::sort(others, {}, &LaunchCall::correlation_id);
  for (Wait& wait : process.waits) {
    const auto call =
        std::ranges::lower_bound(others, wait.correlation_id, {}, &LaunchCall::correlation_id);
    if (call != others.end() && call->correlation_id == wait.correlation_id) {
      wait.row.thread = get_thread(process_index, call->tid);
    }
    capture_.waits.push_back(wait.row);
  }
  process = {};
}

}  // namespace gpuperf
