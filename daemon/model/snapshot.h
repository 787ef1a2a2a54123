#pragma once

// What the daemon knows at one moment, for every reader outside the loop. Never changes once built.

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/mutex.h"
#include "daemon/model/capture_order.h"
#include "daemon/model/event.h"
#include "daemon/model/function.h"
#include "daemon/model/gpu_during_call.h"
#include "daemon/model/gpu_health.h"
#include "daemon/model/gpu_rows.h"
#include "daemon/model/histogram.h"
#include "daemon/model/nccl_rows.h"
#include "daemon/model/overhead.h"
#include "daemon/model/overhead_measurement.h"
#include "daemon/model/qos.h"
#include "daemon/model/request.h"
#include "daemon/model/self_report.h"
#include "daemon/model/step.h"
#include "daemon/model/step_operators.h"

namespace gpuperf {

struct MemoryReport;  // daemon/model/memory.h

// Calls made while a function was suspended, estimated from those in the windows around.
struct CallsEstimate {
  double calls = 0;
  double slow_calls = 0;
  double variance = 0;    // of `calls`, by how much neighbouring windows differ
  double bias_calls = 0;  // by how much the probe itself may have slowed the calls counted
  bool operator==(const CallsEstimate&) const = default;

  CallsEstimate& operator+=(const CallsEstimate& other);
};
// Half of the interval that `calls` lies in at 95 %; infinite where it is the least only.
double get_error_calls(const CallsEstimate& estimate);

// Totals of one function over some set of processes.
struct FunctionTotals {
  uint64_t calls = 0;
  uint64_t hooked = 0;      // of `calls`: counted by launch hooks, without a trap
  uint64_t past_hooks = 0;  // of the others: made while hooks counted
  uint64_t abandoned = 0;
  uint64_t untimed = 0;
  uint64_t total_ns = 0;
  uint64_t self_ns = 0;
  uint64_t min_ns = 0;  // 0 = none completed
  uint64_t max_ns = 0;
  uint64_t slow_calls = 0;
  uint64_t other_errors = 0;
  // Operations of successful GEMMs. A busy GPU passes 2^64 within hours; up to there this is exact.
  long double flops = 0;
  std::array<uint64_t, GPUPERF_BYTE_SLOTS> bytes{};  // of successful calls, by GPUPERF_BYTES_*
  std::map<int32_t, uint64_t> errors;                // code -> count
  Histogram histogram;                               // of completed calls
  CallsEstimate missed;                              // beside all of the above

  bool operator==(const FunctionTotals&) const = default;
};

uint64_t get_error_count(const FunctionTotals& totals);
// Calls begun and neither completed, abandoned nor untimed.
uint64_t get_in_flight(const FunctionTotals& totals);
void add_delta(FunctionTotals& totals, const CellDelta& delta);
void merge_totals(FunctionTotals& totals, const FunctionTotals& other);

// One function in one process.
struct FunctionRow {
  uint32_t function_id = 0;
  ProcessKey process;
  Owner owner;
  bool exited = false;
  FunctionTotals totals;
};

// One function over all processes, living and gone, with the same owner: what metrics show. Only
// grows.
struct FunctionSeries {
  uint32_t function_id = 0;
  Owner owner;
  FunctionTotals totals;
};

struct ProcessRow {
  ProcessKey process;
  Owner owner;
  bool exited = false;
  uint32_t functions = 0;
  uint64_t calls = 0;
  uint64_t slow_calls = 0;
};

enum class ProbeState {
  kAttached,
  kEntryOnly,
  kWaiting,
  kSymbolMissing,
  kFailed,
  kDisabled,
  kSuspended,  // counted in short windows only, by the overhead budget or the configuration
  kAlias,      // the same code as another probed function, counted there
};

// Whether calls are counted at this very place.
constexpr bool is_probed(ProbeState state) {
  return state == ProbeState::kAttached || state == ProbeState::kEntryOnly;
}

// The same, at least now and then.
constexpr bool is_placed(ProbeState state) {
  return is_probed(state) || state == ProbeState::kSuspended;
}

// What a hit of the probe costs on this machine.
enum class HitCost {
  kUnknown,
  kEmulated,  // the kernel emulates the instruction within the trap
  kStepped,   // it steps over it out of line: 5 to 20 times dearer
};

// One configured function in one file, or without a file while none was found.
struct ProbeRow {
  uint32_t function_id = FunctionRegistry::kFull;  // none while it is in no file
  std::string category;
  std::string function;
  std::string symbol;
  ProbeState state = ProbeState::kWaiting;
  std::string reason;
  std::string library;
  uint64_t offset_bytes = 0;
  std::string mechanism;
  uint64_t slow_threshold_ns = 0;
  HitCost hit_cost = HitCost::kUnknown;
  uint32_t exit_sites = 0;  // timed at its own exits: how many; 0 = return probe or entry only
  uint64_t cost_ns = 0;     // calibrated, per call; 0 = not known
  bool is_sampled = false;  // the configuration says so
  bool operator==(const ProbeRow&) const = default;
};

// What runs in a frame.
enum class StackFrameKind {
  kNative,  // machine code of a file, or not known
  kJit,     // machine code made at run time, named by the perf map of whoever made it
  kKernel,
  kPython,  // a function of a Python program: symbol, file and line are all there is
};

struct StackFrame {
  std::string symbol;  // demangled; empty = not known
  std::string module;  // empty = not known
  uint64_t offset_bytes = 0;
  uint64_t address = 0;
  std::string file;         // of the source; empty = not known
  uint32_t line = 0;        // in `file`, of the call or the instruction; 0 = not known
  bool is_inlined = false;  // its code is part of the next frame's, and so is its address
  StackFrameKind kind = StackFrameKind::kNative;
  bool operator==(const StackFrame&) const = default;
};

// A stack with names. Equal ones have equal ids, in whatever process and run they were taken, and
// are one object.
struct Stack {
  uint64_t id = 0;
  StackEnd end = StackEnd::kComplete;
  std::vector<StackFrame> frames;  // innermost first
};
using StackPtr = std::shared_ptr<const Stack>;  // null = none was taken
// None of a null one.
const std::vector<StackFrame>& get_frames(const StackPtr& stack);

// The two stacks of a wait.
struct WaitStacks {
  StackPtr kernel;  // of the waiting thread
  StackPtr waker;   // of the waker in user space
};

// Probed calls made directly inside a call.
struct NamedCalls {
  std::string category;  // empty = of several functions
  std::string function;
  uint32_t calls = 0;
  uint64_t total_ns = 0;
};

struct SlowCall {
  uint64_t id = 0;  // 1 and up in order of arrival
  std::string category;
  std::string function;
  StatusKind status = StatusKind::kNone;
  uint64_t start_unix_ns = 0;
  SlowCallEvent event;
  std::vector<ArgumentText> arguments;  // empty = could not be kept
  StackPtr user_stack;
  std::vector<WaitStacks> wait_stacks;  // of event.waits
  std::vector<NamedCalls> children;     // most time first
  std::vector<std::string> outer;       // functions of the probed calls around it, outermost first
  std::string explanation;              // what dominated and what to look at next
  std::shared_ptr<const GpuDuringCall> gpu;  // null = no session, or not returned
  bool is_gone = false;    // was in flight and left without returning, as far as was seen
  bool is_stored = false;  // on disk before anybody was told
};

// Something the daemon cannot do.
struct Problem {
  std::string subject;
  std::string message;
  std::string hint;
  auto operator<=>(const Problem&) const = default;
};

// One way by which containers get the injected library, of those that are switched on.
struct InjectionWay {
  std::string name;  // "cdi", "device_plugin"
  bool is_working = false;
  std::string detail;  // how to use it, or why it does not work
  bool operator==(const InjectionWay&) const = default;
};

// Facts about the daemon itself that do not change while it runs.
struct DaemonFacts {
  std::string version;
  uint32_t pid = 0;
  uint64_t start_unix_ns = 0;
  std::string kernel;
  std::string config_path;                   // "(built-in)" without a file
  std::string config_json;                   // text of the file as read
  std::vector<std::string> config_drop_ins;  // paths of conf.d/*.json, as merged
  std::string effective_json;                // every setting in force
  std::string metrics_address;               // empty = not served
  std::string ingest_socket;                 // empty = sessions are not taken
};

// The probes' side, replaced as a whole when something attaches or fails.
struct ProbeReport {
  std::string mechanism = "none";  // "session", "multi", "perf"
  uint32_t files = 0;              // with at least one probe in them
  uint32_t held_files = 0;         // looked into, and kept open
  std::vector<ProbeRow> probes;    // configuration order
  std::vector<Problem> problems;
};

// One GEMM shape of one function in one process, since the daemon started.
struct ShapeRow {
  uint32_t function_id = 0;
  ProcessKey process;
  Owner owner;
  std::array<uint64_t, 4> dimensions{};  // m n k batch
  std::array<uint16_t, 4> types{};       // of A, B, C and of the computation
  uint64_t calls = 0;                    // successful ones
  uint64_t total_ns = 0;
  bool operator==(const ShapeRow&) const = default;
};
long double get_flops(const ShapeRow& row);  // of all its calls together

// A function that the overhead budget has suspended.
struct Suspension {
  uint32_t function_id = 0;
  ProcessKey process;  // in which it cost too much
  std::string comm;
  double share_ratio = 0;     // of that process's time, when it was suspended
  int64_t until_mono_ns = 0;  // when it is counted next, for Budget::kWindow
  uint32_t times = 0;         // suspended so far, this one included
  bool operator==(const Suspension&) const = default;
};

// What gpuperf costs a process, as shares of the process's time over the last second: probes by the
// calibrated cost of their hits, hooks and CUPTI by what a launch costs.
struct OverheadRow {
  ProcessKey process;
  Owner owner;
  double ratio = 0;        // all of it
  double hooks_ratio = 0;  // part of it, like the next
  double cupti_ratio = 0;
  double thread_ratio = 0;  // of the time that passed, probes in the thread that pays most
  double budget_ratio = 0;  // what `ratio` may be; 0 = no limit
  double correction = 1;    // by which the costs of probes and hooks were multiplied, as measured
  std::optional<OverheadMeasurement> measured;
  double probes_ratio() const { return ratio - hooks_ratio - cupti_ratio; }
};

// The slow calls on disk.
struct StoreReport {
  std::string path;  // folder; empty = they are kept in memory only
  uint64_t used_bytes = 0;
};

struct Snapshot {
  int64_t taken_mono_ns = 0;
  int64_t totals_mono_ns = 0;  // when the kernel's totals last came in; 0 = not yet
  OverheadDemand demand;
  OverheadTrialReport overhead_trial;
  std::vector<QosRow> qos_rules;  // in the order of their names
  std::shared_ptr<const DaemonFacts> daemon;
  std::shared_ptr<const ProbeReport> probes;
  std::shared_ptr<const FunctionList> functions;
  std::vector<std::shared_ptr<const FunctionRow>> rows;
  std::vector<std::shared_ptr<const FunctionSeries>> series;
  std::vector<ProcessRow> processes;                        // ordered by key
  std::vector<std::shared_ptr<const SlowCall>> slow_calls;  // arrival order
  uint64_t last_slow_call_id = 0;  // highest given so far, those on disk included; 0 = none
  std::shared_ptr<const InFlightCalls> in_flight;       // null = never looked
  std::vector<std::shared_ptr<const ShapeRow>> shapes;  // most calls first
  std::vector<double>
      coverage;  // by function id: share of the time since attach it was probed; missing = 1
  std::vector<uint64_t> adaptive_threshold_ns;  // by function id; missing or 0 = none
  std::vector<Suspension> suspensions;
  std::vector<OverheadRow> overhead;  // running processes
  uint64_t cpu_ns = 0;                // used by the daemon
  uint64_t resident_bytes = 0;        // of the daemon
  StoreReport store;
  std::shared_ptr<const GpuHealthReport> gpus;  // null = not read: switched off, or not yet
  std::vector<Problem> problems;                // beside those of the probes
  GpuReport gpu;                                // of injected processes
  std::shared_ptr<const MemoryReport> memory;   // null = not yet
  NcclReport nccl;
  // Of last calls of NCCL's ranks and of newest steps, by id of the RawStack.
  std::map<uint64_t, StackPtr> named_stacks;
  StepReport steps;
  OperatorReport operators;
  RequestReport requests;
  std::vector<CaptureRow> captures;  // by id; stored ones of earlier runs included
  RecorderRow recorder;
  std::vector<InjectionWay> injection_ways;  // switched on
  SelfReport self;
};

// Where the process has a row already, to that.
void add_overhead(Snapshot& snapshot, const OverheadRow& row);
// Processes that run. pid 0 stands for calls that could not be kept per process: none itself.
uint64_t count_running_processes(const Snapshot& snapshot);
// Null where it called no probed function, or was forgotten.
const ProcessRow* find_process(const Snapshot& snapshot, const ProcessKey& process);
// An empty one likewise.
const Owner& get_owner(const Snapshot& snapshot, const ProcessKey& process);
// Share of the time since attach that the function was probed.
double get_coverage(const Snapshot& snapshot, uint32_t function_id);
// Threshold in force by the function's own recent calls; 0 = none.
uint64_t get_adaptive_threshold_ns(const Snapshot& snapshot, uint32_t function_id);
// Age of a call at the look that found it.
uint64_t get_age_ns(const InFlightCalls& look, const InFlightCall& call);

// Where the newest snapshot is found. Any thread; never empty after the first publish.
class SnapshotBoard {
 public:
  void publish(std::shared_ptr<const Snapshot> snapshot) {
    const MutexLock lock(mutex_);
    newest_ = std::move(snapshot);
  }
  std::shared_ptr<const Snapshot> get() const {
    const MutexLock lock(mutex_);
    return newest_;
  }

 private:
  mutable Mutex mutex_;
  std::shared_ptr<const Snapshot> newest_ ABSL_GUARDED_BY(mutex_) =
      std::make_shared<const Snapshot>();
};

}  // namespace gpuperf
