#include "client/gpu_table.h"

#include <fmt/format.h>

#include <string_view>

namespace gpuperf::client {
namespace {

constexpr size_t kShortUuid = 12;  // "GPU-8f3b1c2d": nvidia-smi takes that, too
constexpr double kHzPerMhz = 1e6;

Tone get_tone(v1::GpuState state) {
  switch (state) {
    case v1::GPU_STATE_OK:
      return Tone::kGood;
    case v1::GPU_STATE_SLOWED:
      return Tone::kWarning;
    case v1::GPU_STATE_FAILING:
    case v1::GPU_STATE_LOST:
      return Tone::kBad;
    default:  // limited, or one of a newer daemon
      return Tone::kPlain;
  }
}

std::string describe_memory(const v1::Gpu& gpu) {
  if (!gpu.has_memory_used_bytes()) return "";
  const std::string used = format_bytes(gpu.memory_used_bytes());
  if (!gpu.has_memory_total_bytes()) return used;
  return fmt::format("{} / {}", used, format_bytes(gpu.memory_total_bytes()));
}

std::string describe_power(const v1::Gpu& gpu) {
  if (!gpu.has_power_watts()) return "";
  if (!gpu.has_power_limit_watts()) return fmt::format("{:.0f} W", gpu.power_watts());
  return fmt::format("{:.0f} / {:.0f} W", gpu.power_watts(), gpu.power_limit_watts());
}

std::string describe_clock(const v1::Gpu& gpu) {
  if (!gpu.has_sm_clock_hz()) return "";
  const double mhz = static_cast<double>(gpu.sm_clock_hz()) / kHzPerMhz;
  if (!gpu.has_sm_clock_max_hz()) return fmt::format("{:.0f} MHz", mhz);
  return fmt::format("{:.0f} / {:.0f} MHz", mhz,
                     static_cast<double>(gpu.sm_clock_max_hz()) / kHzPerMhz);
}

// "power cap (43 % of the last minute)": the share of the first one that is active.
std::string describe_limit(const v1::Gpu& gpu) {
  if (gpu.clock_limits().empty()) return "";
  if (gpu.limited_by().empty()) return "none";
  for (const v1::GpuClockLimit& limit : gpu.clock_limits()) {
    // The daemon names the most important one first.
    if (!limit.active() || gpu.limited_by().rfind(limit.description(), 0) != 0) continue;
    if (limit.reason() == "idle" || limit.minute_ratio() == 0) continue;
    return fmt::format("{} ({} of the last minute)", gpu.limited_by(),
                       format_ratio(limit.minute_ratio()));
  }
  return gpu.limited_by();
}

std::string describe_ecc(const v1::GpuEcc& ecc) {
  std::string text;
  if (ecc.uncorrected_volatile() > 0) {
    text = fmt::format("{} not corrected", format_count(ecc.uncorrected_volatile()));
  }
  if (ecc.corrected_volatile() > 0) {
    text += fmt::format("{}{} corrected", text.empty() ? "" : ", ",
                        format_count(ecc.corrected_volatile()));
  }
  return text;
}

std::string describe_xid(const v1::Gpu& gpu, uint64_t now_unix_ns) {
  if (gpu.xids().empty()) return "";
  const v1::GpuXid& xid = gpu.xids(0);
  // The daemon's clock may be another machine's.
  const uint64_t age_ns = now_unix_ns > xid.last_unix_ns() ? now_unix_ns - xid.last_unix_ns() : 0;
  std::string text = fmt::format("{}, {} ago", xid.xid(), format_duration(age_ns));
  if (xid.count() > 1) text += fmt::format(", {} times", format_count(xid.count()));
  return text;
}

std::string list_hints(const std::vector<v1::Gpu>& gpus, const TextStyle& style) {
  std::string text;
  for (const v1::Gpu& gpu : gpus) {
    if (gpu.hint().empty() || gpu.state() == v1::GPU_STATE_LIMITED) continue;
    text += fmt::format("{}GPU {}: {}\n", text.empty() ? "\n" : "", gpu.index(),
                        make_printable(gpu.hint()));
  }
  return text.empty() ? "" : paint(text, Tone::kDim, style);
}

}  // namespace

std::string render_gpu_table(const std::vector<v1::Gpu>& gpus, uint64_t now_unix_ns,
                             const TextStyle& style) {
  constexpr auto kRight = Column::Align::kRight;
  Table table({{"GPU", kRight},
               {.title = "NAME", .shrink_to = 8},
               {.title = "UUID", .shrink_to = 8},
               {"UTIL", kRight},
               {"MEMORY", kRight},
               {"POWER", kRight},
               {"SM CLOCK", kRight},
               {"TEMP", kRight},
               {.title = "LIMITED BY", .shrink_to = 12},
               {.title = "ECC", .optional = true},
               {.title = "LAST XID", .optional = true},
               {"VERDICT"}});
  for (const v1::Gpu& gpu : gpus) {
    table.add_row(
        {{std::to_string(gpu.index())},
         {gpu.name()},
         {gpu.uuid().substr(0, kShortUuid)},
         {gpu.has_utilization_ratio() ? format_ratio(gpu.utilization_ratio()) : ""},
         {describe_memory(gpu)},
         {describe_power(gpu)},
         {describe_clock(gpu)},
         {gpu.has_temperature_celsius() ? fmt::format("{} °C", gpu.temperature_celsius()) : ""},
         {describe_limit(gpu)},
         {describe_ecc(gpu.ecc()),
          gpu.ecc().uncorrected_volatile() > 0 ? Tone::kBad : Tone::kPlain},
         {describe_xid(gpu, now_unix_ns)},
         {gpu.verdict(), get_tone(gpu.state())}});
  }
  return table.take_text(style) + list_hints(gpus, style);
}

}  // namespace gpuperf::client
