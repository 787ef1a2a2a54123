#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace gpuperf {

// Every place and reason something can be dropped. Order = rows of kDropRows.
enum class DropCause : size_t {
  kBpfCellsFull,
  kBpfIndexFull,
  kBpfThreadState,
  kBpfCallDepth,
  kBpfSlowRingFull,
  kBpfProcessRingFull,
  kBpfUnpairedReturn,
  kRingUnknownKind,
  kRingMalformed,
  kSymbolsQueueFull,
  kStatsProcessesFull,
  kMetricsSeriesFull,
  kWatchReaderSlow,
  kLogRateLimited,
  kDiscoveryEventsLost,
  kStatsSeriesFull,
  kSlowListsFull,
  kDiscoveryFilesFull,
  kBpfShapesFull,
  kBpfNameRingFull,
  kProbesFunctionsFull,
  kStatsShapesFull,
  kStepsProcessesFull,
  kRequestsFull,
  kNamesFull,
  kInFlightFull,
  kApiConnectionsFull,
  kApiMisuse,
  kApiThrottled,
  kApiAnswersFull,
  kPodNamesFull,
  kSlowThinned,
  kSlowStoreQueueFull,
  kSlowStoreFailed,
  kBpfStackRingFull,
  kBpfStackCopy,
  kBpfStackState,
  kStacksQueueFull,
  kSessionMalformed,
  kSessionUnknownKind,
  kSessionUnknownId,
  kSessionBadValue,
  kSessionBadTime,
  kSessionNearStep,
  kSessionNamesFull,
  kSessionCubinsFull,
  kSessionForeign,
  kSessionThrottled,
  kSessionSilent,
  kSessionsFull,
  kSessionRefused,
  kSessionUnknown,
  kSessionBadIds,
  kKernelNamesFull,
  kGpuKernelsFull,
  kGpuSeriesFull,
  kGpuProcessesFull,
  kGpuGraphsFull,
  kGpuAddressesFull,
  kGpuDevicesFull,
  kGpuLateRecords,
  kGpuFutureRecords,
  kJoinLaunchesFull,
  kJoinLaunchesExpired,
  kJoinWorkFull,
  kJoinWorkExpired,
  kMetricsKernelsFull,
  kBpfTraceRingFull,
  kBpfReportRingFull,
  kBpfOperatorsFull,
  kBpfOperatorUnread,
  kBpfResponsesFull,
  kTraceTablesFull,
  kTraceCaptureFull,
  kSlowGpuSide,
  kOtlpQueueFull,
  kOtlpRefused,
  kOtlpRejected,
  kOtlpStopped,
  kHttpSilent,
  kHttpRequestLate,
  kHttpRequestTooLarge,
  kHttpMalformed,
  kHttpAnswerLate,
  kHttpAnswersFull,
  kHttpConnectionsFull,
  kHttpBusy,
  kNamesFileRefused,
  kBpfCellsUserFull,
  kBpfHookedCalls,
  kSessionMemoryFull,
  kNamesMemoryLate,
  kNamesMapPaused,
  kDiscoveryProcessLate,
  kMemoryFull,
  kMemorySitesFull,
  kNcclGroupsFull,
  kNcclRanksFull,
  kNcclStepsFull,
  kNcclJoinFull,
  kNcclKernelsExpired,
  kCount,
};

struct DropRow {
  DropCause cause;
  std::string_view stage;
  std::string_view reason;
  std::string_view meaning;  // what was lost and what was not
};

std::span<const DropRow> drop_rows();

// Counts since the daemon started. Any thread.
class DropCounters {
 public:
  void add(DropCause cause, uint64_t count = 1) {
    counts_[static_cast<size_t>(cause)].fetch_add(count, std::memory_order_relaxed);
  }
  uint64_t get(DropCause cause) const {
    return counts_[static_cast<size_t>(cause)].load(std::memory_order_relaxed);
  }

 private:
  std::array<std::atomic<uint64_t>, static_cast<size_t>(DropCause::kCount)> counts_{};
};

}  // namespace gpuperf
