#pragma once

#include <cstdint>
#include <vector>

#include "daemon/model/capture.h"

namespace gpuperf {

// A launch and the first piece of its work.
struct LaunchStart {
  uint32_t launch = kNoIndex;
  uint32_t work = kNoIndex;
  uint64_t latency_ns = 0;      // from the start of the call to the start of the work
  uint64_t stream_wait_ns = 0;  // of it, until earlier work on the same stream had ended
  bool operator==(const LaunchStart&) const = default;
};

struct LaunchStarts {
  std::vector<LaunchStart> starts;  // by the start of the work
  uint64_t before_call = 0;         // whose work began before the call; not among `starts`
  bool operator==(const LaunchStarts&) const = default;
};

LaunchStarts list_launch_starts(const Capture& capture);

// How many launches wait on a stream.
struct QueueStep {
  uint64_t mono_ns = 0;
  uint32_t depth = 0;  // from then on
  bool operator==(const QueueStep&) const = default;
};
// By stream, each by time, in the window; a step only where the depth changes, and one at the
// window's begin for what was launched before it.
std::vector<std::vector<QueueStep>> list_queue_steps(const Capture& capture,
                                                     const LaunchStarts& starts);

}  // namespace gpuperf
