// gpuperfctl functions: how often each function was called, how long it took, how it failed.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "client/pages.h"
#include "client/view.h"

namespace gpuperf::client {
namespace {

using v1::FunctionStats;
using v1::ListFunctionsRequest;
using v1::ListFunctionsResponse;

constexpr uint32_t kPageRows = 1000;
constexpr int kNamedErrors = 3;  // per row of a table; JSON has them all
// Stages whose drops leave every number of this table as it is.
constexpr std::array<std::string_view, 5> kUnrelatedStages = {"log", "metrics", "slow", "symbols",
                                                              "watch"};

constexpr ListCall<ListFunctionsRequest, ListFunctionsResponse, FunctionStats> kListFunctions = {
    .method = &Connection::Stub::ListFunctions,
    .rows = &ListFunctionsResponse::mutable_functions,
    .action = "list functions",
    .page_rows = kPageRows};

std::string describe_errors(const FunctionStats& row) {
  std::string text;
  for (int i = 0; i < row.error_counts_size() && i < kNamedErrors; ++i) {
    const v1::ErrorCount& error = row.error_counts(i);
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", error.error(),
                        format_count(error.count()));
  }
  const int unnamed = row.error_counts_size() - kNamedErrors;
  if (unnamed > 0) text += fmt::format(", and {} more", unnamed);
  return text;
}

// No call completed with a duration: there is nothing to show, which is not the same as 0 ns.
std::string describe_duration(const FunctionStats& row, uint64_t duration_ns) {
  const bool none_completed = row.max_ns() == 0 && row.total_ns() == 0;
  return none_completed ? "" : format_duration(duration_ns);
}

Table make_table(bool per_process) {
  constexpr auto kRight = Column::Align::kRight;
  std::vector<Column> columns;
  if (per_process) columns = {{"PID", kRight}, {.title = "COMM", .shrink_to = 8}};
  for (const Column& column :
       std::vector<Column>{{.title = "CATEGORY", .shrink_to = 8},
                           {.title = "FUNCTION", .shrink_to = 20},
                           {"CALLS", kRight},
                           {"ERRORS", kRight},
                           {"TOTAL", kRight},
                           {"AVG", kRight},
                           {"P50", kRight},
                           {"P99", kRight},
                           {"MAX", kRight},
                           {"SLOW", kRight},
                           {"IN-FLIGHT", kRight},
                           {.title = "ERROR NAMES", .optional = true, .shrink_to = 20}}) {
    columns.push_back(column);
  }
  return Table(std::move(columns));
}

std::string render_table(const std::vector<FunctionStats>& rows, bool per_process,
                         const TextStyle& style) {
  Table table = make_table(per_process);
  for (const FunctionStats& row : rows) {
    const auto duration = [&row](uint64_t ns) { return Cell{describe_duration(row, ns)}; };
    std::vector<Cell> cells;
    if (per_process) {
      cells = {{row.pid() == 0 ? "" : std::to_string(row.pid())},
               {row.comm() + (row.exited() ? " (exited)" : "")}};
    }
    for (Cell& cell : std::vector<Cell>{
             {row.category()},
             {row.function()},
             {format_count(row.calls())},
             {format_count(row.errors()), row.errors() > 0 ? Tone::kBad : Tone::kPlain},
             duration(row.total_ns()),
             duration(row.avg_ns()),
             duration(row.p50_ns()),
             duration(row.p99_ns()),
             duration(row.max_ns()),
             {format_count(row.slow_calls()), row.slow_calls() > 0 ? Tone::kWarning : Tone::kPlain},
             {format_count(row.in_flight())},
             {describe_errors(row)}}) {
      cells.push_back(std::move(cell));
    }
    table.add_row(std::move(cells));
  }
  return table.take_text(style);
}

// What the numbers above do not say by themselves; empty when there is nothing.
std::string render_notes(const std::vector<FunctionStats>& rows,
                         const v1::GetStatusResponse& status, bool filtered) {
  uint64_t untimed = 0;
  uint64_t partly = 0;
  uint64_t abandoned = 0;
  uint64_t drops = 0;
  for (const FunctionStats& row : rows) {
    if (row.untimed() > 0) ++untimed;
    if (row.coverage() < 1) ++partly;
    abandoned += row.abandoned();
  }
  for (const v1::Drop& drop : status.drops()) {
    const bool unrelated = std::find(kUnrelatedStages.begin(), kUnrelatedStages.end(),
                                     drop.stage()) != kUnrelatedStages.end();
    if (!unrelated) drops += drop.count();
  }
  std::string notes;
  if (rows.empty()) {
    notes += filtered ? "No function matches. Without filters: gpuperfctl functions\n"
                      : "No call was counted yet. What is probed: gpuperfctl probes\n";
  }
  if (untimed > 0) {
    notes += fmt::format("Rows with calls counted without a duration: {}. Why: gpuperfctl probes\n",
                         format_count(untimed));
  }
  if (partly > 0) {
    notes += fmt::format(
        "Rows probed for a part of the time only: {}. Their share: -o json, field coverage\n",
        format_count(partly));
  }
  if (abandoned > 0) {
    notes +=
        fmt::format("Calls that never returned (longjmp, exception, thread or process exit): {}\n",
                    format_count(abandoned));
  }
  if (drops > 0) {
    notes += fmt::format("Drops since the daemon started: {}. What was lost: gpuperfctl status\n",
                         format_count(drops));
  }
  return notes;
}

Result<std::string> draw_functions(Connection& connection, const View& view, const Options& options,
                                   bool per_process) {
  ListFunctionsRequest request;
  ASSIGN_OR_RETURN(*request.mutable_filter(), make_filter(options, read_wall_clock_ns()));
  request.set_sort(options.sort);
  request.set_per_process(per_process);
  ASSIGN_OR_RETURN(const std::vector<FunctionStats> rows,
                   read_pages(connection, kListFunctions, request, options.limit));
  if (view.format != Format::kTable) return render_rows(rows, view.format, view.shape, view.style);
  v1::GetStatusResponse status;
  RETURN_IF_ERROR(connection.call(&Connection::Stub::GetStatus, "read the status",
                                  v1::GetStatusRequest(), &status));
  const std::string notes = render_notes(rows, status, has_filter(options));
  return fmt::format("{}{}{}", render_table(rows, per_process, view.style),
                     notes.empty() ? "" : "\n", paint(notes, Tone::kDim, view.style));
}

}  // namespace

void declare_functions(CLI::App& app, Invocation& invocation) {
  Options& options = invocation.options;
  const auto per_process = std::make_shared<bool>(false);
  add_process_flags(app, options);
  add_function_flags(app, options);
  add_sort_flag(app, options, "any number of the JSON form, like calls or p99_ns, or function");
  add_limit_flag(app, options);
  add_watch_flag(app, options);
  app.add_flag("--per-process", *per_process, "One row per function and process, not summed");
  app.callback([&invocation, per_process] {
    invocation.run = [&invocation, per_process] {
      return run_view(invocation, [&](Connection& connection, const View& view) {
        return draw_functions(connection, view, invocation.options, *per_process);
      });
    };
  });
}

}  // namespace gpuperf::client
