#include "daemon/view/report_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "daemon/model/session_names.h"
#include "daemon/view/call_path.h"
#include "daemon/view/escape.h"
#include "daemon/view/frame_text.h"
#include "daemon/view/html_table.h"
#include "daemon/view/kernel_samples.h"
#include "daemon/view/kernel_verdict.h"
#include "daemon/view/rows.h"
#include "daemon/view/view_header.h"

namespace gpuperf {

namespace {

constexpr size_t kMostKernels = 200;
constexpr size_t kMostOperations = 50;
constexpr size_t kMostStreams = 50;

std::string make_card(std::string_view title, std::string_view value, std::string_view note) {
  return fmt::format(
      "<div class=\"card\"><div class=\"card-title\">{}</div><div class=\"card-value\">{}</div>"
      "<div class=\"card-note\">{}</div></div>\n",
      escape_markup(title), escape_markup(value), escape_markup(note));
}

std::string format_share(uint64_t part, uint64_t whole) {
  if (whole == 0) return "–";
  return fmt::format("{:.1f} %", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string name_device(const Capture& capture, uint32_t device) {
  const CaptureDevice* found = find_row(capture.devices, device);
  return found == nullptr ? "GPU" : fmt::format("GPU {}", found->number);
}

std::string name_stream(const Capture& capture, uint32_t stream) {
  const CaptureStream* found = find_row(capture.streams, stream);
  if (found == nullptr) return "unknown";
  std::string name = name_device(capture, found->device);
  if (found->stream != UINT32_MAX) name += fmt::format(", stream {}", found->stream);
  const CaptureProcess* process = find_row(capture.processes, found->process);
  if (process != nullptr) name += fmt::format(", pid {}", process->process.pid);
  return name;
}

std::string name_function(const Capture& capture, uint32_t function) {
  const CaptureFunction* found = find_row(capture.functions, function);
  return found == nullptr ? "no probed call" : found->name;
}

// "long_scoreboard 61.0 %".
std::string describe_first_stall(const KernelStalls& stalls) {
  const auto most = std::ranges::max_element(stalls.stalls, {}, &StallCount::samples);
  const auto stall = static_cast<uint32_t>(most - stalls.stalls.begin());
  return fmt::format("{} {}", get_stall_name(stall).name,
                     format_share(most->samples, stalls.samples));
}

// What its samples say; a capture does not have the GPU's limits, by which launches are judged.
std::string list_verdicts(const KernelStalls& stalls, std::optional<double> dram_ratio) {
  std::string text;
  for (const KernelVerdict& verdict : judge_kernel({}, {}, &stalls, dram_ratio)) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", verdict.name);
  }
  return text;
}

std::string note_missing(size_t shown, size_t all, std::string_view what) {
  if (shown >= all) return std::string(what);
  return fmt::format("{}: the first {} of {}", what, shown, format_grouped(all, 0));
}

}  // namespace

std::string make_report_cards(const Capture& capture, const CaptureSummary& summary) {
  std::string html = "<div class=\"cards\">\n";
  for (const DeviceSummary& device : summary.devices) {
    if (device.work == 0 && summary.devices.size() > 1) continue;
    html += make_card(name_device(capture, device.device) + " busy",
                      format_share(device.busy_ns, device.busy_ns + device.idle_ns),
                      fmt::format("{} idle in {} gaps", format_duration(device.idle_ns),
                                  format_grouped(device.gaps, 0)));
  }
  html += make_card("GPU work", format_grouped(capture.work.size(), 0),
                    format_duration(summary.gpu_ns) + " added up");
  html += make_card("Launches", format_grouped(capture.launches.size(), 0),
                    fmt::format("{} probed calls", format_grouped(capture.calls.size(), 0)));
  html += make_card("Matched", format_share(capture.matches.work_matched, capture.matches.work),
                    "of GPU work to its launch");
  const Histogram& latency = summary.launch_latency.latency;
  if (latency.count() > 0) {
    html += make_card("Launch latency, median", format_duration(latency.quantile_ns(0.5)),
                      "99 of 100 within " + format_duration(latency.quantile_ns(0.99)));
  }
  return html + "</div>\n";
}

std::string make_report_facts(const Capture& capture, const CaptureSummary& summary) {
  HtmlTable processes({{"Process"}, {"pid", true}, {"Container"}, {"Pod"}, {"GPU work recorded"}});
  for (const CaptureProcess& process : capture.processes) {
    processes.begin_row();
    processes.add_name(process.owner.comm);
    processes.add_number(process.process.pid, std::to_string(process.process.pid));
    processes.add_text(process.owner.container);
    processes.add_text(process.owner.pod);
    processes.add_text(process.is_injected ? "yes" : "no: not injected");
  }
  HtmlTable streams({{"Stream"},
                     {"Work", true},
                     {"Busy µs", true},
                     {"Queue, average", true},
                     {"Queue, deepest", true}});
  std::vector<const StreamSummary*> rows;
  for (const StreamSummary& stream : summary.streams) {
    if (stream.work > 0) rows.push_back(&stream);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const auto* left, const auto* right) {
    return left->busy_ns > right->busy_ns;
  });
  const size_t all = rows.size();
  if (all > kMostStreams) rows.resize(kMostStreams);
  for (const StreamSummary* stream : rows) {
    streams.begin_row();
    streams.add_text(name_stream(capture, stream->stream));
    streams.add_count(stream->work);
    streams.add_time(stream->busy_ns);
    const double depth = stream->average_queue_depth;
    streams.add_number(static_cast<uint64_t>(depth * 1000), fmt::format("{:.2f}", depth));
    streams.add_count(stream->max_queue_depth);
  }
  return "<div class=\"pair\">" + processes.finish("Processes") +
         streams.finish(note_missing(rows.size(), all, "Streams and their queues")) + "</div>\n";
}

std::string make_report_kernels(const Capture& capture, const CaptureSummary& summary) {
  if (summary.kernels.empty()) return "";
  uint64_t all_ns = 0;
  for (const KernelSummary& kernel : summary.kernels) all_ns += kernel.total_ns;
  const std::map<uint32_t, KernelStalls> samples = sum_samples(capture);
  const std::map<uint32_t, DramUse> dram_uses = find_dram_use(capture);
  HtmlTable table({{"Kernel"},
                   {"Share", true},
                   {"Total µs", true},
                   {"Count", true},
                   {"Min µs", true},
                   {"Average µs", true},
                   {"p50 µs", true},
                   {"p99 µs", true},
                   {"Max µs", true},
                   {"Latency p50 µs", true},
                   {"Latency p99 µs", true}});
  if (!samples.empty()) {
    table.add_column({"Stalls"});
    table.add_column({"Limited by"});
  }
  const size_t shown = std::min(summary.kernels.size(), kMostKernels);
  for (size_t index = 0; index < shown; ++index) {
    const KernelSummary& kernel = summary.kernels[index];
    const CaptureKernel* found = find_row(capture.kernels, kernel.kernel);
    table.begin_row();
    table.add_name(found == nullptr ? "unknown" : std::string_view(found->name));
    table.add_share(kernel.total_ns, all_ns);
    table.add_time(kernel.total_ns);
    table.add_count(kernel.count);
    for (const uint64_t time_ns :
         {kernel.min_ns, kernel.avg_ns, kernel.p50_ns, kernel.p99_ns, kernel.max_ns}) {
      table.add_time(time_ns);
    }
    for (const uint64_t time_ns : {kernel.latency_p50_ns, kernel.latency_p99_ns}) {
      kernel.latencies > 0 ? table.add_time(time_ns) : table.add_number(0, "–");
    }
    if (samples.empty()) continue;
    const auto sampled = samples.find(kernel.kernel);
    table.add_text(sampled == samples.end() ? "" : describe_first_stall(sampled->second));
    const auto dram = dram_uses.find(kernel.kernel);
    table.add_text(sampled == samples.end()
                       ? ""
                       : list_verdicts(sampled->second, dram == dram_uses.end()
                                                            ? std::optional<double>()
                                                            : dram->second.ratio));
  }
  return table.finish(note_missing(shown, summary.kernels.size(), "Kernels by GPU time"));
}

std::string make_report_operations(const Capture& capture, const CaptureSummary& summary) {
  std::string html;
  const auto add_table = [&](const std::vector<OperationSummary>& rows, std::string_view title) {
    HtmlTable table(
        {{"Call"}, {"Share", true}, {"GPU µs", true}, {"Launches", true}, {"Work", true}});
    const size_t shown = std::min(rows.size(), kMostOperations);
    for (size_t index = 0; index < shown; ++index) {
      table.begin_row();
      table.add_name(name_function(capture, rows[index].function) +
                     make_shape_text(rows[index].shape));
      table.add_share(rows[index].gpu_ns, summary.gpu_ns);
      table.add_time(rows[index].gpu_ns);
      table.add_count(rows[index].launches);
      table.add_count(rows[index].work);
    }
    if (shown > 0) html += table.finish(note_missing(shown, rows.size(), title));
  };
  add_table(summary.outermost, "GPU time by the outermost probed call around the launch");
  add_table(summary.innermost, "By the innermost one");
  return html.empty() ? "" : "<div class=\"pair\">" + html + "</div>\n";
}

std::string make_report_copies(const CaptureSummary& summary) {
  if (summary.copies.empty()) return "";
  HtmlTable table({{"Kind"}, {"Count", true}, {"Bytes", true}, {"Total µs", true}, {"GB/s", true}});
  for (const CopySummary& copy : summary.copies) {
    table.begin_row();
    table.add_text(get_copy_direction_name(copy.is_set, copy.direction));
    table.add_count(copy.count);
    table.add_count(copy.bytes);
    table.add_time(copy.total_ns);
    const double rate = copy.total_ns == 0
                            ? 0
                            : static_cast<double>(copy.bytes) / static_cast<double>(copy.total_ns);
    table.add_number(static_cast<uint64_t>(rate * 1000), fmt::format("{:.2f}", rate));
  }
  return table.finish("Copies and memsets");
}

}  // namespace gpuperf
