#pragma once

// Where the wall time of each process in a capture went, and what limits it: what `gpuperfctl why`
// and reports say.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/model/capture.h"
#include "daemon/view/path_weights.h"

namespace gpuperf {

// In the order of TimeCause in capture.proto, which says what each is.
enum class TimeCause : uint8_t {
  kUnknown,
  kGpuComputing,
  kGpuCommunicating,
  kGpuCopying,
  kHostComputing,
  kHostBlocked,
  kNoCpu,
  kInput,
  kPeer,
  kLaunching,
  kGpuOfOthers,
  kNothing
};
inline constexpr size_t kTimeCauses = 12;
// Whether the GPU had no work of the process.
inline bool is_idle(TimeCause cause) {
  return cause == TimeCause::kUnknown || cause >= TimeCause::kHostComputing;
}

// What in particular took the time.
enum class TimeReason : uint8_t {
  kEdge,         // before the first known work: whether the GPU worked is not known
  kNotRecorded,  // records are missing
  kNoLauncher,   // nobody knows who launched what ended it
  kUnseen,       // the thread was neither seen to run nor to wait: it had begun to wait before
  kKernel,
  kGraph,  // a CUDA graph as a whole: the kernels in it were not recorded one by one
  kCollective,
  kCopy,
  kCall,        // a call that launches nothing
  kCode,        // outside of calls
  kElsewhere,   // likewise: computing or blocked, as nobody followed the thread
  kPageFaults,  // likewise: in page faults
  kBlockedCall,
  kLock,  // outside of calls: a lock, a condition variable, another thread
  kGil,   // the lock of the Python interpreter
  kSleep,
  kBlocked,  // otherwise
  kNoCpu,
  kThrottled,
  kCopyCall,
  kInput,
  kDataLoader,
  kPeerCall,
  kLaunchCall,
  kSyncCall,   // in a synchronising call after the GPU had finished
  kAfterSync,  // short: a synchronising call had let the GPU run out of work
  kQueued,     // back from the launch call
  kOthers,
  kNothing
};
TimeCause get_cause(TimeReason reason);

enum class TimeVerdict : uint8_t {  // in the order of capture.proto
  kUnknown,
  kGpuBound,
  kLaunchBound,
  kInputBound,
  kCommunicationBound,
  kIdle
};

struct TimeFinding {
  TimeReason reason = TimeReason::kEdge;
  std::string subject;  // the call, function, kernel or direction that it is about; may be empty
  uint64_t time_ns = 0;
  uint64_t stretches = 0;
  uint64_t longest_ns = 0;
  uint64_t estimated_ns = 0;   // of time_ns: see TimeFinding.estimated_ns in capture.proto
  uint64_t after_sync_ns = 0;  // of time_ns: a synchronising call had let the GPU run out of work
  std::vector<std::string> stack;  // where most of it happened, outermost first
  uint32_t thread = kNoIndex;      // that most of it happened on
  uint32_t waker_pid = 0;          // who ended more than half of the time of waits
  uint32_t waker_tid = 0;          // 0 = several threads, or nobody known
  bool operator==(const TimeFinding&) const = default;
};

// What the longest step, or the one asked for, spent more on than the others: a hundredth of its
// length at least.
struct StepDifference {
  TimeFinding finding;    // of the longest step
  uint64_t usual_ns = 0;  // of the others, on average
  bool operator==(const StepDifference&) const = default;
};

// The steps of one function and phase that the window has whole; of training, turns of the loop
// (StepGroups).
struct StepUse {
  uint32_t function = kNoIndex;
  StepPhase phase = StepPhase::kUnknown;
  uint64_t steps = 0;
  uint64_t total_ns = 0;
  uint64_t median_ns = 0;
  std::array<uint64_t, kTimeCauses> parts_ns{};  // of all; add up to total_ns
  // The longest of them, or if `is_asked` the one asked for.
  bool is_asked = false;
  uint64_t longest_start_mono_ns = 0;
  uint64_t longest_ns = 0;
  std::array<uint64_t, kTimeCauses> longest_parts_ns{};  // add up to longest_ns
  uint64_t longest_tokens = 0;                           // 0 = not known
  uint64_t usual_tokens = 0;                             // of the others, on average; 0 = not known
  // Most first. If there is one step only: empty, or what the one asked for spent its time on.
  std::vector<StepDifference> differences;
  bool operator==(const StepUse&) const = default;
};

// One process on one GPU.
struct ProcessTimeUse {
  uint32_t process = kNoIndex;
  uint32_t device = kNoIndex;  // kNoIndex = it had no work on any
  uint64_t wall_ns = 0;
  std::array<uint64_t, kTimeCauses> parts_ns{};  // add up to wall_ns
  TimeVerdict verdict = TimeVerdict::kUnknown;
  std::vector<TimeFinding> findings;  // what can be saved first; add up to wall_ns too
  std::vector<StepUse> steps;         // most time first
  bool operator==(const ProcessTimeUse&) const = default;
};

// Every process that is injected or made calls, most idle time first. `step_mono_ns`: the step that
// began then, within kStepSlackNs, stands in place of the longest of its function and phase.
std::vector<ProcessTimeUse> explain_time(const Capture& capture,
                                         std::optional<uint64_t> step_mono_ns = std::nullopt);
// The wall clock may be set, and is slewed, between a step and its capture.
inline constexpr uint64_t kStepSlackNs = 1'000'000;

// The time in which GPUs had no work of the processes that use them, by what is known to have taken
// it: the path of the host, then "[GPU_Idle]host blocked" and the like.
std::vector<PathWeight> weigh_idle_time(const Capture& capture, PathTable& table);

}  // namespace gpuperf
