#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace gpuperf {

// Every limit of the daemon and its BPF programs that can be full. Order = rows of kBoundRows.
enum class Bound : size_t {
  kCells,
  kCellUsers,
  kKernelShapes,
  kSlowRing,
  kProcessRing,
  kNameRing,
  kStackRing,
  kStackCopyRing,
  kTraceRing,
  kReportRing,
  kUnwindRules,
  kAddressSpaces,
  kDrainQueue,
  kFunctions,
  kFunctionSeries,
  kExitedRows,
  kShapes,
  kStepProcesses,
  kOperatorProcesses,
  kRequestProcesses,
  kOpenRequests,
  kHandleNames,
  kFiles,
  kMappingQueue,
  kWalkQueue,
  kNamingQueue,
  kStackCopies,
  kWorstCalls,
  kHeldCalls,
  kStoreQueue,
  kStore,
  kSessions,
  kSessionQueue,
  kSessionCubins,
  kSessionMemory,
  kKernelTexts,
  kGpuKernels,
  kGpuSeries,
  kTraceTables,
  kTraceSites,
  kGpuCounterHistory,
  kRunningCaptures,
  kBuildQueue,
  kCaptureStore,
  kPodQueue,
  kAttachQueue,
  kNcclGroups,
  kNcclRanks,
  kNcclKernels,
  kMetricsSeries,
  kHttpConnections,
  kHttpAnswers,
  kApiConnections,
  kApiAnswers,
  kOtlpMetrics,
  kOtlpSpans,
  kOtlpProfiles,
  kOtlpCalls,
  kMemoryPieces,
  kMemorySites,
  kDescriptors,
  kMemory,
  kCount,
};

struct BoundRow {
  Bound bound;
  std::string_view name;     // ends in "_bytes" where bytes are counted
  std::string_view unit;     // what is counted
  std::string_view setting;  // what raises it; empty = it is fixed
  // It is meant to be full: the oldest leave for new ones, and nothing else is lost.
  bool is_rotating = false;
  std::string_view when_full;  // what is lost then
};

std::span<const BoundRow> bound_rows();
const BoundRow& get_bound(Bound bound);

// How full it is.
struct BoundLevel {
  Bound bound{};
  uint64_t used = 0;  // at the moment, or the highest since the last look where that is known
  uint64_t limit = 0;
  uint64_t highest = 0;  // within the last one to two minutes; set by BoundHighs
  bool operator==(const BoundLevel&) const = default;
};

// The highest level of each bound within the last one to two minutes.
//
// Thread: one; times are passed in.
class BoundHighs {
 public:
  static constexpr int64_t kWindowNs = 60'000'000'000;
  // Sets `highest` of each.
  void apply(std::vector<BoundLevel>& levels, int64_t now_mono_ns);

 private:
  using Highs = std::array<uint64_t, static_cast<size_t>(Bound::kCount)>;
  Highs now_{};
  Highs before_{};
  int64_t begin_mono_ns_ = 0;
};

}  // namespace gpuperf
