// gpuperfctl overhead [measure|stand-down|detail|release|rules]: what gpuperf costs each process,
// measuring that, demanding less or more of it for a time, and the rules that demand it.

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/capture_wait.h"
#include "client/change.h"
#include "client/duration.h"
#include "client/interrupt.h"
#include "client/list_view.h"
#include "client/session_text.h"

namespace gpuperf::client {
namespace {

using v1::Process;

constexpr uint64_t kLongestNs = 86'400'000'000'000;  // as SetOverheadDemand takes it
constexpr uint64_t kTrialNsMin = 10'000'000'000;     // as MeasureOverhead takes it
constexpr uint64_t kTrialNsMax = 600'000'000'000;
constexpr std::chrono::milliseconds kTrialPoll{500};

std::string render_overhead(const std::vector<Process>& rows, const TextStyle& style) {
  constexpr auto kRight = Column::Align::kRight;
  Table table({{"PID", kRight},
               {.title = "COMM", .shrink_to = 8},
               {"OVERHEAD", kRight},
               {.title = "MEASURED", .align = kRight, .optional = true},
               {"BUDGET", kRight},
               {"PROBES", kRight},
               {"THREAD", kRight},
               {"HOOKS", kRight},
               {"CUPTI", kRight},
               {.title = "SESSION", .optional = true},
               {.title = "POD", .optional = true, .shrink_to = 12}});
  for (const Process& row : rows) {
    if (row.exited()) continue;
    const double budget = row.overhead_budget_ratio();
    const bool is_over = budget > 0 && row.overhead_ratio() > budget;
    const double probes =
        row.overhead_ratio() - row.overhead_hooks_ratio() - row.overhead_cupti_ratio();
    table.add_row(
        {{std::to_string(row.pid())},
         {row.comm()},
         {format_ratio(row.overhead_ratio()), is_over ? Tone::kWarning : Tone::kPlain},
         {row.has_overhead_measured() ? format_ratio(row.overhead_measured().ratio()) : ""},
         {budget == 0 ? "" : format_ratio(budget)},
         {format_ratio(std::max(probes, 0.0))},
         {format_ratio(row.overhead_thread_ratio())},
         {format_ratio(row.overhead_hooks_ratio())},
         {format_ratio(row.overhead_cupti_ratio())},
         {row.session_state(), find_session_tone(row.session_state())},
         {row.pod()}});
  }
  return table.take_text(style);
}

Result<std::string> draw_overhead(Connection& connection, const View& view,
                                  const Options& options) {
  return draw_list(connection, view, options, kListProcesses, v1::ListProcessesRequest{},
                   &render_overhead, "\nNo process matches. Without filters: gpuperfctl overhead\n",
                   "\nNo process was seen yet. What is probed: gpuperfctl probes\n");
}

std::string render_trial(const v1::OverheadTrial& trial, const TextStyle& style) {
  constexpr auto kRight = Column::Align::kRight;
  Table table({{"PID", kRight},
               {.title = "COMM", .shrink_to = 8},
               {"LOST", kRight},
               {"95 % INTERVAL", kRight},
               {"ESTIMATE", kRight},
               {"PAIRS", kRight},
               {"CALLS/S", kRight},
               {.title = "POD", .optional = true, .shrink_to = 12}});
  for (const v1::OverheadMeasurement& row : trial.measurements()) {
    const double estimate = row.estimated_ratio();
    const bool agrees = estimate >= row.low_ratio() && estimate <= row.high_ratio();
    table.add_row(
        {{std::to_string(row.pid())},
         {row.comm()},
         {format_ratio(row.ratio())},
         {fmt::format("{} to {}", format_ratio(row.low_ratio()), format_ratio(row.high_ratio()))},
         {format_ratio(estimate), agrees ? Tone::kPlain : Tone::kWarning},
         {std::to_string(row.pairs())},
         {format_count(static_cast<uint64_t>(row.calls_per_second()))},
         {row.pod()}});
  }
  std::string text = table.take_text(style);
  if (!trial.stopped_by().empty()) {
    text += paint("\nEnded early by " + make_printable(trial.stopped_by()) + "\n", Tone::kWarning,
                  style);
  }
  if (trial.measurements().empty()) {
    text += paint(
        "\nNo process made enough calls through launch hooks: gpuperfctl sessions lists those that "
        "have them. Measure for longer: --for 2m\n",
        Tone::kDim, style);
  }
  return text;
}

Result<v1::OverheadTrial> read_trial(Connection& connection) {
  v1::GetStatusResponse status;
  RETURN_IF_ERROR(connection.call("read the measurement", v1::GetStatusRequest{}, &status));
  return status.overhead_trial();
}

// Begins it, unless only the last one is asked for, and waits for its end.
Status run_measure(const Invocation& invocation, const std::optional<uint64_t>& duration_ns) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Interrupt> interrupt, Interrupt::make(STDOUT_FILENO));
  ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, connect_to_change(invocation));
  if (duration_ns) {
    v1::MeasureOverheadRequest request;
    request.set_duration_ns(*duration_ns);
    v1::MeasureOverheadResponse response;
    RETURN_IF_ERROR(connection->call("measure overhead", request, &response));
  }
  Progress progress;
  ASSIGN_OR_RETURN(v1::OverheadTrial trial, read_trial(*connection));
  while (trial.running()) {
    progress.show(fmt::format("measuring, {} left", format_duration(trial.remaining_ns())));
    if (!interrupt->wait_for(kTrialPoll)) {
      return absl::AbortedError(
          "interrupted; gpuperfd goes on measuring: gpuperfctl overhead measure --last shows the "
          "result, gpuperfctl overhead release ends it");
    }
    ASSIGN_OR_RETURN(trial, read_trial(*connection));
  }
  if (trial.age_ns() == 0) {
    return absl::NotFoundError(
        "nothing was measured since gpuperfd started: gpuperfctl overhead measure");
  }
  const Format format = find_format(invocation.options);
  const TextStyle style = invocation.output.read_style();
  if (format == Format::kTable) return invocation.output.write(render_trial(trial, style));
  return invocation.output.write(render_message(trial, format, JsonShape::kIndented, style));
}

// Of --for; `words` says what it may be.
uint64_t parse_length_ns(const std::string& text, uint64_t least_ns, uint64_t most_ns,
                         std::string_view words) {
  const Result<uint64_t> parsed = parse_duration_ns(text);
  if (!parsed.ok()) throw CLI::ValidationError("--for", std::string(parsed.status().message()));
  if (*parsed < least_ns || *parsed > most_ns) {
    throw CLI::ValidationError("--for", fmt::format("\"{}\": {}", text, words));
  }
  return *parsed;
}

void declare_measure(CLI::App& app, Invocation& invocation) {
  CLI::App& command = *app.add_subcommand(
      "measure", "Measure it: switch probes and launch hooks off and on for a while (root)");
  const auto length = std::make_shared<std::string>("1m");
  const auto is_last = std::make_shared<bool>(false);
  command.add_option("--for", *length, "For how long, from 10s to 10m; default: 1m")
      ->type_name("30s|5m");
  command.add_flag("--last", *is_last, "Measure nothing, show the result of the last time");
  command.callback([&app, &invocation, length, is_last] {
    refuse_list_flags(app);
    const uint64_t duration_ns =
        parse_length_ns(*length, kTrialNsMin, kTrialNsMax, "from 10s to 10m");
    invocation.run = [&invocation, duration_ns, is_last] {
      return run_measure(invocation, *is_last ? std::nullopt : std::optional(duration_ns));
    };
  });
}

void declare_demand(CLI::App& app, Invocation& invocation, const char* verb, const char* summary,
                    v1::OverheadDemand demand) {
  const auto request = std::make_shared<v1::SetOverheadDemandRequest>();
  request->set_demand(demand);
  CLI::App& command = *app.add_subcommand(verb, summary);
  const auto length = std::make_shared<std::string>();
  if (demand != v1::OVERHEAD_DEMAND_NONE) {
    command.add_option("--for", *length, "For how long, at most 1d")
        ->required()
        ->type_name("10m|1h");
    command
        .add_option_function<std::string>(
            "--reason", [request](const std::string& text) { request->set_reason(text); },
            "Who demands it and why: shown by gpuperfctl status and in the log")
        ->type_name("TEXT");
  }
  command.callback([&app, &invocation, request, length, verb] {
    refuse_list_flags(app);
    if (!length->empty()) {
      request->set_duration_ns(parse_length_ns(*length, 1, kLongestNs, "at most 1d, not 0"));
      if (request->reason().empty()) request->set_reason("gpuperfctl");
    }
    invocation.run = [&invocation, request, verb] {
      return run_change<v1::SetOverheadDemandResponse>(invocation, fmt::format("demand {}", verb),
                                                       *request);
    };
  });
}

std::string format_reading(double value) { return fmt::format("{:.4g}", value); }

std::string render_rules(const std::vector<v1::QosRule>& rules, const TextStyle& style) {
  constexpr auto kRight = Column::Align::kRight;
  Table table({{"NAME"},
               {"STATE"},
               {"SINCE", kRight},
               {"VALUE", kRight},
               {"LIMIT", kRight},
               {"BREACHES", kRight},
               {.title = "RULE", .shrink_to = 24}});
  for (const v1::QosRule& rule : rules) {
    const char* state = rule.breached() ? "breached" : "kept";
    if (rule.caused_by_gpuperf()) state = "breached by gpuperf";
    if (!rule.fault().empty()) state = "not read";
    table.add_row(
        {{rule.name()},
         {state, rule.breached() || !rule.fault().empty() ? Tone::kWarning : Tone::kPlain},
         {rule.age_ns() == 0 ? "" : format_duration(rule.age_ns())},
         {rule.has_value() ? format_reading(rule.value()) : ""},
         {format_reading(rule.limit())},
         {format_count(rule.breaches())},
         {rule.text()}});
  }
  std::string text = table.take_text(style);
  for (const v1::QosRule& rule : rules) {
    if (rule.fault().empty()) continue;
    text += fmt::format("\n{} is not read: {}\n", make_printable(rule.name()),
                        make_printable(rule.fault()));
  }
  if (rules.empty()) {
    text += paint("\nNo rule is configured: docs/configuration.md, qos\n", Tone::kDim, style);
  }
  return text;
}

Result<std::string> draw_rules(Connection& connection, const View& view) {
  v1::GetStatusResponse status;
  RETURN_IF_ERROR(connection.call("read the rules", v1::GetStatusRequest{}, &status));
  const std::vector<v1::QosRule> rules(status.qos_rules().begin(), status.qos_rules().end());
  if (view.format == Format::kTable) return render_rules(rules, view.style);
  return render_rows(rules, view.format, view.shape, view.style);
}

void declare_rules(CLI::App& app, Invocation& invocation) {
  CLI::App& command = *app.add_subcommand(
      "rules", "Rules by which gpuperf observes more or less, and how they stand");
  command.callback([&app, &invocation] {
    refuse_list_flags(app);
    invocation.run = [&invocation] { return run_view(invocation, draw_rules); };
  });
}

}  // namespace

void declare_overhead(CLI::App& app, Invocation& invocation) {
  Options& options = invocation.options;
  add_process_flags(app, options);
  add_sort_flag(app, options, list_sort_fields(*Process::descriptor()));
  add_limit_flag(app, options);
  add_watch_flag(app, options);
  declare_measure(app, invocation);
  declare_demand(app, invocation, "stand-down", "Probe, count and record nothing for a time (root)",
                 v1::OVERHEAD_DEMAND_STAND_DOWN);
  declare_demand(app, invocation, "detail", "Suspend nothing for a time: no overhead budget (root)",
                 v1::OVERHEAD_DEMAND_DETAIL);
  declare_demand(app, invocation, "release", "End such a demand (root)", v1::OVERHEAD_DEMAND_NONE);
  declare_rules(app, invocation);
  app.callback([&invocation] {
    if (invocation.run) return;  // a subcommand's callback came first
    invocation.run = [&invocation]() -> Status {
      RETURN_IF_ERROR(check_sort_field(*Process::descriptor(), invocation.options.sort));
      return run_view(invocation, [&](Connection& connection, const View& view) {
        return draw_overhead(connection, view, invocation.options);
      });
    };
  });
}

}  // namespace gpuperf::client
