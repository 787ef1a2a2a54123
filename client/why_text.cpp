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

std::string_view get_verdict_name(v1::TimeVerdict verdict) {
  switch (verdict) {
    case v1::TIME_VERDICT_GPU_BOUND:
      return "GPU-bound";
    case v1::TIME_VERDICT_LAUNCH_BOUND:
      return "launch-bound";
    case v1::TIME_VERDICT_INPUT_BOUND:
      return "input-bound";
    case v1::TIME_VERDICT_COMMUNICATION_BOUND:
      return "communication-bound";
    case v1::TIME_VERDICT_IDLE:
      return "idle";
    default:
      return "limit not known";
  }
}

std::string_view get_cause_name(v1::TimeCause cause) {
  switch (cause) {
    case v1::TIME_CAUSE_GPU_COMPUTING:
      return "GPU computing";
    case v1::TIME_CAUSE_GPU_COMMUNICATING:
      return "GPU in NCCL kernels only";
    case v1::TIME_CAUSE_GPU_COPYING:
      return "GPU copying only";
    case v1::TIME_CAUSE_HOST_COMPUTING:
      return "GPU idle: host computing";
    case v1::TIME_CAUSE_HOST_BLOCKED:
      return "GPU idle: host blocked";
    case v1::TIME_CAUSE_NO_CPU:
      return "GPU idle: host without a CPU";
    case v1::TIME_CAUSE_INPUT:
      return "GPU idle: waiting for input or a copy";
    case v1::TIME_CAUSE_PEER:
      return "GPU idle: waiting for a peer";
    case v1::TIME_CAUSE_LAUNCHING:
      return "GPU idle: launching, and the way to the GPU";
    case v1::TIME_CAUSE_GPU_OF_OTHERS:
      return "GPU busy with other processes";
    case v1::TIME_CAUSE_NOTHING:
      return "GPU idle: nothing to do";
    default:
      return "not known";
  }
}

// "42.0 %": in one column, whatever the share.
std::string format_share(double ratio) { return fmt::format("{:.1f} %", ratio * 100); }

std::string render_parts(const v1::ProcessTime& process, const TextStyle& style) {
  constexpr auto kRight = Column::Align::kRight;
  Table table({{"SHARE", kRight}, {"TIME", kRight}, {"WALL TIME"}});
  for (const v1::TimeShare& part : process.parts()) {
    table.add_row({{format_share(part.share_ratio())},
                   {format_duration(part.time_ns())},
                   {std::string(get_cause_name(part.cause()))}});
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

std::string render_finding(size_t number, const v1::TimeFinding& finding, const TextStyle& style) {
  const std::string title =
      wrap(fmt::format("{}. {} ({}) {}", number, format_duration(finding.time_ns()),
                       format_share(finding.share_ratio()), make_printable(finding.text())),
           style.columns, "");
  std::string text;
  for (const std::string_view part : split_lines(title)) {
    text += paint(part, Tone::kHeader, style) + "\n";
  }
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

std::string render_process(const v1::ProcessTime& process, size_t findings,
                           const TextStyle& style) {
  std::string title = fmt::format("{} (pid {})", make_printable(process.comm()), process.pid());
  if (!process.pod().empty()) title += ", pod " + make_printable(process.pod());
  if (!process.gpu_uuid().empty()) title += fmt::format(", GPU {}", process.gpu());
  std::string text = paint(fmt::format("{}: {}", title, get_verdict_name(process.verdict())),
                           Tone::kHeader, style) +
                     "\n";
  text += wrap(make_printable(process.summary()), style.columns, "");
  text += "\n" + render_parts(process, style);
  const auto shown = findings == 0 ? static_cast<size_t>(process.findings_size())
                                   : std::min<size_t>(findings, process.findings_size());
  for (size_t i = 0; i < shown; ++i) {
    text += "\n" + render_finding(i + 1, process.findings(static_cast<int>(i)), style);
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
