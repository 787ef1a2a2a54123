#include "client/slow_call_text.h"

#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "client/gpu_during_text.h"
#include "client/stack_text.h"
#include "client/time_split_text.h"
#include "client/wait_text.h"

namespace gpuperf::client {
namespace {

constexpr int kLabelWidth = 11;

std::string make_line(std::string_view label, std::string_view value, const TextStyle& style) {
  return render_labelled(label, kLabelWidth, value, style);
}

std::string describe_reason(const v1::SlowCall& call) {
  if (call.reason() == "absolute") return "the threshold configured for this function";
  if (call.reason() == "adaptive") {
    return "a multiple of this function's own p99 over the last minute (slow.adaptive_factor)";
  }
  return call.reason().empty() ? "reason not given" : make_printable(call.reason());
}

// "took 25.0 ms"; what else became of it where it did not return.
std::string describe_outcome(const v1::SlowCall& call) {
  const std::string duration = format_duration(call.duration_ns());
  if (call.in_flight()) return fmt::format("is still in flight after {}", duration);
  if (call.state() == "gone") return fmt::format("was left after {} without returning", duration);
  if (call.state() == "unfinished") {
    return fmt::format("had taken {} when gpuperfd ended", duration);
  }
  return fmt::format("took {}", duration);
}

std::string render_summary(const v1::SlowCall& call, const TextStyle& style) {
  std::string text =
      fmt::format("Slow call {}: {} ({}) {}", call.id(), make_printable(call.function()),
                  make_printable(call.category()), describe_outcome(call));
  if (call.threshold_ns() > 0) {
    const double times =
        static_cast<double>(call.duration_ns()) / static_cast<double>(call.threshold_ns());
    text += fmt::format(", {:.1f} times its threshold of {}", times,
                        format_duration(call.threshold_ns()));
  }
  return paint(text, Tone::kHeader, style) + "\n";
}

std::string render_explanation(const v1::SlowCall& call, const TextStyle& style) {
  const std::vector<std::string> lines = absl::StrSplit(call.explanation(), '\n');
  std::string text;
  for (const std::string& line : lines) {
    text += wrap(make_printable(line), style.columns, "");
  }
  return text;
}

// The probed calls it made and those it was made from.
std::string render_neighbours(const v1::SlowCall& call, const TextStyle& style) {
  std::vector<std::string> inside;
  for (const v1::NestedCalls& row : call.children()) {
    inside.push_back(fmt::format("{} x {} {}", format_count(row.calls()),
                                 make_printable(row.function()), format_duration(row.total_ns())));
    if (!row.category().empty()) {
      inside.back() += fmt::format(" ({})", make_printable(row.category()));
    }
  }
  std::vector<std::string> around;
  for (const std::string& function : call.outer()) around.push_back(make_printable(function));
  std::string text;
  if (!inside.empty()) text += wrap("Inside: " + absl::StrJoin(inside, ", "), style.columns, "");
  if (!around.empty()) {
    text += wrap("Called within: " + absl::StrJoin(around, " > "), style.columns, "");
  }
  return text;
}

std::string describe_when(const v1::SlowCall& call, uint64_t now_unix_ns) {
  std::string text = fmt::format("{} {}", format_local_time(call.start_unix_ns()),
                                 format_utc_offset(call.start_unix_ns()));
  if (now_unix_ns > call.start_unix_ns()) {
    text += fmt::format(", {} ago", format_duration(now_unix_ns - call.start_unix_ns()));
  }
  text +=
      fmt::format("; CLOCK_MONOTONIC {:.9f} s", static_cast<double>(call.start_mono_ns()) / 1e9);
  return text;
}

std::string describe_place(const v1::SlowCall& call) {
  std::string text;
  const auto add = [&text](std::string_view what, const std::string& value) {
    if (value.empty()) return;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", what, make_printable(value));
  };
  add("container", call.container());
  add("pod", call.pod());
  add("namespace", call.namespace_());
  return text;
}

std::string render_arguments(const v1::SlowCall& call, const TextStyle& style) {
  if (call.arguments().empty()) {
    return make_line("Arguments", "not kept (calls nested too deep)", style);
  }
  std::string text = make_line("Arguments", "at entry", style);
  int widest = 0;
  for (const v1::Argument& argument : call.arguments()) {
    widest = std::max(widest, measure_width(make_printable(argument.name())));
  }
  for (const v1::Argument& argument : call.arguments()) {
    const std::string name = make_printable(argument.name());
    const std::string blanks(static_cast<size_t>(widest - measure_width(name)), ' ');
    text += fmt::format("  {}{} = {}\n", name, blanks, make_printable(argument.value()));
  }
  return text;
}

// Why a stack does not lead to its thread's first frame; empty = it does.
std::string_view explain_stack_end(std::string_view end) {
  constexpr std::pair<std::string_view, std::string_view> kEnds[] = {
      {"cut", "further frames are not kept"},
      {"unknown",
       "new code, while too many stacks were new at the same time: later stacks go further"},
      {"unreadable", "the memory above could not be read"},
      {"broken", "the code here has no information about its caller"},
  };
  const auto row =
      std::ranges::find(kEnds, end, &std::pair<std::string_view, std::string_view>::first);
  return row == std::end(kEnds) ? std::string_view() : row->second;
}

std::string render_stack(const v1::SlowCall& call, const TextStyle& style) {
  if (call.user_stack().empty()) {
    return make_line("Stack",
                     "none (slow.stacks is off, or it was dropped: see Drops in gpuperfctl status)",
                     style);
  }
  std::string text = make_line("Stack", "of the caller, innermost frame first", style) +
                     render_frames(call.user_stack(), "  ");
  const std::string_view why = explain_stack_end(call.user_stack_end());
  if (!why.empty()) text += fmt::format("       ends here: {}\n", why);
  return text;
}

std::string describe_duration(const v1::SlowCall& call) {
  std::string text = format_duration(call.duration_ns());
  if (call.in_flight()) text += " so far";
  if (call.threshold_ns() > 0) {
    text += fmt::format(", at least {}: {}", format_duration(call.threshold_ns()),
                        describe_reason(call));
  }
  return text;
}

std::string describe_return(const v1::SlowCall& call) {
  const std::string& state = call.state();
  if (call.in_flight()) {
    if (state.empty()) return "not yet";
    return "not yet: " + (state == "runnable" ? "waiting for CPU" : make_printable(state));
  }
  if (state == "gone") {
    return "never: its thread left it without returning (longjmp, exception or exit)";
  }
  if (state == "unfinished") return "not seen: gpuperfd ended before it did";
  if (!call.return_value().empty()) return make_printable(call.return_value());
  return state.empty() ? "not seen" : "not seen: " + make_printable(state);
}

std::string render_facts(const v1::SlowCall& call, uint64_t now_unix_ns, const TextStyle& style) {
  const std::string who = fmt::format("thread {} ({}) of process {}", call.tid(),
                                      make_printable(call.comm()), call.pid());
  const std::string place = describe_place(call);
  return make_line("When", describe_when(call, now_unix_ns), style) + make_line("Who", who, style) +
         (place.empty() ? "" : make_line("Where", place, style)) +
         make_line("Duration", describe_duration(call), style) +
         make_line("Returned", describe_return(call), style) + render_arguments(call, style) +
         render_stack(call, style);
}

}  // namespace

std::string explain_slow_call(const v1::SlowCall& call, uint64_t now_unix_ns,
                              const TextStyle& style) {
  std::string text = render_summary(call, style);
  for (const std::string& section :
       {render_explanation(call, style), render_time_split(call, style), render_gpu(call, style),
        render_waits(call, style), render_neighbours(call, style),
        render_facts(call, now_unix_ns, style)}) {
    if (!section.empty()) text += "\n" + section;
  }
  return text;
}

std::string describe_return_shortly(const v1::SlowCall& call) {
  if (call.in_flight()) return "in flight";
  return call.return_value().empty() ? call.state() : call.return_value();
}

}  // namespace gpuperf::client
