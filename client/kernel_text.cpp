#include "client/kernel_text.h"

#include <absl/strings/str_join.h>
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace gpuperf::client {
namespace {

constexpr int kLabelWidth = 12;
constexpr int kStatesInRow = 3;
constexpr double kMentioned = 0.02;  // a smaller share of the samples says nothing

std::string make_line(std::string_view label, std::string_view value, const TextStyle& style) {
  return render_labelled(label, kLabelWidth, value, style);
}

// "long_scoreboard 61 %, selected 20 %".
std::string list_states(const v1::KernelStalls& stalls) {
  std::string text;
  int count = 0;
  for (const v1::KernelStall& stall : stalls.stalls()) {
    if (count == kStatesInRow || stall.share_ratio() < kMentioned) break;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", stall.name(),
                        format_ratio(stall.share_ratio()));
    ++count;
  }
  return text;
}

std::string list_limits(const v1::KernelStats& kernel) {
  std::vector<std::string> names;
  for (const v1::KernelVerdict& verdict : kernel.verdicts()) names.push_back(verdict.name());
  return absl::StrJoin(names, ", ");
}

std::string describe_occupancy(const v1::KernelLaunch& launch) {
  if (launch.sm_count() == 0) return "";
  return fmt::format("{} by {}", format_ratio(launch.occupancy_ratio()), launch.occupancy_limit());
}

std::string render_launch(const v1::KernelLaunch& launch, const TextStyle& style) {
  std::string text = make_line(
      "Launch",
      fmt::format("{} blocks of {} threads; {} registers per thread, {} of shared memory "
                  "per block{}",
                  absl::StrJoin(launch.grid(), " x "), absl::StrJoin(launch.block(), " x "),
                  launch.registers_per_thread(), format_bytes(launch.shared_memory_bytes()),
                  launch.local_memory_bytes() == 0
                      ? ""
                      : fmt::format(", {} of local memory per thread",
                                    format_bytes(launch.local_memory_bytes()))),
      style);
  if (launch.sm_count() == 0) return text;
  return text +
         make_line("Occupancy",
                   fmt::format("at most {} (limited by {}): {} blocks on each of {} SMs; "
                               "{:.2f} waves",
                               format_ratio(launch.occupancy_ratio()), launch.occupancy_limit(),
                               launch.blocks_per_sm(), launch.sm_count(), launch.waves()),
                   style);
}

std::string render_states(const v1::KernelStalls& stalls, const TextStyle& style) {
  constexpr auto kRight = Column::Align::kRight;
  Table table(
      {{"SHARE", kRight}, {"SAMPLES", kRight}, {"NOTHING ISSUED", kRight}, {"STATE"}, {"MEANING"}});
  for (const v1::KernelStall& stall : stalls.stalls()) {
    table.add_row({{format_ratio(stall.share_ratio())},
                   {format_count(stall.samples())},
                   {format_count(stall.idle_samples())},
                   {stall.name()},
                   {stall.meaning()}});
  }
  return table.take_text(style);
}

// "barrier 80 %": what warps at an instruction or a line mostly do.
template <typename Hot>
std::string describe_stall(const Hot& hot) {
  return fmt::format("{} {}", hot.stall(),
                     format_ratio(static_cast<double>(hot.stall_samples()) /
                                  static_cast<double>(std::max<uint64_t>(hot.samples(), 1))));
}

// "kernel.cu:12", "inner.h:4 load() at kernel.cu:12".
std::string describe_source(const v1::SourceLine& source) {
  if (source.line() == 0) return "";
  std::string text = fmt::format("{}:{}", source.file(), source.line());
  if (!source.function().empty()) text += " " + source.function();
  if (source.outer_line() != source.line() || source.outer_file() != source.file()) {
    text += fmt::format(" at {}:{}", source.outer_file(), source.outer_line());
  }
  return text;
}

std::string render_lines(const v1::KernelStalls& stalls, const TextStyle& style) {
  std::string text;
  if (stalls.lines_size() > 0) {
    constexpr auto kRight = Column::Align::kRight;
    Table table({{"SHARE", kRight}, {"SAMPLES", kRight}, {"MOSTLY"}, {"LINE"}});
    for (const v1::HotLine& line : stalls.lines()) {
      table.add_row({{format_ratio(line.share_ratio())},
                     {format_count(line.samples())},
                     {describe_stall(line)},
                     {describe_source(line.source())}});
    }
    text = "\n" + table.take_text(style);
  }
  if (stalls.unlined_samples() == 0) return text;
  return text + "\n" +
         paint(wrap(fmt::format("Source lines of {} samples are not known: {}.",
                                format_count(stalls.unlined_samples()), stalls.unlined_reason()),
                    style.columns, ""),
               Tone::kDim, style);
}

std::string render_instructions(const v1::KernelStalls& stalls, const TextStyle& style) {
  constexpr auto kRight = Column::Align::kRight;
  Table table({{"SHARE", kRight},
               {"SAMPLES", kRight},
               {"OFFSET", kRight},
               {"MOSTLY"},
               {"CUBIN"},
               {.title = "LINE", .optional = true}});
  for (const v1::HotInstruction& hot : stalls.hottest()) {
    table.add_row({{format_ratio(hot.share_ratio())},
                   {format_count(hot.samples())},
                   {fmt::format("0x{:x}", hot.pc_offset_bytes())},
                   {describe_stall(hot)},
                   {hot.cubin_crc()},
                   {describe_source(hot.source())}});
  }
  return table.take_text(style);
}

}  // namespace

std::string render_stalls_table(const std::vector<v1::KernelStats>& rows, bool full_names,
                                const TextStyle& style) {
  constexpr auto kRight = Column::Align::kRight;
  Table table({{.title = "KERNEL", .shrink_to = 30, .cut = Cut::kMiddle},
               {"TOTAL", kRight},
               {"SHARE", kRight},
               {.title = "WAVES", .align = kRight, .optional = true},
               {.title = "OCCUPANCY", .optional = true},
               {.title = "SAMPLES", .align = kRight, .optional = true},
               {.title = "STATES OF ITS WARPS", .optional = true},
               {.title = "LIMITED BY", .optional = true}});
  for (const v1::KernelStats& row : rows) {
    table.add_row(
        {{full_names ? row.kernel() : row.short_name()},
         {format_duration(row.total_ns())},
         {format_ratio(row.share_ratio())},
         {row.launch().sm_count() == 0 ? "" : fmt::format("{:.2f}", row.launch().waves())},
         {describe_occupancy(row.launch())},
         {row.has_stalls() ? format_count(row.stalls().samples()) : ""},
         {list_states(row.stalls())},
         {list_limits(row)}});
  }
  return table.take_text(style);
}

std::string render_kernel(const v1::KernelStats& kernel, const TextStyle& style) {
  std::string text =
      paint(wrap(make_printable(kernel.kernel()), style.columns, ""), Tone::kHeader, style);
  text += make_line("Time",
                    fmt::format("{} in {} launches", format_duration(kernel.total_ns()),
                                format_count(kernel.launches())),
                    style);
  text += make_line("Each",
                    fmt::format("{} on average; p50 {}, p99 {}, longest {}",
                                format_duration(kernel.avg_ns()), format_duration(kernel.p50_ns()),
                                format_duration(kernel.p99_ns()), format_duration(kernel.max_ns())),
                    style);
  if (kernel.joined_launches() > 0) {
    text += make_line("From launch",
                      fmt::format("p50 {}, p99 {} until it started",
                                  format_duration(kernel.launch_latency_p50_ns()),
                                  format_duration(kernel.launch_latency_p99_ns())),
                      style);
  }
  if (kernel.has_launch()) text += render_launch(kernel.launch(), style);
  for (const v1::KernelVerdict& verdict : kernel.verdicts()) {
    text += "\n" + paint("Limited by " + verdict.name(), Tone::kWarning, style) + "\n";
    text += wrap(verdict.reason(), style.columns, "  ");
    if (!verdict.advice().empty()) text += wrap("Try: " + verdict.advice(), style.columns, "  ");
  }
  if (!kernel.has_stalls()) {
    return text + "\n" +
           paint(
               "Not sampled yet. What its warps wait for: sudo gpuperfctl sessions burst PID "
               "--samples --for 10s\n",
               Tone::kDim, style);
  }
  text += "\n" + render_states(kernel.stalls(), style);
  text += render_lines(kernel.stalls(), style);
  text += "\n" + render_instructions(kernel.stalls(), style);
  return text;
}

}  // namespace gpuperf::client
