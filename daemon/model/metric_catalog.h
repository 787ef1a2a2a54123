#pragma once

// Every metric gpuperf exports, in one table: adding one = an enumerator, a row of the catalog, and
// the line in export/prometheus.cpp that fills it. docs/metrics.md is rendered from here.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace gpuperf {

// Order = rows of the catalog = order in the exposition.
enum class Metric : size_t {
  kFunctionCalls,
  kFunctionErrors,
  kFunctionSlowCalls,
  kFunctionDuration,
  kFunctionAbandoned,
  kFunctionInFlight,
  kFunctionOldestInFlight,
  kFunctionBytes,
  kFunctionFlops,
  kFunctionCoverage,
  kFunctionMissedCalls,
  kFunctionMissedCallsError,
  kMemcpyBytes,
  kStepDuration,
  kStepTokens,
  kSlowSteps,
  kStepStalls,
  kStepStalled,
  kRequestFirst,
  kRequestGap,
  kSlowRequests,
  kKernelDuration,
  kKernelLaunchLatency,
  kGraphLaunches,
  kGpuCopiedBytes,
  kGpuSync,
  kGpuAllocated,
  kMemoryLive,
  kMemoryPeak,
  kMemoryLeak,
  kMemoryFailures,
  kGpuBusy,
  kGpuObserved,
  kGpuBusyWithoutNccl,
  kGpuKernelBusy,
  kGpuCopyBusy,
  kGpuGraphBusy,
  kSessions,
  kSessionLostRecords,
  kSessionClockError,
  kRecorderEvents,
  kRecorderBytes,
  kRecorderSpan,
  kCaptures,
  kProbes,
  kSuspendedFunctions,
  kOverhead,
  kOverheadComponent,
  kOverheadMeasured,
  kOverheadCorrection,
  kQosBreached,
  kQosBreaches,
  kProcesses,
  kGpuInfo,
  kGpuUp,
  kGpuUtilization,
  kGpuMemoryUtilization,
  kGpuMemoryUsed,
  kGpuMemoryTotal,
  kGpuPower,
  kGpuPowerLimit,
  kGpuEnergy,
  kGpuClock,
  kGpuClockMax,
  kGpuThrottle,
  kGpuThrottled,
  kGpuTemperature,
  kGpuXids,
  kGpuEcc,
  kGpuRemappedRows,
  kGpuPcieReplays,
  kGpuGraphicsEngineActive,
  kGpuSmActive,
  kGpuSmOccupancy,
  kGpuPipeActive,
  kGpuDramActive,
  kGpuPcieRate,
  kGpuNvlinkRate,
  kGpuCounterSamples,
  kGpuCounterFailures,
  kNcclCalls,
  kNcclBytes,
  kNcclTimedCalls,
  kNcclGpu,
  kNcclBusBytes,
  kNcclBusSeconds,
  kNcclCollectives,
  kNcclWait,
  kNcclCausedWait,
  kNcclLate,
  kNcclStuck,
  kDropped,
  kBuildInfo,
  kDaemonCpu,
  kDaemonResident,
  kBoundUsed,
  kBoundHighest,
  kBoundLimit,
  kDaemonMemory,
  kDaemonStep,
  kCount,
};

enum class MetricType { kCounter, kGauge, kHistogram };
enum class MetricUnit {
  kCalls,
  kSeconds,
  kBytes,
  kOperations,
  kRatio,
  kFunctions,
  kProbes,
  kProcesses,
  kDrops,
  kLaunches,
  kSessions,
  kRecords,
  kWatts,
  kJoules,
  kHertz,
  kCelsius,
  kErrors,
  kRows,
  kBytesPerSecond,
  kSamples,
  kSteps,
  kTokens,
  kPackets,
  kEvents,
  kCaptures,
  kRequests,
  kOfBound,  // of each value its own
  kInfo
};

// The only labels there are. Order = rows of the label table.
enum class MetricLabel : size_t {
  kCategory,
  kFunction,
  kComm,
  kComponent,
  kContainer,
  kPod,
  kNamespace,
  kSlurmJob,
  kSlurmRank,
  kError,
  kDirection,
  kKind,
  kState,
  kStage,
  kReason,
  kVersion,
  kKernel,
  kMechanism,
  kKernelName,
  kUuid,
  kSync,
  kGpu,
  kName,
  kDriver,
  kPciBusId,
  kClock,
  kXid,
  kBound,
  kPart,
  kStep,
  kGpuInstance,
  kPipe,
  kCommunicator,
  kRank,
  kOperation,
  kBasis,
  kCause,
  kPhase,
  kQuality,
  kWhere,
  kRule,
  kCount,
};

struct MetricLabelRow {
  MetricLabel label;
  std::string_view name;
  std::string_view meaning;
};

struct MetricRow {
  Metric metric;
  std::string_view name;
  MetricType type;
  MetricUnit unit;
  std::span<const MetricLabel> labels;
  std::string_view source;  // where the number comes from
  std::string_view help;    // the HELP line
};

std::span<const MetricRow> metric_rows();
std::span<const MetricLabelRow> metric_label_rows();
const MetricRow& get_metric(Metric metric);
std::string_view get_label_name(MetricLabel label);

// Upper edges (`le`) of every histogram, nanoseconds: every power of two from
// 2^10 (1.02 us) to 2^30 (1.07 s), then 2^32, 2^34 and 2^36 (68.7 s).
// Why these: a power of two from 2^8 on is where a row of 16 buckets of Histogram begins, so the
// cumulative counts are sums of whole buckets, exact, and need no interpolation here. One edge per
// octave keeps histogram_quantile() within a factor of two; the API's quantiles are within 3.2 %.
// A bucket takes its lower edge in and its upper edge out: a call of exactly an edge's length
// counts above it, one nanosecond away from Prometheus's "less or equal".
inline constexpr std::array<uint64_t, 24> kDurationEdgesNs = [] {
  std::array<uint64_t, 24> edges{};
  for (size_t i = 0; i < 21; ++i) edges[i] = uint64_t{1} << (10 + i);
  for (size_t i = 0; i < 3; ++i) edges[21 + i] = uint64_t{1} << (32 + 2 * i);
  return edges;
}();

// docs/metrics.md.
std::string render_metrics_markdown();

}  // namespace gpuperf
