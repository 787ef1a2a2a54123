#include "daemon/view/host_cause.h"

#include <absl/container/flat_hash_map.h>

#include <algorithm>
#include <string_view>

#include "daemon/view/frame_text.h"
#include "daemon/view/rows.h"

namespace gpuperf {
namespace {

// A thread that waits so long outside of calls, while no other of its process is in one, has
// nothing to do.
constexpr uint64_t kNothingNs = 1'000'000'000;
// On the CPU there would have been a tick in it: the slowest clock ticks every 10 ms.
constexpr uint64_t kSampledNs = 30'000'000;

}  // namespace

HostCauses::HostCauses(const Capture& capture, PathTable& table)
    : capture_(capture), table_(table), host_(capture, table), places_(capture, table) {
  absl::flat_hash_map<std::string_view, uint32_t> first;
  for (uint32_t i = 0; i < capture.functions.size(); ++i) {
    const CaptureFunction& function = capture.functions[i];
    roles_.push_back(find_call_role(function.category, function.name));
    same_name_.push_back(first.try_emplace(function.name, i).first->second);
  }
}

uint32_t HostCauses::get_function(const NestedCall& call) const {
  return call.call != kNoIndex ? capture_.calls[call.call].function
                               : capture_.launches[call.launch].function;
}

// The innermost call that launches, copies, waits or talks to peers decides; a call of a library is
// known by the name of the outermost one around it: what a program calls.
HostCauses::Role HostCauses::find_role(uint32_t index) const {
  Role found;
  uint32_t library = kNoIndex;
  uint32_t innermost = kNoIndex;
  for (; index != kNoIndex; index = host_.calls()[index].outer) {
    const NestedCall& call = host_.calls()[index];
    const uint32_t function = get_function(call);
    if (function >= roles_.size()) continue;
    CallRole role = roles_[function];
    if (call.launch != kNoIndex && role != CallRole::kCopy) role = CallRole::kLaunch;
    const bool decides = role == CallRole::kLaunch || role == CallRole::kCopy ||
                         role == CallRole::kSync || role == CallRole::kCollective;
    if (decides && found.role == CallRole::kOther) found = {role, same_name_[function]};
    if (innermost == kNoIndex) innermost = same_name_[function];
    if (get_function_kind(capture_.functions[function]) == FrameKind::kCuda) {
      library = same_name_[function];
    }
  }
  if (found.role == CallRole::kOther) found.function = library != kNoIndex ? library : innermost;
  return found;
}

std::optional<HostCauses::Sync> HostCauses::find_sync(uint32_t thread, uint64_t at_ns) const {
  const uint32_t call = host_.find_call(thread, at_ns);
  if (call != kNoIndex) {
    const Role role = find_role(call);
    if (role.role == CallRole::kSync || role.role == CallRole::kCopy) {
      return Sync{role.function, host_.calls()[call].path};
    }
  }
  if (!host_.is_waiting_for_gpu(thread, at_ns)) return std::nullopt;
  return Sync{.path = call == kNoIndex ? kNoIndex : host_.calls()[call].path};
}

void HostCauses::explain_in_call(const HostPiece& piece, TimePiece& explained) const {
  const CaptureThreadTime* time = find_row(capture_.thread_times, piece.time);
  const bool blocked = time != nullptr && is_blocked(time->state);
  const Role role = find_role(piece.call);
  explained.subject = role.function;
  switch (role.role) {
    case CallRole::kCopy:
      explained.reason = TimeReason::kCopyCall;
      return;
    case CallRole::kSync:
      explained.reason = TimeReason::kSyncCall;
      return;
    case CallRole::kLaunch:
      explained.reason = blocked ? TimeReason::kBlockedCall : TimeReason::kLaunchCall;
      return;
    case CallRole::kCollective:
      explained.reason = blocked ? TimeReason::kPeerCall : TimeReason::kCall;
      return;
    default:
      explained.reason = blocked ? TimeReason::kBlockedCall : TimeReason::kCall;
      return;
  }
}

bool HostCauses::does_nothing(uint32_t of, const HostPiece& piece) const {
  const CaptureThreadTime* time = find_row(capture_.thread_times, piece.time);
  const uint64_t begin_ns = time == nullptr ? piece.begin_ns : time->start_mono_ns;
  const uint64_t end_ns = time == nullptr ? piece.end_ns : begin_ns + time->duration_ns;
  if (end_ns - begin_ns < kNothingNs) return false;
  for (uint32_t i = 0; i < capture_.threads.size(); ++i) {
    const bool is_same = capture_.threads[i].process == capture_.threads[of].process;
    if (is_same && host_.has_call_in(i, begin_ns, end_ns)) return false;
  }
  return std::ranges::none_of(capture_.steps, [&](const CaptureStep& step) {
    const CaptureThread* thread = find_row(capture_.threads, step.thread);
    return thread != nullptr && thread->process == capture_.threads[of].process &&
           step.start_mono_ns < end_ns && step.start_mono_ns + step.duration_ns > begin_ns;
  });
}

void HostCauses::explain_wait(const HostPiece& piece, const CaptureThreadTime& time,
                              TimePiece& explained) {
  switch (get_wait_kind(time.state)) {
    case WaitKind::kGpu:
      explained.reason = TimeReason::kSyncCall;
      explained.subject = kNoIndex;
      return;
    case WaitKind::kFutex:
      explained.reason = waits_for_gil(capture_, time.stack) ? TimeReason::kGil : TimeReason::kLock;
      break;
    case WaitKind::kSleep:
      explained.reason = TimeReason::kSleep;
      break;
    case WaitKind::kIo:
    case WaitKind::kPoll:
      explained.reason = TimeReason::kInput;
      break;
    default:
      explained.reason = TimeReason::kBlocked;
      break;
  }
  if (explained.reason == TimeReason::kGil) return;
  if (places_.is_data_loader(piece.path)) {
    explained.reason = TimeReason::kDataLoader;
  } else if (does_nothing(explained.thread, piece)) {
    explained.reason = TimeReason::kNothing;
  }
}

void HostCauses::explain_outside(const HostPiece& piece, TimePiece& explained) {
  const CaptureThreadTime* time = find_row(capture_.thread_times, piece.time);
  explained.subject = places_.find_place(piece.path);
  if (time != nullptr && is_blocked(time->state)) return explain_wait(piece, *time, explained);
  if (piece.is_gpu_wait) {
    explained.reason = TimeReason::kSyncCall;
    explained.subject = kNoIndex;
    return;
  }
  explained.reason = time != nullptr && time->state == HostState::kOnCpuFault
                         ? TimeReason::kPageFaults
                         : TimeReason::kCode;
  if (time != nullptr) return;
  // Long enough, and neither sampled nor seen to leave the CPU: it waited beyond the window, or
  // nobody followed it.
  const bool is_long = piece.end_ns - piece.begin_ns >= kSampledNs;
  if (is_long && does_nothing(explained.thread, piece)) {
    explained.reason = TimeReason::kNothing;
  } else if (!host_.has_states(explained.thread)) {
    explained.reason = TimeReason::kElsewhere;
  } else if (is_long) {
    explained.reason = TimeReason::kUnseen;
    explained.subject = kNoIndex;
  }
}

void HostCauses::for_each(uint32_t thread, uint64_t begin_ns, uint64_t end_ns,
                          const std::function<void(const TimePiece&)>& visit) {
  host_.for_each_piece(thread, begin_ns, end_ns, [&](const HostPiece& piece) {
    TimePiece explained{.begin_ns = piece.begin_ns,
                        .end_ns = piece.end_ns,
                        .path = piece.path,
                        .thread = thread,
                        .time = piece.time,
                        .call = piece.call,
                        .is_estimated = piece.is_estimated};
    const CaptureThreadTime* time = find_row(capture_.thread_times, piece.time);
    if (time != nullptr && time->state == HostState::kRunnable) {
      explained.reason = TimeReason::kNoCpu;
    } else if (time != nullptr && time->state == HostState::kThrottled) {
      explained.reason = TimeReason::kThrottled;
    } else if (piece.call != kNoIndex) {
      explain_in_call(piece, explained);
    } else {
      explain_outside(piece, explained);
    }
    visit(explained);
  });
}

}  // namespace gpuperf
