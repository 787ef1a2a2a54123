#pragma once

// One event of the flight recorder: 32 bytes, whatever it is. What is too long for a field, and
// everything that has a name, stands in the tables of its epoch (TraceTables).

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/clock_tick.h"
#include "daemon/model/event.h"
#include "daemon/model/function.h"
#include "daemon/model/gpu_counters.h"
#include "daemon/model/gpu_uuid.h"
#include "daemon/model/session.h"
#include "daemon/model/snapshot.h"
#include "daemon/model/step.h"

namespace gpuperf {

// A graph by the launches that were captured into it.
struct CapturedGraph {
  struct Site {
    TraceSite site;
    uint32_t function_id = 0;  // the launch function
    uint32_t tid = 0;
    StackPtr stack;  // null = not named yet
  };
  ProcessKey process;
  uint32_t tid = 0;  // that began the capture
  uint64_t captured_mono_ns = 0;
  std::vector<Site> sites;
  std::vector<uint32_t> launches;  // of `sites`, in the order of the launches
};
using CapturedGraphPtr = std::shared_ptr<const CapturedGraph>;

enum class TraceKind : uint8_t {
  kLaunch,  // a probe's hit. first: tid, second: function, third and fourth: site, tag: what was
            // launched, if it is a graph whose capture is known
  kCall,    // first: tid, second: function, third: off-CPU time in 2^-32 of the duration,
            // fourth: stack or kTraceNone, tag: depth
  kApi,     // first: correlation id, second: tid, third: callback id, fourth: return value,
            // tag: kTraceDriverCall, kTraceHooked
  kKernel,  // first: correlation id, second: name, third: place and shape, fourth: node,
            // tag: graph
  kCopy,    // first: correlation id, second: place, third and fourth: 40 bits of bytes, 8 of
            // direction, 16 of node; tag: graph
  kSet,     // likewise, without direction
  kGraph,   // first: correlation id, second: place, third: the graph's id
  kWait,    // first: correlation id, second: GPUPERF_SYNC_*
  kGap,     // first: GPUPERF_SESSION_CAUSE_*
  kLost,    // first: GPUPERF_SESSION_LOSS_*, second: how many records, since the last of these
  kThread,  // first: tid, second: the waker's tid, third: its pid, fourth: stack or kTraceNone,
            // tag: HostState
  kStall,   // samples of a kernel in one state. first: name, second: samples, third: of them those
            // in which nothing issued, tag: GPUPERF_STALL_*
  kStep,    // first: tid, second: function, third: tokens, fourth: sequences, tag: pack_step_facts
};

// What has no room in it is cut: durations to 68 s. Index 0 of graphs is "not of a graph".
struct TraceEvent {
  uint64_t start_mono_ns = 0;
  uint64_t duration_ns : 36 = 0;
  uint64_t process : 12 = 0;
  uint64_t kind : 4 = 0;
  uint64_t tag : 12 = 0;
  uint32_t first = 0;
  uint32_t second = 0;
  uint32_t third = 0;
  uint32_t fourth = 0;
};
static_assert(sizeof(TraceEvent) == 32);

inline constexpr uint64_t kTraceMaxDurationNs = (uint64_t{1} << 36) - 1;
inline constexpr uint64_t kTraceMaxBytes = (uint64_t{1} << 40) - 1;
inline constexpr uint64_t kTraceMaxCopyNode = (uint64_t{1} << 16) - 2;  // of copies and sets
inline constexpr uint64_t kTraceNoCopyNode = (uint64_t{1} << 16) - 1;
inline constexpr uint32_t kTraceMaxDepth = (1u << 12) - 1;
inline constexpr uint32_t kTraceNone = UINT32_MAX;
inline constexpr uint64_t kTraceDriverCall = 1;
inline constexpr uint64_t kTraceHooked = 2;  // seen by the hook that made the launch's hit
inline constexpr uint32_t kTraceNoShape = UINT16_MAX;

// What a kStep says of its step beside its numbers.
struct TraceStepFacts {
  StepPhase phase = StepPhase::kUnknown;
  StepQuality phase_quality = StepQuality::kUnknown;
  StepQuality duration_quality = StepQuality::kUnknown;
  StepQuality tokens_quality = StepQuality::kUnknown;
  StepQuality sequences_quality = StepQuality::kUnknown;
};
inline uint64_t pack_step_facts(const TraceStepFacts& facts) {
  uint64_t tag = static_cast<uint64_t>(facts.phase);
  for (const StepQuality quality : {facts.phase_quality, facts.duration_quality,
                                    facts.tokens_quality, facts.sequences_quality}) {
    tag = tag << 2 | static_cast<uint64_t>(quality);
  }
  return tag;
}
inline TraceStepFacts unpack_step_facts(uint64_t tag) {
  const auto take = [tag](int shift) { return static_cast<StepQuality>(tag >> shift & 3); };
  return {.phase = static_cast<StepPhase>(tag >> 8),
          .phase_quality = take(6),
          .duration_quality = take(4),
          .tokens_quality = take(2),
          .sequences_quality = take(0)};
}
static_assert(kStepQualities <= 4 && kStepPhases <= 16);

struct TraceProcess {
  ProcessKey process;        // as the probes know it, or as its session does: see is_same_process
  bool is_injected = false;  // a session of it was there
  uint64_t clock_error_ns = 0;  // of its session's times; 0 = not known
};

struct TracePlace {
  GpuUuid device_uuid{};
  uint32_t device = 0;  // CUDA ordinal in that process
  uint32_t context = 0;
  uint32_t stream = 0;
  bool operator==(const TracePlace&) const = default;
};

// What the events of one epoch name by index.
struct TraceTables {
  static constexpr size_t kMaxProcesses = size_t{1} << 12;
  static constexpr size_t kMaxPlaces = size_t{1} << 16;
  static constexpr size_t kMaxShapes = kTraceNoShape;
  static constexpr size_t kMaxGraphs = size_t{1} << 12;
  static constexpr size_t kMaxCaptured = size_t{1} << 12;
  static constexpr size_t kMaxNames = size_t{1} << 18;
  static constexpr size_t kMaxStacks = size_t{1} << 18;

  std::vector<TraceProcess> processes;
  std::vector<TracePlace> places;
  std::vector<LaunchShape> shapes;
  std::vector<uint32_t> graphs = {0};
  std::vector<std::shared_ptr<const std::string>> names;  // of kernels, mangled
  std::vector<uint64_t> stacks;                           // of RawStacks
  std::vector<CapturedGraphPtr> captured = {nullptr};     // graphs that were launched
  uint64_t bytes = 0;                                     // of memory, about
};

using TraceEvents = std::vector<TraceEvent>;

// Some time of the recorder, for other threads: nothing in it changes any more.
struct TraceWindow {
  struct Part {
    std::shared_ptr<const TraceTables> tables;
    std::shared_ptr<const TraceEvents> events;
  };
  std::vector<Part> parts;
  std::vector<TraceSite> sites;                // by site_id
  std::vector<GpuCounterRecord> gpu_counters;  // by end
};

// /proc gives a process's start in clock ticks, the kernel in ns: orders the two forms as one.
struct ProcessOrder {
  bool operator()(const ProcessKey& a, const ProcessKey& b) const {
    return a.pid != b.pid ? a.pid < b.pid : a.start_boot_ns / kTickNs < b.start_boot_ns / kTickNs;
  }
};

inline bool is_same_process(const ProcessKey& a, const ProcessKey& b) {
  return a.pid == b.pid && a.start_boot_ns / kTickNs == b.start_boot_ns / kTickNs;
}

}  // namespace gpuperf
