#include "daemon/view/time_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <tuple>

#include "daemon/model/session_names.h"
#include "daemon/view/rows.h"
#include "daemon/view/time_words.h"

namespace gpuperf {
namespace {

// The key with most time; `none` where there is none. Of equal ones the lowest, whatever the order.
template <typename Map, typename Key>
Key find_most(const Map& times, Key none) {
  uint64_t most_ns = 0;
  Key found = none;
  for (const auto& [key, time_ns] : times) {
    if (time_ns > most_ns || (time_ns == most_ns && key < found)) {
      most_ns = time_ns;
      found = key;
    }
  }
  return found;
}

// Who ended more than half of it, as far as that is known: a thread, or a process by several.
void name_waker(const std::map<std::pair<uint32_t, uint32_t>, uint64_t>& wakers,
                TimeFinding& finding) {
  uint64_t all_ns = 0;
  std::map<uint32_t, uint64_t> by_process;
  for (const auto& [waker, time_ns] : wakers) {
    all_ns += time_ns;
    by_process[waker.first] += time_ns;
  }
  const std::pair<uint32_t, uint32_t> nobody;
  const auto thread = find_most(wakers, nobody);
  const uint32_t process = find_most(by_process, 0u);
  if (process == 0 || 2 * by_process[process] <= all_ns) return;
  finding.waker_pid = process;
  if (thread != nobody && 2 * wakers.at(thread) > all_ns) finding.waker_tid = thread.second;
}

TimeVerdict judge(const ProcessTimeUse& use) {
  const auto sum = [&](std::initializer_list<TimeCause> causes) {
    uint64_t sum_ns = 0;
    for (const TimeCause cause : causes) sum_ns += use.parts_ns[static_cast<size_t>(cause)];
    return sum_ns;
  };
  using enum TimeCause;
  const std::array<std::pair<uint64_t, TimeVerdict>, 6> choices = {{
      {sum({kGpuComputing, kGpuOfOthers}), TimeVerdict::kGpuBound},
      {sum({kHostComputing, kHostBlocked, kNoCpu, kLaunching}), TimeVerdict::kLaunchBound},
      {sum({kInput, kGpuCopying}), TimeVerdict::kInputBound},
      {sum({kPeer, kGpuCommunicating}), TimeVerdict::kCommunicationBound},
      {sum({kNothing}), TimeVerdict::kIdle},
      {sum({kUnknown}), TimeVerdict::kUnknown},
  }};
  return std::ranges::max_element(choices, {}, &std::pair<uint64_t, TimeVerdict>::first)->second;
}

}  // namespace

TimeCause get_cause(TimeReason reason) {
  using enum TimeReason;
  switch (reason) {
    case kEdge:
    case kNotRecorded:
    case kNoLauncher:
    case kUnseen:
      return TimeCause::kUnknown;
    case kKernel:
    case kGraph:
      return TimeCause::kGpuComputing;
    case kCollective:
      return TimeCause::kGpuCommunicating;
    case kCopy:
      return TimeCause::kGpuCopying;
    case kCall:
    case kCode:
    case kElsewhere:
    case kPageFaults:
      return TimeCause::kHostComputing;
    case kBlockedCall:
    case kLock:
    case kGil:
    case kSleep:
    case kBlocked:
      return TimeCause::kHostBlocked;
    case kNoCpu:
    case kThrottled:
      return TimeCause::kNoCpu;
    case kCopyCall:
    case kInput:
    case kDataLoader:
      return TimeCause::kInput;
    case kPeerCall:
      return TimeCause::kPeer;
    case kLaunchCall:
    case kSyncCall:
    case kAfterSync:
    case kQueued:
      return TimeCause::kLaunching;
    case kOthers:
      return TimeCause::kGpuOfOthers;
    case kNothing:
      return TimeCause::kNothing;
  }
  return TimeCause::kUnknown;
}

void TimeGroups::add(const TimePiece& piece) {
  if (piece.begin_ns >= piece.end_ns) return;
  const uint64_t time_ns = piece.end_ns - piece.begin_ns;
  Group& group = groups_[{piece.reason, piece.subject}];
  TimeFinding& finding = group.finding;
  const bool goes_on =
      group.end_ns == piece.begin_ns || (piece.call != kNoIndex && piece.call == group.call);
  if (finding.stretches == 0 || !goes_on) {
    ++finding.stretches;
    group.stretch_ns = 0;
  }
  group.call = piece.call;
  group.end_ns = piece.end_ns;
  group.stretch_ns += time_ns;
  finding.longest_ns = std::max(finding.longest_ns, group.stretch_ns);
  finding.time_ns += time_ns;
  if (piece.is_estimated) finding.estimated_ns += time_ns;
  if (piece.is_after_sync) finding.after_sync_ns += time_ns;
  if (piece.path != kNoIndex) group.paths[piece.path] += time_ns;
  if (piece.thread != kNoIndex) group.threads[piece.thread] += time_ns;
  const CaptureThreadTime* time = find_row(capture_.thread_times, piece.time);
  if (time != nullptr && is_blocked(time->state)) {
    group.wakers[{time->waker_pid, time->waker_tid}] += time_ns;
  }
}

std::string TimeGroups::name_subject(TimeReason reason, uint32_t subject) const {
  switch (reason) {
    case TimeReason::kKernel:
    case TimeReason::kCollective: {
      const CaptureKernel* kernel = find_row(capture_.kernels, subject);
      return kernel == nullptr ? "" : kernel->short_name;
    }
    case TimeReason::kCopy:
      return std::string(get_copy_direction_name(false, static_cast<uint8_t>(subject)));
    case TimeReason::kCall:
    case TimeReason::kBlockedCall:
    case TimeReason::kCopyCall:
    case TimeReason::kPeerCall:
    case TimeReason::kLaunchCall:
    case TimeReason::kSyncCall:
    case TimeReason::kAfterSync: {
      const CaptureFunction* function = find_row(capture_.functions, subject);
      return function == nullptr ? "" : function->name;
    }
    default:
      return subject < table_.count_frames() ? table_.get_text(subject) : "";
  }
}

void TimeGroups::add_idle_paths(PathTable& table, std::vector<PathWeight>& weights) const {
  for (const auto& [key, group] : groups_) {
    const TimeCause cause = get_cause(key.first);
    if (!is_idle(cause)) continue;
    const std::string mark = fmt::format("[GPU_Idle]{}", get_cause_text(cause));
    const uint32_t leaf = table.get_frames(table.find_mark_path(mark))[0];
    uint64_t placed_ns = 0;
    for (const auto& [path, time_ns] : group.paths) {
      weights.push_back({.path = path, .gpu_frame = leaf, .weight_ns = time_ns, .count = 1});
      placed_ns += time_ns;
    }
    if (placed_ns == group.finding.time_ns) continue;
    weights.push_back({.path = table.find_mark_path("[no stack]"),
                       .gpu_frame = leaf,
                       .weight_ns = group.finding.time_ns - placed_ns,
                       .count = 1});
  }
}

void TimeGroups::finish(ProcessTimeUse& use) {
  for (auto& [key, group] : groups_) {
    TimeFinding& finding = group.finding;
    finding.reason = key.first;
    finding.subject = name_subject(key.first, key.second);
    const uint32_t path = find_most(group.paths, kNoIndex);
    if (path != kNoIndex) {
      for (const uint32_t frame : table_.get_frames(path)) {
        finding.stack.push_back(table_.get_text(frame));
      }
    }
    finding.thread = find_most(group.threads, kNoIndex);
    name_waker(group.wakers, finding);
    use.parts_ns[static_cast<size_t>(get_cause(finding.reason))] += finding.time_ns;
    use.findings.push_back(std::move(finding));
  }
  groups_.clear();
  use.verdict = judge(use);
  // What nobody can save comes last: a kernel's time, unless kernels are the limit; nothing to do,
  // unless there is little else; what is not known.
  const auto rank = [&](const TimeFinding& finding) {
    const TimeCause cause = get_cause(finding.reason);
    const bool is_late =
        cause == TimeCause::kUnknown ||
        (cause == TimeCause::kGpuComputing && use.verdict != TimeVerdict::kGpuBound) ||
        (cause == TimeCause::kNothing && use.verdict != TimeVerdict::kIdle);
    return std::tuple(is_late, ~finding.time_ns);
  };
  std::ranges::stable_sort(use.findings, {}, rank);
}

}  // namespace gpuperf
