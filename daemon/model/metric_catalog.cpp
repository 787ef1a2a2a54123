#include "daemon/model/metric_catalog.h"

#include <spdlog/fmt/fmt.h>

#include <iterator>

#include "daemon/model/drops.h"
#include "daemon/model/gpu_counter_metrics.h"
#include "daemon/model/self_report.h"

namespace gpuperf {
namespace {

using L = MetricLabel;

constexpr MetricLabelRow kLabelRows[] = {
    {L::kCategory, "category", "section of the configuration without `_func_sym` or `_sym`"},
    {L::kFunction, "function", "display name from the configuration"},
    {L::kComm, "comm", "command of the process; `other` for series beyond a limit"},
    {L::kComponent, "component",
     "part of gpuperf: `probes`, `hooks` (launch hooks of the injected library), `cupti`"},
    {L::kContainer, "container", "container id, 12 characters; empty outside containers"},
    {L::kPod, "pod", "pod name, or its uid where the name is not known; empty outside pods"},
    {L::kNamespace, "namespace", "Kubernetes namespace; empty outside pods or where not known"},
    {L::kSlurmJob, "slurm_job", "SLURM_JOB_ID of the process; empty outside Slurm jobs"},
    {L::kSlurmRank, "slurm_rank", "SLURM_PROCID of the process; empty outside Slurm jobs"},
    {L::kError, "error",
     "name of the code in its own library, the number where no name is known, `other` for codes "
     "beyond the six told apart per function and process"},
    {L::kDirection, "direction",
     "as `kind`; `plain` for bytes without a direction: allocated, filled by memset, or sent. For "
     "links of a GPU: `transmit`, `receive`, as the GPU sees it"},
    {L::kKind, "kind",
     "`host_to_host`, `host_to_device`, `device_to_host`, `device_to_device`; `default` if the "
     "call leaves it to the driver. For bytes that GPUs copied, also `peer_to_peer`, kinds with "
     "`array`, and `set` (memset). For memory errors of a GPU: `corrected`, `uncorrected`. For "
     "memory "
     "of processes: `device`, `async` (pieces of pools), `virtual`, `array`, `managed`, `pinned`, "
     "`registered`, `imported` (always 0)"},
    {L::kState, "state",
     "`attached`, `entry_only`, `waiting`, `symbol_missing`, `failed`, `disabled`, `suspended` (by "
     "the overhead budget), `alias` (counted under another name). For sessions: `starting`, "
     "`waiting` (for CUDA), `collecting`, `paused`, `yielded` (to another CUPTI client), `off`, "
     "`failed`"},
    {L::kStage, "stage", "where it was dropped; see the table below"},
    {L::kReason, "reason",
     "why it was dropped; see the table below. For records that sessions lost: `cupti_buffer`, "
     "`device_buffer`, `reversed`, `queue_full`, `no_daemon`, `table_full`, `unknown_record`, "
     "`pool_empty`, `incomplete`; `sampled` (not kept because you asked for a sample). For a GPU's "
     "clocks: `idle`, `clock_settings`, `power_cap`, `hw_slowdown`, `sync_boost`, `sw_thermal`, "
     "`hw_thermal`, `power_brake`, `display_clocks`"},
    {L::kVersion, "version", "version of the daemon"},
    {L::kKernel, "kernel", "release of the Linux kernel it runs on"},
    {L::kMechanism, "mechanism",
     "how probes are attached: `session`, `multi`, `perf`; `none` while they cannot be"},
    {L::kKernelName, "kernel_name",
     "name of the GPU kernel without return type, parameters and namespaces; `other` for kernels "
     "without their own series"},
    {L::kUuid, "uuid", "UUID of the GPU, or of the MIG instance, `GPU-…`; empty where not known"},
    {L::kSync, "sync",
     "what was waited for: `event`, `stream`, `context`; `stream_event` where a stream waited"},
    {L::kGpu, "gpu", "index of the GPU, as in nvidia-smi"},
    {L::kName, "name", "product name of the GPU"},
    {L::kDriver, "driver", "version of NVIDIA's driver"},
    {L::kPciBusId, "pci_bus_id", "PCI address of the GPU"},
    {L::kClock, "clock", "`sm` (multiprocessors), `memory`"},
    {L::kXid, "xid", "the driver's error code (XID); `0` for invalid codes"},
    {L::kBound, "bound", "name of the limit; see the table below"},
    {L::kPart, "part", "part of the daemon's memory; see the table below"},
    {L::kStep, "step",
     "`loop_delay`: from when a timer of the loop was due until it ran; `store_write`: a batch of "
     "slow calls; `store_sync`: their file, to disk; `capture_write`: a capture, to disk; or the "
     "name of a thread ([architecture.md](architecture.md#threads)): one piece of its work"},
    {L::kGpuInstance, "gpu_instance", "id of the GPU instance in MIG mode; empty: the whole GPU"},
    {L::kPipe, "pipe",
     "execution pipe of the SMs: `tensor`, `fp64`, `fp32`, `fp16` (without tensor operations), "
     "`integer`"},
    {L::kCommunicator, "communicator",
     "communicator of NCCL: hash of its unique id, the same on all hosts that saw its creation"},
    {L::kRank, "rank",
     "rank in the communicator; that of the process in its job where the creation was not seen; "
     "`pid` and its number where neither is known"},
    {L::kOperation, "operation",
     "`all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all`, `broadcast`, `reduce`, `gather`, "
     "`scatter`, `send_receive`; `mixed`: several of them in one group"},
    {L::kBasis, "basis", "when a rank begins: its call (`host`), or its kernel (`gpu`)"},
    {L::kCause, "cause",
     "what the rank did meanwhile: `running`, `cpu_quota`, `no_cpu`, `io`, `lock`, `sleep`, "
     "`driver`, `other_wait`, `stopped`; `gpu`: its calls are in time; `unknown`; empty: not late"},
    {L::kPhase, "phase",
     "what a step works on: `prefill`, `decode`, `mixed`, `train` (a backward pass), `optimizer`, "
     "`unknown`; see [steps.md](steps.md)"},
    {L::kQuality, "quality",
     "how a number is known: `exact`, `derived` (by a rule, from exact ones), `estimated`"},
    {L::kWhere, "where",
     "where a process hangs: `in_step`, `between_steps` (of processes that train)"},
    {L::kRule, "rule", "name of a rule of `qos.rules`"},
};

constexpr L kOwner[] = {L::kCategory, L::kFunction,  L::kComm,     L::kContainer,
                        L::kPod,      L::kNamespace, L::kSlurmJob, L::kSlurmRank};
constexpr L kOwnerAndError[] = {L::kCategory,  L::kFunction, L::kComm,      L::kContainer, L::kPod,
                                L::kNamespace, L::kSlurmJob, L::kSlurmRank, L::kError};
constexpr L kOwnerAndDirection[] = {L::kCategory,  L::kFunction,  L::kComm,
                                    L::kContainer, L::kPod,       L::kNamespace,
                                    L::kSlurmJob,  L::kSlurmRank, L::kDirection};
constexpr L kProcessOwner[] = {L::kComm,      L::kContainer, L::kPod,
                               L::kNamespace, L::kSlurmJob,  L::kSlurmRank};
constexpr L kProcessOwnerAndKind[] = {L::kComm,     L::kContainer, L::kPod, L::kNamespace,
                                      L::kSlurmJob, L::kSlurmRank, L::kKind};
constexpr L kProcessOwnerAndSync[] = {L::kComm,     L::kContainer, L::kPod, L::kNamespace,
                                      L::kSlurmJob, L::kSlurmRank, L::kSync};
constexpr L kKernelAndOwner[] = {L::kKernelName, L::kComm,     L::kContainer, L::kPod,
                                 L::kNamespace,  L::kSlurmJob, L::kSlurmRank};
constexpr L kUuidAndOwner[] = {L::kUuid,      L::kComm,     L::kContainer, L::kPod,
                               L::kNamespace, L::kSlurmJob, L::kSlurmRank};
constexpr L kUuidOnly[] = {L::kUuid};
constexpr L kReasonOnly[] = {L::kReason};
constexpr L kFunctionOnly[] = {L::kCategory, L::kFunction};
constexpr L kKind[] = {L::kKind};
constexpr L kPodAndComm[] = {L::kPod, L::kComm};
constexpr L kPodCommAndComponent[] = {L::kPod, L::kComm, L::kComponent};
constexpr L kState[] = {L::kState};
constexpr L kStageAndReason[] = {L::kStage, L::kReason};
constexpr L kGpuOnly[] = {L::kGpu, L::kUuid};
constexpr L kGpuAndFacts[] = {L::kGpu, L::kUuid, L::kName, L::kDriver, L::kPciBusId};
constexpr L kGpuAndClock[] = {L::kGpu, L::kUuid, L::kClock};
constexpr L kGpuAndReason[] = {L::kGpu, L::kUuid, L::kReason};
constexpr L kGpuAndXid[] = {L::kGpu, L::kUuid, L::kXid};
constexpr L kGpuAndKind[] = {L::kGpu, L::kUuid, L::kKind};
constexpr L kGpuPart[] = {L::kGpu, L::kUuid, L::kGpuInstance};
constexpr L kGpuPartAndPipe[] = {L::kGpu, L::kUuid, L::kGpuInstance, L::kPipe};
constexpr L kGpuPartAndDirection[] = {L::kGpu, L::kUuid, L::kGpuInstance, L::kDirection};
constexpr L kNcclRank[] = {L::kCommunicator, L::kRank,      L::kComm,
                           L::kPod,          L::kNamespace, L::kSlurmJob};
constexpr L kNcclRankAndOperation[] = {L::kCommunicator, L::kRank,     L::kComm,     L::kPod,
                                       L::kNamespace,    L::kSlurmJob, L::kOperation};
constexpr L kNcclRankAndBasis[] = {L::kCommunicator, L::kRank,     L::kComm, L::kPod,
                                   L::kNamespace,    L::kSlurmJob, L::kBasis};
constexpr L kNcclRankAndCause[] = {L::kCommunicator, L::kRank,     L::kComm, L::kPod,
                                   L::kNamespace,    L::kSlurmJob, L::kCause};
constexpr L kNcclOperation[] = {L::kCommunicator, L::kOperation};
constexpr L kBoundOnly[] = {L::kBound};
constexpr L kPartOnly[] = {L::kPart};
constexpr L kStepOnly[] = {L::kStep};
constexpr L kFunctionAndPhase[] = {L::kCategory, L::kFunction, L::kPhase};
constexpr L kFunctionPhaseAndQuality[] = {L::kCategory, L::kFunction, L::kPhase, L::kQuality};
constexpr L kWhereOnly[] = {L::kWhere};
constexpr L kRuleOnly[] = {L::kRule};
constexpr L kBuild[] = {L::kVersion, L::kKernel, L::kMechanism};

constexpr MetricRow kMetricRows[] = {
    {.metric = Metric::kFunctionCalls,
     .name = "gpuperf_function_calls_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kCalls,
     .labels = kOwner,
     .source = "entry probe, counted in the kernel",
     .help = "Calls that have begun. Exact."},
    {.metric = Metric::kFunctionErrors,
     .name = "gpuperf_function_errors_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kCalls,
     .labels = kOwnerAndError,
     .source = "return probe, return value of functions whose library defines a status",
     .help = "Calls that returned an error, by code. Codes that only mean not ready do not count. "
             "A series appears with its first error."},
    {.metric = Metric::kFunctionSlowCalls,
     .name = "gpuperf_function_slow_calls_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kCalls,
     .labels = kOwner,
     .source = "return probe, compared in the kernel",
     .help = "Completed calls that reached their function's threshold."},
    {.metric = Metric::kFunctionDuration,
     .name = "gpuperf_function_duration_seconds",
     .type = MetricType::kHistogram,
     .unit = MetricUnit::kSeconds,
     .labels = kOwner,
     .source = "time from entry to return probe, aggregated in the kernel",
     .help = "Inclusive duration of completed calls. Absent for functions probed only at entry."},
    {.metric = Metric::kFunctionAbandoned,
     .name = "gpuperf_function_abandoned_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kCalls,
     .labels = kOwner,
     .source = "thread state in the kernel and process exits",
     .help = "Calls that will never return: longjmp, exception, thread or process exit."},
    {.metric = Metric::kFunctionInFlight,
     .name = "gpuperf_function_in_flight_calls",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kCalls,
     .labels = kOwner,
     .source = "calls begun less completed, abandoned and untimed",
     .help = "Calls in flight: begun and not returned. If the value stays up, a call hangs."},
    {.metric = Metric::kFunctionOldestInFlight,
     .name = "gpuperf_function_oldest_in_flight_seconds",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kSeconds,
     .labels = kOwner,
     .source = "stacks of probed calls of all threads, looked at every few seconds",
     .help = "Age of the oldest call in flight; 0 = none."},
    {.metric = Metric::kFunctionBytes,
     .name = "gpuperf_function_bytes_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kBytes,
     .labels = kOwnerAndDirection,
     .source = "arguments of successful calls, added up in the kernel",
     .help = "Bytes copied, allocated, filled by memset or sent by successful calls. A series "
             "appears with its first byte."},
    {.metric = Metric::kFunctionFlops,
     .name = "gpuperf_function_flops_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kOperations,
     .labels = kOwner,
     .source = "dimensions of successful GEMMs, multiplied in the kernel",
     .help = "Floating-point operations of successful GEMMs: 2 m n k, times the batch. A series "
             "appears with its first GEMM."},
    {.metric = Metric::kFunctionCoverage,
     .name = "gpuperf_function_coverage_ratio",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kRatio,
     .labels = kFunctionOnly,
     .source = "the overhead budget",
     .help = "Share of the time since attach that the function was probed. Only for functions that "
             "have been suspended or are sampled; it is 1 for all others."},
    {.metric = Metric::kFunctionMissedCalls,
     .name = "gpuperf_function_missed_calls_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kCalls,
     .labels = kOwner,
     .source = "calls counted in short windows while the function is suspended or sampled",
     .help = "Estimate of the calls that were not counted, which gpuperf_function_calls_total does "
             "not include. Only for functions that have been suspended or are sampled."},
    {.metric = Metric::kFunctionMissedCallsError,
     .name = "gpuperf_function_missed_calls_error",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kCalls,
     .labels = kOwner,
     .source = "differences between these windows",
     .help =
         "How far the true number may be from gpuperf_function_missed_calls_total, at 95 %. +Inf: "
         "that is only the least, because the probe takes much of the time while it is there."},
    {.metric = Metric::kMemcpyBytes,
     .name = "gpuperf_memcpy_bytes_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kBytes,
     .labels = kKind,
     .source = "gpuperf_function_bytes_total, all functions with a direction",
     .help = "Bytes of copies by direction, as requested by the calls. If one probed function "
             "copies by calling another, both count."},
    {.metric = Metric::kStepDuration,
     .name = "gpuperf_step_seconds",
     .type = MetricType::kHistogram,
     .unit = MetricUnit::kSeconds,
     .labels = kFunctionAndPhase,
     .source = "return probe of functions with a role, each call reported",
     .help = "Duration of steps of inference and training loops: until their thread had the "
             "results, or their call returned."},
    {.metric = Metric::kStepTokens,
     .name = "gpuperf_step_tokens_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kTokens,
     .labels = kFunctionPhaseAndQuality,
     .source = "arguments of functions with a role",
     .help = "Tokens that steps worked on."},
    {.metric = Metric::kSlowSteps,
     .name = "gpuperf_slow_steps_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kSteps,
     .labels = kFunctionAndPhase,
     .source = "return probe of functions with a role, each call reported",
     .help = "Steps that took at least as long as the slow-call threshold of their function."},
    {.metric = Metric::kStepStalls,
     .name = "gpuperf_step_stalls_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kEvents,
     .labels = kWhereOnly,
     .source = "calls in flight, and the start of the newest step",
     .help = "Times that a process hung: a step, or in training the time since the last one "
             "began, passed 10 times its p99 and a second."},
    {.metric = Metric::kStepStalled,
     .name = "gpuperf_step_stalled_processes",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kProcesses,
     .labels = kWhereOnly,
     .source = "as of gpuperf_step_stalls_total",
     .help = "Processes that hang at the moment."},
    {.metric = Metric::kRequestFirst,
     .name = "gpuperf_request_first_write_seconds",
     .type = MetricType::kHistogram,
     .unit = MetricUnit::kSeconds,
     .source = "writes to TCP connections of processes with steps, if requests.enabled",
     .help = "From the last byte of an HTTP request that was read until the first part of the "
             "response's body was written."},
    {.metric = Metric::kRequestGap,
     .name = "gpuperf_request_gap_seconds",
     .type = MetricType::kHistogram,
     .unit = MetricUnit::kSeconds,
     .source = "as of gpuperf_request_first_write_seconds",
     .help = "From part to part of a response's body, at least 0.2 ms: of a stream of tokens, the "
             "time between tokens."},
    {.metric = Metric::kSlowRequests,
     .name = "gpuperf_slow_requests_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kRequests,
     .source = "as of gpuperf_request_first_write_seconds",
     .help = "Requests that have ended and whose client waited for 10 times the median of such "
             "waits of the process."},
    {.metric = Metric::kKernelDuration,
     .name = "gpuperf_kernel_duration_seconds",
     .type = MetricType::kHistogram,
     .unit = MetricUnit::kSeconds,
     .labels = kKernelAndOwner,
     .source = "CUPTI records of injected processes",
     .help = "Run time of kernels on the GPU, for each recorded launch. If a session samples, only "
             "the sample, unscaled."},
    {.metric = Metric::kKernelLaunchLatency,
     .name = "gpuperf_kernel_launch_latency_seconds",
     .type = MetricType::kHistogram,
     .unit = MetricUnit::kSeconds,
     .labels = kKernelAndOwner,
     .source = "CUPTI records of injected processes, joined by correlation id",
     .help = "Launch latency: time from the start of the launch call to the start of the kernel on "
             "the GPU. Launches outside graphs only."},
    {.metric = Metric::kGraphLaunches,
     .name = "gpuperf_graph_launches_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kLaunches,
     .labels = kProcessOwner,
     .source = "CUPTI records of injected processes",
     .help = "Launches of CUDA graphs, each counted as a whole. A series appears with its first "
             "launch."},
    {.metric = Metric::kGpuCopiedBytes,
     .name = "gpuperf_gpu_copied_bytes_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kBytes,
     .labels = kProcessOwnerAndKind,
     .source = "CUPTI records of injected processes",
     .help = "Bytes that GPUs copied or filled by memset, as reported by the GPU. A series appears "
             "with its first copy."},
    {.metric = Metric::kGpuSync,
     .name = "gpuperf_gpu_sync_seconds_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kSeconds,
     .labels = kProcessOwnerAndSync,
     .source = "CUPTI records of injected processes",
     .help =
         "Time that threads or streams waited for GPU work. A series appears with its first wait."},
    {.metric = Metric::kGpuAllocated,
     .name = "gpuperf_gpu_allocated_bytes",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kBytes,
     .labels = kUuidAndOwner,
     .source = "CUPTI records of injected processes: allocations less releases",
     .help =
         "Device memory held by running processes, from allocations seen since the session "
         "began; gpuperfctl sessions shows where this is incomplete. Needs ingest.allocations."},
    {.metric = Metric::kMemoryLive,
     .name = "gpuperf_memory_live_bytes",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kBytes,
     .labels = kProcessOwnerAndKind,
     .source = "probes of the driver's functions that allocate and release",
     .help = "GPU memory that running processes have allocated and not released, as asked for, by "
             "kind. Needs no injected library; gpuperfctl memory shows where it is incomplete."},
    {.metric = Metric::kMemoryPeak,
     .name = "gpuperf_memory_peak_bytes",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kBytes,
     .labels = kProcessOwnerAndKind,
     .source = "as gpuperf_memory_live_bytes",
     .help = "Most GPU memory that running processes had allocated at once. Of several processes "
             "with the same labels the sum of their peaks."},
    {.metric = Metric::kMemoryLeak,
     .name = "gpuperf_memory_leak_bytes_per_second",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kBytesPerSecond,
     .labels = kProcessOwner,
     .source = "as gpuperf_memory_live_bytes",
     .help = "Growth of the stacks that gpuperfctl memory --leaks shows. A series appears with the "
             "first leak of a running process, and is 0 once it no longer grows."},
    {.metric = Metric::kMemoryFailures,
     .name = "gpuperf_memory_allocation_failures_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kErrors,
     .labels = kProcessOwner,
     .source = "as gpuperf_memory_live_bytes: CUDA_ERROR_OUT_OF_MEMORY",
     .help = "Allocations that the driver refused for lack of memory. A series appears with its "
             "first failure."},
    {.metric = Metric::kGpuBusy,
     .name = "gpuperf_gpu_busy_seconds_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kSeconds,
     .labels = kUuidOnly,
     .source = "CUPTI records of injected processes: their union over streams and processes",
     .help = "Time during which a kernel, copy, memset or graph of an injected process ran on the "
             "GPU, as far as it was recorded: divide its rate by that of "
             "gpuperf_gpu_observed_seconds_total."},
    {.metric = Metric::kGpuObserved,
     .name = "gpuperf_gpu_observed_seconds_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kSeconds,
     .labels = kUuidOnly,
     .source = "state of the sessions of injected processes",
     .help = "Time during which all injected processes that have used the GPU were recorded. Less "
             "than the time that passed where processes are recorded in windows only "
             "(overhead.budget_percent)."},
    {.metric = Metric::kGpuBusyWithoutNccl,
     .name = "gpuperf_gpu_busy_without_nccl_seconds_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kSeconds,
     .labels = kUuidOnly,
     .source = "as gpuperf_gpu_busy_seconds_total",
     .help = "Time during which something other than kernels of NCCL ran. What the rate of "
             "gpuperf_gpu_busy_seconds_total is above it is exposed communication: nothing was "
             "computed or copied meanwhile. A graph that is recorded as a whole is no kernel of "
             "NCCL, whatever is in it."},
    {.metric = Metric::kGpuKernelBusy,
     .name = "gpuperf_gpu_kernel_busy_seconds_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kSeconds,
     .labels = kUuidOnly,
     .source = "as gpuperf_gpu_busy_seconds_total",
     .help = "Time during which a kernel ran. Kernels in graphs count only if they are recorded "
             "individually."},
    {.metric = Metric::kGpuCopyBusy,
     .name = "gpuperf_gpu_copy_busy_seconds_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kSeconds,
     .labels = kUuidOnly,
     .source = "as gpuperf_gpu_busy_seconds_total",
     .help = "Time during which a copy or memset ran."},
    {.metric = Metric::kGpuGraphBusy,
     .name = "gpuperf_gpu_graph_busy_seconds_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kSeconds,
     .labels = kUuidOnly,
     .source = "as gpuperf_gpu_busy_seconds_total",
     .help = "Time during which a graph ran, each as a whole."},
    {.metric = Metric::kSessions,
     .name = "gpuperf_sessions",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kSessions,
     .labels = kState,
     .source = "the daemon",
     .help = "Connected injected processes by session state."},
    {.metric = Metric::kSessionLostRecords,
     .name = "gpuperf_session_lost_records_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kRecords,
     .labels = kReasonOnly,
     .source = "counted by the injected library",
     .help =
         "Records lost before they reached the daemon, by reason. Every reason is always present."},
    {.metric = Metric::kSessionClockError,
     .name = "gpuperf_session_clock_error_seconds",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kSeconds,
     .labels = {},
     .source = "measured by the injected library, and kernels that seem to start before their call",
     .help = "Maximum error of GPU timestamps over all open sessions."},
    {.metric = Metric::kRecorderEvents,
     .name = "gpuperf_recorder_events",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kEvents,
     .labels = {},
     .source = "the daemon",
     .help = "Events in the flight recorder: launches, calls and GPU work."},
    {.metric = Metric::kRecorderBytes,
     .name = "gpuperf_recorder_bytes",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kBytes,
     .labels = {},
     .source = "the daemon",
     .help = "Memory used by the flight recorder, at most trace.recorder_mib."},
    {.metric = Metric::kRecorderSpan,
     .name = "gpuperf_recorder_span_seconds",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kSeconds,
     .labels = {},
     .source = "the daemon",
     .help = "Time span that the flight recorder covers now."},
    {.metric = Metric::kCaptures,
     .name = "gpuperf_captures",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kCaptures,
     .labels = kState,
     .source = "the daemon",
     .help = "Captures by state. Every state is always present."},
    {.metric = Metric::kProbes,
     .name = "gpuperf_probes",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kProbes,
     .labels = kState,
     .source = "the daemon",
     .help = "Probes by state. A probe is a configured function in one file, or without a file "
             "until one is found."},
    {.metric = Metric::kSuspendedFunctions,
     .name = "gpuperf_suspended_functions",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kFunctions,
     .labels = {},
     .source = "the overhead budget",
     .help = "Functions suspended by the overhead budget."},
    {.metric = Metric::kOverhead,
     .name = "gpuperf_overhead_ratio",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kRatio,
     .labels = kPodAndComm,
     .source = "hits of each probe times its cost, as calibrated on this host; launches counted by "
               "hooks or recorded by CUPTI times what each costs, as measured in the process",
     .help =
         "Share of a process's time that gpuperf takes, as estimated; the highest of all running "
         "processes with these labels."},
    {.metric = Metric::kOverheadComponent,
     .name = "gpuperf_overhead_component_ratio",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kRatio,
     .labels = kPodCommAndComponent,
     .source = "see gpuperf_overhead_ratio",
     .help = "What gpuperf_overhead_ratio consists of, in the process that it is of."},
    {.metric = Metric::kOverheadMeasured,
     .name = "gpuperf_overhead_measured_ratio",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kRatio,
     .labels = kPodAndComm,
     .source = "gpuperfctl overhead measure",
     .help = "Share of a process's time that probes and launch hooks took when that was last "
             "measured by experiment; the highest of all running processes with these labels. "
             "Absent where it was not."},
    {.metric = Metric::kOverheadCorrection,
     .name = "gpuperf_overhead_correction_ratio",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kRatio,
     .labels = kPodAndComm,
     .source = "gpuperfctl overhead measure",
     .help = "By what the costs of probes and launch hooks are multiplied in "
             "gpuperf_overhead_ratio, because a measurement showed another cost than calibration. "
             "1 where they agree. Absent where it was not measured."},
    {.metric = Metric::kQosBreached,
     .name = "gpuperf_qos_rule_breached",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kInfo,
     .labels = kRuleOnly,
     .source = "the daemon",
     .help = "1 while the rule's limit is exceeded, and until it is released; else 0."},
    {.metric = Metric::kQosBreaches,
     .name = "gpuperf_qos_rule_breaches_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kEvents,
     .labels = kRuleOnly,
     .source = "the daemon",
     .help = "Times that the rule's limit was exceeded after it had been kept."},
    {.metric = Metric::kProcesses,
     .name = "gpuperf_processes",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kProcesses,
     .labels = {},
     .source = "the daemon",
     .help = "Running processes that called a probed function."},
    {.metric = Metric::kGpuInfo,
     .name = "gpuperf_gpu_info",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kInfo,
     .labels = kGpuAndFacts,
     .source = "NVML",
     .help = "Always 1; the labels describe the GPU."},
    {.metric = Metric::kGpuUp,
     .name = "gpuperf_gpu_up",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kInfo,
     .labels = kGpuOnly,
     .source = "NVML",
     .help = "1 while the GPU answers its driver, 0 when it is lost. For a lost GPU, only this "
             "metric, gpuperf_gpu_info and its errors are present."},
    {.metric = Metric::kGpuUtilization,
     .name = "gpuperf_gpu_utilization_ratio",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kRatio,
     .labels = kGpuOnly,
     .source = "NVML, nvmlDeviceGetUtilizationRates",
     .help =
         "Share of the driver's last sample period (up to a second) during which a kernel ran."},
    {.metric = Metric::kGpuMemoryUtilization,
     .name = "gpuperf_gpu_memory_utilization_ratio",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kRatio,
     .labels = kGpuOnly,
     .source = "NVML, nvmlDeviceGetUtilizationRates",
     .help = "Share of the driver's last sample period during which device memory was read or "
             "written."},
    {.metric = Metric::kGpuMemoryUsed,
     .name = "gpuperf_gpu_memory_used_bytes",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kBytes,
     .labels = kGpuOnly,
     .source = "NVML, nvmlDeviceGetMemoryInfo",
     .help = "Device memory in use, without what the driver reserves."},
    {.metric = Metric::kGpuMemoryTotal,
     .name = "gpuperf_gpu_memory_capacity_bytes",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kBytes,
     .labels = kGpuOnly,
     .source = "NVML, nvmlDeviceGetMemoryInfo",
     .help = "Total device memory of the GPU."},
    {.metric = Metric::kGpuPower,
     .name = "gpuperf_gpu_power_watts",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kWatts,
     .labels = kGpuOnly,
     .source = "NVML, NVML_FI_DEV_POWER_AVERAGE",
     .help = "Power draw, averaged over one second if the GPU supports it."},
    {.metric = Metric::kGpuPowerLimit,
     .name = "gpuperf_gpu_power_limit_watts",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kWatts,
     .labels = kGpuOnly,
     .source = "NVML, nvmlDeviceGetEnforcedPowerLimit",
     .help = "Power limit of the GPU."},
    {.metric = Metric::kGpuEnergy,
     .name = "gpuperf_gpu_energy_joules_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kJoules,
     .labels = kGpuOnly,
     .source = "NVML, NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
     .help = "Energy used since the driver was loaded."},
    {.metric = Metric::kGpuClock,
     .name = "gpuperf_gpu_clock_hertz",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kHertz,
     .labels = kGpuAndClock,
     .source = "NVML, nvmlDeviceGetClockInfo",
     .help = "Current clock frequencies."},
    {.metric = Metric::kGpuClockMax,
     .name = "gpuperf_gpu_clock_max_hertz",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kHertz,
     .labels = kGpuAndClock,
     .source = "NVML, nvmlDeviceGetMaxClockInfo",
     .help = "Maximum clock frequencies."},
    {.metric = Metric::kGpuThrottle,
     .name = "gpuperf_gpu_throttle_seconds_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kSeconds,
     .labels = kGpuAndReason,
     .source = "NVML, NVML_FI_DEV_CLOCKS_EVENT_REASON_*",
     .help = "Time that clocks were throttled since the driver was loaded. Only reasons that the "
             "GPU measures; gpuperf_gpu_throttled has all."},
    {.metric = Metric::kGpuThrottled,
     .name = "gpuperf_gpu_throttled",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kInfo,
     .labels = kGpuAndReason,
     .source = "NVML, nvmlDeviceGetCurrentClocksEventReasons",
     .help = "1 while clocks are throttled for this reason, else 0."},
    {.metric = Metric::kGpuTemperature,
     .name = "gpuperf_gpu_temperature_celsius",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kCelsius,
     .labels = kGpuOnly,
     .source = "NVML, nvmlDeviceGetTemperature",
     .help = "Temperature of the GPU chip."},
    {.metric = Metric::kGpuXids,
     .name = "gpuperf_gpu_xid_errors_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kErrors,
     .labels = kGpuAndXid,
     .source = "NVML events",
     .help = "Errors reported by the driver since gpuperfd started, by XID. A series appears with "
             "its first error."},
    {.metric = Metric::kGpuEcc,
     .name = "gpuperf_gpu_ecc_errors_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kErrors,
     .labels = kGpuAndKind,
     .source = "NVML, NVML_FI_DEV_ECC_*_VOL_TOTAL",
     .help = "Memory errors since the driver was loaded."},
    {.metric = Metric::kGpuRemappedRows,
     .name = "gpuperf_gpu_remapped_rows_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kRows,
     .labels = kGpuAndKind,
     .source = "NVML, NVML_FI_DEV_REMAPPED_*",
     .help = "Memory rows remapped after errors of this kind, over the life of the board."},
    {.metric = Metric::kGpuPcieReplays,
     .name = "gpuperf_gpu_pcie_replays_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kPackets,
     .labels = kGpuOnly,
     .source = "NVML, NVML_FI_DEV_PCIE_REPLAY_COUNTER",
     .help = "PCIe packets that were sent again between GPU and host."},
    {.metric = Metric::kGpuGraphicsEngineActive,
     .name = "gpuperf_gpu_graphics_engine_active_ratio",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kRatio,
     .labels = kGpuPart,
     .source = "NVML GPM, GRAPHICS_UTIL",
     .help = "Share of the last second during which the graphics or compute engine was busy. "
             "Hardware counters need Hopper or later; see below for DCGM's names."},
    {.metric = Metric::kGpuSmActive,
     .name = "gpuperf_gpu_sm_active_ratio",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kRatio,
     .labels = kGpuPart,
     .source = "NVML GPM, SM_UTIL",
     .help = "Share of the last second during which an SM had at least one warp, averaged over all "
             "SMs."},
    {.metric = Metric::kGpuSmOccupancy,
     .name = "gpuperf_gpu_sm_occupancy_ratio",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kRatio,
     .labels = kGpuPart,
     .source = "NVML GPM, SM_OCCUPANCY",
     .help = "Warps resident on the SMs as a share of the most that fit, averaged over the last "
             "second and all SMs."},
    {.metric = Metric::kGpuPipeActive,
     .name = "gpuperf_gpu_pipe_active_ratio",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kRatio,
     .labels = kGpuPartAndPipe,
     .source = "NVML GPM, ANY_TENSOR_UTIL, FP64_UTIL, FP32_UTIL, FP16_UTIL, INTEGER_UTIL",
     .help = "Share of the cycles of the last second in which the pipe was active, averaged over "
             "all SMs."},
    {.metric = Metric::kGpuDramActive,
     .name = "gpuperf_gpu_dram_active_ratio",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kRatio,
     .labels = kGpuPart,
     .source = "NVML GPM, DRAM_BW_UTIL",
     .help = "Bandwidth of device memory used in the last second, as a share of its peak."},
    {.metric = Metric::kGpuPcieRate,
     .name = "gpuperf_gpu_pcie_bytes_per_second",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kBytesPerSecond,
     .labels = kGpuPartAndDirection,
     .source = "NVML GPM, PCIE_TX_PER_SEC, PCIE_RX_PER_SEC",
     .help = "Rate of bytes over PCIe in the last second, headers included."},
    {.metric = Metric::kGpuNvlinkRate,
     .name = "gpuperf_gpu_nvlink_bytes_per_second",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kBytesPerSecond,
     .labels = kGpuPartAndDirection,
     .source = "NVML GPM, NVLINK_TOTAL_TX_PER_SEC, NVLINK_TOTAL_RX_PER_SEC",
     .help = "Rate of bytes over all NVLinks of the GPU in the last second."},
    {.metric = Metric::kGpuCounterSamples,
     .name = "gpuperf_gpu_gpm_samples_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kSamples,
     .labels = kGpuPart,
     .source = "the daemon",
     .help = "Samples of the GPU's hardware counters that were tried."},
    {.metric = Metric::kGpuCounterFailures,
     .name = "gpuperf_gpu_gpm_failures_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kSamples,
     .labels = kGpuPart,
     .source = "the daemon",
     .help = "Of them, those that failed or had no value, for example while a profiler held the "
             "counters. `gpuperfctl gpus` says why."},
    {.metric = Metric::kNcclCalls,
     .name = "gpuperf_nccl_calls_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kCalls,
     .labels = kNcclRankAndOperation,
     .source = "calls of NCCL",
     .help =
         "Successful calls of a rank, by operation. All metrics of NCCL end with their process."},
    {.metric = Metric::kNcclBytes,
     .name = "gpuperf_nccl_bytes_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kBytes,
     .labels = kNcclRankAndOperation,
     .source = "calls of NCCL",
     .help = "Bytes of these calls as they give them: count x size of the type."},
    {.metric = Metric::kNcclTimedCalls,
     .name = "gpuperf_nccl_timed_calls_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kCalls,
     .labels = kNcclRankAndOperation,
     .source = "CUPTI kernel records, joined with the calls that launched them",
     .help = "Of these calls, those whose kernel was recorded."},
    {.metric = Metric::kNcclGpu,
     .name = "gpuperf_nccl_gpu_seconds_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kSeconds,
     .labels = kNcclRankAndOperation,
     .source = "CUPTI kernel records, joined with the calls that launched them",
     .help = "Time of these kernels, waits for other ranks included: divided by "
             "gpuperf_nccl_timed_calls_total, the rank with the least is the one that the others "
             "wait for."},
    {.metric = Metric::kNcclBusBytes,
     .name = "gpuperf_nccl_bus_bytes_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kBytes,
     .labels = kNcclOperation,
     .source = "calls of NCCL with recorded kernels",
     .help = "Message bytes of timed operations x the factor of bus bandwidth: its rate divided by "
             "that of gpuperf_nccl_bus_seconds_total is the bus bandwidth."},
    {.metric = Metric::kNcclBusSeconds,
     .name = "gpuperf_nccl_bus_seconds_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kSeconds,
     .labels = kNcclOperation,
     .source = "CUPTI kernel records, joined with the calls that launched them",
     .help = "Time of these operations: of each the shortest kernel of the ranks on this host."},
    {.metric = Metric::kNcclCollectives,
     .name = "gpuperf_nccl_collectives_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kOperations,
     .labels = kNcclRank,
     .source = "calls of NCCL",
     .help =
         "Collective operations that a rank has begun on its communicator, groups counted once."},
    {.metric = Metric::kNcclWait,
     .name = "gpuperf_nccl_wait_seconds_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kSeconds,
     .labels = kNcclRankAndBasis,
     .source = "calls of NCCL; CUPTI kernel records",
     .help = "Time a rank waited for the last rank on this host."},
    {.metric = Metric::kNcclCausedWait,
     .name = "gpuperf_nccl_caused_wait_seconds_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kSeconds,
     .labels = kNcclRankAndBasis,
     .source = "calls of NCCL; CUPTI kernel records",
     .help = "Time that all other ranks on this host waited for this one alone."},
    {.metric = Metric::kNcclLate,
     .name = "gpuperf_nccl_late_ratio",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kRatio,
     .labels = kNcclRankAndCause,
     .source = "calls of NCCL; CUPTI kernel records",
     .help =
         "Share of the last 10 s that all other ranks on this host waited for this one alone, if "
         "it is the one they wait for most; else 0."},
    {.metric = Metric::kNcclStuck,
     .name = "gpuperf_nccl_stuck_seconds",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kSeconds,
     .labels = kNcclRank,
     .source = "calls of NCCL",
     .help =
         "How long other ranks on this host have waited for this one to begin an operation, from "
         "10 s on; else 0."},
    {.metric = Metric::kDropped,
     .name = "gpuperf_dropped_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kDrops,
     .labels = kStageAndReason,
     .source = "every limit of the daemon and its BPF programs",
     .help = "Data not kept because a limit was reached or input was bad, by stage and reason. "
             "Every cause is always present."},
    {.metric = Metric::kBuildInfo,
     .name = "gpuperf_build_info",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kInfo,
     .labels = kBuild,
     .source = "the daemon",
     .help = "Always 1; the labels describe the running daemon."},
    {.metric = Metric::kDaemonCpu,
     .name = "gpuperf_daemon_cpu_seconds_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kSeconds,
     .labels = {},
     .source = "resource usage of gpuperfd, user and kernel",
     .help = "CPU time used by gpuperfd, without the time that probes take in workloads."},
    {.metric = Metric::kDaemonResident,
     .name = "gpuperf_daemon_resident_bytes",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kBytes,
     .labels = {},
     .source = "/proc/self/statm",
     .help = "Resident memory of gpuperfd."},
    {.metric = Metric::kBoundUsed,
     .name = "gpuperf_bound_used",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kOfBound,
     .labels = kBoundOnly,
     .source = "every limit of the daemon and its BPF programs",
     .help = "How much of a limit is used. Of queues and rings, the highest level since the daemon "
             "last looked, a quarter of a second to 5 s ago."},
    {.metric = Metric::kBoundHighest,
     .name = "gpuperf_bound_highest",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kOfBound,
     .labels = kBoundOnly,
     .source = "every limit of the daemon and its BPF programs",
     .help = "The highest value of gpuperf_bound_used within the last one to two minutes."},
    {.metric = Metric::kBoundLimit,
     .name = "gpuperf_bound_limit",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kOfBound,
     .labels = kBoundOnly,
     .source = "every limit of the daemon and its BPF programs",
     .help = "The limit. What is lost beyond it is counted in gpuperf_dropped_total."},
    {.metric = Metric::kDaemonMemory,
     .name = "gpuperf_daemon_memory_bytes",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kBytes,
     .labels = kPartOnly,
     .source = "the daemon's own accounts, its allocator, /proc/self",
     .help = "What gpuperfd's memory is used for. The parts but bpf_maps add up to "
             "gpuperf_daemon_resident_bytes, as far as the estimates among them are right."},
    {.metric = Metric::kDaemonStep,
     .name = "gpuperf_daemon_step_seconds",
     .type = MetricType::kHistogram,
     .unit = MetricUnit::kSeconds,
     .labels = kStepOnly,
     .source = "the daemon's monotonic clock",
     .help = "How long steps of gpuperfd's work take. Its buckets are 0.001048576 s and every "
             "fourfold of that up to 17 s."},
};

// A row out of order would give a metric another one's name; a bad name would only be seen by a
// linter. Both stop the build instead.
consteval bool rows_are_sound() {
  for (size_t i = 0; i < std::size(kMetricRows); ++i) {
    const MetricRow& row = kMetricRows[i];
    if (row.metric != static_cast<Metric>(i) || !row.name.starts_with("gpuperf_")) return false;
    if (row.name.ends_with("_total") != (row.type == MetricType::kCounter)) return false;
    const bool seconds = row.name.find("_seconds") != std::string_view::npos;
    const bool bytes = row.name.find("_bytes") != std::string_view::npos;
    if (seconds != (row.unit == MetricUnit::kSeconds)) return false;
    const bool rate = row.name.ends_with("_bytes_per_second");
    if (rate != (row.unit == MetricUnit::kBytesPerSecond)) return false;
    if (bytes != (rate || row.unit == MetricUnit::kBytes)) return false;
    if (row.name.ends_with("_ratio") != (row.unit == MetricUnit::kRatio)) return false;
  }
  for (size_t i = 0; i < std::size(kLabelRows); ++i) {
    if (kLabelRows[i].label != static_cast<MetricLabel>(i)) return false;
  }
  return true;
}
static_assert(std::size(kMetricRows) == static_cast<size_t>(Metric::kCount));
static_assert(std::size(kLabelRows) == static_cast<size_t>(MetricLabel::kCount));
static_assert(rows_are_sound());

std::string_view get_type_name(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return "counter";
    case MetricType::kGauge:
      return "gauge";
    case MetricType::kHistogram:
      return "histogram";
  }
  return "";  // only reached with a value outside the enum
}

std::string_view get_unit_name(MetricUnit unit) {
  switch (unit) {
    case MetricUnit::kCalls:
      return "calls";
    case MetricUnit::kSeconds:
      return "seconds";
    case MetricUnit::kBytes:
      return "bytes";
    case MetricUnit::kOperations:
      return "floating-point operations";
    case MetricUnit::kRatio:
      return "ratio, 0 to 1";
    case MetricUnit::kFunctions:
      return "functions";
    case MetricUnit::kProbes:
      return "probes";
    case MetricUnit::kProcesses:
      return "processes";
    case MetricUnit::kDrops:
      return "drops";
    case MetricUnit::kLaunches:
      return "launches";
    case MetricUnit::kEvents:
      return "events";
    case MetricUnit::kCaptures:
      return "captures";
    case MetricUnit::kRequests:
      return "requests";
    case MetricUnit::kSessions:
      return "sessions";
    case MetricUnit::kRecords:
      return "records";
    case MetricUnit::kWatts:
      return "watts";
    case MetricUnit::kJoules:
      return "joules";
    case MetricUnit::kHertz:
      return "hertz";
    case MetricUnit::kCelsius:
      return "degrees Celsius";
    case MetricUnit::kErrors:
      return "errors";
    case MetricUnit::kRows:
      return "rows";
    case MetricUnit::kPackets:
      return "packets";
    case MetricUnit::kBytesPerSecond:
      return "bytes per second";
    case MetricUnit::kSamples:
      return "samples";
    case MetricUnit::kSteps:
      return "steps";
    case MetricUnit::kTokens:
      return "tokens";
    case MetricUnit::kOfBound:
      return "as the table of limits says";
    case MetricUnit::kInfo:
      return "none";
  }
  return "";  // only reached with a value outside the enum
}

std::string join_labels(std::span<const MetricLabel> labels) {
  std::string joined;
  for (const MetricLabel label : labels) {
    joined += fmt::format("{}`{}`", joined.empty() ? "" : ", ", get_label_name(label));
  }
  return joined.empty() ? "none" : joined;
}

std::string join_edges() {
  std::string joined;
  for (const uint64_t edge_ns : kDurationEdgesNs) {
    joined += fmt::format("{}{}", joined.empty() ? "" : ", ", static_cast<double>(edge_ns) / 1e9);
  }
  return joined;
}

std::string render_bounds_markdown() {
  std::string text =
      "## Limits\n\nThe values of `bound`. A limit without a setting is fixed, or follows from "
      "another.\n\n| bound | counts | raised by | when full |\n|---|---|---|---|\n";
  for (const BoundRow& row : bound_rows()) {
    const std::string setting = row.setting.empty() ? "" : fmt::format("`{}`", row.setting);
    text += fmt::format("| `{}` | {} | {} | {}{} |\n", row.name, row.unit, setting,
                        row.is_rotating ? "meant to be full: " : "", row.when_full);
  }
  return text;
}

std::string render_memory_markdown() {
  std::string text =
      "## Parts of the daemon's memory\n\nThe values of `part`.\n\n| part | what it is "
      "|\n|---|---|\n";
  for (const MemoryRow& row : memory_rows()) {
    text += fmt::format("| `{}` | {} |\n", row.name, row.meaning);
  }
  return text;
}

constexpr std::string_view kIntroduction = R"(# Metrics

Generated from `daemon/model/metric_catalog.cpp`; do not edit. To regenerate, run the test
`export_test` with `GPUPERF_UPDATE_GOLDEN=1`.

The daemon serves these at `metrics.listen` (default `127.0.0.1:9465`), path `/metrics`, in the
Prometheus text format; as OpenMetrics, if the request's `Accept` header names
`application/openmetrics-text`, with exemplars: each bucket of `gpuperf_function_duration_seconds`
names the latest slow call in it, `slow_call_id="17"`, which `gpuperfctl slow show 17` explains.
Prometheus stores exemplars with `--enable-feature=exemplar-storage`. Counters never decrease while
the daemon runs; a restart begins at zero.

`metrics.max_series` limits how many sets (function, comm, container, pod, namespace, Slurm job and
rank) are exported separately. Sets are admitted in order of appearance and stay exported. Later ones
are added to the set of the same function with `comm="other"` and the other owner labels empty; each
of them counts once in `gpuperf_dropped_total{stage="metrics",reason="series_full"}`. A set is 32
Prometheus series, plus one per error code, per direction of bytes, and for operations. The sets
(pod, comm) of `gpuperf_overhead_ratio` count as well.

`metrics.max_kernels` limits kernel names: half of them are the names with the most time at the first
export, the rest are names that later take at least 1 % of all kernels' time. All others count under
`kernel_name="other"`, and once in `gpuperf_dropped_total{stage="metrics",reason="kernels_full"}`;
what a name counted there before it got its own set stays there. Sets (kernel name, owner) and owners
are limited by `metrics.max_series` too, separately from those of functions. A set is up to 54
Prometheus series.

Calls per second, the 99th percentile, the share of slow calls, and bytes per second to and from the
device, per function:

```promql
sum by (function) (rate(gpuperf_function_calls_total[5m]))
histogram_quantile(0.99, sum by (function, le) (rate(gpuperf_function_duration_seconds_bucket[5m])))
sum by (function) (rate(gpuperf_function_slow_calls_total[5m]))
  / sum by (function) (rate(gpuperf_function_calls_total[5m]))
sum by (function, direction) (rate(gpuperf_function_bytes_total[5m]))
```

How busy each GPU is, which kernels take its time, and the launch latency, for injected processes:

```promql
rate(gpuperf_gpu_busy_seconds_total[5m])
topk(10, sum by (kernel_name) (rate(gpuperf_kernel_duration_seconds_sum[5m])))
histogram_quantile(0.99, sum by (le) (rate(gpuperf_kernel_launch_latency_seconds_bucket[5m])))
```

`gpuperf_memcpy_bytes_total` counts the bytes that calls request on the host; `gpuperf_gpu_copied_bytes_total`
counts the bytes that GPUs of injected processes copy, including copies in graphs.

)";

}  // namespace

std::span<const MetricRow> metric_rows() { return kMetricRows; }
std::span<const MetricLabelRow> metric_label_rows() { return kLabelRows; }
const MetricRow& get_metric(Metric metric) { return kMetricRows[static_cast<size_t>(metric)]; }
std::string_view get_label_name(MetricLabel label) {
  return kLabelRows[static_cast<size_t>(label)].name;
}

std::string render_metrics_markdown() {
  std::string text(kIntroduction);
  text += "## Metrics\n\n";
  for (const MetricRow& row : kMetricRows) {
    text += fmt::format("### `{}`\n\n{}\n\n- Type: {}; unit: {}\n- Labels: {}\n- Source: {}\n\n",
                        row.name, row.help, get_type_name(row.type), get_unit_name(row.unit),
                        join_labels(row.labels), row.source);
  }
  text += fmt::format(
      "## Histogram buckets\n\nUpper bounds in seconds. The BPF programs' histogram has the same "
      "bounds, so the counts are exact: {}.\n\n",
      join_edges());
  text += "## Labels\n\n| label | meaning |\n|---|---|\n";
  for (const MetricLabelRow& row : kLabelRows) {
    text += fmt::format("| `{}` | {} |\n", row.name, row.meaning);
  }
  text +=
      fmt::format("\n## Causes of `{}`\n\n| stage | reason | what was dropped |\n|---|---|---|\n",
                  get_metric(Metric::kDropped).name);
  for (const DropRow& row : drop_rows()) {
    text += fmt::format("| `{}` | `{}` | {} |\n", row.stage, row.reason, row.meaning);
  }
  text += "\n" + render_dcgm_markdown() + "\n" + render_bounds_markdown() + "\n" +
          render_memory_markdown();
  return text;
}

}  // namespace gpuperf
