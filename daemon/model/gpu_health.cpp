#include "daemon/model/gpu_health.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <iterator>

#include "daemon/model/xids.h"

namespace gpuperf {
namespace {

using Limit = ClockLimit;

// Bits and meanings: nvmlClocksEventReason* in nvml.h. `label` is what metrics show: closed set.
constexpr ClockLimitRow kClockLimitRows[] = {
    {Limit::kIdle, 0x1, "idle", "idle", LimitWeight::kNormal, ""},
    {Limit::kSettings, 0x2, "clock_settings", "clocks set by an administrator",
     LimitWeight::kNormal, ""},
    {Limit::kPowerCap, 0x4, "power_cap", "power cap", LimitWeight::kLimited,
     "the GPU is at its power limit: nvidia-smi -q -d POWER"},
    {Limit::kHwSlowdown, 0x8, "hw_slowdown", "hardware slowdown", LimitWeight::kSlowed,
     "temperature or power supply; see which: nvidia-smi -q -d PERFORMANCE"},
    {Limit::kSyncBoost, 0x10, "sync_boost", "sync boost group", LimitWeight::kLimited,
     "another GPU of its sync boost group runs at a lower clock"},
    {Limit::kSwThermal, 0x20, "sw_thermal", "software thermal slowdown", LimitWeight::kSlowed,
     "the GPU or its memory is near its highest operating temperature: check fans, airflow, "
     "coolant and the room"},
    {Limit::kHwThermal, 0x40, "hw_thermal", "hardware thermal slowdown", LimitWeight::kSlowed,
     "the GPU is too hot and has reduced its clocks to half or less: check fans, airflow, coolant "
     "and the room"},
    {Limit::kPowerBrake, 0x80, "power_brake", "power brake", LimitWeight::kSlowed,
     "the host requires the GPU to use less power: check power supplies and the host's power "
     "limits"},
    {Limit::kDisplay, 0x100, "display_clocks", "clocks of a display", LimitWeight::kNormal, ""},
};
static_assert(std::size(kClockLimitRows) == kClockLimits);

// A GPU that is at a limit for less than this of a minute is hardly slower for it.
constexpr double kNotableRatio = 0.05;

std::string format_percent(double ratio) {
  return ratio >= 0.1 ? fmt::format("{:.0f} %", ratio * 100) : fmt::format("{:.1f} %", ratio * 100);
}

// The worst code that still speaks about the GPU; of equals the last.
const std::pair<const uint32_t, XidCount>* find_xid(const GpuHealth& gpu, int64_t now_mono_ns,
                                                    XidWeight weight) {
  const std::pair<const uint32_t, XidCount>* found = nullptr;
  for (const auto& entry : gpu.xids) {
    const XidWeight its = get_xid(entry.first).weight;
    const int64_t age_ns = now_mono_ns - entry.second.last_mono_ns;
    if (its != weight || age_ns > get_xid_weight_period(its).count()) continue;
    if (!found || entry.second.last_mono_ns > found->second.last_mono_ns) found = &entry;
  }
  return found;
}

GpuVerdict make_xid_verdict(const std::pair<const uint32_t, XidCount>& entry, GpuState state) {
  const XidRow row = get_xid(entry.first);
  std::string text = fmt::format("XID {}: {}", row.xid, row.meaning);
  if (entry.second.count > 1) text += fmt::format(" ({} times)", entry.second.count);
  return {state, std::move(text), std::string(row.advice)};
}

std::optional<GpuVerdict> judge_memory(const GpuHealth& gpu) {
  if (gpu.repair.remap_failed.value_or(0) != 0) {
    return GpuVerdict{GpuState::kFailing, "memory rows could not be remapped: no spare rows left",
                      "replace the GPU"};
  }
  if (const uint64_t errors = gpu.ecc.uncorrected_volatile.value_or(0); errors > 0) {
    return GpuVerdict{
        GpuState::kFailing,
        fmt::format("memory errors that could not be corrected since the driver was loaded: {}",
                    errors),
        "drain and reset the GPU; replace it if the errors return"};
  }
  if (gpu.repair.remap_pending.value_or(0) != 0 || gpu.repair.retire_pending.value_or(0) != 0) {
    return GpuVerdict{GpuState::kFailing, "bad memory stays in use until the GPU is reset",
                      "reset the GPU when it is free: nvidia-smi --gpu-reset -i N"};
  }
  return std::nullopt;
}

// The limit of that weight with the largest share of the last minute.
const ClockLimitRow* find_limit(const GpuHealth& gpu, LimitWeight weight) {
  const ClockLimitRow* found = nullptr;
  double most = kNotableRatio;
  for (const ClockLimitRow& row : kClockLimitRows) {
    const double ratio = gpu.clock_limits[static_cast<size_t>(row.limit)].minute_ratio;
    // "Hardware slowdown" is the sum of others; they say more, so it must be more than they are.
    if (row.weight != weight || ratio < most) continue;
    if (found && row.limit == Limit::kHwSlowdown && ratio <= most) continue;
    if (found && found->limit != Limit::kHwSlowdown && ratio <= most) continue;
    found = &row;
    most = ratio;
  }
  return found;
}

std::optional<GpuVerdict> judge_limit(const GpuHealth& gpu, LimitWeight weight) {
  const ClockLimitRow* row = find_limit(gpu, weight);
  if (row == nullptr) return std::nullopt;
  const bool slowed = weight == LimitWeight::kSlowed;
  const double ratio = gpu.clock_limits[static_cast<size_t>(row->limit)].minute_ratio;
  return GpuVerdict{slowed ? GpuState::kSlowed : GpuState::kLimited,
                    fmt::format("{}: {}, {} of the last minute", slowed ? "slowed" : "limited",
                                row->words, format_percent(ratio)),
                    std::string(row->hint)};
}

int find_hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::span<const ClockLimitRow> clock_limit_rows() { return kClockLimitRows; }

std::optional<GpuUuid> parse_gpu_uuid(std::string_view text) {
  if (!text.starts_with("GPU-") && !text.starts_with("MIG-")) return std::nullopt;
  text.remove_prefix(4);
  GpuUuid uuid{};
  size_t digits = 0;
  for (const char c : text) {
    if (c == '-') continue;
    const int digit = find_hex_digit(c);
    if (digit < 0 || digits == 2 * uuid.size()) return std::nullopt;
    uuid[digits / 2] = static_cast<uint8_t>(uuid[digits / 2] << 4 | digit);
    ++digits;
  }
  if (digits != 2 * uuid.size()) return std::nullopt;
  return uuid;
}

GpuVerdict judge_gpu(const GpuHealth& gpu, int64_t now_mono_ns) {
  const auto* xid = find_xid(gpu, now_mono_ns, XidWeight::kGpu);
  if (gpu.is_lost) {
    // The code that came with the loss says more than that it does not answer.
    if (xid) return make_xid_verdict(*xid, GpuState::kLost);
    return {GpuState::kLost, "lost: the GPU no longer responds to the driver",
            "see why: dmesg | grep -i xid; reset the GPU, or power-cycle the host"};
  }
  if (xid) return make_xid_verdict(*xid, GpuState::kFailing);
  if (auto verdict = judge_memory(gpu)) return *std::move(verdict);
  if (auto verdict = judge_limit(gpu, LimitWeight::kSlowed)) return *std::move(verdict);
  if (const auto* program = find_xid(gpu, now_mono_ns, XidWeight::kApplication)) {
    return make_xid_verdict(*program, GpuState::kOk);
  }
  if (auto verdict = judge_limit(gpu, LimitWeight::kLimited)) return *std::move(verdict);
  return {GpuState::kOk, "healthy", ""};
}

}  // namespace gpuperf
