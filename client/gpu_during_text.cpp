#include "client/gpu_during_text.h"

#include <absl/strings/str_join.h>
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace gpuperf::client {
namespace {

constexpr std::string_view kDeeper = "    ";

double get_ratio(uint64_t part_ns, uint64_t whole_ns) {
  return whole_ns == 0 ? 0 : static_cast<double>(part_ns) / static_cast<double>(whole_ns);
}

std::string plural(uint64_t count, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", format_count(count), count == 1 ? one : many);
}

// "by this thread at forward (attention.py:88), in cublasGemmEx, with cudaLaunchKernel"
std::string describe_launcher(const v1::GpuLauncher& launcher) {
  if (launcher.function().empty()) return "by an unknown launch";
  std::string text = "by this thread";
  if (!launcher.calling_thread()) {
    text = fmt::format("by thread {}", launcher.tid());
    if (!launcher.comm().empty()) text += fmt::format(" ({})", make_printable(launcher.comm()));
  }
  if (!launcher.frame().empty()) text += " at " + make_printable(launcher.frame());
  if (!launcher.operation().empty()) text += ", in " + make_printable(launcher.operation());
  return text + ", with " + make_printable(launcher.function());
}

std::string render_times(const v1::SlowCall& call) {
  const v1::GpuDuringCall& gpu = call.gpu();
  const auto describe = [&](std::string_view what, uint64_t time_ns) {
    return fmt::format("{} {} ({})", what, format_duration(time_ns),
                       format_ratio(get_ratio(time_ns, call.duration_ns())));
  };
  std::vector<std::string> parts = {describe("busy", gpu.busy_ns()),
                                    describe("idle", gpu.idle_ns())};
  const auto add = [&](std::string_view what, uint64_t time_ns) {
    if (time_ns > 0) parts.push_back(describe(what, time_ns));
  };
  add("kernels", gpu.kernel_ns());
  add("graphs", gpu.graph_ns());
  add("copies", gpu.copy_ns());
  add("sets", gpu.set_ns());
  return absl::StrJoin(parts, ", ");
}

std::string render_kernels(const v1::GpuDuringCall& gpu, const TextStyle& style) {
  std::string text;
  for (const v1::GpuKernelTime& row : gpu.kernels()) {
    std::string line =
        fmt::format("{} {}, {}", format_duration(row.total_ns()), make_printable(row.short_name()),
                    plural(row.count(), "time", "times"));
    if (row.count() > 1) line += fmt::format(", longest {}", format_duration(row.longest_ns()));
    text += wrap(line, style.columns, kIndent);
    std::string launched = "launched " + describe_launcher(row.launcher());
    if (row.launcher_ns() > 0 && row.launcher_ns() < row.total_ns()) {
      launched += fmt::format(" ({} of it)", format_duration(row.launcher_ns()));
    }
    text += paint(wrap(launched, style.columns, kDeeper), Tone::kDim, style);
  }
  if (gpu.other_kernels() > 0) {
    const std::string line =
        fmt::format("{} in {}", format_duration(gpu.other_kernels_ns()),
                    plural(gpu.other_kernels(), "further kernel", "further kernels"));
    text += wrap(line, style.columns, kIndent);
  }
  for (const v1::GpuCopyTime& row : gpu.copies()) {
    const std::string line =
        fmt::format("{} {}{}, {}, {}", format_duration(row.total_ns()),
                    row.direction() == "set" ? "" : "copy ", make_printable(row.direction()),
                    plural(row.count(), "time", "times"), format_bytes(row.copied_bytes()));
    text += wrap(line, style.columns, kIndent);
  }
  return text;
}

std::string render_awaited(const v1::GpuDuringCall& gpu, const TextStyle& style) {
  if (!gpu.has_awaited()) return "";
  const v1::GpuAwaitedWork& work = gpu.awaited();
  std::string line = fmt::format("Last to end before the return ({} before): {}, which ran {}",
                                 format_duration(work.before_return_ns()),
                                 make_printable(work.name()), format_duration(work.duration_ns()));
  if (work.queued_ns() > 0) {
    line += fmt::format(" after {} in the queue", format_duration(work.queued_ns()));
    if (work.stream_wait_ns() > 0) {
      line += fmt::format(", {} of it behind earlier work on its stream",
                          format_duration(work.stream_wait_ns()));
    }
  }
  return wrap(line + "; launched " + describe_launcher(work.launcher()), style.columns, kIndent);
}

std::string render_own(const v1::GpuDuringCall& gpu, const TextStyle& style) {
  if (!gpu.has_own()) return "";
  const v1::GpuOwnWork& own = gpu.own();
  std::string line = fmt::format(
      "Launched in this call: {}, which ran {} after waiting {} for earlier work on the stream and "
      "{} for the device",
      plural(own.launches(), "time", "times"), format_duration(own.run_ns()),
      format_duration(own.stream_wait_ns()), format_duration(own.device_wait_ns()));
  if (own.without_work() > 0) {
    line += fmt::format("; {} had not run a second later", format_count(own.without_work()));
  }
  return wrap(line, style.columns, kIndent);
}

// "GPU 0 as a whole, all processes, average of 1.00 s around the call: SMs 97 %, tensor pipe 3 %"
std::string render_counters(const v1::GpuDeviceTime& row, const TextStyle& style) {
  if (!row.has_counters()) return "";
  const v1::GpuCounters& counters = row.counters();
  std::vector<std::string> parts;
  const auto add = [&](std::string_view name, bool is_known, double ratio) {
    if (is_known) parts.push_back(fmt::format("{} {:.0f} %", name, ratio * 100));
  };
  const auto add_rate = [&](std::string_view name, uint64_t bytes_per_second) {
    if (bytes_per_second == 0) return;
    parts.push_back(fmt::format("{} {}/s", name, format_bytes(bytes_per_second)));
  };
  add("SMs", counters.has_sm_active_ratio(), counters.sm_active_ratio());
  add("occupancy", counters.has_sm_occupancy_ratio(), counters.sm_occupancy_ratio());
  add("tensor pipe", counters.has_tensor_active_ratio(), counters.tensor_active_ratio());
  add("DRAM", counters.has_dram_active_ratio(), counters.dram_active_ratio());
  add_rate("PCIe sent", counters.pcie_transmit_bytes_per_second());
  add_rate("PCIe received", counters.pcie_receive_bytes_per_second());
  add_rate("NVLink sent", counters.nvlink_transmit_bytes_per_second());
  add_rate("NVLink received", counters.nvlink_receive_bytes_per_second());
  if (parts.empty()) return "";
  return wrap(
      fmt::format("GPU {} as a whole, all processes, average of {} around the call: {}",
                  row.number(), format_duration(counters.window_ns()), absl::StrJoin(parts, ", ")),
      style.columns, kIndent);
}

std::string render_devices(const v1::SlowCall& call, const TextStyle& style) {
  const v1::GpuDuringCall& gpu = call.gpu();
  std::string text;
  if (gpu.devices_size() > 1) {
    for (const v1::GpuDeviceTime& row : gpu.devices()) {
      text += fmt::format("{}GPU {}: busy {} ({})\n", kIndent, row.number(),
                          format_duration(row.busy_ns()),
                          format_ratio(get_ratio(row.busy_ns(), call.duration_ns())));
    }
  }
  for (const v1::GpuDeviceTime& row : gpu.devices()) text += render_counters(row, style);
  if (gpu.others_ns() == 0) return text;
  std::vector<std::string> others;
  for (const v1::GpuOtherProcess& row : gpu.others()) {
    others.push_back(fmt::format("process {} ({}) {}", row.pid(), make_printable(row.comm()),
                                 format_duration(row.busy_ns())));
  }
  return text + wrap(fmt::format("Busy for other processes: {}: {}",
                                 format_duration(gpu.others_ns()), absl::StrJoin(others, ", ")),
                     style.columns, kIndent);
}

std::string render_missing(const v1::GpuDuringCall& gpu, bool is_known, const TextStyle& style) {
  if (gpu.missing().empty()) return "";
  std::vector<std::string> reasons;
  for (const std::string& why : gpu.missing()) reasons.push_back(make_printable(why));
  const std::string_view title = is_known ? "May be more than that: " : "Not known: ";
  return paint(wrap(std::string(title) + absl::StrJoin(reasons, "; "), style.columns, kIndent),
               Tone::kWarning, style);
}

}  // namespace

std::string render_gpu(const v1::SlowCall& call, const TextStyle& style) {
  if (!call.has_gpu()) return "";
  const v1::GpuDuringCall& gpu = call.gpu();
  const bool is_known = gpu.busy_ns() > 0 || gpu.idle_ns() > 0;
  std::string text = paint("What the GPU did meanwhile", Tone::kHeader, style) + "\n";
  if (is_known) {
    text += wrap(render_times(call), style.columns, kIndent) + render_kernels(gpu, style) +
            render_awaited(gpu, style) + render_own(gpu, style) + render_devices(call, style);
  }
  return text + render_missing(gpu, is_known, style);
}

}  // namespace gpuperf::client
