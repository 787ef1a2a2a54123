#include "client/memory_text.h"

#include <fmt/format.h>

#include <string_view>

#include "client/stack_text.h"
#include "client/text.h"

namespace gpuperf::client {
namespace {

using v1::MemorySite;
using v1::MemoryUse;
using v1::ProcessMemory;

constexpr auto kToTheRight = Column::Align::kRight;
constexpr int kFactWidth = 14;

uint64_t get_kind_bytes(const ProcessMemory& process, std::string_view kind) {
  for (const MemoryUse& use : process.kinds()) {
    if (use.kind() == kind) return use.live_bytes();
  }
  return 0;
}

std::string format_some_bytes(uint64_t bytes) { return bytes == 0 ? "" : format_bytes(bytes); }

// What is not complete says so.
std::string format_live(const ProcessMemory& process) {
  return (process.gaps().empty() ? "" : "~") + format_bytes(process.live_bytes());
}

std::string format_count_of(uint64_t count, std::string_view one) {
  return fmt::format("{} {}{}", format_count(count), one, count == 1 ? "" : "s");
}

std::string describe_growth(const v1::MemoryGrowth& growth) {
  return fmt::format("{}: grew by {} in {} within {}, {}/min", growth.leak() ? "leak" : "grows",
                     format_bytes(growth.grown_bytes()),
                     format_count_of(growth.grown_count(), "piece"),
                     format_duration(growth.window_ns()),
                     format_bytes(static_cast<uint64_t>(growth.bytes_per_minute())));
}

std::string render_allocation_stack(google::protobuf::RepeatedPtrField<v1::StackFrame>* stack,
                                    bool interpreter_frames, std::string_view indent) {
  if (!interpreter_frames) (void)fold_interpreter_frames(*stack);
  if (stack->empty()) return fmt::format("{}no stack was kept\n", indent);
  return render_frames(*stack, indent);
}

std::string render_site(MemorySite& site, bool interpreter_frames, const TextStyle& style) {
  const MemoryUse& use = site.use();
  std::string text =
      fmt::format("{}{} in {} of {} memory", kIndent, format_bytes(use.live_bytes()),
                  format_count_of(use.live_count(), "piece"), make_printable(use.kind()));
  if (!site.function().empty()) text += fmt::format(" by {}", make_printable(site.function()));
  text += fmt::format("; peak {}, {} allocated, {} of the allocations not released",
                      format_bytes(use.peak_bytes()), format_bytes(use.allocated_bytes()),
                      format_ratio(site.unreleased_ratio()));
  if (site.oldest_age_ns() != 0) {
    text += fmt::format(", the oldest is {} old", format_duration(site.oldest_age_ns()));
  }
  text += "\n";
  if (site.has_growth()) {
    const Tone tone = site.growth().leak() ? Tone::kBad : Tone::kWarning;
    text += fmt::format("{}{}\n", kIndent, paint(describe_growth(site.growth()), tone, style));
  }
  return text + render_allocation_stack(site.mutable_stack(), interpreter_frames, "    ");
}

std::string make_fact(std::string_view label, std::string_view value, const TextStyle& style) {
  return render_labelled(label, kFactWidth, value, style);
}

std::string render_heading(const ProcessMemory& process, const TextStyle& style) {
  return paint(fmt::format("Process {} ({}){}: {} live on GPUs", process.pid(),
                           make_printable(process.comm()), process.exited() ? ", exited" : "",
                           format_live(process)),
               Tone::kHeader, style) +
         "\n";
}

std::string render_sites(ProcessMemory& process, bool interpreter_frames, const TextStyle& style) {
  std::string text;
  for (MemorySite& site : *process.mutable_sites()) {
    text += render_site(site, interpreter_frames, style);
  }
  return text;
}

std::string render_kinds(const ProcessMemory& process, const TextStyle& style) {
  Table table({{"KIND"},
               {"LIVE", kToTheRight},
               {"PIECES", kToTheRight},
               {"PEAK", kToTheRight},
               {"ALLOCATED", kToTheRight},
               {"RELEASED", kToTheRight}});
  for (const MemoryUse& use : process.kinds()) {
    table.add_row({{use.kind()},
                   {format_bytes(use.live_bytes())},
                   {format_count(use.live_count())},
                   {format_bytes(use.peak_bytes())},
                   {format_bytes(use.allocated_bytes())},
                   {format_bytes(use.released_bytes())}});
  }
  return table.take_text(style);
}

std::string render_driver_figures(const ProcessMemory& process, const TextStyle& style) {
  if (!process.has_used_bytes()) {
    return make_fact("Driver", "reports nothing of this process (gpuperfctl gpus says why)", style);
  }
  std::string text =
      make_fact("Driver",
                fmt::format("{} used on {}", format_bytes(process.used_bytes()),
                            format_count_of(static_cast<uint64_t>(process.gpus_size()), "GPU")),
                style);
  text += make_fact(
      "Rest",
      fmt::format("{} not explained by allocations, {} at the lowest: context, modules, unused "
                  "parts of pools, rounding to 2 MiB",
                  format_bytes(process.rest_bytes()), format_bytes(process.least_rest_bytes())),
      style);
  return text;
}

std::string render_gaps(const ProcessMemory& process, const TextStyle& style) {
  std::string text;
  for (const std::string& gap : process.gaps()) {
    text += make_fact("Incomplete", make_printable(gap), style);
  }
  return text;
}

std::string render_holder(v1::MemoryHolder& holder, bool interpreter_frames,
                          const TextStyle& style) {
  std::string text =
      fmt::format("{}held by process {} ({}): {} live on GPUs", kIndent, holder.pid(),
                  make_printable(holder.comm()), format_bytes(holder.live_bytes()));
  if (holder.has_used_bytes()) {
    text += fmt::format(", {} by the driver", format_bytes(holder.used_bytes()));
  }
  text += "\n";
  for (MemorySite& site : *holder.mutable_sites()) {
    text += render_site(site, interpreter_frames, style);
  }
  return text;
}

}  // namespace

std::string render_memory_table(const std::vector<ProcessMemory>& processes,
                                const TextStyle& style) {
  Table table({{"PID", kToTheRight},
               {.title = "COMM", .shrink_to = 8},
               {"STATE"},
               {"LIVE", kToTheRight},
               {"PEAK", kToTheRight},
               {"DRIVER", kToTheRight},
               {"REST", kToTheRight},
               {.title = "MANAGED", .align = kToTheRight, .optional = true},
               {.title = "PINNED", .align = kToTheRight, .optional = true},
               {.title = "REGISTERED", .align = kToTheRight, .optional = true},
               {"LEAKS", kToTheRight},
               {.title = "CONTAINER", .optional = true},
               {.title = "POD", .optional = true, .shrink_to = 12}});
  bool is_any_incomplete = false;
  for (const ProcessMemory& row : processes) {
    is_any_incomplete = is_any_incomplete || !row.gaps().empty();
    table.add_row({{std::to_string(row.pid())},
                   {row.comm()},
                   {row.exited() ? "exited" : "running", row.exited() ? Tone::kDim : Tone::kPlain},
                   {format_live(row)},
                   {format_bytes(row.peak_bytes())},
                   {row.has_used_bytes() ? format_bytes(row.used_bytes()) : ""},
                   {row.has_rest_bytes() ? format_bytes(row.rest_bytes()) : ""},
                   {format_some_bytes(get_kind_bytes(row, "managed"))},
                   {format_some_bytes(get_kind_bytes(row, "pinned"))},
                   {format_some_bytes(get_kind_bytes(row, "registered"))},
                   {std::to_string(row.leaks()), row.leaks() > 0 ? Tone::kBad : Tone::kPlain},
                   {row.container()},
                   {row.pod()}});
  }
  std::string text = table.take_text(style);
  if (is_any_incomplete) {
    text += paint("\n~ Incomplete; why: gpuperfctl memory show PID\n", Tone::kDim, style);
  }
  return text;
}

std::string render_memory_stacks(std::vector<ProcessMemory> processes, bool interpreter_frames,
                                 const TextStyle& style) {
  std::string text;
  for (ProcessMemory& process : processes) {
    if (!text.empty()) text += "\n";
    text += render_heading(process, style) + render_sites(process, interpreter_frames, style);
  }
  return text;
}

std::string render_memory_process(ProcessMemory process, bool interpreter_frames,
                                  const TextStyle& style) {
  std::string text = render_heading(process, style);
  text += make_fact("Peak", format_bytes(process.peak_bytes()), style);
  text += render_driver_figures(process, style);
  text += make_fact("Seen for", format_duration(process.seen_ns()), style);
  text += render_gaps(process, style);
  text += "\n" + render_kinds(process, style) + "\nStacks, most live memory first:\n";
  return text + render_sites(process, interpreter_frames, style);
}

std::string render_out_of_memory(std::vector<v1::OutOfMemory> incidents, bool interpreter_frames,
                                 const TextStyle& style) {
  std::string text;
  for (v1::OutOfMemory& incident : incidents) {
    if (!text.empty()) text += "\n";
    text += paint(fmt::format("{} {} ({}): {} of {} memory refused to {}",
                              format_local_time(incident.unix_ns()), incident.pid(),
                              make_printable(incident.comm()), format_bytes(incident.asked_bytes()),
                              make_printable(incident.kind()), make_printable(incident.function())),
                  Tone::kHeader, style);
    if (incident.times() > 1) {
      text += fmt::format(", {} times until {}", format_count(incident.times()),
                          format_local_time(incident.last_unix_ns()));
    }
    text += "\n" + render_allocation_stack(incident.mutable_stack(), interpreter_frames, "    ");
    for (v1::MemoryHolder& holder : *incident.mutable_holders()) {
      text += render_holder(holder, interpreter_frames, style);
    }
  }
  return text;
}

}  // namespace gpuperf::client
