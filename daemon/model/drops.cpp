#include "daemon/model/drops.h"

namespace gpuperf {
namespace {

constexpr DropRow kDropRows[] = {
    {DropCause::kBpfCellsFull, "bpf", "cells_full",
     "calls of new (function, process) pairs, counted under process \"other\": raise "
     "stats.max_cells"},
    {DropCause::kBpfIndexFull, "bpf", "index_full",
     "calls of new (function, process) pairs, counted under process \"other\""},
    {DropCause::kBpfThreadState, "bpf", "thread_state",
     "calls timed without arguments and nesting, because the BPF programs had no memory for the "
     "thread"},
    {DropCause::kBpfCallDepth, "bpf", "call_depth",
     "calls nested deeper than 16 probed calls: timed without arguments and nesting"},
    {DropCause::kBpfSlowRingFull, "bpf", "slow_ring_full",
     "records of slow calls; the calls themselves are counted"},
    {DropCause::kBpfProcessRingFull, "bpf", "process_ring_full",
     "notifications of process exits; a later scan finds the exits"},
    {DropCause::kBpfUnpairedReturn, "bpf", "unpaired_return",
     "returns without a known entry (a fork inside a call, a probe attached during one)"},
    {DropCause::kRingUnknownKind, "ring", "unknown_kind",
     "records of a kind this version does not know"},
    {DropCause::kRingMalformed, "ring", "malformed", "records shorter than their kind"},
    {DropCause::kSymbolsQueueFull, "symbols", "queue_full",
     "symbol names in stacks of slow calls, because too many were waiting, in total or for one "
     "user; the addresses are kept"},
    {DropCause::kStatsProcessesFull, "stats", "processes_full",
     "rows of exited processes, removed early; their calls stay in the totals"},
    {DropCause::kMetricsSeriesFull, "metrics", "series_full",
     "series beyond metrics.max_series, added to comm=\"other\""},
    {DropCause::kWatchReaderSlow, "watch", "reader_slow",
     "messages to a WatchSlowCalls client that read too slowly"},
    {DropCause::kLogRateLimited, "log", "rate_limited",
     "log lines of slow calls beyond slow.log_per_second; the calls are counted and kept"},
    {DropCause::kDiscoveryEventsLost, "discovery", "events_lost",
     "notifications of new mappings; a full scan follows immediately"},
    {DropCause::kStatsSeriesFull, "stats", "series_full",
     "(function, process) pairs whose owner exceeded metrics.max_series: counted under "
     "comm=\"other\""},
    {DropCause::kSlowListsFull, "slow", "lists_full",
     "worst slow calls of the (function, process) pairs that were slow least recently; the calls "
     "are counted"},
    {DropCause::kDiscoveryFilesFull, "discovery", "files_full",
     "mapped files beyond the limit of one scan: not probed"},
    {DropCause::kBpfShapesFull, "bpf", "shapes_full",
     "GEMM shapes beyond the limit; their calls, bytes and operations are still counted"},
    {DropCause::kBpfNameRingFull, "bpf", "name_ring_full",
     "names of kernels; these kernels are shown by their handle"},
    {DropCause::kProbesFunctionsFull, "probes", "functions_full",
     "functions matched by wildcards beyond stats.max_functions: not probed"},
    {DropCause::kStatsShapesFull, "stats", "shapes_full",
     "the least used GEMM shapes, removed; their calls, bytes and operations stay in the totals"},
    {DropCause::kStepsProcessesFull, "steps", "processes_full",
     "calls that are steps, of processes beyond the limit; statistics of their functions count "
     "them"},
    {DropCause::kRequestsFull, "requests", "full",
     "parts of responses of processes, or beyond the open requests of a process, that there was no "
     "room for in gpuperfctl requests"},
    {DropCause::kNamesFull, "names", "full",
     "names of the least recently seen kernels; these kernels are shown by their handle"},
    {DropCause::kInFlightFull, "stats", "in_flight_full",
     "calls in flight beyond the longest 1,000 of one scan; they are counted in in_flight"},
    {DropCause::kApiConnectionsFull, "api", "connections_full",
     "connections to the API beyond 256, or beyond 64 of one user, closed at once; 32 of those are "
     "kept for root"},
    {DropCause::kApiMisuse, "api", "misuse",
     "connections to the API's socket closed because of what they sent: not HTTP/2, or beyond a "
     "limit of a connection or user"},
    {DropCause::kApiThrottled, "api", "throttled",
     "times that a connection to the API's socket was made to wait because its user asked for more "
     "than one user may per second; nothing is lost"},
    {DropCause::kApiAnswersFull, "api", "answers_full",
     "calls of the API refused because their caller has not taken the answers it has"},
    {DropCause::kPodNamesFull, "pods", "names_full",
     "names of pods, because too many containers were new at the same time; these pods are shown "
     "by their uid"},
    {DropCause::kSlowThinned, "slow", "thinned",
     "records of slow calls in a burst that were not among the worst; the calls are counted"},
    {DropCause::kSlowStoreQueueFull, "store", "queue_full",
     "slow calls not written to the store because it was too slow; they are kept in memory"},
    {DropCause::kSlowStoreFailed, "store", "write_failed",
     "slow calls not written to the store because of an error (see gpuperfctl status); they are "
     "kept in memory"},
    {DropCause::kBpfStackRingFull, "bpf", "stack_ring_full",
     "stacks of slow calls; the calls are kept without a stack"},
    {DropCause::kBpfStackCopy, "bpf", "stack_copy",
     "parts of stacks, because too many were new at the same time; these stacks end where no "
     "unwind rule was known yet"},
    {DropCause::kBpfStackState, "bpf", "stack_state",
     "stacks of threads for which the BPF programs had no memory"},
    {DropCause::kStacksQueueFull, "stacks", "queue_full",
     "stacks of slow calls, because the threads that unwind and symbolize were behind, or the user "
     "exceeded their share; the calls are kept without a stack"},
    {DropCause::kSessionMalformed, "session", "malformed",
     "sessions that broke the contract, closed; the process may connect again"},
    {DropCause::kSessionUnknownKind, "session", "unknown_kind",
     "messages and records of a kind this version does not know: its daemon is older than the "
     "injected library"},
    {DropCause::kSessionUnknownId, "session", "unknown_id",
     "records that name a kernel, shape or place that was not announced"},
    {DropCause::kSessionBadValue, "session", "bad_value",
     "records and statuses with a number that has no meaning"},
    {DropCause::kSessionBadTime, "session", "bad_time",
     "records without a timestamp, or with one that is over a day old or in the future"},
    {DropCause::kSessionNearStep, "session", "near_step",
     "timestamps that may be wrong because the wall clock was set at about that time; the records "
     "are kept"},
    {DropCause::kSessionNamesFull, "session", "names_full",
     "kernel names beyond 16 MiB in one session; the kernels are kept without a name"},
    {DropCause::kSessionCubinsFull, "session", "cubins_full",
     "images of GPU modules beyond 64 MiB on their way, or one user's share of them; their kernels "
     "have no source lines"},
    {DropCause::kSessionForeign, "session", "foreign_sender",
     "messages sent by another process than the one that opened the connection"},
    {DropCause::kSessionThrottled, "session", "throttled",
     "times that a session exceeded ingest.max_records_per_second and had to wait; nothing is lost "
     "here, the process counts what it cannot send"},
    {DropCause::kSessionSilent, "session", "silent",
     "connections closed because they did not identify themselves within 5 s"},
    {DropCause::kSessionsFull, "session", "sessions_full",
     "connections beyond ingest.max_sessions, one user's share of them, or two of one process; "
     "they are refused and may try again"},
    {DropCause::kSessionRefused, "session", "refused",
     "connections of processes that speak no version of the contract known here, or are not who "
     "they "
     "say; the log says which"},
    {DropCause::kSessionUnknown, "session", "after_end",
     "records of sessions that had ended already"},
    {DropCause::kSessionBadIds, "session", "bad_ids",
     "records that name what their session never announced"},
    {DropCause::kKernelNamesFull, "gpu", "names_full",
     "kernel names beyond the limit: their launches count as kernel \"other\""},
    {DropCause::kGpuKernelsFull, "gpu", "kernels_full",
     "(kernel, process) pairs beyond the limit: counted as kernel \"other\" of their process"},
    {DropCause::kGpuSeriesFull, "gpu", "series_full",
     "(kernel, owner) pairs, and owners, beyond the limit: metrics count them as \"other\""},
    {DropCause::kGpuProcessesFull, "gpu", "processes_full",
     "rows of ended processes, removed early; their launches stay in the totals"},
    {DropCause::kGpuGraphsFull, "gpu", "graphs_full",
     "graphs of a process beyond the limit: counted together as graph 0"},
    {DropCause::kGpuAddressesFull, "gpu", "addresses_full",
     "allocations beyond the limit: the process's GPU memory is shown as incomplete"},
    {DropCause::kGpuDevicesFull, "gpu", "devices_full",
     "GPUs beyond the limit: their busy time is not measured"},
    {DropCause::kGpuLateRecords, "gpu", "late_records",
     "records of GPU work that arrived more than 5 s after newer ones: missing in the busy time, "
     "not in the statistics"},
    {DropCause::kGpuFutureRecords, "gpu", "future_records",
     "records of GPU work that end in the future: missing in the busy time, not in the statistics"},
    {DropCause::kJoinLaunchesFull, "join", "launches_full",
     "API calls waiting for their GPU work, beyond the limit: missing in launch latencies"},
    {DropCause::kJoinLaunchesExpired, "join", "launches_expired",
     "API calls whose GPU work never came: failed, or lost on the way"},
    {DropCause::kJoinWorkFull, "join", "work_full",
     "GPU work waiting for its API call, beyond the limit: missing in launch latencies"},
    {DropCause::kJoinWorkExpired, "join", "work_expired",
     "GPU work whose API call never came: missing in launch latencies"},
    {DropCause::kMetricsKernelsFull, "metrics", "kernels_full",
     "kernel names beyond the longest-running ones: metrics count them under "
     "kernel_name=\"other\""},
    {DropCause::kBpfTraceRingFull, "bpf", "trace_ring_full",
     "launches and calls missing in captures; statistics count them"},
    {DropCause::kBpfReportRingFull, "bpf", "report_ring_full",
     "calls missing where each is reported, such as allocations and NCCL calls; statistics count "
     "them"},
    {DropCause::kBpfOperatorsFull, "bpf", "operators_full",
     "operators of inference engines missing in gpuperfctl steps operators, because they came "
     "faster than they could be read"},
    {DropCause::kBpfOperatorUnread, "bpf", "operator_unread",
     "operators, or their experts, whose memory could not be read or is not what it was taken for"},
    {DropCause::kBpfResponsesFull, "bpf", "responses_full",
     "parts of responses missing in gpuperfctl requests, because they came faster than they could "
     "be read, or there are more than 16,384 connections"},
    {DropCause::kTraceTablesFull, "trace", "tables_full",
     "names, launch sites and stacks of captures beyond the limit: the events are kept without "
     "them"},
    {DropCause::kTraceCaptureFull, "trace", "capture_full",
     "events of a capture beyond trace.max_capture_mib, which says how many, or of a profile "
     "beyond "
     "trace.recorder_mib"},
    {DropCause::kSlowGpuSide, "slow", "gpu_side",
     "what the GPU did during slow calls of injected processes, because too many were slow at the "
     "same time; the calls are reported without it and say so"},
    {DropCause::kOtlpQueueFull, "otlp", "queue_full",
     "the oldest spans and data points waiting for a receiver that was away or slow, beyond "
     "export.otlp.queue_mib; or slow calls that came faster than they could be turned into spans"},
    {DropCause::kOtlpRefused, "otlp", "refused",
     "spans and data points in requests that the receiver refused permanently (see gpuperfctl "
     "status)"},
    {DropCause::kOtlpRejected, "otlp", "rejected",
     "spans and data points that the receiver rejected in requests it accepted"},
    {DropCause::kOtlpStopped, "otlp", "stopped",
     "spans and data points that were not delivered within 2 s when the daemon stopped"},
    {DropCause::kHttpSilent, "http", "silent",
     "connections closed after 5 s without a request; browsers open some in advance"},
    {DropCause::kHttpRequestLate, "http", "request_late",
     "requests that did not arrive completely within 5 s; their connections are closed"},
    {DropCause::kHttpRequestTooLarge, "http", "request_too_large",
     "requests of more than 64 KiB, headers and body together; refused with status 413 or 431"},
    {DropCause::kHttpMalformed, "http", "malformed",
     "requests that are not valid HTTP/1.1; refused with status 400 or 501"},
    {DropCause::kHttpAnswerLate, "http", "answer_late",
     "answers that the client did not read completely within 15 s; their connections are closed"},
    {DropCause::kHttpAnswersFull, "http", "answers_full",
     "answers to the slowest readers, cut off because unread answers exceeded 64 MiB"},
    {DropCause::kHttpConnectionsFull, "http", "connections_full",
     "idle connections closed to make room for new ones: more than 512, or 256 from one address"},
    {DropCause::kHttpBusy, "http", "busy",
     "requests refused with status 429 or 503 because too many others were waiting"},
    {DropCause::kNamesFileRefused, "names", "file_refused",
     "perf maps and debug files that the process's user may not read or that belong to another "
     "user: their names are not used"},
    {DropCause::kBpfCellsUserFull, "bpf", "cells_user_full",
     "calls of new (function, process) pairs beyond their user's share of stats.max_cells, counted "
     "under process \"other\""},
    {DropCause::kBpfHookedCalls, "bpf", "hooked_calls",
     "times that launches counted in a process could not be read from its memory, because it was "
     "killed by the OOM killer or remapped this memory at that moment"},
    {DropCause::kSessionMemoryFull, "session", "memory_full",
     "data of sessions beyond their share of limits.memory_mib: kernels are kept without name, "
     "launches without latency, allocations without address"},
    {DropCause::kNamesMemoryLate, "names", "memory_late",
     "stacks in flight and Python function names, because reading memory of their user's processes "
     "took too long; gpuperfd retries after a pause"},
    {DropCause::kNamesMapPaused, "names", "map_paused",
     "times that a large perf map changed before it could be read again: newer code has no names"},
    {DropCause::kDiscoveryProcessLate, "discovery", "process_late",
     "times that mappings or a mapped file of a process were not read, because reads of its user's "
     "processes took too long; its libraries are probed, and its stacks symbolized, after a pause"},
    {DropCause::kMemoryFull, "memory", "full",
     "allocations of GPU memory beyond the limit: the process's memory is shown as incomplete"},
    {DropCause::kMemorySitesFull, "memory", "sites_full",
     "stacks of allocations beyond the limit: their memory is counted without its stack"},
    {DropCause::kNcclGroupsFull, "nccl", "groups_full",
     "calls of NCCL in groups beyond 4,096 threads, or beyond 4,096 calls of a group: they are "
     "counted, each by itself"},
    {DropCause::kNcclRanksFull, "nccl", "ranks_full",
     "calls of NCCL on communicators beyond 1,024, or beyond 128 of a process: `gpuperfctl nccl` "
     "leaves them out, function statistics count them"},
    {DropCause::kNcclStepsFull, "nccl", "steps_full",
     "collective operations that one rank has not begun while another has begun 1,024 more: who "
     "waited in them is not known"},
    {DropCause::kNcclJoinFull, "nccl", "join_full",
     "kernels of NCCL, and API calls that may have launched one, beyond what waits for its other "
     "half: their operations have no GPU time"},
    {DropCause::kNcclKernelsExpired, "nccl", "kernels_expired",
     "kernels of NCCL without a call that launched them within 10 s: launched by another thread, "
     "or the call was not seen"},
};
static_assert(std::size(kDropRows) == static_cast<size_t>(DropCause::kCount));

}  // namespace

std::span<const DropRow> drop_rows() { return kDropRows; }

}  // namespace gpuperf
