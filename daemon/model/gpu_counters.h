#pragma once

// What a GPU's hardware counters say of its work, as averages over a window of time. Source: NVML's
// GPU Performance Monitoring (GPM), Hopper and later. Values only; daemon/gpu fills them in.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "daemon/model/gpu_uuid.h"

namespace gpuperf {

// Order = rows of gpu_counter_rows(), and columns of captures: append only.
enum class GpuCounter : size_t {
  kGraphicsEngine,
  kSm,
  kSmOccupancy,
  kTensor,
  kFp64,
  kFp32,
  kFp16,
  kInteger,
  kDram,
  kPcieTransmit,
  kPcieReceive,
  kNvlinkTransmit,
  kNvlinkReceive,
  kCount,
};
inline constexpr size_t kGpuCounters = static_cast<size_t>(GpuCounter::kCount);

struct GpuCounterRow {
  GpuCounter counter;
  std::string_view words;  // "tensor pipe"
  std::string_view dcgm;  // DCGM's field of the same meaning, without "DCGM_FI_PROF_"; empty = none
  bool is_ratio;          // else bytes per second
};
std::span<const GpuCounterRow> gpu_counter_rows();

// Ratios in millionths of 0 to 1, rates in bytes per second. Empty = the GPU did not tell it.
using GpuCounterValues = std::array<std::optional<uint64_t>, kGpuCounters>;
inline constexpr uint64_t kRatioMillion = 1'000'000;

// Averages between two samples.
struct GpuCounterWindow {
  int64_t start_mono_ns = 0;
  int64_t end_mono_ns = 0;  // 0 = there is no window
  GpuCounterValues values{};
  bool operator==(const GpuCounterWindow&) const = default;

  // Whether it has any of the time from `begin_mono_ns` to `other_end_mono_ns` in it.
  bool overlaps(uint64_t begin_mono_ns, uint64_t other_end_mono_ns) const {
    const auto own_start_ns = static_cast<uint64_t>(start_mono_ns);
    const auto own_end_ns = static_cast<uint64_t>(end_mono_ns);
    return own_start_ns < other_end_mono_ns && own_end_ns > begin_mono_ns;
  }
};

// A GPU, or an instance of it in MIG mode.
struct GpuCounterState {
  GpuCounterWindow window;  // the newest; none while there is a reason
  // Why there are no values, for people. Empty = there are, or the second sample is awaited.
  std::string reason;
  bool has_failed = false;      // the reason is a failure, and not that the GPU cannot
  uint64_t samples = 0;         // taken since the daemon started
  uint64_t failed_samples = 0;  // of them: failed, or without a single value
  bool operator==(const GpuCounterState&) const = default;
};

// A window with the GPU that it is of.
struct GpuCounterRecord {
  GpuUuid uuid{};                        // of the whole GPU
  uint32_t gpu = 0;                      // its index, as nvidia-smi counts
  std::optional<uint32_t> gpu_instance;  // in MIG mode; empty = the whole GPU
  GpuCounterWindow window;
  bool operator==(const GpuCounterRecord&) const = default;
};

// "tensor pipe 83.2 %", "PCIe received 1.20 GB/s"; empty where there is no value.
std::string describe_gpu_counter(GpuCounter counter, const GpuCounterValues& values);

}  // namespace gpuperf
