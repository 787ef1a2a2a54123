#include "client/step_text.h"

#include <absl/strings/str_join.h>
#include <fmt/format.h>

#include <algorithm>

#include "client/render.h"
#include "client/slow_call_text.h"
#include "client/stack_text.h"

namespace gpuperf::client {
namespace {

constexpr auto kRight = Column::Align::kRight;
constexpr int kStepLabelWidth = 14;
constexpr int kSiteFrames = 4;

std::string name_quality(v1::StepQuality quality) {
  return quality == v1::STEP_QUALITY_UNSPECIFIED ? "unknown" : make_short_name(quality);
}

// "decode 98.0 %, prefill 2.00 %" of the time in steps, most first.
std::string describe_phases(const v1::StepProcess& row) {
  std::vector<const v1::StepPhaseStats*> phases;
  uint64_t total_ns = 0;
  for (const v1::StepPhaseStats& phase : row.phases()) {
    phases.push_back(&phase);
    total_ns += phase.total_ns();
  }
  std::ranges::sort(phases, std::ranges::greater(), &v1::StepPhaseStats::total_ns);
  std::vector<std::string> parts;
  for (const v1::StepPhaseStats* phase : phases) {
    const double ratio = static_cast<double>(phase->total_ns()) /
                         static_cast<double>(std::max<uint64_t>(1, total_ns));
    parts.push_back(fmt::format("{} {}", name_phase(phase->phase()), format_ratio(ratio)));
  }
  return absl::StrJoin(parts, ", ");
}

std::string describe_stall(const v1::StepProcess& row) {
  if (row.stall().empty()) return row.exited() ? "exited" : "";
  return fmt::format("hangs {} for {}", row.stall() == "in_step" ? "in a step" : "between steps",
                     format_duration(row.stall_ns()));
}

// Of a learned step the function is only a part of how it is known.
template <typename Row>
std::string describe_function(const Row& row) {
  return row.function() + (row.learned() ? " (learned)" : "");
}

template <typename Row>
std::string describe_process(const Row& row) {
  return fmt::format("{} (pid {})", make_printable(row.comm()), row.pid());
}

// The worst first: who hangs, else who makes the most steps.
std::string describe_all(const std::vector<v1::StepProcess>& rows) {
  const auto hangs =
      std::ranges::find_if(rows, [](const auto& row) { return !row.stall().empty(); });
  if (hangs != rows.end()) {
    return fmt::format("{} {}; its steps take {} at the median.", describe_process(*hangs),
                       describe_stall(*hangs), format_duration(hangs->p50_ns()));
  }
  const v1::StepProcess& busiest = rows.front();
  if (busiest.steps_per_second() == 0) {
    return "No process has made a step within the last 10 seconds.";
  }
  const std::string tokens = busiest.tokens_per_second() == 0
                                 ? ""
                                 : fmt::format(" and {:.3g} tokens", busiest.tokens_per_second());
  return fmt::format(
      "{} makes {:.3g} steps{} per second; half of its steps take at most {}, 99 of "
      "100 at most {}.",
      describe_process(busiest), busiest.steps_per_second(), tokens,
      format_duration(busiest.p50_ns()), format_duration(busiest.p99_ns()));
}

std::string describe_operators(const std::vector<v1::StepOperator>& rows) {
  const auto most = std::ranges::max_element(rows, {}, &v1::StepOperator::total_ns);
  if (most->timed_calls() == 0) return "How long operators take is not known yet.";
  return fmt::format("{} spends {} of its operators' time on {} of {}.", describe_process(*most),
                     format_ratio(most->time_ratio()), make_printable(most->operation()),
                     make_printable(most->tensor()));
}

// The most uneven layer.
std::string describe_experts(const std::vector<v1::ExpertLayer>& rows) {
  const auto worst = std::ranges::max_element(rows, {}, &v1::ExpertLayer::imbalance);
  if (worst->imbalance() == 0) return "Where tokens go is not known yet.";
  return fmt::format(
      "{}: layer {} is the most uneven: expert {} gets {:.3g} times the mean of its {} experts.",
      describe_process(*worst), make_printable(worst->layer()), worst->busiest_expert(),
      worst->imbalance(), worst->expert_tokens_size());
}

// "64", "at least 2", "-".
std::string describe_number(uint64_t value, v1::StepQuality quality) {
  if (quality == v1::STEP_QUALITY_UNSPECIFIED) return "";
  return (quality == v1::STEP_QUALITY_ESTIMATED ? "~" : "") + format_count(value);
}

std::string describe_with_quality(uint64_t value, v1::StepQuality quality) {
  if (quality == v1::STEP_QUALITY_UNSPECIFIED) return "unknown";
  return fmt::format("{} ({})", format_count(value), name_quality(quality));
}

std::string describe_duration(const v1::Step& step) {
  if (step.learned()) {
    return fmt::format(
        "{}, from its first work for the GPU until {} ({})", format_duration(step.duration_ns()),
        step.duration_quality() == v1::STEP_QUALITY_EXACT ? "its results were waited for"
                                                          : "their copy to the host was ordered",
        name_quality(step.duration_quality()));
  }
  if (step.duration_quality() == v1::STEP_QUALITY_EXACT) {
    return fmt::format("{}, until its thread had the results (exact)",
                       format_duration(step.duration_ns()));
  }
  return fmt::format("{}, until its call returned ({}): work of a GPU may have gone on",
                     format_duration(step.duration_ns()), name_quality(step.duration_quality()));
}

// What a step of this phase usually takes, and how this one compares.
std::string describe_usual(const v1::Step& step, const v1::StepPhaseStats& usual) {
  const double factor = static_cast<double>(step.duration_ns()) /
                        static_cast<double>(std::max<uint64_t>(1, usual.p50_ns()));
  return fmt::format("{:.3g} x the median of {} {} steps, {}; 99 of 100 take at most {}", factor,
                     format_count(usual.steps()), name_phase(usual.phase()),
                     format_duration(usual.p50_ns()), format_duration(usual.p99_ns()));
}

}  // namespace

std::string name_phase(v1::StepPhase phase) {
  return phase == v1::STEP_PHASE_UNSPECIFIED ? "unknown" : make_short_name(phase);
}

std::string render_step_processes(const std::vector<v1::StepProcess>& rows,
                                  const TextStyle& style) {
  Table table({{"PID", kRight},
               {.title = "COMM", .shrink_to = 8},
               {.title = "FUNCTION", .shrink_to = 16},
               {"STEPS", kRight},
               {"STEPS/S", kRight},
               {"P50", kRight},
               {"P99", kRight},
               {.title = "TOKENS/S", .align = kRight, .optional = true},
               {.title = "TIME BY PHASE", .shrink_to = 20},
               {"SLOW", kRight},
               {.title = "STATE", .optional = true},
               {.title = "RESULTS READ AT", .optional = true, .shrink_to = 20},
               {.title = "CONTAINER", .optional = true},
               {.title = "POD", .optional = true, .shrink_to = 12}});
  for (const v1::StepProcess& row : rows) {
    table.add_row(
        {{std::to_string(row.pid())},
         {row.comm()},
         {describe_function(row)},
         {format_count(row.steps())},
         {fmt::format("{:.3g}", row.steps_per_second())},
         {format_duration(row.p50_ns())},
         {format_duration(row.p99_ns())},
         {row.tokens_per_second() == 0 ? "" : fmt::format("{:.4g}", row.tokens_per_second())},
         {describe_phases(row)},
         {format_count(row.slow_steps()), row.slow_steps() > 0 ? Tone::kWarning : Tone::kPlain},
         {describe_stall(row), row.stall().empty() ? Tone::kPlain : Tone::kBad},
         {row.site().empty() ? "" : describe_innermost_frames(row.site(), 1)},
         {row.container()},
         {row.pod()}});
  }
  const std::string first = rows.empty() ? "" : describe_all(rows) + "\n\n";
  return first + table.take_text(style);
}

std::string render_steps(const std::vector<v1::Step>& rows, const TextStyle& style) {
  Table table({{"ID", kRight},
               {"START"},
               {"DURATION", kRight},
               {"PHASE"},
               {.title = "SEQUENCES", .align = kRight, .optional = true},
               {.title = "TOKENS", .align = kRight, .optional = true},
               {.title = "FUNCTION", .shrink_to = 16},
               {"PID", kRight},
               {"TID", kRight},
               {.title = "COMM", .shrink_to = 8},
               {.title = "SLOW CALL", .align = kRight, .optional = true},
               {.title = "CONTAINER", .optional = true},
               {.title = "POD", .optional = true, .shrink_to = 12}});
  for (const v1::Step& row : rows) {
    table.add_row({{std::to_string(row.id())},
                   {format_local_time(row.start_unix_ns())},
                   {format_duration(row.duration_ns()), row.slow() ? Tone::kWarning : Tone::kPlain},
                   {name_phase(row.phase())},
                   {describe_number(row.sequences(), row.sequences_quality())},
                   {describe_number(row.tokens(), row.tokens_quality())},
                   {describe_function(row)},
                   {std::to_string(row.pid())},
                   {std::to_string(row.tid())},
                   {row.comm()},
                   {row.slow_call_id() == 0 ? "" : std::to_string(row.slow_call_id())},
                   {row.container()},
                   {row.pod()}});
  }
  return table.take_text(style);
}

std::string render_step_operators(const std::vector<v1::StepOperator>& rows,
                                  const TextStyle& style) {
  Table table({{"PID", kRight},
               {.title = "COMM", .shrink_to = 8},
               {"OPERATION"},
               {.title = "TENSOR", .shrink_to = 16},
               {"CALLS", kRight},
               {"TIME", kRight},
               {"SHARE", kRight},
               {"MEAN", kRight},
               {.title = "STATE", .optional = true},
               {.title = "CONTAINER", .optional = true},
               {.title = "POD", .optional = true, .shrink_to = 12}});
  for (const v1::StepOperator& row : rows) {
    const bool is_other = row.operation().empty();
    table.add_row(
        {{std::to_string(row.pid())},
         {row.comm()},
         {is_other ? "others" : row.operation()},
         {row.tensor()},
         {format_count(row.calls())},
         {row.timed_calls() == 0 ? "" : format_duration(row.total_ns())},
         {row.timed_calls() == 0 ? "" : format_ratio(row.time_ratio())},
         {row.timed_calls() == 0 ? "" : format_duration(row.total_ns() / row.timed_calls())},
         {row.exited() ? "exited" : ""},
         {row.container()},
         {row.pod()}});
  }
  return (rows.empty() ? "" : describe_operators(rows) + "\n\n") + table.take_text(style);
}

std::string render_step_experts(const std::vector<v1::ExpertLayer>& rows, const TextStyle& style) {
  Table table({{"PID", kRight},
               {.title = "COMM", .shrink_to = 8},
               {"LAYER", kRight},
               {"TOKENS", kRight},
               {"READ", kRight},
               {"EXPERTS", kRight},
               {"UNUSED", kRight},
               {"BUSIEST", kRight},
               {"OF THE MEAN", kRight},
               {.title = "STATE", .optional = true},
               {.title = "CONTAINER", .optional = true},
               {.title = "POD", .optional = true, .shrink_to = 12}});
  for (const v1::ExpertLayer& row : rows) {
    table.add_row({{std::to_string(row.pid())},
                   {row.comm()},
                   {row.layer()},
                   {format_count(row.tokens())},
                   {format_count(row.read_tokens())},
                   {std::to_string(row.expert_tokens_size())},
                   {std::to_string(row.unused_experts())},
                   {std::to_string(row.busiest_expert())},
                   {fmt::format("{:.3g} x", row.imbalance())},
                   {row.exited() ? "exited" : ""},
                   {row.container()},
                   {row.pod()}});
  }
  return (rows.empty() ? "" : describe_experts(rows) + "\n\n") + table.take_text(style);
}

std::string explain_step(const v1::GetStepResponse& response, uint64_t now_unix_ns,
                         const TextStyle& style) {
  const v1::Step& step = response.step();
  std::string text =
      fmt::format("Step {} of {}: {}, {}.\n\n", step.id(), make_printable(step.comm()),
                  name_phase(step.phase()), describe_usual(step, response.usual()));
  const auto add = [&text, &style](std::string_view label, const std::string& value) {
    text += render_labelled(label, kStepLabelWidth, make_printable(value), style);
  };
  const std::string ago =
      now_unix_ns < step.start_unix_ns() || now_unix_ns == 0
          ? ""
          : fmt::format(", {} ago", format_duration(now_unix_ns - step.start_unix_ns()));
  add("start", format_local_time(step.start_unix_ns()) + ago);
  add("duration", describe_duration(step));
  if (!step.learned() && step.call_ns() != step.duration_ns())
    add("call", format_duration(step.call_ns()));
  add("phase",
      fmt::format("{} ({})", name_phase(step.phase()), name_quality(step.phase_quality())));
  if (step.phase() != v1::STEP_PHASE_TRAIN && step.phase() != v1::STEP_PHASE_OPTIMIZER) {
    add("sequences", describe_with_quality(step.sequences(), step.sequences_quality()));
    add("tokens", describe_with_quality(step.tokens(), step.tokens_quality()));
  }
  if (step.calls() > 1) add("operators", format_count(step.calls()));
  add("function", fmt::format("{} {}", step.category(), describe_function(step)));
  if (!response.site().empty()) {
    add("read at", describe_innermost_frames(response.site(), kSiteFrames));
  }
  add("process", fmt::format("{} {}, thread {}", step.comm(), step.pid(), step.tid()));
  if (response.held_up_requests() > 0) {
    add("requests", fmt::format("{} waited for this step most", response.held_up_requests()));
  }
  if (step.threshold_ns() != 0) {
    add("slow from", format_duration(step.threshold_ns()));
  }
  if (!response.has_slow_call()) {
    return text +
           paint(fmt::format("\nWhere its time went is not known: no call within it was slow, "
                             "and only of slow calls that is kept.\nIf it is among the last "
                             "that the flight recorder holds: gpuperfctl why --step {}\n",
                             step.id()),
                 Tone::kDim, style);
  }
  return text + fmt::format("\nSlow call {} within it:\n\n", step.slow_call_id()) +
         explain_slow_call(response.slow_call(), 0, style);
}

}  // namespace gpuperf::client
