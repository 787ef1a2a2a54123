#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "daemon/model/gpu_health.h"

namespace gpuperf {

// Kinds of calls of the driver, each with its own pace. Order = rows of kRows.
enum class GpuCall : size_t {
  kFields,  // power, energy, durations of clock limits: one batch
  kUtilization,
  kMemory,
  kClocks,
  kClockLimits,
  kTemperature,
  kEcc,
  kProcesses,
  kPcie,
  kCounters,  // hardware counters, through GPM
  kRepair,
  kInventory,  // names, limits and MIG layout
  kCount,
};
inline constexpr size_t kGpuCalls = static_cast<size_t>(GpuCall::kCount);

// Measures every call of the driver and says when a kind is due again.
//
// Thread: one. A call of NVML takes locks of the driver that the workloads' own calls need, so a
// kind whose p99 over its last kWindow calls is above kSlow is made half as often, again and again
// down to a kMaxSlowDown-th; back up where the p99 falls below half of kSlow. A single call above
// kFarTooSlow slows its kind down at once.
class CallPace {
 public:
  static constexpr size_t kWindow =
      128;  // the p99 is then the second longest: one odd call is none
  static constexpr std::chrono::milliseconds kSlow{5};
  static constexpr std::chrono::milliseconds kFarTooSlow{100};
  static constexpr uint32_t kMaxSlowDown = 32;

  // `interval`: of the fastest kinds.
  explicit CallPace(std::chrono::nanoseconds interval);

  bool is_due(GpuCall call, int64_t now_mono_ns) const;
  // All kinds that were due have been made.
  void finish(int64_t now_mono_ns);
  // Everything is due: the GPUs are new.
  void reset();
  void add(GpuCall call, std::chrono::nanoseconds duration);

  std::vector<GpuCallCost> costs() const;  // of kinds that were called

 private:
  struct Kind {
    int64_t due_mono_ns = 0;
    uint64_t calls = 0;
    uint64_t max_ns = 0;
    uint32_t slow_down = 1;
    std::vector<uint64_t> recent_ns;  // at most kWindow, in a ring
  };
  static uint64_t get_p99_ns(const Kind& kind);

  const std::chrono::nanoseconds interval_;  // set once in the constructor
  std::array<Kind, kGpuCalls> kinds_;
};

}  // namespace gpuperf
