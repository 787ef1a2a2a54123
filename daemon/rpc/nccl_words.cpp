#include "daemon/rpc/nccl_words.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "daemon/model/display_text.h"
#include "daemon/model/time_split.h"
#include "daemon/model/trace_event.h"
#include "daemon/rpc/function_list.h"
#include "daemon/view/view_header.h"

namespace gpuperf {
namespace {

// Slow calls older than this have nothing to do with what is seen now.
constexpr uint64_t kRecentNs = 30'000'000'000;

struct CauseRow {
  std::string_view name;
  std::string_view words;
};
constexpr CauseRow kCauseRows[] = {
    {"stopped", "stopped by a signal (SIGSTOP) or a debugger"},
    {"running", "running host code"},
    {"cpu_quota", "stopped by its CPU quota"},
    {"no_cpu", "ready to run, without a CPU"},
    {"io", "waiting for a file, pipe or socket: its input is late"},
    {"lock", "waiting for a lock or another thread"},
    {"sleep", "sleeping"},
    {"driver", "waiting in a device's driver"},
    {"other_wait", "blocked in the kernel"},
    {"gpu", "its calls are in time, its GPU reaches them late: earlier work on it takes longer"},
};

std::string describe_percent(double ratio) { return fmt::format("{:.0f} %", ratio * 100); }

std::string describe_process(const Snapshot& snapshot, const NcclRankRow& rank) {
  const std::string comm = to_valid_utf8(get_owner(snapshot, rank.process).comm);
  const std::string who = describe_nccl_rank(rank);
  if (!rank.rank) return comm.empty() ? who : fmt::format("{} ({})", who, comm);
  if (comm.empty()) return fmt::format("{} (pid {})", who, rank.process.pid);
  return fmt::format("{} (pid {}, {})", who, rank.process.pid, comm);
}

std::string capitalize(std::string text) {
  if (text.starts_with("rank")) text[0] = 'R';
  return text;
}

std::string describe_late(const NcclLateness& lateness) {
  const uint64_t each_ns = lateness.caused_ns / std::max<uint64_t>(lateness.late_steps, 1);
  return fmt::format(
      "the other ranks on this host wait for it {} of the time, {} in each of {} of {} operations",
      describe_percent(lateness.get_share()), format_duration(each_ns), lateness.late_steps,
      lateness.steps);
}

std::string describe_stuck(const NcclCommunicatorRow& communicator, const NcclVerdict& verdict) {
  const NcclStall& stall = *communicator.stall;
  const size_t more = stall.missing_ranks.size() - 1;
  return fmt::format(
      "{}it has not begun {} number {}, for which {} of the {} ranks on this host have waited {}",
      more == 0 ? "" : fmt::format("with {} others, ", more),
      get_nccl_operation_name(stall.operation), stall.step,
      communicator.local_ranks.size() - stall.missing_ranks.size(), communicator.local_ranks.size(),
      format_duration(verdict.stuck_ns));
}

std::string describe_looks(const NcclLateness& lateness) {
  uint32_t looks = 0;
  for (const uint32_t count : lateness.activities) looks += count;
  const auto most = std::ranges::max_element(lateness.activities);
  if (looks == 0) return "";
  const auto activity = static_cast<NcclActivity>(most - lateness.activities.begin());
  return fmt::format("its thread was found {} in {} of {} looks while the others waited",
                     get_nccl_cause_words(get_nccl_activity_name(activity)), *most, looks);
}

uint64_t get_time_since_ns(uint64_t mono_ns, int64_t now_mono_ns) {
  const auto now = static_cast<uint64_t>(now_mono_ns);
  return now - std::min(now, mono_ns);
}

std::string describe_last_call(const Snapshot& snapshot, const NcclRankRow& rank,
                               int64_t now_mono_ns) {
  const std::string name = get_nccl_call_name(snapshot, rank.last_function_id);
  if (name.empty()) return "";
  return fmt::format("its last call was {}, {} ago", name,
                     format_duration(get_time_since_ns(rank.last_start_mono_ns, now_mono_ns)));
}

std::string describe_in_flight(const Snapshot& snapshot, const NcclRankRow& rank) {
  const InFlightCall* call = find_nccl_call(snapshot, rank);
  if (call == nullptr) return "";
  return fmt::format("it is in {} since {}", get_nccl_call_name(snapshot, call->function_id),
                     format_duration(get_age_ns(*snapshot.in_flight, *call)));
}

std::string describe_slow_call(const Snapshot& snapshot, const NcclRankRow& rank,
                               int64_t now_mono_ns) {
  const SlowCall* longest = nullptr;
  for (const auto& call : snapshot.slow_calls) {
    const SlowCallEvent& event = call->event;
    if (event.process != rank.process || event.tid != rank.tid) continue;
    const uint64_t end_ns = event.start_mono_ns + event.duration_ns;
    if (get_time_since_ns(end_ns, now_mono_ns) > kRecentNs) continue;
    if (longest == nullptr || event.duration_ns > longest->event.duration_ns) longest = call.get();
  }
  if (longest == nullptr) return "";
  return fmt::format("its longest slow call of late: {}, {}: gpuperfctl slow show {}",
                     to_valid_utf8(longest->function), format_duration(longest->event.duration_ns),
                     longest->id);
}

std::string describe_gpu(const Snapshot& snapshot, const NcclRankRow& rank, int64_t now_mono_ns) {
  const GpuActivity* activity = find_nccl_gpu(snapshot, rank.process);
  if (activity == nullptr || snapshot.gpus == nullptr) return "";
  const auto& gpus = snapshot.gpus->gpus;
  const auto gpu = std::ranges::find(gpus, activity->uuid, &GpuHealth::uuid);
  if (gpu == gpus.end()) return "";
  const GpuVerdict verdict = judge_gpu(*gpu, now_mono_ns);
  std::string text = fmt::format("its GPU {}: {}", gpu->index, verdict.text);
  if (gpu->sm_clock_hz && gpu->sm_clock_max_hz) {
    text += fmt::format("; SM clock {} of {} MHz", *gpu->sm_clock_hz / 1'000'000,
                        *gpu->sm_clock_max_hz / 1'000'000);
  }
  return text;
}

}  // namespace

std::string get_nccl_call_name(const Snapshot& snapshot, uint32_t function_id) {
  const Function* function = find_function(snapshot, function_id);
  return function == nullptr ? "" : to_valid_utf8(function->name);
}

std::string_view get_nccl_cause_words(std::string_view cause) {
  const auto row = std::ranges::find(kCauseRows, cause, &CauseRow::name);
  return row == std::end(kCauseRows) ? "not known" : row->words;
}

std::string describe_nccl(const Snapshot& snapshot, const NcclCommunicatorRow& communicator,
                          const NcclVerdict& verdict) {
  const NcclRankRow& rank = communicator.local_ranks[verdict.rank_index];
  return capitalize(fmt::format("{} is {}: {}. Cause: {}.", describe_process(snapshot, rank),
                                verdict.is_stuck ? "stuck" : "late",
                                verdict.is_stuck ? describe_stuck(communicator, verdict)
                                                 : describe_late(*communicator.lateness),
                                get_nccl_cause_words(verdict.cause)));
}

std::vector<std::string> list_nccl_evidence(const Snapshot& snapshot,
                                            const NcclCommunicatorRow& communicator,
                                            const NcclVerdict& verdict, int64_t now_mono_ns) {
  const NcclRankRow& rank = communicator.local_ranks[verdict.rank_index];
  std::vector<std::string> evidence = {
      verdict.is_stuck ? "" : describe_looks(*communicator.lateness),
      verdict.is_stuck && rank.syscall != UINT32_MAX
          ? "it is in system call " + get_syscall_name(static_cast<int32_t>(rank.syscall))
          : "",
      describe_in_flight(snapshot, rank),
      verdict.is_stuck ? describe_last_call(snapshot, rank, now_mono_ns) : "",
      describe_slow_call(snapshot, rank, now_mono_ns),
      describe_gpu(snapshot, rank, now_mono_ns),
      !verdict.is_stuck && communicator.lateness->basis == NcclBasis::kHost
          ? "from calls: no kernels were recorded on all ranks, so a GPU that still had work may "
            "not "
            "have waited"
          : "",
      verdict.is_stuck
          ? ""
          : fmt::format("the code that takes the time: gpuperfctl why --pid {}", rank.process.pid)};
  std::erase(evidence, "");
  return evidence;
}

const GpuActivity* find_nccl_gpu(const Snapshot& snapshot, const ProcessKey& process) {
  const GpuActivity* found = nullptr;
  for (const GpuActivity& activity : snapshot.gpu.activity) {
    const bool is_its = std::ranges::any_of(
        activity.processes, [&](const ProcessKey& user) { return is_same_process(user, process); });
    if (!is_its) continue;
    if (found != nullptr) return nullptr;
    found = &activity;
  }
  return found;
}

const InFlightCall* find_nccl_call(const Snapshot& snapshot, const NcclRankRow& rank) {
  if (snapshot.in_flight == nullptr) return nullptr;
  const InFlightCall* found = nullptr;
  for (const InFlightCall& call : snapshot.in_flight->calls) {
    if (call.tid != rank.tid || !is_same_process(call.process, rank.process)) continue;
    if (found == nullptr || call.depth < found->depth) found = &call;
  }
  return found;
}

}  // namespace gpuperf
