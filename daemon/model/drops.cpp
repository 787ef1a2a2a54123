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
     "symbol names of slow calls' stacks; the addresses are kept"},
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
     "connections to the API's socket beyond 256, closed at once; 32 of those are kept for root"},
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
     "stacks, because the thread that names them was behind: slow calls go without one"},
};
static_assert(std::size(kDropRows) == static_cast<size_t>(DropCause::kCount));

}  // namespace

std::span<const DropRow> drop_rows() { return kDropRows; }

}  // namespace gpuperf
