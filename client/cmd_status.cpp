// gpuperfctl status: what the daemon is doing, what it cannot do and what it lost.

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <array>
#include <string>

#include "client/bound_levels.h"
#include "client/demand_text.h"
#include "client/session_text.h"
#include "client/suspension_table.h"
#include "client/view.h"

namespace gpuperf::client {
namespace {

using v1::GetStatusRequest;
using v1::GetStatusResponse;

constexpr int kLabelWidth = 12;

std::string make_line(std::string_view label, std::string_view value, const TextStyle& style) {
  return render_labelled(label, kLabelWidth, value, style);
}

std::string describe_mechanism(const std::string& mechanism, const TextStyle& style) {
  if (mechanism == "session") return "session (uprobe session: entry and return in one link)";
  if (mechanism == "multi") return "multi (uprobe_multi: one link per file)";
  if (mechanism == "perf") return "perf (one perf event per probe: slow to attach and detach)";
  if (mechanism == "none") return paint("none: nothing can be probed", Tone::kBad, style);
  return make_printable(mechanism);
}

std::string describe_probes(const v1::ProbeCounts& counts, const TextStyle& style) {
  struct Part {
    uint32_t count;
    std::string_view name;
    Tone tone;
  };
  const std::array<Part, 8> parts = {{{counts.attached(), "attached", Tone::kGood},
                                      {counts.entry_only(), "entry only", Tone::kPlain},
                                      {counts.waiting(), "waiting for a library", Tone::kPlain},
                                      {counts.symbol_missing(), "symbol missing", Tone::kWarning},
                                      {counts.failed(), "failed", Tone::kBad},
                                      {counts.suspended(), "suspended", Tone::kWarning},
                                      {counts.alias(), "counted under another name", Tone::kDim},
                                      {counts.disabled(), "disabled", Tone::kDim}}};
  std::string text;
  for (const Part& part : parts) {
    if (part.count == 0) continue;
    const std::string words = fmt::format("{} {}", format_count(part.count), part.name);
    text += fmt::format("{}{}", text.empty() ? "" : ", ", paint(words, part.tone, style));
  }
  return text.empty() ? "none configured" : text;
}

// 0 where the clocks disagree: the daemon may be on another machine.
uint64_t find_uptime_ns(const GetStatusResponse& status) {
  const uint64_t now_ns = read_wall_clock_ns();
  return now_ns > status.start_unix_ns() ? now_ns - status.start_unix_ns() : 0;
}

std::string describe_cost(const GetStatusResponse& status) {
  const uint64_t uptime_ns = find_uptime_ns(status);
  std::string text = fmt::format("CPU {}", format_duration(status.cpu_ns()));
  if (uptime_ns > 0) {
    const double share = static_cast<double>(status.cpu_ns()) / static_cast<double>(uptime_ns);
    text += fmt::format(" ({:.2f} % of one CPU since start)", share * 100);
  }
  return fmt::format("{}, memory {}", text, format_bytes(status.resident_bytes()));
}

std::string describe_sessions(const GetStatusResponse& status, const TextStyle& style) {
  const std::string text = describe_session_counts(status.sessions(), style);
  if (status.session_lost_records() == 0) return text;
  const std::string lost =
      fmt::format("{} records lost", format_count(status.session_lost_records()));
  return fmt::format("{}; {}", text, paint(lost, Tone::kWarning, style));
}

// A line for each way that is switched on; none without.
std::string render_injection(const GetStatusResponse& status, const TextStyle& style) {
  std::string text;
  for (const v1::InjectionWay& way : status.injection_ways()) {
    const std::string words =
        way.working() ? make_printable(way.detail())
                      : paint("does not work: " + make_printable(way.detail()), Tone::kBad, style);
    text += make_line(text.empty() ? "Injection" : "",
                      fmt::format("{}: {}", make_printable(way.way()), words), style);
  }
  return text;
}

std::string describe_store(const GetStatusResponse& status) {
  if (status.store_path().empty()) return "none: slow calls are kept in memory only";
  return fmt::format("{}, {} used", make_printable(status.store_path()),
                     format_bytes(status.store_bytes()));
}

std::string describe_gpus(const GetStatusResponse& status, const TextStyle& style) {
  if (status.gpus() == 0) {
    return status.gpus_reason().empty() ? "none" : "none: " + make_printable(status.gpus_reason());
  }
  const std::string count = format_count(status.gpus());
  if (status.gpus_in_trouble() == 0) return count;
  return fmt::format(
      "{}, {}", count,
      paint(fmt::format("{} in trouble: gpuperfctl gpus", format_count(status.gpus_in_trouble())),
            Tone::kWarning, style));
}

// What gpuperf costs the workloads, where it is most.
std::string describe_overhead(const GetStatusResponse& status) {
  if (status.overhead_ratio() == 0) return "none measured";
  std::string parts;
  if (status.overhead_hooks_ratio() > 0 || status.overhead_cupti_ratio() > 0) {
    parts = fmt::format(" (launch hooks {}, CUPTI {})", format_ratio(status.overhead_hooks_ratio()),
                        format_ratio(status.overhead_cupti_ratio()));
  }
  return fmt::format("most in process {}: an estimated {} of its time{}", status.overhead_pid(),
                     format_ratio(status.overhead_ratio()), parts);
}

std::string render_demand(const GetStatusResponse& status, const TextStyle& style) {
  const std::string demand = describe_demand(status);
  if (demand.empty()) return "";
  const std::string text =
      fmt::format("{}: {}", demand, make_printable(status.overhead_demand_reason()));
  return make_line("Demanded", paint(text, Tone::kWarning, style), style);
}

std::string render_suspensions(const GetStatusResponse& status, const TextStyle& style) {
  if (status.suspensions().empty()) return "";
  const std::string words = fmt::format("{} by the overhead budget", status.suspensions_size());
  return make_line("Suspended", paint(words, Tone::kWarning, style), style) +
         render_suspension_table(status.suspensions(), "  ", style);
}

std::string render_problems(const GetStatusResponse& status, const TextStyle& style) {
  if (status.problems().empty()) return make_line("Problems", "none", style);
  std::string text = make_line("Problems", std::to_string(status.problems_size()), style);
  for (const v1::Problem& problem : status.problems()) {
    text +=
        fmt::format("  {} {}\n", paint(make_printable(problem.subject()) + ":", Tone::kBad, style),
                    make_printable(problem.message()));
    if (!problem.hint().empty()) {
      text += fmt::format("    hint: {}\n", make_printable(problem.hint()));
    }
  }
  return text;
}

std::string render_drops(const GetStatusResponse& status, const TextStyle& style) {
  if (status.drops().empty()) return make_line("Drops", "none", style);
  Table table({{"  STAGE"}, {"REASON"}, {"COUNT", Column::Align::kRight}, {"MEANING"}});
  for (const v1::Drop& drop : status.drops()) {
    table.add_row({{"  " + drop.stage()},
                   {drop.reason()},
                   {format_count(drop.count()), Tone::kWarning},
                   {drop.meaning()}});
  }
  return make_line("Drops", std::to_string(status.drops_size()), style) + table.take_text(style);
}

// Of the limits those that are half full, but not those that are meant to be.
std::string render_bounds(const GetStatusResponse& status, const TextStyle& style) {
  Table table({{"  LIMIT"},
               {"USED", Column::Align::kRight},
               {"HIGHEST", Column::Align::kRight},
               {"LIMIT", Column::Align::kRight},
               {"COUNTS"}});
  size_t count = 0;
  for (const v1::BoundLevel& bound : status.bounds()) {
    const double share = get_fill_ratio(bound);
    if (bound.rotating() || share < kShownFill) continue;
    const bool is_bytes = bound.unit() == "bytes";
    const auto format = [&](uint64_t value) {
      return is_bytes ? format_bytes(value) : format_count(value);
    };
    table.add_row({{"  " + make_printable(bound.bound())},
                   {format(bound.used())},
                   {fmt::format("{} ({})", format(bound.highest()), format_ratio(share)),
                    share < kWarnedFill ? Tone::kPlain : Tone::kWarning},
                   {format(bound.limit())},
                   {make_printable(bound.unit())}});
    ++count;
  }
  if (status.bounds().empty()) return "";  // an older daemon
  const std::string all = fmt::format("{} of {}", count, status.bounds_size());
  if (count == 0) return make_line("Limits", "none is half full", style);
  return make_line("Limits", all + " were half full within the last two minutes", style) +
         table.take_text(style);
}

std::string render_status(const GetStatusResponse& status, const TextStyle& style) {
  const uint64_t uptime_ns = find_uptime_ns(status);
  std::string daemon = fmt::format("gpuperfd {}, pid {}", status.version(), status.pid());
  if (uptime_ns > 0) daemon += fmt::format(", up {}", format_duration(uptime_ns));
  daemon += fmt::format(", kernel {}", status.kernel());
  const std::string metrics = status.metrics_address().empty()
                                  ? "not served"
                                  : "http://" + status.metrics_address() + "/metrics";
  return make_line("Daemon", make_printable(daemon), style) +
         make_line("Mechanism", describe_mechanism(status.mechanism(), style), style) +
         make_line("Config", make_printable(status.config_path()), style) +
         make_line("Metrics", make_printable(metrics), style) +
         make_line("Probes", describe_probes(status.probes(), style), style) +
         make_line("Files", fmt::format("{} probed", format_count(status.files())), style) +
         make_line("Processes", fmt::format("{} running", format_count(status.processes())),
                   style) +
         make_line("GPUs", describe_gpus(status, style), style) +
         make_line("Calls", format_count(status.calls()), style) +
         make_line("Slow calls", format_count(status.slow_calls()), style) +
         make_line("Sessions", describe_sessions(status, style), style) +
         render_injection(status, style) +
         make_line("Kernels", fmt::format("{} launches", format_count(status.kernel_launches())),
                   style) +
         make_line("Store", describe_store(status), style) +
         make_line("Cost", describe_cost(status), style) +
         make_line("Overhead", describe_overhead(status), style) + render_demand(status, style) +
         render_suspensions(status, style) + render_problems(status, style) +
         render_bounds(status, style) + render_drops(status, style);
}

Result<std::string> draw_status(Connection& connection, const View& view) {
  GetStatusResponse status;
  RETURN_IF_ERROR(connection.call("read the status", GetStatusRequest(), &status));
  if (view.format == Format::kTable) return render_status(status, view.style);
  return render_message(status, view.format, view.shape, view.style);
}

}  // namespace

void declare_status(CLI::App& app, Invocation& invocation) {
  add_watch_flag(app, invocation.options);
  app.callback([&invocation] {
    invocation.run = [&invocation] { return run_view(invocation, draw_status); };
  });
}

}  // namespace gpuperf::client
