#include "client/time_split_text.h"

#include <absl/strings/str_join.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <vector>

namespace gpuperf::client {
namespace {

constexpr int kBarGap = 2;
constexpr int kWidestBar = 30;    // one column is 3 %; with names and figures it fits 80 columns
constexpr int kNarrowestBar = 8;  // a shorter one says less than its figures
constexpr uint32_t kFewSamples = 20;  // one of them is 5 % of the time on the CPU
constexpr double kMuchOnCpu = 0.05;   // of the call: below, its division explains nothing

struct Part {
  std::string name;
  uint64_t total_ns = 0;
};

// A kind of wait: as the daemon calls it, among the bars, and in a column.
struct WaitName {
  std::string_view kind;
  std::string_view name;
  std::string_view short_name;
};
constexpr std::array<WaitName, 7> kWaitNames = {{{"futex", "futex", "futex"},
                                                 {"io", "I/O", "I/O wait"},
                                                 {"poll", "poll", "poll"},
                                                 {"gpu", "GPU", "GPU wait"},
                                                 {"sleep", "sleep", "sleep"},
                                                 {"page_fault", "page fault", "page fault"},
                                                 {"other", "other", "blocked"}}};

// A kind that a newer daemon knows goes by its own name.
std::string find_wait_name(const std::string& kind, std::string_view WaitName::*form) {
  for (const WaitName& row : kWaitNames) {
    if (row.kind == kind) return std::string(row.*form);
  }
  return make_printable(kind);
}

// Time blocked that no kind accounts for counts as "other".
std::vector<v1::BlockedTime> list_blocked(const v1::TimeSplit& split) {
  std::vector<v1::BlockedTime> rows(split.blocked().begin(), split.blocked().end());
  uint64_t missing_ns = split.blocked_ns();
  for (const v1::BlockedTime& row : rows) missing_ns -= std::min(missing_ns, row.total_ns());
  if (missing_ns == 0) return rows;
  const auto is_other = [](const v1::BlockedTime& row) { return row.kind() == "other"; };
  auto other = std::find_if(rows.begin(), rows.end(), is_other);
  if (other == rows.end()) {
    other = rows.insert(rows.end(), v1::BlockedTime());
    other->set_kind("other");
  }
  other->set_total_ns(other->total_ns() + missing_ns);
  return rows;
}

uint64_t get_on_cpu_ns(const v1::TimeSplit& split) {
  return split.on_cpu_user_ns() + split.on_cpu_kernel_ns() + split.on_cpu_fault_ns();
}

void sort_largest_first(std::vector<Part>& parts) {
  std::erase_if(parts, [](const Part& part) { return part.total_ns == 0; });
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Part& a, const Part& b) { return a.total_ns > b.total_ns; });
}

std::vector<Part> list_parts(const v1::TimeSplit& split) {
  std::vector<Part> parts = {{"on CPU: user", split.on_cpu_user_ns()},
                             {"on CPU: kernel", split.on_cpu_kernel_ns()},
                             {"on CPU: page faults", split.on_cpu_fault_ns()},
                             {"waiting for CPU", split.runnable_ns()},
                             {"throttled by cgroup", split.throttled_ns()}};
  for (const v1::BlockedTime& row : list_blocked(split)) {
    parts.push_back({"blocked: " + find_wait_name(row.kind(), &WaitName::name), row.total_ns()});
  }
  sort_largest_first(parts);
  return parts;
}

std::vector<Part> list_short_parts(const v1::TimeSplit& split) {
  std::vector<Part> parts = {{"on CPU", get_on_cpu_ns(split)},
                             {"CPU wait", split.runnable_ns()},
                             {"throttled", split.throttled_ns()}};
  for (const v1::BlockedTime& row : list_blocked(split)) {
    parts.push_back({find_wait_name(row.kind(), &WaitName::short_name), row.total_ns()});
  }
  sort_largest_first(parts);
  return parts;
}

// In floating point: a sum of wrong figures may pass 2^64.
double add_up(const std::vector<Part>& parts) {
  double total_ns = 0;
  for (const Part& part : parts) total_ns += static_cast<double>(part.total_ns);
  return total_ns;
}

// At least a sliver, padded to `columns`. `ratio` is at most 1.
std::string make_bar(double ratio, int columns, const TextStyle& style) {
  constexpr std::array<std::string_view, 8> kEighths = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int steps = style.utf8 ? 8 : 1;
  const int length = std::max(1, static_cast<int>(std::lround(ratio * columns * steps)));
  std::string bar;
  for (int i = 0; i < length / steps; ++i) bar += style.utf8 ? "█" : "#";
  bar += kEighths[static_cast<size_t>(length % steps)];
  const int blanks = columns - (length + steps - 1) / steps;
  return bar + std::string(static_cast<size_t>(blanks), ' ');
}

// Columns for the bars beside names and figures; 0 = no room for any.
int find_bar_columns(int other_columns, const TextStyle& style) {
  if (style.columns == 0) return kWidestBar;
  const int room = style.columns - other_columns;
  return room < kNarrowestBar ? 0 : std::min(room, kWidestBar);
}

std::string render_bars(const std::vector<Part>& parts, const TextStyle& style) {
  const double total_ns = add_up(parts);
  int widest_name = 0;
  int widest_duration = 0;
  int widest_share = 0;
  for (const Part& part : parts) {
    const double ratio = static_cast<double>(part.total_ns) / total_ns;
    widest_name = std::max(widest_name, measure_width(part.name));
    widest_duration = std::max(widest_duration, measure_width(format_duration(part.total_ns)));
    widest_share = std::max(widest_share, measure_width(format_ratio(ratio)));
  }
  const int bar_columns =
      find_bar_columns(widest_name + widest_duration + widest_share + 4 * kBarGap, style);
  const auto pad = [](int width, std::string_view text) {
    return std::string(static_cast<size_t>(width - measure_width(text)), ' ');
  };
  std::string text;
  for (const Part& part : parts) {
    const double ratio = static_cast<double>(part.total_ns) / total_ns;
    const std::string duration = format_duration(part.total_ns);
    const std::string share = format_ratio(ratio);
    text += fmt::format("{}{}{}  ", kIndent, part.name, pad(widest_name, part.name));
    const Tone tone = &part == parts.data() ? Tone::kWarning : Tone::kPlain;
    if (bar_columns > 0) text += paint(make_bar(ratio, bar_columns, style), tone, style) + "  ";
    text += fmt::format("{}{}  {}{}\n", pad(widest_duration, duration), duration,
                        pad(widest_share, share), share);
  }
  return text;
}

// Empty where the samples are enough, or what they divide is little.
std::string describe_samples(const v1::TimeSplit& split, double total_ns) {
  const uint32_t samples = split.cpu_samples();
  const bool little = static_cast<double>(get_on_cpu_ns(split)) <= kMuchOnCpu * total_ns;
  if (samples >= kFewSamples || little) return "";
  if (samples == 0) return "no CPU sample: all CPU time counts as user space";
  return fmt::format("user and kernel split by {} sample{}", samples, samples == 1 ? "" : "s");
}

std::string render_notes(const v1::TimeSplit& split, double total_ns, const TextStyle& style) {
  std::vector<std::string> notes;
  const auto add = [&notes](std::string_view what, uint32_t count) {
    if (count > 0) notes.push_back(fmt::format("{}: {}", what, format_count(count)));
  };
  if (std::string samples = describe_samples(split, total_ns); !samples.empty()) {
    notes.push_back(std::move(samples));
  }
  add("preemptions", split.preemptions());
  add("moves to another CPU", split.migrations());
  add("page faults without the disk", split.minor_faults());
  add("page faults with the disk", split.major_faults());
  return paint(wrap(absl::StrJoin(notes, "; "), style.columns, kIndent), Tone::kDim, style);
}

}  // namespace

std::string describe_main_part(const v1::TimeSplit& split) {
  const std::vector<Part> parts = list_short_parts(split);
  if (parts.empty()) return "";
  const double ratio = static_cast<double>(parts[0].total_ns) / add_up(parts);
  return fmt::format("{} {:.0f} %", parts[0].name, ratio * 100);
}

std::string render_time_split(const v1::SlowCall& call, const TextStyle& style) {
  if (!call.has_time_split()) {
    return wrap(
        "Where the time went is not known: the call could not be kept (nested too deep), or "
        "slow.time_split is off.",
        style.columns, "");
  }
  const std::string title =
      fmt::format("Where the time went{} ({})", call.in_flight() ? " so far" : "",
                  format_duration(call.duration_ns()));
  const std::vector<Part> parts = list_parts(call.time_split());
  const std::string bars =
      parts.empty() ? fmt::format("{}every part is zero\n", kIndent) : render_bars(parts, style);
  return paint(title, Tone::kHeader, style) + "\n" + bars +
         render_notes(call.time_split(), add_up(parts), style);
}

}  // namespace gpuperf::client
