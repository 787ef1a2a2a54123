#pragma once

// What the trace formats have in common: who has which row of the picture, and what nests in what.

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/model/capture.h"
#include "daemon/view/launch_starts.h"

namespace gpuperf {

// What an index of a slice is of.
enum class SliceKind : uint8_t { kCall, kLaunch, kWait, kWork, kStep, kGap };

struct TraceSlice {
  uint64_t start_mono_ns = 0;
  uint64_t duration_ns = 0;  // as it is shown
  uint32_t index = kNoIndex;
  SliceKind kind = SliceKind::kCall;
  // It seemed to end after the slice around it, which only clocks that differ explain, and was
  // shortened to end with it.
  bool is_cut = false;
  bool operator==(const TraceSlice&) const = default;
};

// Slices of a track are disjoint or nested, by start, outer ones before inner ones.
struct TraceTrack {
  std::string name;
  uint32_t group = kNoIndex;  // of `groups`
  uint32_t id = 0;            // a tid; unlike that of every other track
  bool is_thread = false;
  std::vector<TraceSlice> slices;
};

// A process, or a GPU.
struct TraceGroup {
  std::string name;
  uint32_t id = 0;  // a pid; unlike that of every other group
  uint32_t device = kNoIndex;
  GpuUuid gpu_uuid{};  // of a GPU, also of one that no process of the capture used
};

struct TraceCounter {
  std::string name;
  uint32_t group = kNoIndex;
  std::vector<QueueStep> steps;  // the value from then on
};

struct Timeline {
  // Nothing in it begins before; the window's begin, or that of the earliest launch.
  uint64_t start_mono_ns = 0;
  std::vector<TraceGroup> groups;
  std::vector<TraceTrack> tracks;  // without those that are empty, threads of the capture excepted
  std::vector<TraceCounter> counters;
};

// Processes and threads have their own ids as far as these are unlike; GPUs, streams and all else
// have ids that no process can have. Calls, launches and waits of a thread share its track, its
// steps have another; work that overlaps on one stream gets tracks beside the stream's.
Timeline make_timeline(const Capture& capture);

// Whether a flow leads from the work's launch to it: clocks that differ would turn it round.
bool has_flow(const Capture& capture, const CaptureWork& work);
// "cublasGemmEx", "Memcpy", "wait for stream", "copy host_to_device", "decode, 8 tokens",
// "missing: records_lost".
std::string make_slice_name(const Capture& capture, const TraceSlice& slice);

}  // namespace gpuperf
