// The part of a report that says where the time went.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "daemon/view/escape.h"
#include "daemon/view/html_table.h"
#include "daemon/view/report_tables.h"
#include "daemon/view/rows.h"
#include "daemon/view/time_use.h"
#include "daemon/view/time_words.h"
#include "daemon/view/view_header.h"

namespace gpuperf {
namespace {

constexpr size_t kMostProcesses = 16;
constexpr size_t kMostFindings = 20;
constexpr size_t kShownFrames = 8;

std::string name_use(const Capture& capture, const ProcessTimeUse& use) {
  const CaptureProcess& process = capture.processes[use.process];
  std::string name = fmt::format("{} ({})", process.owner.comm, process.process.pid);
  if (const CaptureDevice* device = find_row(capture.devices, use.device); device != nullptr) {
    name += fmt::format(", GPU {}", device->number);
  }
  return fmt::format("{}: {}", name, get_verdict_text(use.verdict));
}

std::string join_stack(const TimeFinding& finding) {
  const size_t begin =
      finding.stack.size() > kShownFrames ? finding.stack.size() - kShownFrames : 0;
  std::string text = begin > 0 ? "…" : "";
  for (size_t i = begin; i < finding.stack.size(); ++i) {
    text += (text.empty() ? "" : " > ") + finding.stack[i];
  }
  return text;
}

std::string list_parts(const std::array<uint64_t, kTimeCauses>& parts_ns, uint64_t all_ns,
                       std::string_view caption) {
  std::vector<size_t> causes;
  for (size_t i = 0; i < kTimeCauses; ++i) {
    if (parts_ns[i] > 0) causes.push_back(i);
  }
  std::ranges::stable_sort(causes, std::ranges::greater(),
                           [&](size_t cause) { return parts_ns[cause]; });
  HtmlTable table({{"Wall time"}, {"Share", true}, {"Total µs", true}});
  for (const size_t cause : causes) {
    table.begin_row();
    table.add_text(describe_cause(static_cast<TimeCause>(cause)));
    table.add_share(parts_ns[cause], all_ns);
    table.add_time(parts_ns[cause]);
  }
  return table.finish(caption);
}

std::string list_findings(const Capture& capture, const ProcessTimeUse& use) {
  HtmlTable table({{"What"},
                   {"Share", true},
                   {"Total µs", true},
                   {"Times", true},
                   {"Longest µs", true},
                   {"Where"},
                   {"Do"}});
  const size_t shown = std::min(use.findings.size(), kMostFindings);
  for (size_t i = 0; i < shown; ++i) {
    const TimeFinding& finding = use.findings[i];
    const std::string detail = describe_detail(capture, finding);
    table.begin_row();
    table.add_text(describe_finding(finding) + (detail.empty() ? "" : ". " + detail));
    table.add_share(finding.time_ns, use.wall_ns);
    table.add_time(finding.time_ns);
    table.add_count(finding.stretches);
    table.add_time(finding.longest_ns);
    table.add_name(join_stack(finding));
    table.add_text(advise(finding.reason));
  }
  return table.finish("What takes the time, and what to do");
}

std::string list_steps(const Capture& capture, const ProcessTimeUse& use) {
  std::string html;
  for (const StepUse& steps : use.steps) {
    html += fmt::format("<p>{} {}</p>\n", escape_markup(summarise_steps(capture, steps)),
                        escape_markup(describe_longest(capture, steps)));
    html += list_parts(steps.parts_ns, steps.total_ns,
                       "What the time of these steps went into; adds up to 100 %");
    if (steps.differences.empty()) continue;
    HtmlTable table({{"What"}, {"Longest step µs", true}, {"Others µs, on average", true}});
    const size_t shown = std::min(steps.differences.size(), kMostFindings);
    for (size_t i = 0; i < shown; ++i) {
      const StepDifference& difference = steps.differences[i];
      table.begin_row();
      table.add_text(describe_finding(difference.finding));
      table.add_time(difference.finding.time_ns);
      table.add_time(difference.usual_ns);
    }
    html += table.finish("What the longest step spent more time on than the others");
  }
  return html;
}

}  // namespace

std::string make_report_why(const Capture& capture) {
  std::string html;
  const std::vector<ProcessTimeUse> uses = explain_time(capture);
  for (size_t i = 0; i < std::min(uses.size(), kMostProcesses); ++i) {
    html += fmt::format("<h3>{}</h3>\n<p>{}</p>\n", escape_markup(name_use(capture, uses[i])),
                        escape_markup(summarise_use(capture, uses[i])));
    html += list_parts(uses[i].parts_ns, uses[i].wall_ns,
                       "What the wall time went into; adds up to 100 %");
    html += list_findings(capture, uses[i]) + list_steps(capture, uses[i]);
  }
  if (uses.size() > kMostProcesses) {
    html += fmt::format("<p class=\"quiet\">{} more processes are not shown.</p>\n",
                        uses.size() - kMostProcesses);
  }
  if (html.empty()) return html;
  for (const std::string& note : list_time_notes(capture)) {
    html += fmt::format("<p class=\"quiet\">{}</p>\n", escape_markup(note));
  }
  return html;
}

}  // namespace gpuperf
