#include "daemon/view/time_use.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "daemon/view/gpu_use.h"
#include "daemon/view/host_cause.h"
#include "daemon/view/rows.h"
#include "daemon/view/step_groups.h"
#include "daemon/view/time_groups.h"

namespace gpuperf {
namespace {

// A shorter gap after a synchronising call comes of that call: work launched ahead would fill it.
constexpr uint64_t kShortGapNs = 1'000'000;

uint64_t get_end(const CaptureLaunch& launch) { return launch.start_mono_ns + launch.duration_ns; }

using TakePiece = std::function<void(const TimePiece&)>;

class TimeExplainer {
 public:
  TimeExplainer(const Capture& capture, const std::vector<GpuUse>& uses, PathTable& table,
                std::optional<uint64_t> step_mono_ns = std::nullopt)
      : capture_(capture),
        step_mono_ns_(step_mono_ns),
        busy_(uses),
        table_(table),
        causes_(capture, table),
        missing_(capture.processes.size()) {
    for (const CaptureGap& gap : capture.gaps) {
      if (gap.process >= missing_.size() || gap.count > 0) continue;  // losses have no length
      missing_[gap.process].push_back({gap.start_mono_ns, gap.start_mono_ns + gap.duration_ns});
    }
  }

  ProcessTimeUse explain(const GpuUse& use);
  void add_idle_paths(const GpuUse& use, std::vector<PathWeight>& weights);
  // A process that had no work on any GPU.
  ProcessTimeUse explain_without_work(uint32_t process);

 private:
  ProcessTimeUse add_up(uint32_t process, uint32_t device,
                        const std::function<void(const TakePiece&)>& add);
  void add_all(const GpuUse& use, const TakePiece& take);
  void add_busy(const GpuStretch& stretch, const TakePiece& take) const;
  void add_idle(const GpuUse& use, const GpuStretch& stretch, const TakePiece& take);
  void add_recorded(const GpuUse& use, TimeSpan gap, const CaptureLaunch* launch, bool is_first,
                    const TakePiece& take);
  void add_launched(const GpuUse& use, TimeSpan time, uint32_t thread, const TakePiece& take) const;
  void add_host(TimeSpan gap, TimeSpan host, uint32_t thread, bool is_first, const TakePiece& take);
  uint64_t find_known_since(uint32_t process, const CaptureLaunch* launch) const;
  std::optional<TimeSpan> find_missing(uint32_t process, const TimeSpan& time) const;
  uint32_t find_busiest_thread(uint32_t process);

  const Capture& capture_;
  const std::optional<uint64_t> step_mono_ns_;  // asked for
  const BusyTimes busy_;
  PathTable& table_;
  HostCauses causes_;
  std::vector<std::vector<TimeSpan>> missing_;  // by process: times without records
  uint32_t last_thread_ = kNoIndex;             // that launched the work before
};

void TimeExplainer::add_busy(const GpuStretch& stretch, const TakePiece& take) const {
  const CaptureWork& work = capture_.work[stretch.work];
  TimePiece piece{
      .begin_ns = stretch.begin_ns,
      .end_ns = stretch.end_ns,
      .reason = work.kind == WorkKind::kGraph ? TimeReason::kGraph : TimeReason::kKernel,
      .subject = work.kernel};
  if (stretch.kind == GpuUseKind::kCommunicating) piece.reason = TimeReason::kCollective;
  if (stretch.kind == GpuUseKind::kCopying) {
    piece.reason = TimeReason::kCopy;
    piece.subject = work.kind == WorkKind::kSet ? kNoIndex : work.direction;
  }
  if (const CaptureLaunch* launch = find_row(capture_.launches, work.launch); launch != nullptr) {
    piece.path = causes_.find_launch_path(*launch);
    piece.thread = launch->thread;
  }
  take(piece);
}

// From when on the work of a process is known that is launched: hits without work came before.
uint64_t TimeExplainer::find_known_since(uint32_t process, const CaptureLaunch* launch) const {
  if (launch == nullptr || launch->start_mono_ns < capture_.start_mono_ns) return UINT64_MAX;
  uint64_t since_ns = capture_.start_mono_ns;
  for (const CaptureLaunch& other : capture_.launches) {
    if (other.start_mono_ns >= launch->start_mono_ns) break;
    const CaptureThread* thread = find_row(capture_.threads, other.thread);
    if (other.match != LaunchMatch::kNoCall || thread == nullptr || thread->process != process) {
      continue;
    }
    since_ns = std::max(since_ns, get_end(other));
  }
  return since_ns;
}

// The first time of it whose records are missing.
std::optional<TimeSpan> TimeExplainer::find_missing(uint32_t process, const TimeSpan& time) const {
  std::optional<TimeSpan> first;
  for (const TimeSpan& missing : missing_[process]) {
    const TimeSpan found{std::max(missing.begin_ns, time.begin_ns),
                         std::min(missing.end_ns, time.end_ns)};
    if (found.begin_ns >= found.end_ns) continue;
    if (!first || found.begin_ns < first->begin_ns) first = found;
  }
  return first;
}

void TimeExplainer::add_idle(const GpuUse& use, const GpuStretch& stretch, const TakePiece& take) {
  const CaptureWork* ended_by = find_row(capture_.work, stretch.work);
  const CaptureLaunch* launch =
      ended_by == nullptr ? nullptr : find_row(capture_.launches, ended_by->launch);
  TimeSpan gap{stretch.begin_ns, stretch.end_ns};
  const bool is_first = gap.begin_ns == capture_.start_mono_ns;
  if (is_first) {
    const uint64_t known_ns =
        std::clamp(find_known_since(use.process, launch), gap.begin_ns, gap.end_ns);
    take({.begin_ns = gap.begin_ns, .end_ns = known_ns, .reason = TimeReason::kEdge});
    gap.begin_ns = known_ns;
  }
  while (gap.begin_ns < gap.end_ns) {
    const std::optional<TimeSpan> missing = find_missing(use.process, gap);
    const TimeSpan recorded{gap.begin_ns, missing ? missing->begin_ns : gap.end_ns};
    if (recorded.begin_ns < recorded.end_ns) {
      add_recorded(use, recorded, launch, is_first, take);
    }
    if (!missing) break;
    take({.begin_ns = missing->begin_ns,
          .end_ns = missing->end_ns,
          .reason = TimeReason::kNotRecorded});
    gap.begin_ns = missing->end_ns;
  }
}

void TimeExplainer::add_recorded(const GpuUse& use, TimeSpan gap, const CaptureLaunch* launch,
                                 bool is_first, const TakePiece& take) {
  const uint32_t thread = launch != nullptr ? launch->thread : last_thread_;
  if (thread >= capture_.threads.size()) {
    take({.begin_ns = gap.begin_ns, .end_ns = gap.end_ns, .reason = TimeReason::kNoLauncher});
    return;
  }
  const uint64_t back_ns =
      launch == nullptr ? gap.end_ns : std::clamp(get_end(*launch), gap.begin_ns, gap.end_ns);
  add_host(gap, {gap.begin_ns, back_ns}, thread, is_first, take);
  add_launched(use, {back_ns, gap.end_ns}, thread, take);
}

void TimeExplainer::add_launched(const GpuUse& use, TimeSpan time, uint32_t thread,
                                 const TakePiece& take) const {
  while (time.begin_ns < time.end_ns) {
    const auto other = busy_.find_other(use.process, use.device, time.begin_ns, time.end_ns);
    const uint64_t until_ns = other ? other->begin_ns : time.end_ns;
    take({.begin_ns = time.begin_ns,
          .end_ns = until_ns,
          .reason = TimeReason::kQueued,
          .thread = thread});
    if (!other) break;
    take({.begin_ns = other->begin_ns,
          .end_ns = other->end_ns,
          .reason = TimeReason::kOthers,
          .thread = thread});
    time.begin_ns = other->end_ns;
  }
}

void TimeExplainer::add_host(TimeSpan gap, TimeSpan host, uint32_t thread, bool is_first,
                             const TakePiece& take) {
  const std::optional<HostCauses::Sync> sync =
      is_first ? std::nullopt : causes_.find_sync(thread, gap.begin_ns);
  const bool is_short = gap.end_ns - gap.begin_ns <= kShortGapNs;
  causes_.for_each(thread, host.begin_ns, host.end_ns, [&](TimePiece piece) {
    piece.is_after_sync = sync.has_value();
    const TimeCause cause = get_cause(piece.reason);
    if (sync && is_short &&
        (cause == TimeCause::kHostComputing || cause == TimeCause::kLaunching)) {
      piece.reason = TimeReason::kAfterSync;
      piece.subject = sync->function;
      piece.path = sync->path;
    }
    // A wait for work that began before the capture: the GPU may have been at it.
    if (is_first && piece.reason == TimeReason::kSyncCall) piece.reason = TimeReason::kEdge;
    take(piece);
  });
}

void TimeExplainer::add_all(const GpuUse& use, const TakePiece& take) {
  last_thread_ = kNoIndex;
  for (const GpuStretch& stretch : use.stretches) {
    if (stretch.kind == GpuUseKind::kIdle) {
      add_idle(use, stretch, take);
      continue;
    }
    add_busy(stretch, take);
    const CaptureLaunch* launch = find_row(capture_.launches, capture_.work[stretch.work].launch);
    if (launch != nullptr) last_thread_ = launch->thread;
  }
}

void TimeExplainer::add_idle_paths(const GpuUse& use, std::vector<PathWeight>& weights) {
  TimeGroups groups(capture_, table_);
  add_all(use, [&](const TimePiece& piece) { groups.add(piece); });
  groups.add_idle_paths(table_, weights);
}

ProcessTimeUse TimeExplainer::explain(const GpuUse& use) {
  return add_up(use.process, use.device, [&](const TakePiece& take) { add_all(use, take); });
}

// The pieces that `add` hands over, as a whole and by step.
ProcessTimeUse TimeExplainer::add_up(uint32_t process, uint32_t device,
                                     const std::function<void(const TakePiece&)>& add) {
  TimeGroups groups(capture_, table_);
  StepGroups steps(capture_, table_, process, step_mono_ns_);
  add([&](const TimePiece& piece) {
    groups.add(piece);
    steps.add(piece);
  });
  ProcessTimeUse explained{.process = process, .device = device, .wall_ns = capture_.duration_ns};
  groups.finish(explained);
  explained.steps = steps.finish();
  return explained;
}

// That with the most calls and launches; kNoIndex = none has any.
uint32_t TimeExplainer::find_busiest_thread(uint32_t process) {
  std::vector<uint64_t> events(capture_.threads.size());
  const auto count = [&](uint32_t thread) {
    if (thread < events.size() && capture_.threads[thread].process == process) ++events[thread];
  };
  for (const CaptureLaunch& launch : capture_.launches) count(launch.thread);
  for (const CaptureCall& call : capture_.calls) count(call.thread);
  const auto most = std::ranges::max_element(events);
  return most == events.end() || *most == 0 ? kNoIndex
                                            : static_cast<uint32_t>(most - events.begin());
}

ProcessTimeUse TimeExplainer::explain_without_work(uint32_t process) {
  const TimeSpan window{capture_.start_mono_ns, capture_.start_mono_ns + capture_.duration_ns};
  const uint32_t thread = find_busiest_thread(process);
  return add_up(process, kNoIndex, [&](const TakePiece& take) {
    TimePiece whole{.begin_ns = window.begin_ns, .end_ns = window.end_ns};
    if (!capture_.processes[process].is_injected) {
      whole.reason = TimeReason::kNotRecorded;
      take(whole);
    } else if (thread == kNoIndex) {
      whole.reason = TimeReason::kNothing;
      take(whole);
    } else {
      add_host(window, window, thread, true, take);
    }
  });
}

}  // namespace

std::vector<ProcessTimeUse> explain_time(const Capture& capture,
                                         std::optional<uint64_t> step_mono_ns) {
  const std::vector<GpuUse> gpu_uses = list_gpu_uses(capture);
  PathTable table(capture, {});
  TimeExplainer explainer(capture, gpu_uses, table, step_mono_ns);
  std::vector<ProcessTimeUse> uses;
  std::vector<bool> has_work(capture.processes.size());
  for (const GpuUse& use : gpu_uses) {
    uses.push_back(explainer.explain(use));
    has_work[use.process] = true;
  }
  std::vector<bool> has_host(capture.processes.size());
  const auto note = [&](uint32_t of) {
    const CaptureThread* thread = find_row(capture.threads, of);
    if (thread != nullptr && thread->process < has_host.size()) has_host[thread->process] = true;
  };
  for (const CaptureCall& call : capture.calls) note(call.thread);
  for (const CaptureLaunch& launch : capture.launches) note(launch.thread);
  for (uint32_t process = 0; process < capture.processes.size(); ++process) {
    if (has_work[process] || !(has_host[process] || capture.processes[process].is_injected)) {
      continue;
    }
    uses.push_back(explainer.explain_without_work(process));
  }
  // Those that use a GPU first; then by the time in which that did nothing for a known reason.
  std::ranges::stable_sort(uses, {}, [](const ProcessTimeUse& use) {
    uint64_t idle_ns = 0;
    for (size_t i = static_cast<size_t>(TimeCause::kHostComputing); i < kTimeCauses; ++i) {
      if (i != static_cast<size_t>(TimeCause::kNothing)) idle_ns += use.parts_ns[i];
    }
    return std::pair(use.device == kNoIndex, ~idle_ns);
  });
  return uses;
}

std::vector<PathWeight> weigh_idle_time(const Capture& capture, PathTable& table) {
  const std::vector<GpuUse> gpu_uses = list_gpu_uses(capture);
  TimeExplainer explainer(capture, gpu_uses, table);
  std::vector<PathWeight> weights;
  for (const GpuUse& use : gpu_uses) explainer.add_idle_paths(use, weights);
  return weights;
}

}  // namespace gpuperf
