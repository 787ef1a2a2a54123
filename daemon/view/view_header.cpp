#include "daemon/view/view_header.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <map>

#include "daemon/view/escape.h"

namespace gpuperf {

namespace {

std::string_view describe_weight(ViewWeight weight) {
  switch (weight) {
    case ViewWeight::kGpuTime:
      return "GPU time";
    case ViewWeight::kCpuTime:
      return "CPU time in probed calls";
    case ViewWeight::kOffCpuTime:
      return "Off-CPU time in probed calls";
    case ViewWeight::kIdleTime:
      return "GPU idle time";
  }
  return "Time";
}

std::string format_percent(uint64_t part, uint64_t whole) {
  if (whole == 0) return "none";
  // Never rounded up to all.
  const uint64_t thousandths = part * 1000 / whole;
  return fmt::format("{}.{} %", thousandths / 10, thousandths % 10);
}

void add_missing(std::string& text, uint64_t count, std::string_view what) {
  if (count == 0) return;
  text += fmt::format("{}{} {}", text.empty() ? "" : ", ", format_grouped(count, 0), what);
}

}  // namespace

std::string format_duration(uint64_t duration_ns) {
  if (duration_ns >= 1'000'000'000) return format_grouped(duration_ns / 1'000'000, 3) + " s";
  if (duration_ns >= 1'000'000) return format_grouped(duration_ns / 1000, 3) + " ms";
  return format_grouped(duration_ns, 3) + " µs";
}

std::string describe_window(const Capture& capture) {
  const auto seconds = static_cast<std::time_t>(capture.start_unix_ns / 1'000'000'000);
  std::string text = fmt::format("{:%Y-%m-%d %H:%M:%S} UTC, {}", fmt::gmtime(seconds),
                                 format_duration(capture.duration_ns));
  if (!capture.host.empty()) text += " on " + capture.host;
  if (capture.id != 0) text += fmt::format(", capture {}", capture.id);
  if (!capture.name.empty()) text += fmt::format(" “{}”", capture.name);
  return text;
}

std::string describe_matches(const Capture& capture) {
  const CaptureMatches& matches = capture.matches;
  const auto count = [&](LaunchMatch match) {
    return matches.launches[static_cast<size_t>(match)];
  };
  std::string missing;
  add_missing(missing, count(LaunchMatch::kAmbiguous), "launches ambiguous");
  add_missing(missing, count(LaunchMatch::kNoHit), "seen by CUPTI alone");
  add_missing(missing, count(LaunchMatch::kNoCall), "seen by the probe alone");
  add_missing(missing, matches.launches_no_stack, "without a stack");
  add_missing(missing, matches.work_no_call, "pieces of work without a launch");
  return fmt::format("{} of {} pieces of GPU work matched to their launch; missing: {}",
                     format_percent(matches.work_matched, matches.work),
                     format_grouped(matches.work, 0), missing.empty() ? "nothing" : missing);
}

std::string describe_gaps(const Capture& capture) {
  struct Sum {
    uint64_t times = 0;
    uint64_t duration_ns = 0;
    uint64_t records = 0;
  };
  std::map<std::string, Sum> causes;
  for (const CaptureGap& gap : capture.gaps) {
    Sum& sum = causes[gap.cause];
    ++sum.times;
    sum.duration_ns += gap.duration_ns;
    sum.records += gap.count;
  }
  std::string text;
  for (const auto& [cause, sum] : causes) {
    text += fmt::format("{}{} {}×, {}", text.empty() ? "" : "; ", cause, sum.times,
                        format_duration(sum.duration_ns));
    if (sum.records > 0) text += fmt::format(", {} records", format_grouped(sum.records, 0));
  }
  return text.empty() ? "" : "Not recorded throughout: " + text;
}

ViewHeader make_view_header(const Capture& capture, const ViewOptions& options, uint64_t shown_ns) {
  ViewHeader header;
  header.title = options.title;
  if (header.title.empty()) {
    header.title = fmt::format("{} by host stack", describe_weight(options.weight));
    if (!capture.host.empty()) header.title += ", " + capture.host;
  }
  header.lines.push_back(fmt::format("{} {}; {}", describe_weight(options.weight),
                                     format_duration(shown_ns), describe_window(capture)));
  header.lines.push_back(describe_matches(capture));
  if (options.with_stalls && options.weight == ViewWeight::kGpuTime && !capture.stalls.empty()) {
    uint64_t samples = 0;
    for (const CaptureStall& row : capture.stalls) samples += row.samples;
    header.lines.push_back(fmt::format(
        "[GPU_Stall] below a kernel: its time by the shares of its PC samples ({} in all)",
        format_grouped(samples, 0)));
  }
  if (std::string gaps = describe_gaps(capture); !gaps.empty()) {
    header.lines.push_back(std::move(gaps));
  }
  return header;
}

}  // namespace gpuperf
