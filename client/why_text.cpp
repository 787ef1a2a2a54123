#include "client/why_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "client/text.h"

namespace gpuperf::client {
namespace {

constexpr int kShownFrames = 3;    // of a stack, of each kind
constexpr int kFrameColumns = 60;  // names of templates are long

// "42.0 %": in one column, whatever the share.
std::string format_share(double ratio) { return fmt::format("{:.1f} %", ratio * 100); }

using TimeShares = google::protobuf::RepeatedPtrField<v1::TimeShare>;

std::string render_parts(const v1::ProcessTime& process, const TextStyle& style) {
  constexpr auto kRight = Column::Align::kRight;
  Table table({{"SHARE", kRight}, {"TIME", kRight}, {"WALL TIME"}});
  for (const v1::TimeShare& part : process.parts()) {
    table.add_row(
        {{format_share(part.share_ratio())}, {format_duration(part.time_ns())}, {part.text()}});
  }
  return table.take_text(style);
}

// The innermost frames, and the innermost ones of Python: between them may be many of a framework's
// machine code.
std::string render_stack(const v1::TimeFinding& finding, const TextStyle& style) {
  std::vector<int> shown;
  int python = 0;
  for (int i = finding.stack_size() - 1; i >= 0; --i) {
    const bool is_innermost = finding.stack_size() - i <= kShownFrames;
    const bool is_python = finding.stack(i).ends_with(".py)") && python < kShownFrames;
    if (is_python) ++python;
    if (is_innermost || is_python) shown.push_back(i);
  }
  std::string text;
  int last = -1;
  for (auto frame = shown.rbegin(); frame != shown.rend(); ++frame) {
    if (!text.empty()) text += " > ";
    if (*frame > last + 1) text += "… > ";
    text += truncate(make_printable(finding.stack(*frame)), kFrameColumns, Cut::kEnd);
    last = *frame;
  }
  return wrap(text, style.columns, "   ");
}

std::string render_title(const std::string& title, const TextStyle& style) {
  const std::string lines = wrap(title, style.columns, "");
  std::string text;
  for (const std::string_view part : split_lines(lines)) {
    text += paint(part, Tone::kHeader, style) + "\n";
  }
  return text;
}

// `usual`: what is said of its time, "" = nothing.
std::string render_finding(size_t number, const v1::TimeFinding& finding, const TextStyle& style,
                           std::string_view usual = "") {
  std::string text = render_title(
      fmt::format("{}. {} ({}{}) {}", number, format_duration(finding.time_ns()),
                  format_share(finding.share_ratio()), usual, make_printable(finding.text())),
      style);
  std::string facts =
      finding.stretches() == 1
          ? std::string("Once.")
          : fmt::format(
                "{} times, {} on average, {} at most.", format_count(finding.stretches()),
                format_duration(finding.time_ns() / std::max<uint64_t>(finding.stretches(), 1)),
                format_duration(finding.longest_ns()));
  if (finding.tid() != 0) {
    facts += fmt::format(" Thread {}{}.", finding.tid(),
                         finding.thread_comm().empty()
                             ? ""
                             : fmt::format(" ({})", make_printable(finding.thread_comm())));
  }
  if (finding.estimated_ns() > 0) {
    const double share = static_cast<double>(finding.estimated_ns()) /
                         static_cast<double>(std::max<uint64_t>(finding.time_ns(), 1));
    facts += fmt::format(" The place is estimated for {}.", format_share(share));
  }
  if (!finding.detail().empty()) facts += " " + make_printable(finding.detail());
  text += wrap(facts, style.columns, "   ");
  text += render_stack(finding, style);
  if (!finding.advice().empty()) text += wrap(finding.advice(), style.columns, "   ");
  return text + paint("   More: " + make_printable(finding.command()), Tone::kDim, style) + "\n";
}

// "61.0 % GPU computing, 22.1 % GPU idle: host computing".
std::string join_parts(const TimeShares& parts) {
  std::string text;
  for (const v1::TimeShare& part : parts) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", format_share(part.share_ratio()),
                        part.text());
  }
  return text;
}

// Of its differences; `wanted`: 0 = all.
int count_shown(const v1::StepsTime& steps, size_t wanted) {
  return wanted == 0 ? steps.differences_size()
                     : std::min(static_cast<int>(wanted), steps.differences_size());
}

std::string render_steps(const v1::StepsTime& steps, size_t differences, const TextStyle& style) {
  std::string text = render_title(make_printable(steps.summary()), style);
  text += wrap(fmt::format("Their time: {}.", join_parts(steps.parts())), style.columns, "   ");
  if (steps.longest_summary().empty()) return text;
  text += wrap(make_printable(steps.longest_summary()), style.columns, "   ");
  const int shown = count_shown(steps, differences);
  if (shown == 0) return text;
  constexpr auto kRight = Column::Align::kRight;
  Table table({{"MORE", kRight}, {"IN IT", kRight}, {"IN OTHERS", kRight}, {"WHAT"}});
  for (int i = 0; i < shown; ++i) {
    const v1::StepDifference& difference = steps.differences(i);
    const uint64_t time_ns = difference.finding().time_ns();
    table.add_row({{"+" + format_duration(time_ns - std::min(time_ns, difference.usual_ns()))},
                   {format_duration(time_ns)},
                   {format_duration(difference.usual_ns())},
                   {make_printable(difference.finding().text())}});
  }
  return text + table.take_text(style);
}

uint64_t find_time_ns(const TimeShares& parts, v1::TimeCause cause) {
  for (const v1::TimeShare& part : parts) {
    if (part.cause() == cause) return part.time_ns();
  }
  return 0;
}

// The step that was asked for, beside the others of its kind.
std::string render_asked_step(const v1::StepsTime& steps, size_t differences,
                              const TextStyle& style) {
  const uint64_t others = steps.steps() - std::min<uint64_t>(steps.steps(), 1);
  std::string text = wrap(make_printable(steps.summary()), style.columns, "");
  text += wrap(make_printable(steps.longest_summary()), style.columns, "");
  constexpr auto kRight = Column::Align::kRight;
  Table table({{"SHARE", kRight}, {"TIME", kRight}, {"IN OTHERS", kRight}, {"WALL TIME"}});
  for (const v1::TimeShare& part : steps.longest_parts()) {
    const uint64_t all_ns = find_time_ns(steps.parts(), part.cause());
    const uint64_t usual_ns =
        (all_ns - std::min(all_ns, part.time_ns())) / std::max(others, uint64_t{1});
    table.add_row({{format_share(part.share_ratio())},
                   {format_duration(part.time_ns())},
                   {others == 0 ? "" : format_duration(usual_ns)},
                   {part.text()}});
  }
  text += "\n" + table.take_text(style);
  if (others > 0 && steps.differences().empty()) {
    return text + "\nOn nothing it spent a hundredth of its time more than the others.\n";
  }
  const int shown = count_shown(steps, differences);
  for (int i = 0; i < shown; ++i) {
    const v1::StepDifference& difference = steps.differences(i);
    const std::string usual =
        others == 0 ? "" : fmt::format(", {} in others", format_duration(difference.usual_ns()));
    text += "\n" + render_finding(static_cast<size_t>(i) + 1, difference.finding(), style, usual);
  }
  return text;
}

std::string name_process(const v1::ProcessTime& process) {
  std::string name = fmt::format("{} (pid {})", make_printable(process.comm()), process.pid());
  if (!process.pod().empty()) name += ", pod " + make_printable(process.pod());
  if (!process.gpu_uuid().empty()) name += fmt::format(", GPU {}", process.gpu());
  return name;
}

std::string render_process(const v1::ProcessTime& process, size_t findings,
                           const TextStyle& style) {
  const std::string title = name_process(process);
  if (process.steps_size() == 1 && process.steps(0).asked()) {
    return paint(title + ": one step", Tone::kHeader, style) + "\n" +
           render_asked_step(process.steps(0), findings, style);
  }
  std::string text = paint(fmt::format("{}: {}", title, make_printable(process.verdict_text())),
                           Tone::kHeader, style) +
                     "\n";
  text += wrap(make_printable(process.summary()), style.columns, "");
  text += "\n" + render_parts(process, style);
  const auto shown = findings == 0 ? static_cast<size_t>(process.findings_size())
                                   : std::min<size_t>(findings, process.findings_size());
  for (size_t i = 0; i < shown; ++i) {
    text += "\n" + render_finding(i + 1, process.findings(static_cast<int>(i)), style);
  }
  for (const v1::StepsTime& steps : process.steps()) {
    text += "\n" + render_steps(steps, findings, style);
  }
  return text;
}

}  // namespace

std::string render_why(const v1::ExplainCaptureResponse& response, size_t findings,
                       const TextStyle& style) {
  std::string text;
  for (const v1::ProcessTime& process : response.processes()) {
    if (!text.empty()) text += "\n";
    text += render_process(process, findings, style);
  }
  if (text.empty()) {
    text = "No probed call and no GPU work was recorded. Why: gpuperfctl doctor\n";
  }
  for (const std::string& note : response.notes()) {
    text += "\n" + wrap(make_printable(note), style.columns, "");
  }
  return text;
}

}  // namespace gpuperf::client
