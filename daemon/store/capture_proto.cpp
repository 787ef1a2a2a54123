#include "daemon/store/capture_proto.h"

#include <array>
#include <cstddef>

#include "daemon/model/display_text.h"

namespace gpuperf {
namespace {

constexpr std::array<std::pair<CaptureState, v1::CaptureState>, 6> kStates = {{
    {CaptureState::kScheduled, v1::CAPTURE_STATE_SCHEDULED},
    {CaptureState::kRunning, v1::CAPTURE_STATE_RUNNING},
    {CaptureState::kSettling, v1::CAPTURE_STATE_SETTLING},
    {CaptureState::kBuilding, v1::CAPTURE_STATE_BUILDING},
    {CaptureState::kStored, v1::CAPTURE_STATE_STORED},
    {CaptureState::kFailed, v1::CAPTURE_STATE_FAILED},
}};

v1::CaptureState to_proto(CaptureState state) {
  for (const auto& [ours, theirs] : kStates) {
    if (ours == state) return theirs;
  }
  return v1::CAPTURE_STATE_UNSPECIFIED;
}

CaptureState from_proto(v1::CaptureState state) {
  for (const auto& [ours, theirs] : kStates) {
    if (theirs == state) return ours;
  }
  return CaptureState::kFailed;
}

}  // namespace

v1::CaptureTarget to_proto(const CaptureTarget& target) {
  v1::CaptureTarget message;
  message.set_pid(target.pid);
  message.set_with_children(target.with_children);
  message.set_container(to_valid_utf8(target.container));
  message.set_pod(to_valid_utf8(target.pod));
  return message;
}

CaptureTarget from_proto(const v1::CaptureTarget& message) {
  return {.pid = message.pid(),
          .with_children = message.with_children(),
          .container = message.container(),
          .pod = message.pod()};
}

v1::Capture to_proto(const CaptureRow& row) {
  v1::Capture message;
  message.set_id(row.id);
  message.set_name(to_valid_utf8(row.name));
  message.set_trigger(to_valid_utf8(row.trigger));
  *message.mutable_target() = to_proto(row.target);
  message.set_state(to_proto(row.state));
  message.set_problem(to_valid_utf8(row.problem));
  message.set_start_unix_ns(row.start_unix_ns);
  message.set_duration_ns(row.duration_ns);
  message.set_events(row.events);
  message.set_lost_events(row.lost_events);
  message.set_launches(row.launches);
  message.set_work(row.work);
  message.set_work_matched(row.work_matched);
  message.set_ambiguous(row.ambiguous);
  message.set_stored_bytes(row.stored_bytes);
  message.set_requester_uid(row.requester_uid);
  return message;
}

CaptureRow from_proto(const v1::Capture& message) {
  return {.id = message.id(),
          .name = message.name(),
          .trigger = message.trigger(),
          .target = from_proto(message.target()),
          .state = from_proto(message.state()),
          .problem = message.problem(),
          .start_unix_ns = message.start_unix_ns(),
          .duration_ns = message.duration_ns(),
          .events = message.events(),
          .lost_events = message.lost_events(),
          .launches = message.launches(),
          .work = message.work(),
          .work_matched = message.work_matched(),
          .ambiguous = message.ambiguous(),
          .stored_bytes = message.stored_bytes(),
          .requester_uid = message.requester_uid()};
}

v1::CaptureMatches to_proto(const CaptureMatches& matches) {
  const auto get = [&](LaunchMatch match) { return matches.launches[static_cast<size_t>(match)]; };
  v1::CaptureMatches message;
  message.set_launches_exact(get(LaunchMatch::kExact));
  message.set_launches_ambiguous(get(LaunchMatch::kAmbiguous));
  message.set_launches_no_hit(get(LaunchMatch::kNoHit));
  message.set_launches_no_call(get(LaunchMatch::kNoCall));
  message.set_launches_no_stack(matches.launches_no_stack);
  message.set_work(matches.work);
  message.set_work_matched(matches.work_matched);
  message.set_work_no_call(matches.work_no_call);
  message.set_nodes(matches.nodes);
  message.set_nodes_placed(matches.nodes_placed);
  return message;
}

CaptureMatches from_proto(const v1::CaptureMatches& message) {
  CaptureMatches matches;
  const auto set = [&](LaunchMatch match, uint64_t count) {
    matches.launches[static_cast<size_t>(match)] = count;
  };
  set(LaunchMatch::kExact, message.launches_exact());
  set(LaunchMatch::kAmbiguous, message.launches_ambiguous());
  set(LaunchMatch::kNoHit, message.launches_no_hit());
  set(LaunchMatch::kNoCall, message.launches_no_call());
  matches.launches_no_stack = message.launches_no_stack();
  matches.work = message.work();
  matches.work_matched = message.work_matched();
  matches.work_no_call = message.work_no_call();
  matches.nodes = message.nodes();
  matches.nodes_placed = message.nodes_placed();
  return matches;
}

v1::Recorder to_proto(const RecorderRow& row) {
  v1::Recorder message;
  message.set_enabled(row.enabled);
  message.set_events(row.events);
  message.set_bytes(row.bytes);
  message.set_max_bytes(row.max_bytes);
  message.set_span_ns(row.span_ns);
  return message;
}

}  // namespace gpuperf
