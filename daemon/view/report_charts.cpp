#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "daemon/view/call_path.h"
#include "daemon/view/device_busy.h"
#include "daemon/view/escape.h"
#include "daemon/view/frame_text.h"
#include "daemon/view/html_table.h"
#include "daemon/view/report_tables.h"
#include "daemon/view/rows.h"
#include "daemon/view/view_header.h"

namespace gpuperf {

namespace {

// One column of a chart.
struct Bar {
  std::string label;  // below it; empty = none
  std::string title;
  uint64_t value = 0;
};

std::string draw_bars(const std::vector<Bar>& bars, std::string_view caption) {
  uint64_t most = 1;
  for (const Bar& bar : bars) most = std::max(most, bar.value);
  std::string html = fmt::format("<figure><figcaption>{}</figcaption><div class=\"bars\">",
                                 escape_markup(caption));
  for (const Bar& bar : bars) {
    const double height = 100.0 * static_cast<double>(bar.value) / static_cast<double>(most);
    html += fmt::format(
        "<div class=\"column\" title=\"{}\"><div class=\"fill\" style=\"height:{:.1f}%\"></div>"
        "<span>{}</span></div>",
        escape_markup(bar.title), bar.value > 0 && height < 1 ? 1 : height,
        escape_markup(bar.label));
  }
  return html + "</div></figure>\n";
}

std::string format_short(uint64_t time_ns) {
  if (time_ns >= 1'000'000'000) return fmt::format("{} s", time_ns / 1'000'000'000);
  if (time_ns >= 1'000'000) return fmt::format("{} ms", time_ns / 1'000'000);
  if (time_ns >= 1000) return fmt::format("{} µs", time_ns / 1000);
  return fmt::format("{} ns", time_ns);
}

// Counts of durations by 1, 2, 5, 10, 20, … from 100 ns on.
class Decades {
 public:
  Decades() {
    for (uint64_t decade = 100; decade <= 10'000'000'000; decade *= 10) {
      for (const uint64_t step : {1, 2, 5}) edges_.push_back(decade * step);
    }
    counts_.resize(edges_.size() + 1);
    sums_ns_.resize(edges_.size() + 1);
  }
  void add(uint64_t time_ns, uint64_t count) {
    const auto above = std::upper_bound(edges_.begin(), edges_.end(), time_ns);
    counts_[above - edges_.begin()] += count;
    sums_ns_[above - edges_.begin()] += time_ns * count;
  }
  // From the first to the last that is not empty.
  std::vector<Bar> list(bool by_sum, std::string_view what) const {
    size_t first = 0;
    size_t last = counts_.size();
    while (first < last && counts_[first] == 0) ++first;
    while (last > first && counts_[last - 1] == 0) --last;
    std::vector<Bar> bars;
    for (size_t bin = first; bin < last; ++bin) {
      const std::string from = bin == 0 ? "0" : format_short(edges_[bin - 1]);
      const std::string to = bin == edges_.size() ? "∞" : format_short(edges_[bin]);
      bars.push_back(
          {.label = from,
           .title = fmt::format("{} to {}: {} {}", from, to, format_grouped(counts_[bin], 0), what),
           .value = by_sum ? sums_ns_[bin] : counts_[bin]});
      if (by_sum) bars.back().title += ", " + format_duration(sums_ns_[bin]);
    }
    return bars;
  }

 private:
  std::vector<uint64_t> edges_;
  std::vector<uint64_t> counts_;
  std::vector<uint64_t> sums_ns_;
};

std::string_view explain_cause(IdleCause cause) {
  switch (cause) {
    case IdleCause::kUnknown:
      return "unknown: no known launch of the next work";
    case IdleCause::kElsewhere:
      return "host busy elsewhere: in its own code, or without a CPU";
    case IdleCause::kWaiting:
      return "host waiting for a GPU";
    case IdleCause::kLaunching:
      return "host launching";
    case IdleCause::kLaunched:
      return "launched: work was on its way to the GPU";
  }
  return "unknown";
}

std::string draw_split(const DeviceSummary& device) {
  const uint64_t window_ns = device.busy_ns + device.idle_ns;
  std::string parts;
  std::string legend;
  const auto add = [&](std::string_view colour, std::string_view what, uint64_t time_ns) {
    if (time_ns == 0 || window_ns == 0) return;
    const double percent = 100.0 * static_cast<double>(time_ns) / static_cast<double>(window_ns);
    parts += fmt::format("<div class=\"{}\" style=\"width:{:.3f}%\" title=\"{}: {}\"></div>",
                         colour, percent, what, format_duration(time_ns));
    legend +=
        fmt::format("<span class=\"key\"><span class=\"swatch {}\"></span>{}: {} ({:.1f} %)</span>",
                    colour, what, format_duration(time_ns), percent);
  };
  add("busy", "busy", device.busy_ns);
  for (const IdleCause cause : {IdleCause::kLaunched, IdleCause::kLaunching, IdleCause::kWaiting,
                                IdleCause::kElsewhere, IdleCause::kUnknown}) {
    const auto index = static_cast<size_t>(cause);
    add(fmt::format("cause{}", index), explain_cause(cause), device.idle_split_ns[index]);
  }
  std::string note;
  if (device.edges_ns > 0) {
    note = fmt::format(
        "<p class=\"quiet\">Share of the time between the first and the last GPU work; the {} of "
        "the capture before and after do not count.</p>\n",
        format_duration(device.edges_ns));
  }
  return fmt::format("<div class=\"split\">{}</div><div class=\"keys\">{}</div>\n{}", parts, legend,
                     note);
}

// The innermost function of the host on the way to a launch: what to look for in a program.
std::string name_launcher(const Capture& capture, uint32_t launch, PathTable& table) {
  const CaptureLaunch* found = find_row(capture.launches, launch);
  if (found == nullptr) return "unknown";
  const std::vector<uint32_t>& frames = table.get_frames(table.find_path(*found));
  for (const FrameKind kind : {FrameKind::kPython, FrameKind::kNative, FrameKind::kCuda}) {
    for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
      if (table.get_kind(*frame) == kind) return table.get_text(*frame);
    }
  }
  return "[no stack]";
}

std::string list_gaps(const Capture& capture, const DeviceSummary& device, PathTable& table) {
  HtmlTable rows({{"At ms", true}, {"Idle µs", true}, {"Mostly"}, {"Ended by a launch in"}});
  for (const DeviceGap& gap : device.longest_gaps) {
    const uint64_t at_ns = gap.start_mono_ns - capture.start_mono_ns;
    rows.begin_row(fmt::format("data-at=\"{}\" data-for=\"{}\"", at_ns, gap.duration_ns));
    rows.add_number(at_ns, format_grouped(at_ns / 1000, 3));
    rows.add_time(gap.duration_ns);
    rows.add_text(explain_cause(gap.cause).substr(0, explain_cause(gap.cause).find(':')));
    rows.add_name(name_launcher(capture, gap.launch, table));
  }
  return rows.finish("Longest gaps; a click shows one in the timeline");
}

Decades count_gaps(const std::vector<BusyStretch>& busy) {
  Decades gaps;
  for (size_t i = 1; i < busy.size(); ++i) {
    const uint64_t idle_since_ns = busy[i - 1].end_mono_ns;
    if (busy[i].start_mono_ns > idle_since_ns) {
      gaps.add(busy[i].start_mono_ns - idle_since_ns, 1);
    }
  }
  return gaps;
}

Decades count_histogram(const Histogram& histogram) {
  Decades counts;
  for (const Histogram::Bucket& bucket : histogram.buckets()) {
    counts.add(bucket_lower_ns(bucket.index), bucket.count);
  }
  return counts;
}

}  // namespace

std::string make_report_idle(const Capture& capture, const CaptureSummary& summary) {
  const std::vector<std::vector<BusyStretch>> busy = list_busy_stretches(capture);
  PathTable table(capture, {.with_lines = true});
  std::string html;
  for (const DeviceSummary& device : summary.devices) {
    if (device.device >= busy.size() || device.device >= capture.devices.size()) continue;
    if (device.work == 0 && summary.devices.size() > 1) continue;
    html +=
        fmt::format("<h3>{}</h3>\n",
                    escape_markup(fmt::format("GPU {}", capture.devices[device.device].number)));
    html += draw_split(device);
    if (device.gaps == 0) continue;
    const Decades gaps = count_gaps(busy[device.device]);
    html += "<div class=\"pair\">" +
            draw_bars(gaps.list(true, "gaps"), "Idle time by length of gap") +
            list_gaps(capture, device, table) + "</div>\n";
  }
  return html;
}

std::string make_report_launches(const Capture&, const CaptureSummary& summary) {
  const LaunchLatency& launches = summary.launch_latency;
  if (launches.latency.count() == 0) return "";
  HtmlTable table({{"From the launch call to its first work"},
                   {"p50 µs", true},
                   {"p90 µs", true},
                   {"p99 µs", true},
                   {"Sum µs", true},
                   {"Share", true}});
  const auto add = [&](std::string_view what, const Histogram& histogram, uint64_t sum_ns) {
    table.begin_row();
    table.add_text(what);
    for (const double quantile : {0.5, 0.9, 0.99}) table.add_time(histogram.quantile_ns(quantile));
    table.add_time(sum_ns);
    table.add_share(sum_ns, launches.latency_ns);
  };
  add("whole latency", launches.latency, launches.latency_ns);
  add("of it behind other work of its stream", launches.stream_wait, launches.stream_wait_ns);
  add("of it for the device, the call included", launches.device_wait, launches.device_wait_ns);
  std::string html = "<div class=\"pair\">";
  html +=
      draw_bars(count_histogram(launches.latency).list(false, "launches"), "Launches by latency");
  html += table.finish("Launch latency") + "</div>\n";
  if (launches.before_call > 0) {
    html += fmt::format(
        "<p class=\"quiet\">{} launches seem to start before their call, because clocks differ; "
        "they are not included.</p>\n",
        format_grouped(launches.before_call, 0));
  }
  return html;
}

}  // namespace gpuperf
