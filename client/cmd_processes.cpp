// gpuperfctl processes: who calls the probed functions, and who is injected.

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "client/pages.h"
#include "client/session_text.h"
#include "client/sort.h"
#include "client/view.h"

namespace gpuperf::client {
namespace {

using v1::ListProcessesRequest;
using v1::ListProcessesResponse;
using v1::Process;

constexpr ListCall<ListProcessesRequest, ListProcessesResponse, Process> kListProcesses = {
    .rows = &ListProcessesResponse::mutable_processes,
    .action = "list processes",
    .page_rows = 1000};

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
  ListProcessesRequest request;
  ASSIGN_OR_RETURN(*request.mutable_filter(), make_filter(options, read_wall_clock_ns()));
  const uint64_t read_limit = options.sort.empty() ? options.limit : 0;  // all, to sort them here
  ASSIGN_OR_RETURN(std::vector<Process> rows,
                   read_pages(connection, kListProcesses, request, read_limit));
  RETURN_IF_ERROR(sort_rows(rows, options.sort, options.limit));
  if (view.format != Format::kTable) return render_rows(rows, view.format, view.shape, view.style);
  std::string text = render_table(rows, view.style);
  if (rows.empty()) {
    const std::string_view note =
        has_filter(options) ? "\nNo process matches. Without filters: gpuperfctl processes\n"
                            : "\nNo process was seen yet. What is probed: gpuperfctl probes\n";
    text += paint(note, Tone::kDim, view.style);
  }
  return text;
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
