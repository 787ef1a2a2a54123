#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/model/drops.h"
#include "daemon/model/gpu_counters.h"
#include "daemon/model/gpu_health.h"

namespace gpuperf {

// What the hardware counters of all GPUs said lately, a window about a second long each, for
// captures and slow calls.
//
// Thread: loop only. Owns the records. Bounds: kMaxRecords, 4 MiB, half an hour of eight GPUs;
// beyond that the oldest leave, counted (kTraceCaptureFull) where a capture wants them.
class GpuCounterHistory {
 public:
  static constexpr size_t kMaxRecords = 16'384;

  // Records that end before are not wanted any more.
  void expire(uint64_t wanted_from_mono_ns);
  // Keeps the windows that are new in the report.
  void add(const GpuHealthReport& report, DropCounters& drops);
  // Those that end after `from_mono_ns`, by end.
  std::vector<GpuCounterRecord> list(uint64_t from_mono_ns) const;
  size_t size() const { return records_.size(); }

 private:
  using Part = std::pair<GpuUuid, std::optional<uint32_t>>;
  void add(const GpuHealth& gpu, std::optional<uint32_t> instance, const GpuCounterState& state,
           DropCounters& drops);

  std::deque<GpuCounterRecord> records_;  // by end
  std::map<Part, int64_t> last_mono_ns_;  // end of the newest window of each
  uint64_t wanted_from_mono_ns_ = 0;
};

}  // namespace gpuperf
