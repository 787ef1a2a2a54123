#pragma once

// How the host's GPUs are by their driver's account: so that a slow kernel can be told from a slow
// GPU. Values only; daemon/gpu fills them in.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/model/gpu_counters.h"
#include "daemon/model/gpu_uuid.h"

namespace gpuperf {

// What may hold a GPU's clocks down. Order = rows of kClockLimitRows.
enum class ClockLimit : size_t {
  kIdle,
  kSettings,
  kPowerCap,
  kHwSlowdown,
  kSyncBoost,
  kSwThermal,
  kHwThermal,
  kPowerBrake,
  kDisplay,
  kCount,
};
inline constexpr size_t kClockLimits = static_cast<size_t>(ClockLimit::kCount);

// What a limit means for whoever finds a kernel slow.
enum class LimitWeight {
  kNormal,   // nothing is asked of the GPU, or somebody set the clocks so
  kLimited,  // the GPU works at a limit it was given
  kSlowed,   // something is wrong with its cooling or its power
};

struct ClockLimitRow {
  ClockLimit limit;
  uint64_t bit;            // in NVML's mask of clocks-event reasons (nvml.h)
  std::string_view label;  // of metrics and JSON
  std::string_view words;  // for people
  LimitWeight weight;
  std::string_view hint;  // what to do; empty = nothing
};
std::span<const ClockLimitRow> clock_limit_rows();

// One limit on one GPU.
struct ClockLimitState {
  bool is_active = false;
  int64_t since_mono_ns = 0;  // seen active without a break since; 0 = not active
  std::optional<uint64_t>
      total_ns;             // since the driver was loaded; empty = the GPU does not count it
  double minute_ratio = 0;  // share of the last minute, or of what is known of it
  bool operator==(const ClockLimitState&) const = default;
};

// Error codes of the driver ("XID") about one GPU.
struct XidCount {
  uint64_t count = 0;  // since the daemon started
  int64_t last_mono_ns = 0;
  int64_t last_unix_ns = 0;
  bool operator==(const XidCount&) const = default;
};

struct XidEvent {
  uint32_t xid = 0;
  int64_t unix_ns = 0;
  bool operator==(const XidEvent&) const = default;
};
inline constexpr size_t kRecentXids = 16;  // per GPU; a storm of one code is in its count

struct GpuProcessMemory {
  uint32_t pid = 0;  // in the driver's pid namespace: the initial one
  std::optional<uint64_t> memory_bytes;
  bool operator==(const GpuProcessMemory&) const = default;
};

struct MigInstance {
  GpuUuid uuid{};
  std::string uuid_text;
  uint32_t gpu_instance = 0;
  uint32_t compute_instance = 0;
  std::optional<uint64_t> memory_used_bytes;
  std::optional<uint64_t> memory_total_bytes;
  bool operator==(const MigInstance&) const = default;
};

// Memory errors. "Volatile" counts begin with the driver's load, "aggregate" ones with the board.
struct EccCounts {
  std::optional<uint64_t> corrected_volatile;
  std::optional<uint64_t> uncorrected_volatile;
  std::optional<uint64_t> corrected_aggregate;
  std::optional<uint64_t> uncorrected_aggregate;
  bool operator==(const EccCounts&) const = default;
};

struct PcieState {
  std::optional<uint64_t> generation;
  std::optional<uint64_t> width_lanes;
  std::optional<uint64_t> max_generation;  // of what the GPU and its slot can both do
  std::optional<uint64_t> max_width_lanes;
  std::optional<uint64_t> replays;
  bool operator==(const PcieState&) const = default;
};

// Memory the GPU has put out of use: rows from Ampere on, pages before.
struct RepairState {
  std::optional<uint64_t> remapped_corrected;
  std::optional<uint64_t> remapped_uncorrected;
  std::optional<uint64_t> remap_pending;  // not 0: in force after a reset
  std::optional<uint64_t> remap_failed;   // not 0: no spare row was left
  std::optional<uint64_t> retired_corrected;
  std::optional<uint64_t> retired_uncorrected;
  std::optional<uint64_t> retire_pending;
  bool operator==(const RepairState&) const = default;
};

// One GPU. An empty field is one that this GPU or driver does not tell.
struct GpuHealth {
  uint32_t index = 0;  // as nvidia-smi counts
  GpuUuid uuid{};
  std::string uuid_text;  // "GPU-…"
  std::string name;
  std::string pci_bus_id;
  bool is_lost = false;      // it does not answer any more; the values are the last known
  int64_t read_mono_ns = 0;  // when the values of every second were read
  std::optional<double> utilization_ratio;  // of the last sample period with a kernel running
  std::optional<double> memory_utilization_ratio;  // likewise with memory read or written
  std::optional<uint64_t> memory_used_bytes;
  std::optional<uint64_t> memory_total_bytes;
  std::optional<uint64_t> power_mw;  // averaged over a second where the GPU does that
  std::optional<uint64_t> power_limit_mw;
  std::optional<uint64_t> energy_mj;  // since the driver was loaded
  std::optional<uint64_t> sm_clock_hz;
  std::optional<uint64_t> sm_clock_max_hz;
  std::optional<uint64_t> memory_clock_hz;
  std::optional<uint64_t> memory_clock_max_hz;
  std::optional<int64_t> temperature_celsius;
  bool has_clock_limits = false;  // whether the GPU tells what holds its clocks down
  std::array<ClockLimitState, kClockLimits> clock_limits{};
  EccCounts ecc;
  PcieState pcie;
  RepairState repair;
  std::optional<bool> is_mig_enabled;
  std::vector<MigInstance> mig_instances;
  GpuCounterState counters;                               // of the whole GPU; not read in MIG mode
  std::map<uint32_t, GpuCounterState> instance_counters;  // by GPU instance, in MIG mode
  std::vector<GpuProcessMemory> processes;                // most memory first
  std::map<uint32_t, XidCount> xids;  // by code; those that make no sense under 0
  std::vector<XidEvent> recent_xids;  // the last kRecentXids, oldest first
  uint64_t ecc_events = 0;            // notices of memory errors since the daemon started
  bool operator==(const GpuHealth&) const = default;
};

// What reading costs, by kind of call.
struct GpuCallCost {
  std::string call;
  uint64_t calls = 0;
  uint64_t p99_ns = 0;  // of the last calls
  uint64_t max_ns = 0;
  uint32_t slow_down = 1;  // how many times rarer than wished it is made, because it is slow
  bool operator==(const GpuCallCost&) const = default;
};

struct GpuHealthReport {
  int64_t read_mono_ns = 0;  // 0 = never
  std::string driver_version;
  std::string reason;           // why there are no GPUs, for people; empty = there are
  std::vector<GpuHealth> gpus;  // by index
  // Why GPUs that are there cannot be read; empty texts = they can, or there are none.
  std::string problem;
  std::string hint;
  std::string events_problem;  // why there are no notices of errors; empty = there are
  std::vector<GpuCallCost> costs;
  bool operator==(const GpuHealthReport&) const = default;
};

// "GPU-8f3b…" or "MIG-8f3b…" of 32 hexadecimal digits; empty for anything else.
std::optional<GpuUuid> parse_gpu_uuid(std::string_view text);

enum class GpuState {
  kOk,
  kLimited,  // at a limit it was given for much of the last minute
  kSlowed,   // by temperature or power trouble
  kFailing,  // errors that want somebody's hand
  kLost,
};

struct GpuVerdict {
  GpuState state = GpuState::kOk;
  std::string text;  // "slowed: hardware thermal slowdown, 43 % of the last minute"
  std::string hint;  // what to do; empty = nothing
  bool operator==(const GpuVerdict&) const = default;
};
// The worst that is known of it.
GpuVerdict judge_gpu(const GpuHealth& gpu, int64_t now_mono_ns);

}  // namespace gpuperf
