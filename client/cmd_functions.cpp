// gpuperfctl functions: how often each function was called, how long it took, how it failed, what
// it moved; the GEMM shapes it was called with; the calls that have not come back.

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/byte_rates.h"
#include "client/in_flight_table.h"
#include "client/pages.h"
#include "client/shape_table.h"
#include "client/view.h"

namespace gpuperf::client {
namespace {

using v1::FunctionStats;
using v1::ListFunctionsRequest;
using v1::ListFunctionsResponse;

constexpr uint32_t kPageRows = 1000;
constexpr int kNamedErrors = 3;  // per row of a table; JSON has them all
// Stages whose drops leave every number of this table as it is.
constexpr std::array<std::string_view, 7> kUnrelatedStages = {"api",  "log",     "metrics", "names",
                                                              "slow", "symbols", "watch"};

constexpr ListCall<v1::ListShapesRequest, v1::ListShapesResponse, v1::Shape> kListShapes = {
    .rows = &v1::ListShapesResponse::mutable_shapes,
    .action = "list GEMM shapes",
    .page_rows = kPageRows};

constexpr ListCall<v1::ListInFlightCallsRequest, v1::ListInFlightCallsResponse, v1::InFlightCall>
    kListInFlightCalls = {.rows = &v1::ListInFlightCallsResponse::mutable_calls,
                          .action = "list calls in flight",
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

// A hung call shows by its age.
std::string describe_in_flight(const FunctionStats& row) {
  const std::string count = format_count(row.in_flight());
  if (row.oldest_in_flight_ns() == 0) return count;
  return fmt::format("{} (oldest {})", count, format_duration(row.oldest_in_flight_ns()));
}

// "~1,234,000 ±3.1 %", "≥ 1,234".
std::string describe_missed(const FunctionStats& row) {
  if (!row.has_missed()) return "";
  if (row.missed().calls_error() == UINT64_MAX) {
    return fmt::format("≥ {}", format_count(row.missed().calls()));
  }
  const double error = static_cast<double>(row.missed().calls_error()) /
                       static_cast<double>(std::max<uint64_t>(row.missed().calls(), 1));
  return fmt::format("~{} ±{}", format_count(row.missed().calls()), format_ratio(error));
}

std::string describe_rate(const std::optional<double>& bytes_per_second) {
  if (!bytes_per_second || *bytes_per_second < 0.5) return "";
  return format_bytes(static_cast<uint64_t>(*bytes_per_second + 0.5));
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
                           {.title = "BYTES", .align = kRight, .optional = true},
                           {.title = "BYTES/S", .align = kRight, .optional = true},
                           {.title = "COVERAGE", .align = kRight, .optional = true},
                           {.title = "NOT COUNTED", .align = kRight, .optional = true},
                           {.title = "ERROR NAMES", .optional = true, .shrink_to = 20}}) {
    columns.push_back(column);
  }
  return Table(std::move(columns));
}

std::string render_table(const std::vector<FunctionStats>& rows, bool per_process,
                         const ByteRates& rates, const TextStyle& style) {
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
             {describe_in_flight(row)},
             {row.bytes() == 0 ? "" : format_bytes(row.bytes())},
             {describe_rate(rates.find_bytes_per_second(row))},
             {row.coverage() < 1 ? format_ratio(row.coverage()) : "", Tone::kWarning},
             {describe_missed(row), Tone::kWarning},
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
    notes += fmt::format("Rows whose calls are counted but not timed: {}. Why: gpuperfctl probes\n",
                         format_count(untimed));
  }
  if (partly > 0) {
    notes += fmt::format(
        "Rows probed only part of the time (COVERAGE), with an estimate of the other "
        "calls (NOT COUNTED): {}. Why: gpuperfctl status\n",
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
                                   bool per_process, ByteRates& rates) {
  ListFunctionsRequest request;
  ASSIGN_OR_RETURN(*request.mutable_filter(), make_filter(options, read_wall_clock_ns()));
  request.set_sort(options.sort);
  request.set_per_process(per_process);
  request.set_with_buckets(view.format != Format::kTable);
  uint64_t taken_mono_ns = 0;
  ASSIGN_OR_RETURN(
      const std::vector<FunctionStats> rows,
      read_pages(connection, kListFunctions, request, options.limit,
                 [&](const ListFunctionsResponse& page) { taken_mono_ns = page.taken_mono_ns(); }));
  if (view.format != Format::kTable) return render_rows(rows, view.format, view.shape, view.style);
  rates.update(taken_mono_ns, rows);
  v1::GetStatusResponse status;
  RETURN_IF_ERROR(connection.call("read the status", v1::GetStatusRequest(), &status));
  const std::string notes = render_notes(rows, status, has_filter(options));
  return fmt::format("{}{}{}", render_table(rows, per_process, rates, view.style),
                     notes.empty() ? "" : "\n", paint(notes, Tone::kDim, view.style));
}

Result<std::string> draw_shapes(Connection& connection, const View& view, const Options& options) {
  v1::ListShapesRequest request;
  ASSIGN_OR_RETURN(*request.mutable_filter(), make_filter(options, read_wall_clock_ns()));
  request.set_sort(options.sort);
  ASSIGN_OR_RETURN(const std::vector<v1::Shape> rows,
                   read_pages(connection, kListShapes, request, options.limit));
  if (view.format != Format::kTable) return render_rows(rows, view.format, view.shape, view.style);
  const std::string text = render_shape_table(rows, view.style);
  if (!rows.empty()) return text;
  const std::string_view note =
      has_filter(options)
          ? "\nNo GEMM matches. Without filters: gpuperfctl functions --shapes\n"
          : "\nNo GEMM succeeded yet. What is probed: gpuperfctl probes --category cublas\n";
  return text + paint(note, Tone::kDim, view.style);
}

Result<std::string> draw_in_flight(Connection& connection, const View& view,
                                   const Options& options) {
  v1::ListInFlightCallsRequest request;
  ASSIGN_OR_RETURN(*request.mutable_filter(), make_filter(options, read_wall_clock_ns()));
  uint64_t look_age_ns = 0;
  ASSIGN_OR_RETURN(const std::vector<v1::InFlightCall> rows,
                   read_pages(connection, kListInFlightCalls, request, options.limit,
                              [&](const v1::ListInFlightCallsResponse& page) {
                                look_age_ns = page.look_age_ns();
                              }));
  if (view.format != Format::kTable) return render_rows(rows, view.format, view.shape, view.style);
  std::string note =
      "gpuperfd has not scanned for calls in flight yet; try again in a few seconds.\n";
  if (look_age_ns != 0) {
    const std::string_view none =
        has_filter(options) ? "No call matches. " : "No call is in flight. ";
    note = fmt::format("{}Last scan: {} ago.\n", rows.empty() ? none : "",
                       format_duration(look_age_ns));
  }
  return fmt::format("{}\n{}", render_in_flight_table(rows, view.style),
                     paint(note, Tone::kDim, view.style));
}

// What the command shows; at most one of the last two.
struct Choice {
  bool per_process = false;
  bool shapes = false;
  bool in_flight = false;
};

Status run_functions(const Invocation& invocation, const Choice& choice) {
  ByteRates rates;
  return run_view(invocation, [&](Connection& connection, const View& view) {
    const Options& options = invocation.options;
    if (choice.shapes) return draw_shapes(connection, view, options);
    if (choice.in_flight) return draw_in_flight(connection, view, options);
    return draw_functions(connection, view, options, choice.per_process, rates);
  });
}

}  // namespace

void declare_functions(CLI::App& app, Invocation& invocation) {
  Options& options = invocation.options;
  const auto choice = std::make_shared<Choice>();
  add_process_flags(app, options);
  add_function_flags(app, options);
  add_sort_flag(app, options,
                "function, or any number in the JSON output, like calls or p99_ns; with --shapes: "
                "flops, calls or total_ns");
  add_limit_flag(app, options);
  add_watch_flag(app, options);
  CLI::Option* per_process =
      app.add_flag("--per-process", choice->per_process, "One row per function and process");
  CLI::Option* shapes =
      app.add_flag("--shapes", choice->shapes, "Show GEMM shapes instead: m, n, k, types");
  CLI::Option* in_flight =
      app.add_flag("--in-flight", choice->in_flight, "Show calls in flight instead, longest first");
  shapes->excludes(per_process)->excludes(in_flight);
  in_flight->excludes(per_process)->excludes(app.get_option("--sort"));
  app.callback([&invocation, choice] {
    invocation.run = [&invocation, choice] { return run_functions(invocation, *choice); };
  });
}

}  // namespace gpuperf::client
