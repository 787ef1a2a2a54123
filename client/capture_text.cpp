#include "client/capture_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "client/text.h"

namespace gpuperf::client {
namespace {

Tone find_state_tone(v1::CaptureState state) {
  if (state == v1::CAPTURE_STATE_FAILED) return Tone::kBad;
  return state == v1::CAPTURE_STATE_STORED ? Tone::kGood : Tone::kWarning;
}

std::string format_some(uint64_t count) { return count == 0 ? "" : format_count(count); }

std::string describe_target(const v1::CaptureTarget& target) {
  std::string text;
  if (target.pid() != 0) text += fmt::format("pid {}", target.pid());
  if (target.with_children()) text += " and its children";
  for (const auto& [what, value] :
       {std::pair("container", target.container()), std::pair("pod", target.pod())}) {
    if (!value.empty()) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", what, value);
  }
  return text.empty() ? "every process" : text;
}

}  // namespace

std::string render_captures(const std::vector<v1::Capture>& captures, const TextStyle& style) {
  constexpr auto kRight = Column::Align::kRight;
  Table table({{"ID", kRight},
               {.title = "NAME", .optional = true, .shrink_to = 12},
               {"STATE"},
               {"TRIGGER"},
               {"START"},
               {"LENGTH", kRight},
               {.title = "TARGET", .shrink_to = 12},
               {"EVENTS", kRight},
               {.title = "LOST", .align = kRight, .optional = true},
               {.title = "LAUNCHES", .align = kRight, .optional = true},
               {.title = "WORK", .align = kRight, .optional = true},
               {.title = "MATCHED", .align = kRight, .optional = true},
               {.title = "SIZE", .align = kRight, .optional = true},
               {.title = "PROBLEM", .optional = true, .shrink_to = 30}});
  for (const v1::Capture& row : captures) {
    const double matched =
        row.work() == 0 ? 0
                        : static_cast<double>(row.work_matched()) / static_cast<double>(row.work());
    table.add_row({{std::to_string(row.id())},
                   {row.name()},
                   {make_short_name(row.state()), find_state_tone(row.state())},
                   {row.trigger()},
                   {format_local_time(row.start_unix_ns())},
                   {row.duration_ns() == 0 ? "" : format_duration(row.duration_ns())},
                   {describe_target(row.target())},
                   {format_count(row.events())},
                   {format_some(row.lost_events()), Tone::kWarning},
                   {format_some(row.launches())},
                   {format_some(row.work())},
                   {row.work() == 0 ? "" : format_ratio(matched)},
                   {row.stored_bytes() == 0 ? "" : format_bytes(row.stored_bytes())},
                   {row.problem(), Tone::kBad}});
  }
  return table.take_text(style);
}

std::string describe_capture(const v1::Capture& capture, const v1::CaptureMatches* matches,
                             const TextStyle& style) {
  std::string text;
  const auto add = [&](std::string_view name, const std::string& value) {
    if (!value.empty()) text += fmt::format("{:<12}{}\n", name, make_printable(value));
  };
  add("capture",
      fmt::format("{}{}", capture.id(), capture.name().empty() ? "" : ", " + capture.name()));
  text +=
      fmt::format("{:<12}{}\n", "state",
                  paint(make_short_name(capture.state()), find_state_tone(capture.state()), style));
  add("problem", capture.problem());
  add("trigger", capture.trigger());
  add("target", describe_target(capture.target()));
  add("start", format_local_time(capture.start_unix_ns()));
  add("length", capture.duration_ns() == 0 ? "" : format_duration(capture.duration_ns()));
  add("events", fmt::format("{}, lost {}", format_count(capture.events()),
                            format_count(capture.lost_events())));
  add("size", capture.stored_bytes() == 0 ? "" : format_bytes(capture.stored_bytes()));
  if (matches == nullptr) return text;
  add("launches", fmt::format("{} exact, {} ambiguous, {} without a hit, {} without a call, {} "
                              "without a stack",
                              format_count(matches->launches_exact()),
                              format_count(matches->launches_ambiguous()),
                              format_count(matches->launches_no_hit()),
                              format_count(matches->launches_no_call()),
                              format_count(matches->launches_no_stack())));
  add("GPU work",
      fmt::format("{}, {} matched, {} without their call's record", format_count(matches->work()),
                  format_count(matches->work_matched()), format_count(matches->work_no_call())));
  add("graph nodes", matches->nodes() == 0 ? ""
                                           : fmt::format("{}, {} with their capture site",
                                                         format_count(matches->nodes()),
                                                         format_count(matches->nodes_placed())));
  return text;
}

std::string describe_progress(const v1::Capture& capture, uint64_t now_unix_ns) {
  std::string text = make_short_name(capture.state());
  if (capture.state() == v1::CAPTURE_STATE_SCHEDULED && capture.start_unix_ns() > now_unix_ns) {
    return text + ", begins in " + format_duration(capture.start_unix_ns() - now_unix_ns);
  }
  text += fmt::format(", {} events", format_count(capture.events()));
  return text;
}

std::string describe_recorder(const v1::Recorder& recorder) {
  if (!recorder.enabled())
    return "The flight recorder is off: set trace.recorder = true and restart gpuperfd";
  return "The flight recorder " + describe_recorder_content(recorder);
}

std::string describe_recorder_content(const v1::Recorder& recorder) {
  if (recorder.events() == 0) return "is empty: no probed call and no GPU work was seen lately";
  return fmt::format("holds the last {}: {} events, {} of {}", format_duration(recorder.span_ns()),
                     format_count(recorder.events()), format_bytes(recorder.bytes()),
                     format_bytes(recorder.max_bytes()));
}

std::string render_capture(const v1::GetCaptureResponse& response, Format format,
                           const TextStyle& style) {
  if (format != Format::kTable) {
    return render_message(response.capture(), format, JsonShape::kIndented, style);
  }
  return render_captures({response.capture()}, style);
}

}  // namespace gpuperf::client
