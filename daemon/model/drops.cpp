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
     "calls timed without arguments and nesting because the kernel had no memory for the thread"},
    {DropCause::kBpfCallDepth, "bpf", "call_depth",
     "calls nested deeper than 16 probed calls: timed without arguments and nesting"},
    {DropCause::kBpfSlowRingFull, "bpf", "slow_ring_full",
     "records of slow calls; the calls themselves are counted"},
    {DropCause::kBpfProcessRingFull, "bpf", "process_ring_full",
     "notices of process exits; the sweep finds the exits later"},
    {DropCause::kBpfUnpairedReturn, "bpf", "unpaired_return",
     "returns without a known entry (a fork inside a call, a probe attached during one)"},
    {DropCause::kRingUnknownKind, "ring", "unknown_kind",
     "records of a kind this version does not know"},
    {DropCause::kRingMalformed, "ring", "malformed", "records shorter than their kind"},
    {DropCause::kSymbolsQueueFull, "symbols", "queue_full",
     "symbol names of slow calls' stacks, because too many waited, or too many of one user; the "
     "addresses are kept"},
    {DropCause::kStatsProcessesFull, "stats", "processes_full",
     "rows of exited processes, forgotten early; their calls stay in the totals"},
    {DropCause::kMetricsSeriesFull, "metrics", "series_full",
     "series beyond metrics.max_series, folded into comm=\"other\""},
    {DropCause::kWatchReaderSlow, "watch", "reader_slow",
     "messages to a reader of WatchSlowCalls that read too slowly"},
    {DropCause::kLogRateLimited, "log", "rate_limited",
     "log lines of slow calls beyond slow.log_per_second; the calls are counted and kept"},
    {DropCause::kDiscoveryEventsLost, "discovery", "events_lost",
     "notices of new mappings; a full scan follows at once"},
    {DropCause::kStatsSeriesFull, "stats", "series_full",
     "(function, process) pairs whose owner found no room among the series: counted under "
     "comm=\"other\""},
    {DropCause::kSlowListsFull, "slow", "lists_full",
     "worst slow calls of the (function, process) pairs that were slow least recently; the calls "
     "are counted"},
    {DropCause::kDiscoveryFilesFull, "discovery", "files_full",
     "mapped files beyond the bound of one scan: not probed"},
    {DropCause::kBpfShapesFull, "bpf", "shapes_full",
     "GEMM shapes beyond the bound; the calls, bytes and operations are counted all the same"},
    {DropCause::kBpfNameRingFull, "bpf", "name_ring_full",
     "names of kernels, which then show as their handle"},
    {DropCause::kProbesFunctionsFull, "probes", "functions_full",
     "functions matched by wildcards beyond stats.max_functions: not probed"},
    {DropCause::kStatsShapesFull, "stats", "shapes_full",
     "GEMM shapes seen least, forgotten; the calls, bytes and operations stay in the totals"},
    {DropCause::kNamesFull, "names", "full",
     "names of kernels seen longest ago, which then show as their handle"},
    {DropCause::kInFlightFull, "stats", "in_flight_full",
     "calls in flight beyond the longest 1,000 of one look; they are counted in in_flight"},
    {DropCause::kApiConnectionsFull, "api", "connections_full",
     "connections to the API beyond 256, or beyond 64 of one user, closed at once; 32 of those are "
     "kept for root"},
    {DropCause::kApiMisuse, "api", "misuse",
     "connections to the API's socket closed because of what they sent: not HTTP/2, or beyond a "
     "bound of a connection or user"},
    {DropCause::kApiThrottled, "api", "throttled",
     "times that a connection to the API's socket was made to wait because its user asked for more "
     "than one user may per second; nothing is lost"},
    {DropCause::kApiAnswersFull, "api", "answers_full",
     "calls of the API refused because their caller has not taken the answers it has"},
    {DropCause::kPodNamesFull, "pods", "names_full",
     "names of pods, which then show as their uid: too many new containers at once"},
    {DropCause::kSlowThinned, "slow", "thinned",
     "records of slow calls in a burst that were not among the worst; the calls are counted"},
    {DropCause::kSlowStoreQueueFull, "store", "queue_full",
     "slow calls not written to the store, which was behind; they are kept in memory"},
    {DropCause::kSlowStoreFailed, "store", "write_failed",
     "slow calls not written to the store, which did not work: gpuperfctl status says why; they "
     "are "
     "kept in memory"},
    {DropCause::kBpfStackRingFull, "bpf", "stack_ring_full", "stacks: slow calls go without one"},
    {DropCause::kBpfStackCopy, "bpf", "stack_copy",
     "parts of stacks, seen for the first time and too many at once: they end where no rule was "
     "known"},
    {DropCause::kBpfStackState, "bpf", "stack_state",
     "stacks of threads for which the kernel had no memory"},
    {DropCause::kStacksQueueFull, "stacks", "queue_full",
     "stacks, because the threads that walk and name them were behind, or their user had more "
     "waiting than his share: slow calls go without one"},
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
     "records without a time, from before the last day, or from the future"},
    {DropCause::kSessionNearStep, "session", "near_step",
     "times of records that may be off, because the wall clock was set about then; the records are "
     "kept"},
    {DropCause::kSessionNamesFull, "session", "names_full",
     "names of kernels beyond 16 MiB of one session: the kernels are kept, without name"},
    {DropCause::kSessionForeign, "session", "foreign_sender",
     "messages that another process than the one that connected sent through its connection"},
    {DropCause::kSessionThrottled, "session", "throttled",
     "times that a session had sent more than ingest.max_records_per_second and was left to wait; "
     "nothing is lost here, the process counts what it cannot send"},
    {DropCause::kSessionSilent, "session", "silent",
     "connections that did not say who they are within 5 s, closed"},
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
     "names of kernels beyond the bound: their launches count as kernel \"other\""},
    {DropCause::kGpuKernelsFull, "gpu", "kernels_full",
     "(kernel, process) pairs beyond the bound: counted as kernel \"other\" of their process"},
    {DropCause::kGpuSeriesFull, "gpu", "series_full",
     "(kernel, owner) pairs, and owners, beyond the bound: metrics count them as \"other\""},
    {DropCause::kGpuProcessesFull, "gpu", "processes_full",
     "rows of ended processes, forgotten early; their launches stay in the totals"},
    {DropCause::kGpuGraphsFull, "gpu", "graphs_full",
     "graphs of a process beyond the bound: counted together as graph 0"},
    {DropCause::kGpuAddressesFull, "gpu", "addresses_full",
     "allocations beyond the bound: the process's GPU memory is shown as incomplete"},
    {DropCause::kGpuDevicesFull, "gpu", "devices_full",
     "GPUs beyond the bound: how busy they are is not followed"},
    {DropCause::kGpuLateRecords, "gpu", "late_records",
     "records of GPU work that came more than 5 s after newer ones: missing in the busy time, not "
     "in the statistics"},
    {DropCause::kGpuFutureRecords, "gpu", "future_records",
     "records of GPU work that end in the future: missing in the busy time, not in the statistics"},
    {DropCause::kJoinLaunchesFull, "join", "launches_full",
     "API calls waiting for their GPU work when there were too many: missing in launch latencies"},
    {DropCause::kJoinLaunchesExpired, "join", "launches_expired",
     "API calls whose GPU work never came: failed, or lost on the way"},
    {DropCause::kJoinWorkFull, "join", "work_full",
     "GPU work waiting for its API call when there was too much: missing in launch latencies"},
    {DropCause::kJoinWorkExpired, "join", "work_expired",
     "GPU work whose API call never came: missing in launch latencies"},
    {DropCause::kMetricsKernelsFull, "metrics", "kernels_full",
     "kernel names beyond the longest-running ones: metrics count them under "
     "kernel_name=\"other\""},
    {DropCause::kBpfTraceRingFull, "bpf", "trace_ring_full",
     "launches and calls that are missing in traces; they are counted"},
    {DropCause::kTraceTablesFull, "trace", "tables_full",
     "names, places and stacks of traces beyond the bound: what has them goes without"},
    {DropCause::kTraceCaptureFull, "trace", "capture_full",
     "events of a capture beyond trace.max_capture_mib, which says how many, or of a profile "
     "beyond "
     "trace.recorder_mib"},
    {DropCause::kSlowGpuSide, "slow", "gpu_side",
     "what the GPU did during slow calls of injected processes, too many at once: the calls are "
     "told of without it, and say so"},
    {DropCause::kOtlpQueueFull, "otlp", "queue_full",
     "the oldest spans and data points that waited for a receiver that was away, slow or busy: "
     "beyond export.otlp.queue_mib, or slow calls faster than they are made into spans"},
    {DropCause::kOtlpRefused, "otlp", "refused",
     "spans and data points of requests that the receiver refused for good: gpuperfctl status says "
     "why"},
    {DropCause::kOtlpRejected, "otlp", "rejected",
     "spans and data points that the receiver rejected out of requests it took"},
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
     "perf maps and debug files that the process's user may not read or that belong to somebody "
     "else: code goes without the names in them"},
    {DropCause::kBpfCellsUserFull, "bpf", "cells_user_full",
     "calls of new (function, process) pairs beyond their user's share of stats.max_cells, counted "
     "under process \"other\""},
    {DropCause::kBpfHookedCalls, "bpf", "hooked_calls",
     "times that launches counted in a process could not be taken from its memory: it was killed "
     "for want of memory, or had some of it moved at that moment"},
    {DropCause::kSessionMemoryFull, "session", "memory_full",
     "what sessions announced or sent beyond their share of limits.memory_mib: kernels without "
     "name, launches without latency, allocations without address"},
    {DropCause::kNamesMemoryLate, "names", "memory_late",
     "stacks in flight and names of Python functions left out, because reading the memory of their "
     "user's processes took too long; they are read again after a pause"},
    {DropCause::kNamesMapPaused, "names", "map_paused",
     "times that a large perf map had changed again before it may be read again: code made since "
     "goes without its name"},
    {DropCause::kDiscoveryProcessLate, "discovery", "process_late",
     "times that mappings or a mapped file of a process were not read, because reads of its user's "
     "processes took too long: its libraries are probed, and its stacks named, after a pause"},
};
static_assert(std::size(kDropRows) == static_cast<size_t>(DropCause::kCount));

}  // namespace

std::span<const DropRow> drop_rows() { return kDropRows; }

}  // namespace gpuperf
