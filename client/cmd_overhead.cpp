// gpuperfctl overhead [stand-down|detail|release]: what gpuperf costs each process, and demanding
// less or more of it for a time.

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "client/change.h"
#include "client/duration.h"
#include "client/list_view.h"
#include "client/session_text.h"

namespace gpuperf::client {
namespace {

using v1::Process;

constexpr uint64_t kLongestNs = 86'400'000'000'000;  // as SetOverheadDemand takes it

std::string render_overhead(const std::vector<Process>& rows, const TextStyle& style) {
  constexpr auto kRight = Column::Align::kRight;
  Table table({{"PID", kRight},
               {.title = "COMM", .shrink_to = 8},
               {"OVERHEAD", kRight},
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
    table.add_row({{std::to_string(row.pid())},
                   {row.comm()},
                   {format_ratio(row.overhead_ratio()), is_over ? Tone::kWarning : Tone::kPlain},
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
      const Result<uint64_t> parsed = parse_duration_ns(*length);
      if (!parsed.ok()) throw CLI::ValidationError("--for", std::string(parsed.status().message()));
      if (*parsed == 0 || *parsed > kLongestNs) {
        throw CLI::ValidationError("--for", fmt::format("\"{}\": at most 1d, not 0", *length));
      }
      request->set_duration_ns(*parsed);
      if (request->reason().empty()) request->set_reason("gpuperfctl");
    }
    invocation.run = [&invocation, request, verb] {
      return run_change<v1::SetOverheadDemandResponse>(invocation, fmt::format("demand {}", verb),
                                                       *request);
    };
  });
}

}  // namespace

void declare_overhead(CLI::App& app, Invocation& invocation) {
  Options& options = invocation.options;
  add_process_flags(app, options);
  add_sort_flag(app, options, list_sort_fields(*Process::descriptor()));
  add_limit_flag(app, options);
  add_watch_flag(app, options);
  declare_demand(app, invocation, "stand-down", "Probe, count and record nothing for a time (root)",
                 v1::OVERHEAD_DEMAND_STAND_DOWN);
  declare_demand(app, invocation, "detail", "Suspend nothing for a time: no overhead budget (root)",
                 v1::OVERHEAD_DEMAND_DETAIL);
  declare_demand(app, invocation, "release", "End such a demand (root)", v1::OVERHEAD_DEMAND_NONE);
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
