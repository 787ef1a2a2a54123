#include "daemon/view/time_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "daemon/view/rows.h"
#include "daemon/view/view_header.h"

namespace gpuperf {
namespace {

// Longer stretches are not a matter of what went before.
constexpr uint64_t kLongStretchNs = 10'000'000;

// What a reason is called, and what to do about it. `{}` stands for the subject.
struct ReasonWords {
  TimeReason reason;
  std::string_view text;
  std::string_view without_subject;
  std::string_view advice;
};

constexpr std::string_view kLessHostCode =
    "Make this code faster, do it ahead of time on another thread, or launch more work at once: "
    "larger batches, CUDA graphs, torch.compile.";
constexpr std::string_view kLessWaiting =
    "See what holds it: the thread named above, or another process.";

constexpr auto kReasons = std::to_array<ReasonWords>({
    {TimeReason::kEdge, "", "not known: before the first recorded GPU work",
     "Capture for longer, so that the beginning counts less."},
    {TimeReason::kNotRecorded, "", "not known: GPU work was not recorded",
     "GPU work is recorded in processes with the injected library."},
    {TimeReason::kNoLauncher, "", "not known: who launched the next work was not recorded", ""},
    {TimeReason::kUnseen, "", "not known: the thread was neither seen to run nor to wait",
     "Capture for longer: what a thread waits for is known from its next wait on."},
    {TimeReason::kKernel, "the GPU ran {}", "the GPU ran kernels without a name",
     "Look at the kernel: its shape, its precision, its memory access; fuse small ones."},
    {TimeReason::kGraph, "", "the GPU ran CUDA graphs, each recorded as a whole",
     "See the kernels inside: start the process with GPUPERF_NODE_BURSTS=1, and capture with "
     "--nodes."},
    {TimeReason::kCollective, "the GPU ran nothing but {}", "the GPU ran nothing but collectives",
     "Overlap communication with computation; find the rank that the others wait for."},
    {TimeReason::kCopy, "the GPU copied {} and ran no kernel",
     "the GPU set memory and ran no kernel",
     "Copy on a stream of its own from pinned memory, so that kernels run meanwhile."},
    {TimeReason::kCall, "in {}, on the CPU", "in a call, on the CPU",
     "Call it less often, keep what it makes (plans, handles, buffers), or call it ahead of time."},
    {TimeReason::kCode, "in {}, on the CPU", "host code outside of probed calls, on the CPU",
     kLessHostCode},
    {TimeReason::kElsewhere, "in {}, computing or blocked",
     "host code outside of probed calls, computing or blocked",
     "A capture of its own tells computing from waiting, and names what is waited for: gpuperfctl "
     "why --for 5s."},
    {TimeReason::kPageFaults, "page faults in {}", "page faults",
     "Use memory again instead of allocating it anew, touch it ahead of time, use huge pages."},
    {TimeReason::kBlockedCall, "in {}, blocked", "in a call, blocked", kLessWaiting},
    {TimeReason::kLock, "waiting for a lock or another thread in {}",
     "waiting for a lock or another thread", kLessWaiting},
    {TimeReason::kGil, "waiting for Python's global interpreter lock (GIL) in {}",
     "waiting for Python's global interpreter lock (GIL)",
     "Move the work of the other Python threads into processes, or into code that releases the "
     "GIL."},
    {TimeReason::kSleep, "sleeping in {}", "sleeping",
     "Wait for the event itself instead of sleeping."},
    {TimeReason::kBlocked, "blocked in {}", "blocked", kLessWaiting},
    {TimeReason::kNoCpu, "ready to run, without a CPU", "ready to run, without a CPU",
     "Too many threads share the CPUs: give the process CPUs of its own, or lower its number of "
     "threads."},
    {TimeReason::kThrottled, "stopped by its CPU quota", "stopped by its CPU quota",
     "Raise the CPU limit of its container or cgroup, or lower its number of threads."},
    {TimeReason::kCopyCall, "in {}", "in a copy call",
     "Copy from pinned memory, asynchronously, ahead of the work that needs it."},
    {TimeReason::kInput, "waiting for a file, pipe or socket in {}",
     "waiting for a file, pipe or socket", "Read ahead on another thread; use faster storage."},
    {TimeReason::kDataLoader, "waiting for the data loader in {}", "waiting for the data loader",
     "Use more loader workers, prefetch more batches, or make a sample cheaper."},
    {TimeReason::kPeerCall, "in {}, waiting for a peer", "waiting for a peer",
     "Find the rank that comes late: compare this page of all ranks."},
    {TimeReason::kLaunchCall, "in {}, launching", "launching",
     "Launch fewer, larger pieces of work: CUDA graphs, torch.compile, fused kernels."},
    {TimeReason::kSyncCall, "in {}, after the GPU had finished",
     "returning from a wait for the GPU", "Synchronise less often."},
    {TimeReason::kAfterSync, "the GPU had run dry in {}", "the GPU had run dry in a wait for it",
     "Synchronise less often: read results (.item(), .cpu()) later, or many at once, so that work "
     "is launched ahead."},
    {TimeReason::kQueued, "", "launched, on its way to the GPU",
     "Many small pieces of work: launch them as a CUDA graph, or fuse them."},
    {TimeReason::kOthers, "", "launched, while the GPU ran other processes' work",
     "Give each process a GPU of its own, or use MPS."},
    {TimeReason::kNothing, "nothing to do, in {}", "nothing to do", ""},
});

const ReasonWords& find_words(TimeReason reason) {
  const auto* found = std::ranges::find(kReasons, reason, &ReasonWords::reason);
  return found == kReasons.end() ? kReasons.front() : *found;
}

uint64_t sum_of(const ProcessTimeUse& use, std::initializer_list<TimeCause> causes) {
  uint64_t sum_ns = 0;
  for (const TimeCause cause : causes) sum_ns += use.parts_ns[static_cast<size_t>(cause)];
  return sum_ns;
}

std::string format_part(uint64_t part_ns, uint64_t wall_ns) {
  if (wall_ns == 0) return "0 %";
  return fmt::format("{:.1f} %",
                     100.0 * static_cast<double>(part_ns) / static_cast<double>(wall_ns));
}

std::string name_thread(const Capture& capture, uint32_t pid, uint32_t tid) {
  for (const CaptureThread& thread : capture.threads) {
    const CaptureProcess* process = find_row(capture.processes, thread.process);
    if (thread.tid != tid || process == nullptr || process->process.pid != pid) continue;
    return fmt::format("thread {} ({})", tid, thread.comm);
  }
  return fmt::format("thread {} of pid {}", tid, pid);
}

// "other threads of the process", "threads of pid 71".
std::string name_process(const Capture& capture, const TimeFinding& finding) {
  const CaptureThread* thread = find_row(capture.threads, finding.thread);
  const CaptureProcess* process =
      thread == nullptr ? nullptr : find_row(capture.processes, thread->process);
  if (process != nullptr && process->process.pid == finding.waker_pid) {
    return "other threads of the process";
  }
  return fmt::format("threads of pid {}", finding.waker_pid);
}

bool is_of_call(TimeReason reason) {
  return reason == TimeReason::kCall || reason == TimeReason::kBlockedCall ||
         reason == TimeReason::kCopyCall || reason == TimeReason::kPeerCall ||
         reason == TimeReason::kSyncCall;
}

// For a shell.
std::string quote(std::string_view text) {
  std::string quoted = "'";
  for (const char letter : text) quoted += letter == '\'' ? "'\\''" : std::string(1, letter);
  return quoted + "'";
}

}  // namespace

std::string_view get_cause_text(TimeCause cause) {
  switch (cause) {
    case TimeCause::kUnknown:
      return "not known";
    case TimeCause::kGpuComputing:
      return "GPU computing";
    case TimeCause::kGpuCommunicating:
      return "GPU in NCCL kernels only";
    case TimeCause::kGpuCopying:
      return "GPU copying only";
    case TimeCause::kHostComputing:
      return "host computing";
    case TimeCause::kHostBlocked:
      return "host blocked";
    case TimeCause::kNoCpu:
      return "host without a CPU";
    case TimeCause::kInput:
      return "waiting for input or a copy";
    case TimeCause::kPeer:
      return "waiting for a peer";
    case TimeCause::kLaunching:
      return "launching, and the way to the GPU";
    case TimeCause::kGpuOfOthers:
      return "GPU busy with other processes";
    case TimeCause::kNothing:
      return "nothing to do";
  }
  return "not known";
}

std::string describe_cause(TimeCause cause) {
  const bool is_plain = cause == TimeCause::kUnknown || cause == TimeCause::kGpuOfOthers;
  return (is_idle(cause) && !is_plain ? "GPU idle: " : "") + std::string(get_cause_text(cause));
}

std::string_view get_verdict_text(TimeVerdict verdict) {
  switch (verdict) {
    case TimeVerdict::kUnknown:
      return "limit not known";
    case TimeVerdict::kGpuBound:
      return "GPU-bound";
    case TimeVerdict::kLaunchBound:
      return "launch-bound";
    case TimeVerdict::kInputBound:
      return "input-bound";
    case TimeVerdict::kCommunicationBound:
      return "communication-bound";
    case TimeVerdict::kIdle:
      return "idle";
  }
  return "limit not known";
}

std::string summarise_use(const Capture& capture, const ProcessTimeUse& use) {
  using enum TimeCause;
  const std::string wall = format_duration(use.wall_ns);
  if (use.device == kNoIndex) {
    const CaptureProcess* process = find_row(capture.processes, use.process);
    return process != nullptr && process->is_injected
               ? fmt::format("No GPU work was recorded in {}.", wall)
               : "Its GPU work is not known: the process does not have the injected library.";
  }
  const auto part = [&](std::initializer_list<TimeCause> causes) {
    return format_part(sum_of(use, causes), use.wall_ns);
  };
  const std::string busy = part({kGpuComputing, kGpuCommunicating, kGpuCopying});
  const std::string text = fmt::format("The GPU had work for {} of {}", busy, wall);
  switch (use.verdict) {
    case TimeVerdict::kGpuBound:
      return text + ": the kernels are the limit.";
    case TimeVerdict::kLaunchBound:
      return text + fmt::format(", and waited for host code for {}.",
                                part({kHostComputing, kHostBlocked, kNoCpu, kLaunching}));
    case TimeVerdict::kInputBound:
      return text + fmt::format("; input and copies alone took {}.", part({kInput, kGpuCopying}));
    case TimeVerdict::kCommunicationBound:
      return text + fmt::format("; communication alone took {}.", part({kPeer, kGpuCommunicating}));
    case TimeVerdict::kIdle:
      return text + fmt::format("; the process had nothing to do for {}.", part({kNothing}));
    case TimeVerdict::kUnknown:
      break;
  }
  return text + fmt::format("; {} is not known.", part({kUnknown}));
}

std::string summarise_steps(const Capture& capture, const StepUse& use) {
  const CaptureFunction* function = find_row(capture.functions, use.function);
  const std::string name = function == nullptr ? "unknown call" : function->name;
  const bool is_turn = use.phase == StepPhase::kTrain || use.phase == StepPhase::kOptimizer;
  const std::string what =
      is_turn ? fmt::format("turn{} of a training loop (from {} to {})", use.steps == 1 ? "" : "s",
                            name, name)
              : fmt::format("{}step{} ({})",
                            use.phase == StepPhase::kUnknown
                                ? ""
                                : fmt::format("{} ", get_step_phase_name(use.phase)),
                            use.steps == 1 ? "" : "s", name);
  if (use.steps == 1) return fmt::format("1 {}, {}.", what, format_duration(use.total_ns));
  return fmt::format("{} {}: half of them took at most {}.", use.steps, what,
                     format_duration(use.median_ns));
}

std::string describe_longest(const Capture& capture, const StepUse& use) {
  if (use.steps < 2) {
    return use.is_asked ? "It is the only one of its kind in the capture as a whole." : "";
  }
  std::string text =
      fmt::format("The {} took {}, {} after the capture began",
                  use.is_asked ? "one asked for" : "longest", format_duration(use.longest_ns),
                  format_duration(use.longest_start_mono_ns - capture.start_mono_ns));
  if (use.longest_tokens > 0 && use.longest_tokens != use.usual_tokens) {
    text += fmt::format(", with {} tokens (the others: {} on average)", use.longest_tokens,
                        use.usual_tokens);
  }
  return text + ".";
}

std::string describe_finding(const TimeFinding& finding) {
  const ReasonWords& words = find_words(finding.reason);
  if (finding.subject.empty() || words.text.empty()) return std::string(words.without_subject);
  return fmt::format(fmt::runtime(words.text), finding.subject);
}

std::string describe_detail(const Capture& capture, const TimeFinding& finding) {
  std::string text;
  if (finding.waker_pid != 0) {
    text = fmt::format("Most waits were ended by {}.",
                       finding.waker_tid == 0
                           ? name_process(capture, finding)
                           : name_thread(capture, finding.waker_pid, finding.waker_tid));
  }
  const TimeCause cause = get_cause(finding.reason);
  const bool is_of_host = cause == TimeCause::kHostComputing || cause == TimeCause::kLaunching;
  if (is_of_host && finding.reason != TimeReason::kAfterSync &&
      finding.time_ns < finding.stretches * kLongStretchNs &&
      2 * finding.after_sync_ns > finding.time_ns) {
    text +=
        fmt::format("{}{} of it followed a wait for the GPU, which had then no work left.",
                    text.empty() ? "" : " ", format_part(finding.after_sync_ns, finding.time_ns));
  }
  return text;
}

std::string_view advise(TimeReason reason) { return find_words(reason).advice; }

std::string make_command(const Capture& capture, const ProcessTimeUse& use,
                         const TimeFinding& finding) {
  const CaptureProcess* process = find_row(capture.processes, use.process);
  const uint32_t pid = process == nullptr ? 0 : process->process.pid;
  if (is_of_call(finding.reason) && !finding.subject.empty()) {
    return fmt::format("gpuperfctl slow list --pid {} --function {}", pid, finding.subject);
  }
  if (finding.reason == TimeReason::kKernel || finding.reason == TimeReason::kCollective) {
    return fmt::format("gpuperfctl kernels --by stack --capture {} --kernel {}", capture.id,
                       quote(finding.subject));
  }
  if (finding.reason == TimeReason::kGraph) {
    return fmt::format("gpuperfctl trace start --pid {} --nodes --duration 5s", pid);
  }
  if (finding.reason == TimeReason::kCopy) {
    return fmt::format("gpuperfctl kernels --by stack --capture {} --kernel 'copy*'", capture.id);
  }
  if (finding.reason == TimeReason::kOthers) return "gpuperfctl gpus";
  if (finding.reason == TimeReason::kNotRecorded) {
    return process != nullptr && process->is_injected
               ? fmt::format("gpuperfctl sessions --pid {}", pid)
               : fmt::format("gpuperfctl attach --pid {}", pid);
  }
  return fmt::format("gpuperfctl trace fetch {0} --format report --file {0}.html", capture.id);
}

std::vector<std::string> list_time_notes(const Capture& capture) {
  std::vector<std::string> notes;
  const bool has_host = !capture.calls.empty() || !capture.launches.empty();
  if (has_host && capture.thread_times.empty()) {
    notes.push_back(
        "The capture has no states of threads: time outside of probed calls counts as computing, "
        "though threads may have been blocked. Captures of the flight recorder have none; one of "
        "its own has (gpuperfctl why --for 5s).");
  }
  if (capture.matches.work > capture.matches.work_matched) {
    notes.push_back(
        fmt::format("{} of {} pieces of GPU work have no exact launch: who launched them, and so "
                    "which thread the GPU waited for, may be wrong.",
                    capture.matches.work - capture.matches.work_matched, capture.matches.work));
  }
  if (const std::string gaps = describe_gaps(capture); !gaps.empty()) notes.push_back(gaps);
  return notes;
}

}  // namespace gpuperf
