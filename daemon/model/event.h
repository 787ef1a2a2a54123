#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "bpf/records.h"
#include "daemon/model/bounds.h"
#include "daemon/model/function.h"
#include "daemon/model/stack.h"
#include "daemon/model/time_split.h"

namespace gpuperf {

// What one cell gained since it was last read.
struct CellDelta {
  uint32_t function_id = 0;
  ProcessKey process;
  Owner owner;
  uint64_t calls = 0;
  uint64_t hooked = 0;    // of `calls`: counted by launch hooks, without a trap
  int64_t abandoned = 0;  // negative when a call given up for lost returned after all
  uint64_t total_ns = 0;
  uint64_t self_ns = 0;
  uint64_t min_ns = 0;  // of the cell's whole life; 0 = none completed
  uint64_t max_ns = 0;  // of the cell's whole life
  uint64_t slow_calls = 0;
  uint64_t untimed = 0;
  uint64_t other_errors = 0;
  uint64_t flops = 0;
  std::array<uint64_t, GPUPERF_BYTE_SLOTS> bytes{};
  std::vector<std::pair<int32_t, uint64_t>> errors;  // code -> count
  std::vector<std::pair<uint16_t, uint32_t>>
      buckets;  // bucket -> count; their sum = calls completed
  bool operator==(const CellDelta&) const = default;
};

// The last thread of a process has gone; all its deltas came before.
struct ProcessExited {
  ProcessKey process;
  bool operator==(const ProcessExited&) const = default;
};

// A process that is traced with its children has started one.
struct ChildStarted {
  ProcessKey parent;
  ProcessKey child;
  bool operator==(const ChildStarted&) const = default;
};

// A slow call as the kernel recorded it: at its return, or while it is in flight.
struct SlowCallEvent {
  uint32_t function_id = 0;
  ProcessKey process;
  Owner owner;
  uint32_t tid = 0;
  std::string comm;  // of the calling thread
  uint64_t start_mono_ns = 0;
  uint64_t duration_ns = 0;
  uint64_t threshold_ns = 0;
  std::optional<CallValues> values;      // empty = the entry could not be kept
  std::optional<uint64_t> return_value;  // empty = not seen: timed at its own exits
  uint64_t stack_id = 0;                 // of a RawStack, from the call's caller on; 0 = none
  std::optional<LiveStack> live_stack;   // in its place while the call is in flight
  bool is_adaptive = false;              // threshold_ns is the adaptive threshold
  bool is_worst = false;        // among the longest of its function and process as the kernel knows
  std::vector<uint32_t> outer;  // functions of the probed calls around it, outermost first
  std::optional<TimeSplit> split;        // empty = not known
  std::vector<ChildCalls> children;      // in order of the first call
  std::vector<Wait> waits;               // the longest, longest first
  std::optional<ThreadState> in_flight;  // what the thread was found doing; empty = it has returned
  bool operator==(const SlowCallEvent&) const = default;
};

// Every call in flight past its threshold at one moment; duration_ns is the age then.
struct SlowInFlightCalls {
  std::vector<SlowCallEvent> calls;
  bool operator==(const SlowInFlightCalls&) const = default;
};

// What one GEMM shape of one cell gained since it was last read.
struct ShapeDelta {
  uint32_t function_id = 0;
  ProcessKey process;
  Owner owner;
  std::array<uint64_t, 4> dimensions{};  // m n k batch
  std::array<uint16_t, 4> types{};       // of A, B, C and of the computation; cudaDataType codes
  uint64_t calls = 0;
  uint64_t total_ns = 0;
  bool operator==(const ShapeDelta&) const = default;
};

// A kernel's handle got its name.
struct HandleNamed {
  ProcessKey process;
  uint64_t handle = 0;
  std::string name;  // mangled; empty = that of source_handle
  uint64_t source_handle = 0;
  bool operator==(const HandleNamed&) const = default;
};

// One call a thread is inside of.
struct InFlightCall {
  uint32_t function_id = 0;
  ProcessKey process;
  uint32_t tid = 0;
  std::string comm;    // of the thread
  uint32_t depth = 0;  // 0 = outermost probed call of the thread
  uint64_t start_mono_ns = 0;
  bool operator==(const InFlightCall&) const = default;
};

// Every call in flight at one moment, longest first; `truncated_count` further ones are left out.
struct InFlightCalls {
  std::vector<InFlightCall> calls;
  uint64_t truncated_count = 0;
  uint64_t look_mono_ns = 0;  // when
  bool operator==(const InFlightCalls&) const = default;
};

// A process calls a function so often that its probe may cost too much.
struct CallsAlarm {};

// What probes cost threads since their first probed calls, at one moment.
struct ThreadCosts {
  struct Thread {
    ProcessKey process;
    uint32_t tid = 0;
    uint64_t cost_ns = 0;
    bool operator==(const Thread&) const = default;
  };
  std::vector<Thread> threads;
  int64_t mono_ns = 0;
  bool operator==(const ThreadCosts&) const = default;
};

// Every cell has been read; the deltas before it are those of just this time.
struct TotalsRead {
  int64_t mono_ns = 0;
  bool is_early = false;           // between two regular readings: a probe may cost too much
  std::vector<BoundLevel> levels;  // of what the kernel side fills; those read since the last
  bool operator==(const TotalsRead&) const = default;
};

// A call to a function that gives a GPU work has begun.
struct TraceLaunch {
  uint64_t mono_ns = 0;
  uint64_t site_id = 0;  // of a TraceSite; 0 = could not be told
  ProcessKey process;
  uint32_t tid = 0;
  uint32_t function_id = 0;
  bool is_captured = false;  // made while its process captured a graph
  uint64_t exec = 0;         // CUgraphExec of a graph's launch; of others 0
  bool operator==(const TraceLaunch&) const = default;
};

// A call that made, changed or ended a graph has returned.
struct TraceGraphCall {
  uint64_t mono_ns = 0;
  ProcessKey process;
  uint32_t tid = 0;
  gpuperf_graph_call call = GPUPERF_GRAPH_NONE;
  bool is_followed = false;  // of the begin of a capture: its launches are told
  uint64_t handle = 0;       // what was made, changed or destroyed; 0 = the capture failed
  uint64_t source = 0;       // graph that an exec was made of or updated by; a capture's stream
  bool operator==(const TraceGraphCall&) const = default;
};

// Where launches come from. Told before the first launch that names it.
struct TraceSite {
  uint64_t site_id = 0;
  uint64_t stack_id = 0;            // of a RawStack; 0 = none was taken
  std::vector<uint32_t> functions;  // of the probed calls around it, outermost first
  uint32_t shape_at = 0;            // index in `functions` of the GEMM whose shape it is
  std::array<uint64_t, 4> shape{};  // m n k batch; all 0 = none
  bool operator==(const TraceSite&) const = default;
};

// A call that gives a GPU nothing to do has returned.
struct TraceCall {
  uint64_t start_mono_ns = 0;
  uint64_t duration_ns = 0;
  uint64_t off_cpu_ns = 0;
  uint64_t stack_id = 0;  // of its caller; 0 = none was taken
  ProcessKey process;
  uint32_t tid = 0;
  uint32_t function_id = 0;
  uint32_t depth = 0;
  bool operator==(const TraceCall&) const = default;
};

// A thread was off the CPU, or was found on it by a tick.
struct TraceThreadTime {
  uint64_t start_mono_ns = 0;
  uint64_t blocked_ns = 0;
  uint64_t throttled_ns = 0;
  uint64_t runnable_ns = 0;  // without the throttled part
  uint64_t stack_id = 0;     // 0 = none was taken
  ProcessKey process;
  uint32_t tid = 0;
  bool is_tick = false;
  uint32_t kind = 0;  // GPUPERF_WAIT_*; of a tick GPUPERF_TICK_*
  uint32_t waker_pid = 0;
  uint32_t waker_tid = 0;  // 0 = none, or not seen
  bool operator==(const TraceThreadTime&) const = default;
};

// What came through the trace ring at once. By then everything from before `complete_mono_ns` has
// come.
struct TraceBatch {
  std::vector<TraceSite> sites;
  std::vector<TraceLaunch> launches;
  std::vector<TraceCall> calls;
  std::vector<TraceGraphCall> graph_calls;
  std::vector<TraceThreadTime> thread_times;
  uint64_t complete_mono_ns = 0;
  bool operator==(const TraceBatch&) const = default;
};

// An operator of an inference engine that begins (StepRole::kOperator).
struct OperatorCall {
  uint32_t layout = 0;     // its number in TensorLayouts
  uint32_t operation = 0;  // its number in that layout
  std::string name;        // of the tensor it makes, as far as it was read
  // Operators of all processes that were lost so far: another number than before means that some
  // between the two are missing.
  uint64_t lost = 0;
  bool operator==(const OperatorCall&) const = default;
};

// The experts that the tokens of one operator go to.
struct Routing {
  std::string name;     // as in OperatorCall
  uint64_t tokens = 0;  // of the operator
  uint64_t read_tokens = 0;
  uint32_t expert_count = 0;     // of its layer
  std::vector<int32_t> experts;  // of the tokens that were read, each as many
  bool operator==(const Routing&) const = default;
};

// One call of a function whose decoder asks for each (ArgumentPlan::report), at its end.
// What a thread gave the GPU to do between two copies to the host.
struct GpuTurn {
  uint64_t start_mono_ns = 0;  // of its first probed call; 0 = only hooks saw any
  uint32_t graphs = 0;         // CUDA graphs that were replayed
  // How many rows (n of m, n and k) most of its matrix products have; 0 = it had none, or half of
  // them have others.
  uint64_t product_rows = 0;
  bool operator==(const GpuTurn&) const = default;
};

struct ReportedCall {
  uint64_t start_mono_ns = 0;
  uint64_t duration_ns = 0;
  ProcessKey process;
  uint32_t tid = 0;
  uint32_t function_id = 0;
  std::optional<CallValues> values;      // without blobs; empty = the entry could not be kept
  uint64_t result = 0;                   // what it stored at the plan's result_at; 0 = nothing
  std::optional<uint64_t> return_value;  // empty = not seen: timed at its own exits
  uint64_t stack_id = 0;                 // of a RawStack, from the call's caller on; 0 = none
  uint32_t depth = 0;                    // probed calls around it
  uint32_t outermost_id = 0;             // function of the outermost of them; without one, its own
  // Of an operator, which has no duration: one of the two.
  std::shared_ptr<const OperatorCall> operator_call;
  std::shared_ptr<const Routing> routing;
  GpuTurn turn;  // that it ends, of a StepRole::kResultCopy
  bool operator==(const ReportedCall&) const = default;
};

// A process writes a part of an HTTP response, or the connection is closed.
struct ResponsePart {
  uint64_t mono_ns = 0;  // after it is written
  ProcessKey process;
  uint32_t tid = 0;
  uint32_t session = 0;                // of the process, setsid(2)
  uint64_t connection = 0;             // the same until it is closed
  uint64_t request_start_mono_ns = 0;  // of the first part: when the request's first byte was read
  uint64_t request_end_mono_ns = 0;    // likewise its last
  uint64_t bytes = 0;
  bool begins = false;     // the response
  bool has_body = false;   // a byte of it
  bool ends = false;       // with the chunk that says so
  bool is_closed = false;  // the connection; nothing is written
  Owner owner;             // of the process; of the first part
  bool operator==(const ResponsePart&) const = default;
};

// In the order of their ends, but for calls that end within microseconds of each other on different
// threads.
struct ReportedCalls {
  std::vector<ReportedCall> calls;
  std::vector<ResponsePart> responses;
  bool operator==(const ReportedCalls&) const = default;
};

using Event = std::variant<CellDelta, ProcessExited, SlowCallEvent, ShapeDelta, HandleNamed,
                           RawStack, InFlightCalls, SlowInFlightCalls, ThreadCosts, TotalsRead,
                           TraceBatch, ChildStarted, ReportedCalls>;

}  // namespace gpuperf
