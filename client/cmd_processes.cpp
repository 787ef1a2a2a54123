// gpuperfctl processes: who calls the probed functions, and who is injected.

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "client/list_view.h"
#include "client/session_text.h"

namespace gpuperf::client {
namespace {

using v1::ListProcessesRequest;
using v1::Process;

std::string render_table(const std::vector<Process>& rows, const TextStyle& style) {
  constexpr auto kRight = Column::Align::kRight;
  Table table({{"PID", kRight},
               {.title = "COMM", .shrink_to = 8},
               {"STATE"},
               {"FUNCTIONS", kRight},
               {"CALLS", kRight},
               {"SLOW", kRight},
               {"OVERHEAD", kRight},
               {.title = "SESSION", .optional = true},
               {.title = "CONTAINER", .optional = true},
               {.title = "POD", .optional = true, .shrink_to = 12},
               {.title = "NAMESPACE", .optional = true, .shrink_to = 12},
               {.title = "JOB", .optional = true},
               {.title = "RANK", .align = kRight, .optional = true}});
  for (const Process& row : rows) {
    table.add_row(
        {{std::to_string(row.pid())},
         {row.comm()},
         {row.exited() ? "exited" : "running", row.exited() ? Tone::kDim : Tone::kPlain},
         {format_count(row.functions())},
         {format_count(row.calls())},
         {format_count(row.slow_calls()), row.slow_calls() > 0 ? Tone::kWarning : Tone::kPlain},
         {row.overhead_ratio() == 0 ? "" : format_ratio(row.overhead_ratio())},
         {row.session_state(), find_session_tone(row.session_state())},
         {row.container()},
         {row.pod()},
         {row.namespace_()},
         {row.slurm_job()},
         {row.slurm_rank()}});
  }
  return table.take_text(style);
}

Result<std::string> draw_processes(Connection& connection, const View& view,
                                   const Options& options) {
  return draw_list(connection, view, options, kListProcesses, ListProcessesRequest{}, &render_table,
                   "\nNo process matches. Without filters: gpuperfctl processes\n",
                   "\nNo process was seen yet. What is probed: gpuperfctl probes\n");
}

}  // namespace

void declare_processes(CLI::App& app, Invocation& invocation) {
  Options& options = invocation.options;
  add_process_flags(app, options);
  add_sort_flag(app, options, list_sort_fields(*Process::descriptor()));
  add_limit_flag(app, options);
  add_watch_flag(app, options);
  app.callback([&invocation] {
    invocation.run = [&invocation]() -> Status {
      RETURN_IF_ERROR(check_sort_field(*Process::descriptor(), invocation.options.sort));
      return run_view(invocation, [&](Connection& connection, const View& view) {
        return draw_processes(connection, view, invocation.options);
      });
    };
  });
}

}  // namespace gpuperf::client
