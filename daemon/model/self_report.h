#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/base/duration_counts.h"
#include "daemon/model/bounds.h"

namespace gpuperf {

// What the daemon's memory is used for. Order = rows of kMemoryRows.
enum class MemoryPart : size_t {
  kKernelMaps,
  kSessions,
  kRecorder,
  kTraceTables,
  kStackCopies,
  kStore,
  kAnswers,
  kOtlp,
  kHeapRest,
  kFiles,
  kRest,
  kCount,
};

struct MemoryRow {
  MemoryPart part;
  std::string_view name;
  bool is_resident = true;   // part of the daemon's resident memory
  std::string_view meaning;  // what it is, and how exact
};

std::span<const MemoryRow> memory_rows();

// A step of the daemon's work, and how long it has taken since the start. Names of threads are
// those of docs/architecture.md.
struct StepTimes {
  std::string step;
  DurationCounts::Totals times;
  bool operator==(const StepTimes&) const = default;
};

// The steps that are no thread's pieces of work.
inline constexpr std::string_view kLoopDelayStep = "loop_delay";  // from when a timer was due
inline constexpr std::string_view kStoreWriteStep = "store_write";
inline constexpr std::string_view kStoreSyncStep = "store_sync";
inline constexpr std::string_view kCaptureWriteStep = "capture_write";

// What the daemon says of itself.
struct SelfReport {
  std::vector<BoundLevel>
      bounds;  // of those there are, each once; in order of Bound once published
  std::vector<std::pair<MemoryPart, uint64_t>> memory;  // bytes, each part at most once; likewise
  std::vector<StepTimes> steps;                         // likewise, by name

  void add(Bound bound, uint64_t used, uint64_t limit) {
    bounds.push_back({.bound = bound, .used = used, .limit = limit, .highest = used});
  }
  void add(MemoryPart part, uint64_t bytes) { memory.emplace_back(part, bytes); }
};

// Brings everything into order; several shares of one part become one.
void finish(SelfReport& report);

}  // namespace gpuperf
