#pragma once

// What may be asked of the recorder, and what is reported of the captures it made.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpuperf {

// Which processes a capture is of. All that is given must hold; nothing given = every process.
struct CaptureTarget {
  uint32_t pid = 0;            // 0 = any
  bool with_children = false;  // of that pid: those it starts, and theirs
  std::string container;       // id, or its beginning
  std::string pod;
  bool operator==(const CaptureTarget&) const = default;
};
inline bool has_target(const CaptureTarget& target) {
  return target.pid != 0 || !target.container.empty() || !target.pod.empty();
}

struct CaptureOrder {
  std::string name;  // at most 128 bytes; may be empty
  CaptureTarget target;
  // 0 = until it is stopped, at most trace.max_capture_seconds.
  uint64_t duration_ms = 0;
  // Not 0: begins at the next multiple of it after 1970, so that every host whose wall clock is
  // right captures the same window.
  uint64_t align_ms = 0;
  bool cpu = true;             // probed calls, launches with their stacks
  bool gpu = true;             // what sessions tell
  bool nodes = false;          // the kernels inside graphs, where the process allows it
  bool samples = false;        // what the warps of kernels do
  uint32_t requester_uid = 0;  // whose processes may be captured; 0 = everybody's
  bool operator==(const CaptureOrder&) const = default;
};

// Keeps what the flight recorder holds.
struct FreezeOrder {
  std::string name;
  CaptureTarget target;
  uint64_t last_ms = 0;  // 0 = all there is
  std::string trigger = "recorder";
  uint32_t requester_uid = 0;
  bool operator==(const FreezeOrder&) const = default;
};

enum class CaptureState {
  kScheduled,  // begins at start_unix_ns
  kRunning,
  kSettling,  // over; the last records are on their way
  kBuilding,  // joined, named and written
  kStored,
  kFailed,
};
// "scheduled", "running", "settling", "building", "stored", "failed".
std::string_view get_capture_state_name(CaptureState state);

// One capture, whatever became of it.
struct CaptureRow {
  uint64_t id = 0;  // never 0, never used again
  std::string name;
  std::string trigger;  // as in Capture
  CaptureTarget target;
  CaptureState state = CaptureState::kScheduled;
  std::string problem;  // of kFailed: why, and what to do
  uint64_t start_unix_ns = 0;
  uint64_t duration_ns = 0;  // so far, or asked for while it is scheduled
  uint64_t events = 0;       // kept so far
  uint64_t lost_events = 0;  // there was no room for
  uint64_t launches = 0;     // from here on: once built
  uint64_t work = 0;
  uint64_t work_matched = 0;
  uint64_t ambiguous = 0;
  uint64_t stored_bytes = 0;
  uint32_t requester_uid = 0;  // who asked for it; 0 = root, or the daemon itself
  bool operator==(const CaptureRow&) const = default;
};

// The flight recorder now.
struct RecorderRow {
  bool enabled = false;
  uint64_t events = 0;
  uint64_t bytes = 0;
  uint64_t max_bytes = 0;
  uint64_t span_ns = 0;  // from its oldest event to now
  bool operator==(const RecorderRow&) const = default;
};

}  // namespace gpuperf
