#pragma once

// What injected processes' GPUs did, as the snapshot shows it: kernels, copies, waits, graphs,
// memory, the sessions themselves and how busy each GPU was. Sources: CUPTI's records
// (model/session).

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/model/function.h"
#include "daemon/model/histogram.h"
#include "daemon/model/kernel_stalls.h"
#include "daemon/model/session.h"
#include "injector/session_abi.h"

namespace gpuperf {

// Durations added up. Their count is the histogram's.
struct DurationTotals {
  uint64_t total_ns = 0;
  uint64_t min_ns = 0;  // 0 = none
  uint64_t max_ns = 0;
  Histogram histogram;

  bool operator==(const DurationTotals&) const = default;
};

void add_duration(DurationTotals& totals, uint64_t duration_ns);
void merge_durations(DurationTotals& totals, const DurationTotals& other);
// Within what was measured: the middle of a bucket may lie outside. 0 = none.
uint64_t get_quantile_ns(const DurationTotals& totals, double quantile);

// A kernel's name. Equal ones are one object.
struct KernelText {
  uint64_t serial = 0;  // order of first sight; never given again
  std::string mangled;  // as linked
  std::string full;     // demangled
  std::string brief;    // without return type, parameters and namespaces: for tables and labels
  bool is_nccl = false;
  bool operator==(const KernelText&) const = default;
};
using KernelTextPtr = std::shared_ptr<const KernelText>;  // never null in a row

// Launches of one kernel that were seen, over some set of processes.
struct KernelTotals {
  DurationTotals duration;          // time on the GPU; its count = launches
  uint64_t graph_launches = 0;      // of those: as part of a graph
  uint64_t estimated_launches = 0;  // as many as there were, where sessions sample; else launches
  // Of launches outside graphs whose API call was seen.
  DurationTotals launch_latency;  // from the beginning of the call to the kernel's start
  DurationTotals queue_delay;     // from the end of the call; 0 = began before it returned

  bool operator==(const KernelTotals&) const = default;
};

uint64_t get_launches(const KernelTotals& totals);
// Share of the launches that was counted: 1 = all, less = a sample.
double get_coverage(const KernelTotals& totals);
void merge_totals(KernelTotals& totals, const KernelTotals& other);

// One kernel in one process; or, of processes that were forgotten, in all that had this owner.
struct KernelRow {
  KernelTextPtr name;
  ProcessKey process;  // pid 0 = of forgotten processes
  Owner owner;
  bool exited = false;  // its last session has ended
  bool folded = false;  // no room among the series: metrics count it under "other"
  KernelTotals totals;
  LaunchShape shape;  // of a launch, the last one where they differ; id 0 = none was seen
  SmLimits sm;        // of the GPU that it ran on
  std::shared_ptr<const KernelStalls> stalls;  // null = it was never sampled
};

struct CopyTotals {
  bool is_set = false;
  uint8_t direction = 0;      // GPUPERF_MEMCPY_*; of a set 0
  uint8_t source_memory = 0;  // GPUPERF_MEMORY_*; of a set 0
  uint8_t target_memory = 0;  // GPUPERF_MEMORY_*
  uint64_t bytes = 0;
  DurationTotals duration;
  bool operator==(const CopyTotals&) const = default;
};

// Launches of one graph.
struct GraphTotals {
  uint32_t graph_id = 0;          // of the process's CUDA; 0 = graphs beyond the bound, together
  DurationTotals duration;        // empty where only its nodes are seen
  DurationTotals launch_latency;  // from the beginning of the launch's call to the GPU's start
  bool operator==(const GraphTotals&) const = default;
};

// Time lost to CUPTI or to the driver's housekeeping.
struct OverheadTotals {
  uint64_t count = 0;
  uint64_t total_ns = 0;
  bool operator==(const OverheadTotals&) const = default;
};

// What one process, or all with one owner that were forgotten, did beside kernels.
struct GpuProcessTotals {
  std::vector<CopyTotals> copies;                                  // ordered by what they are
  std::array<DurationTotals, GPUPERF_SYNC_COUNT> syncs;            // by GPUPERF_SYNC_*
  std::array<OverheadTotals, GPUPERF_OVERHEAD_COUNT> overheads{};  // by GPUPERF_OVERHEAD_*
  std::vector<GraphTotals> graphs;                                 // in order of first launch
  uint64_t api_calls = 0;   // seen: those that launch, copy or set; all during a burst
  uint64_t api_errors = 0;  // of those
  bool operator==(const GpuProcessTotals&) const = default;
};
// Graphs are merged into graph 0: their ids mean nothing outside their process.
void merge_totals(GpuProcessTotals& totals, const GpuProcessTotals& other);

// Memory of one kind that a process holds on one GPU.
struct GpuMemoryRow {
  GpuUuid uuid{};
  uint32_t ordinal = 0;
  uint8_t memory = 0;  // GPUPERF_MEMORY_*
  uint64_t used_bytes = 0;
  uint64_t peak_bytes = 0;
  uint64_t allocations = 0;
  uint64_t releases = 0;
  uint64_t allocated_bytes = 0;  // by all allocations together
  bool operator==(const GpuMemoryRow&) const = default;
};

struct GpuProcessRow {
  ProcessKey process;  // pid 0 = forgotten processes
  Owner owner;
  bool exited = false;
  bool folded = false;
  bool memory_complete = true;  // no allocation or release was missed, as far as can be known
  GpuProcessTotals totals;
  std::vector<GpuMemoryRow> memory;  // by GPU and kind
};

// How busy one GPU was with what sessions reported: the union over streams and processes.
struct GpuActivity {
  GpuUuid uuid{};                // of the MIG instance where there is one
  ProcessKey process;            // pid 0 = all; set only where the uuid is not known
  uint32_t ordinal = 0;          // in the first process that used it
  uint64_t busy_ns = 0;          // kernels, copies, sets or graphs
  uint64_t without_nccl_ns = 0;  // the same without kernels of NCCL
  uint64_t kernel_ns = 0;
  uint64_t copy_ns = 0;        // copies and sets
  uint64_t graph_ns = 0;       // graphs seen as a whole, whatever is in them
  uint64_t observed_ns = 0;    // all open sessions that have used it collected
  int64_t since_mono_ns = 0;   // begin of the first
  int64_t newest_mono_ns = 0;  // end of the last
  uint64_t late_ns = 0;        // of records that came too late: busy_ns is short by at most this
  std::vector<ProcessKey> processes;  // whose sessions are open and have used it
  bool operator==(const GpuActivity&) const = default;
};

// Gaps of one cause in what a session collected.
struct GapTotals {
  uint64_t count = 0;
  uint64_t total_ns = 0;
  bool operator==(const GapTotals&) const = default;
};

// How a session's launches were joined with what they caused.
struct JoinTotals {
  uint64_t joined = 0;
  // Work that began before the call that caused it: clocks that differ. Never averaged in.
  uint64_t clock_violations = 0;
  uint64_t clock_worst_ns = 0;
  bool operator==(const JoinTotals&) const = default;
};

// What CUPTI's records cost a launch, measured in the process (LaunchCosts).
struct LaunchCost {
  double ns = 0;         // below zero by chance
  double error_ns = 0;   // 95 % of such measurements lie so near
  uint32_t windows = 0;  // that it was measured in; 0 = not measured
  bool operator==(const LaunchCost&) const = default;
};

// What PC sampling found in a session.
struct SamplingTotals {
  uint64_t duration_ns = 0;  // sampled, over all of its GPUs
  uint64_t samples = 0;
  uint64_t dropped_samples = 0;  // of those: by the hardware
  uint64_t other_samples = 0;    // of those: of kernels that CUPTI does not tell
  uint64_t full_count = 0;       // readings that found the hardware's buffer full
  bool operator==(const SamplingTotals&) const = default;
};

struct SessionRow {
  SessionOpened facts;
  SessionStatus status;  // newest; state 0 = none came yet
  bool open = true;
  int64_t closed_mono_ns = 0;
  std::string closed_reason;
  int64_t state_since_mono_ns = 0;  // as far as this daemon saw
  uint64_t collected_ns = 0;        // in state "collecting" before that
  bool is_in_windows = false;       // it collects now and then only (SessionWindows)
  // Launches that one of the window at hand stands for, with those between it and the last.
  uint32_t window_weight = 1;
  LaunchCost launch_cost;
  std::array<GapTotals, GPUPERF_SESSION_CAUSE_COUNT> gaps{};  // by enum gpuperf_session_cause
  JoinTotals join;
  SamplingTotals sampling;
};

// How long an open session has collected.
uint64_t get_collected_ns(const SessionRow& session, int64_t now_mono_ns);

struct GpuReport {
  std::vector<std::shared_ptr<const SessionRow>> sessions;  // open ones first, newest first
  std::vector<std::shared_ptr<const KernelRow>> kernels;    // by process, then first sight
  std::vector<std::shared_ptr<const KernelRow>> retired_kernels;
  std::vector<std::shared_ptr<const GpuProcessRow>> processes;  // by process
  std::vector<std::shared_ptr<const GpuProcessRow>> retired_processes;
  std::vector<GpuActivity> activity;  // in order of first use
  // Of all sessions there were, by enum gpuperf_session_loss. Only grows.
  std::array<uint64_t, GPUPERF_SESSION_LOSS_COUNT> lost_records{};
  uint64_t clock_steps = 0;  // times the wall clock was set
};

// The open session of a process, or its last; null = there was none.
const SessionRow* find_session(const GpuReport& report, const ProcessKey& process);
// Sessions that are open by state; index 0: no status yet.
constexpr size_t kSessionStates = GPUPERF_SESSION_STATE_FAILED + 1;
std::array<uint32_t, kSessionStates> count_sessions(const GpuReport& report);

}  // namespace gpuperf
