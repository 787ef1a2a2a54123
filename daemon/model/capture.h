#pragma once

// What happened in a window of time, on the CPUs and on the GPUs, on one clock and with names: each
// piece of GPU work with the one host call and stack that launched it. Everything that repeats is
// kept once and named by its index; kNoIndex = none.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/model/function.h"
#include "daemon/model/gpu_counters.h"
#include "daemon/model/gpu_uuid.h"
#include "daemon/model/snapshot.h"
#include "daemon/model/stack.h"
#include "daemon/model/step.h"
#include "daemon/model/time_split.h"

namespace gpuperf {

inline constexpr uint32_t kNoIndex = UINT32_MAX;

struct CaptureProcess {
  ProcessKey process;
  Owner owner;
  bool is_injected = false;  // had a session: its GPU work is known
  bool operator==(const CaptureProcess&) const = default;
};

struct CaptureThread {
  uint32_t process = kNoIndex;
  uint32_t tid = 0;
  std::string comm;  // empty = not known
  bool operator==(const CaptureThread&) const = default;
};

// A probed function, or a call of the CUDA API by its own name ("cudaLaunchKernel").
struct CaptureFunction {
  std::string category;
  std::string name;
  bool operator==(const CaptureFunction&) const = default;
};

struct CaptureKernel {
  std::string name;        // demangled, with its template and call arguments
  std::string short_name;  // shorten_kernel_name(name)
  bool operator==(const CaptureKernel&) const = default;
};

struct CaptureStack {
  std::vector<uint32_t> frames;  // of `frames`, outermost first; down to the launch call's caller
  StackEnd end = StackEnd::kComplete;
  bool operator==(const CaptureStack&) const = default;
};

// The probed calls around a launch, as a tree: a chain is named by its innermost one.
struct CaptureOperation {
  uint32_t parent = kNoIndex;  // the probed call around it, an index below this one's
  uint32_t function = kNoIndex;
  std::array<uint64_t, 4> shape{};  // of a GEMM: m n k batch; all 0 = has none
  bool operator==(const CaptureOperation&) const = default;
};

struct CaptureDevice {
  GpuUuid uuid{};
  uint32_t number = 0;  // CUDA's, as the process that was seen first on it counts
  bool operator==(const CaptureDevice&) const = default;
};

struct CaptureStream {
  uint32_t process = kNoIndex;
  uint32_t device = kNoIndex;
  uint32_t context = 0;
  uint32_t stream = 0;  // CUPTI's number; UINT32_MAX = none, or not known
  bool operator==(const CaptureStream&) const = default;
};

struct CaptureShape {
  std::array<uint32_t, 3> grid{};
  std::array<uint32_t, 3> block{};
  uint32_t shared_memory_bytes = 0;
  uint32_t registers_per_thread = 0;
  bool operator==(const CaptureShape&) const = default;
};

// One probed call that returned.
struct CaptureCall {
  uint64_t start_mono_ns = 0;
  uint64_t duration_ns = 0;
  uint64_t off_cpu_ns = 0;  // of it: blocked, or waiting for a CPU
  uint32_t thread = kNoIndex;
  uint32_t function = kNoIndex;
  uint32_t stack = kNoIndex;  // of its caller; taken of long calls only
  uint32_t depth = 0;         // 0 = outermost probed call of the thread
  bool operator==(const CaptureCall&) const = default;
};

// How surely a launch was told from others.
enum class LaunchMatch : uint8_t {
  kExact,      // its hit, its call and its work belong together by identity
  kAmbiguous,  // two hits fit one call, or times are closer than the clocks are known
  kNoHit,      // the call is known by CUPTI alone: no stack, no operation
  kNoCall,     // the hit is known by the probe alone: no work can be joined
};
inline constexpr size_t kLaunchMatches = 4;
// "exact", "ambiguous", "no_hit", "no_call".
std::string_view get_launch_match_name(LaunchMatch match);

// One call that gave a GPU something to do.
struct CaptureLaunch {
  uint64_t start_mono_ns = 0;  // of the API call
  uint64_t duration_ns = 0;    // likewise; 0 = not known
  uint32_t thread = kNoIndex;
  uint32_t function = kNoIndex;   // the API call
  uint32_t stack = kNoIndex;      // kNoIndex = was not taken
  uint32_t operation = kNoIndex;  // innermost probed call around it
  uint32_t correlation_id = 0;    // of its process; 0 = not known
  LaunchMatch match = LaunchMatch::kExact;
  bool operator==(const CaptureLaunch&) const = default;
};

enum class WorkKind : uint8_t { kKernel, kCopy, kSet, kGraph };
// "kernel", "copy", "set", "graph".
std::string_view get_work_kind_name(WorkKind kind);

// One thing a GPU did.
struct CaptureWork {
  uint64_t start_mono_ns = 0;
  uint64_t duration_ns = 0;
  uint64_t bytes = 0;  // of copies and sets
  WorkKind kind = WorkKind::kKernel;
  uint8_t direction = 0;       // of a copy: GPUPERF_MEMCPY_*
  uint32_t kernel = kNoIndex;  // of kernels
  uint32_t stream = kNoIndex;
  uint32_t launch = kNoIndex;  // who launched it; of a graph's node, who launched the graph
  // Of a graph's node: who put it into the graph, of `capture_sites`. kNoIndex = not known.
  uint32_t capture_site = kNoIndex;
  uint32_t shape = kNoIndex;
  uint32_t graph_id = 0;  // 0 = neither a graph nor in one
  uint32_t node_id = 0;
  bool operator==(const CaptureWork&) const = default;
};
struct Capture;
// "copy host_to_device", "set", "graph 7", or the kernel's full name.
std::string get_work_name(const Capture& capture, const CaptureWork& work);
// The same with the kernel's short name.
std::string get_short_work_name(const Capture& capture, const CaptureWork& work);

// A thread that waited for a GPU in a synchronising call.
struct CaptureWait {
  uint64_t start_mono_ns = 0;
  uint64_t duration_ns = 0;
  uint32_t thread = kNoIndex;  // kNoIndex = not known
  uint32_t stream = kNoIndex;  // waited for; kNoIndex = the context, or not known
  uint32_t type = 0;           // GPUPERF_SYNC_*
  bool operator==(const CaptureWait&) const = default;
};

// What a thread did. On the CPU it is a sample of one moment, with a duration of 0.
enum class HostState : uint8_t {
  kOnCpuUser,
  kOnCpuSyscall,
  kOnCpuFault,
  kRunnable,   // waited for a CPU
  kThrottled,  // likewise: its cgroup had used up its CPU quota
  kBlocked     // and what follows: by GPUPERF_WAIT_*
};
inline constexpr size_t kHostStates = static_cast<size_t>(HostState::kBlocked) + kWaitKinds;
// "user", "system_call", "page_fault", "runnable", "throttled", "blocked_futex" and so on.
std::string_view get_host_state_name(HostState state);
inline HostState make_blocked_state(WaitKind kind) {
  return static_cast<HostState>(static_cast<uint8_t>(HostState::kBlocked) +
                                static_cast<uint8_t>(kind));
}
inline bool is_blocked(HostState state) { return state >= HostState::kBlocked; }
// Of a blocked one.
inline WaitKind get_wait_kind(HostState state) {
  return static_cast<WaitKind>(static_cast<uint8_t>(state) -
                               static_cast<uint8_t>(HostState::kBlocked));
}

// A time that a thread was off the CPU, or a sample of it on the CPU; of threads that made a probed
// call, whether they were in one or not. Shorter times off the CPU than 10 us are left out.
struct CaptureThreadTime {
  uint64_t start_mono_ns = 0;
  uint64_t duration_ns = 0;
  uint32_t thread = kNoIndex;
  HostState state = HostState::kOnCpuUser;
  uint32_t stack = kNoIndex;  // of samples, and of waits: at most one a millisecond
  uint32_t waker_pid = 0;
  uint32_t waker_tid = 0;  // who ended the wait; 0 = a timer, an interrupt, or not seen
  bool operator==(const CaptureThreadTime&) const = default;
};

// One step of an inference or training loop (docs/steps.md).
struct CaptureStep {
  uint64_t start_mono_ns = 0;
  uint64_t duration_ns = 0;
  uint32_t thread = kNoIndex;
  uint32_t function = kNoIndex;  // whose call it is; of an optimizer the first
  StepPhase phase = StepPhase::kUnknown;
  StepQuality phase_quality = StepQuality::kUnknown;
  StepQuality duration_quality = StepQuality::kUnknown;
  StepNumber tokens;
  StepNumber sequences;
  bool operator==(const CaptureStep&) const = default;
};

// Samples of the warps of one kernel of one process in one state (PC sampling). They are of the
// time that was sampled, to the 0.3 s that they take to arrive.
struct CaptureStall {
  uint32_t process = kNoIndex;
  uint32_t kernel = kNoIndex;
  uint32_t stall = 0;  // enum gpuperf_stall
  uint64_t samples = 0;
  uint64_t idle_samples = 0;  // of those: while no warp of the scheduler issued an instruction
  bool operator==(const CaptureStall&) const = default;
};

// Something is missing from the capture.
struct CaptureGap {
  uint64_t start_mono_ns = 0;
  uint64_t duration_ns = 0;
  uint32_t process = kNoIndex;
  std::string cause;   // "other_client", "records_lost": a name, for people and programs
  uint64_t count = 0;  // records; 0 = not known
  bool operator==(const CaptureGap&) const = default;
};

// How well launches and work found each other.
struct CaptureMatches {
  std::array<uint64_t, kLaunchMatches> launches{};  // by LaunchMatch
  uint64_t work = 0;                                // pieces of GPU work, graphs' nodes included
  uint64_t work_matched = 0;                        // of it: with a launch that is kExact
  uint64_t work_no_call = 0;                        // its call's record is missing
  uint64_t launches_no_stack = 0;  // hits without a stack: sampled, or it could not be taken
  uint64_t nodes = 0;              // of `work`: of graphs, told one by one
  uint64_t nodes_placed = 0;       // of them: it is known who put them into the graph
  bool operator==(const CaptureMatches&) const = default;
};

struct Capture {
  uint64_t id = 0;
  std::string name;     // whoever asked for it gave it; may be empty
  std::string trigger;  // "request", "recorder", "slow_call", "alert", "qos_rule"
  std::string host;
  std::string version;  // of the daemon
  // The window. Launches before it are in the capture when their work is; work that began in it is
  // there in full.
  uint64_t start_unix_ns = 0;
  uint64_t start_mono_ns = 0;
  uint64_t duration_ns = 0;

  std::vector<CaptureProcess> processes;
  std::vector<CaptureThread> threads;
  std::vector<CaptureFunction> functions;
  std::vector<CaptureKernel> kernels;
  std::vector<StackFrame> frames;
  std::vector<CaptureStack> stacks;
  std::vector<CaptureOperation> operations;
  std::vector<CaptureDevice> devices;
  std::vector<CaptureStream> streams;
  std::vector<CaptureShape> shapes;
  std::vector<CaptureStall> stalls;  // by process, kernel and stall
  // Each by start.
  std::vector<CaptureCall> calls;
  std::vector<CaptureLaunch> launches;
  std::vector<CaptureWork> work;
  std::vector<CaptureWait> waits;
  std::vector<CaptureThreadTime> thread_times;
  std::vector<CaptureStep> steps;
  std::vector<CaptureGap> gaps;
  // Launches that were captured and became nodes of graphs: mostly long before the window. One row
  // for all of one site. In no order.
  std::vector<CaptureLaunch> capture_sites;
  // Hardware counters of every GPU of the host in the window, by start.
  std::vector<GpuCounterRecord> gpu_counters;
  CaptureMatches matches;
  bool operator==(const Capture&) const = default;
};

}  // namespace gpuperf
