#include "client/slow_call_text.h"

#include <fmt/format.h>

#include <string_view>

namespace gpuperf::client {
namespace {

constexpr int kLabelWidth = 11;
constexpr double kNsPerSecond = 1e9;

std::string make_line(std::string_view label, std::string_view value, const TextStyle& style) {
  const std::string blanks(kLabelWidth - label.size(), ' ');
  return fmt::format("{}{}{}\n", paint(label, Tone::kHeader, style), blanks, value);
}

std::string describe_reason(const v1::SlowCall& call) {
  if (call.reason() == "absolute") return "the threshold configured for this function";
  return call.reason().empty() ? "reason not given" : make_printable(call.reason());
}

std::string render_summary(const v1::SlowCall& call, const TextStyle& style) {
  std::string text =
      fmt::format("Slow call {}: {} ({}) took {}", call.id(), make_printable(call.function()),
                  make_printable(call.category()), format_duration(call.duration_ns()));
  if (call.threshold_ns() > 0) {
    const double times =
        static_cast<double>(call.duration_ns()) / static_cast<double>(call.threshold_ns());
    text += fmt::format(", {:.1f} times its threshold of {}", times,
                        format_duration(call.threshold_ns()));
  }
  return paint(text, Tone::kHeader, style) + "\n\n";
}

std::string describe_when(const v1::SlowCall& call, uint64_t now_unix_ns) {
  std::string text = fmt::format("{} {}", format_local_time(call.start_unix_ns()),
                                 format_utc_offset(call.start_unix_ns()));
  if (now_unix_ns > call.start_unix_ns()) {
    text += fmt::format(", {} ago", format_duration(now_unix_ns - call.start_unix_ns()));
  }
  text += fmt::format("; CLOCK_MONOTONIC {:.9f} s",
                      static_cast<double>(call.start_mono_ns()) / kNsPerSecond);
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

std::string render_stack(const v1::SlowCall& call, const TextStyle& style) {
  if (call.user_stack().empty()) {
    return make_line("Stack", "none could be walked (no frame pointers, or slow.stacks is off)",
                     style);
  }
  std::string text = make_line("Stack", "of the caller, innermost frame first", style);
  for (int i = 0; i < call.user_stack_size(); ++i) {
    text += fmt::format("  {:3}  {}\n", i, make_printable(describe_frame(call.user_stack(i))));
  }
  return text;
}

}  // namespace

std::string describe_frame(const v1::StackFrame& frame) {
  const std::string offset = fmt::format("+0x{:x}", frame.offset_bytes());
  std::string address = fmt::format("0x{:x}", frame.address());
  if (frame.symbol().empty() && frame.module().empty()) return address;
  if (frame.symbol().empty()) return fmt::format("{}  {}{}", address, frame.module(), offset);
  if (frame.module().empty()) return frame.symbol() + offset;
  return fmt::format("{}{}  ({})", frame.symbol(), offset, frame.module());
}

std::string explain_slow_call(const v1::SlowCall& call, uint64_t now_unix_ns,
                              const TextStyle& style) {
  const std::string who = fmt::format("thread {} ({}) of process {}", call.tid(),
                                      make_printable(call.comm()), call.pid());
  const std::string place = describe_place(call);
  std::string duration = format_duration(call.duration_ns());
  if (call.threshold_ns() > 0) {
    duration += fmt::format(", at least {}: {}", format_duration(call.threshold_ns()),
                            describe_reason(call));
  }
  return render_summary(call, style) + make_line("When", describe_when(call, now_unix_ns), style) +
         make_line("Who", who, style) + (place.empty() ? "" : make_line("Where", place, style)) +
         make_line("Duration", duration, style) +
         make_line("Returned",
                   call.return_value().empty() ? "not seen" : make_printable(call.return_value()),
                   style) +
         render_arguments(call, style) + render_stack(call, style);
}

}  // namespace gpuperf::client
