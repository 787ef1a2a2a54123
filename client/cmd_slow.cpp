// gpuperfctl slow list|show|watch: the calls that passed their threshold.

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "client/pages.h"
#include "client/slow_call_text.h"
#include "client/time_split_text.h"
#include "client/view.h"

namespace gpuperf::client {
namespace {

using v1::ListSlowCallsRequest;
using v1::ListSlowCallsResponse;
using v1::SlowCall;

// A slow call with a stack of 127 long C++ names is about 100 kB.
constexpr uint32_t kPageRows = 100;

constexpr ListCall<ListSlowCallsRequest, ListSlowCallsResponse, SlowCall> kListSlowCalls = {
    .rows = &ListSlowCallsResponse::mutable_slow_calls,
    .action = "list slow calls",
    .page_rows = kPageRows};

// `streamed` rows are printed one by one: their columns have room for what usually comes later.
Table make_table(bool streamed) {
  constexpr auto kRight = Column::Align::kRight;
  const auto room = [streamed](int columns) { return streamed ? columns : 0; };
  std::vector<Column> columns = {
      {.title = "ID", .align = kRight, .min_width = room(6)},
      {.title = "START", .min_width = room(23)},
      {.title = "DURATION", .align = kRight},
      {.title = "THRESHOLD", .align = kRight},
      {.title = "MOSTLY", .optional = !streamed, .min_width = room(16)},
      {.title = "CATEGORY", .shrink_to = 8},
      {.title = "FUNCTION", .shrink_to = 20, .min_width = room(28)},
      {.title = "PID", .align = kRight, .min_width = room(7)},
      {.title = "TID", .align = kRight, .min_width = room(7)},
      {.title = "COMM", .shrink_to = 8, .min_width = room(15)},
      {.title = "RETURNED", .shrink_to = 10, .min_width = room(20)},
      {.title = "CONTAINER", .optional = !streamed, .min_width = room(12)},
      {.title = "POD", .optional = !streamed, .shrink_to = 12}};
  return Table(std::move(columns));
}

void add_slow_call(Table& table, const SlowCall& call) {
  const std::string mostly = call.has_time_split() ? describe_main_part(call.time_split()) : "";
  table.add_row({{std::to_string(call.id())},
                 {format_local_time(call.start_unix_ns())},
                 {format_duration(call.duration_ns()), Tone::kWarning},
                 {format_duration(call.threshold_ns())},
                 {mostly},
                 {call.category()},
                 {call.function()},
                 {std::to_string(call.pid())},
                 {std::to_string(call.tid())},
                 {call.comm()},
                 {describe_return_shortly(call), call.in_flight() ? Tone::kBad : Tone::kPlain},
                 {call.container()},
                 {call.pod()}});
}

Result<std::string> draw_list(Connection& connection, const View& view, const Options& options) {
  ListSlowCallsRequest request;
  ASSIGN_OR_RETURN(*request.mutable_filter(), make_filter(options, read_wall_clock_ns()));
  request.set_sort(options.sort);
  ASSIGN_OR_RETURN(const std::vector<SlowCall> rows,
                   read_pages(connection, kListSlowCalls, request, options.limit));
  if (view.format != Format::kTable) return render_rows(rows, view.format, view.shape, view.style);
  Table table = make_table(/*streamed=*/false);
  for (const SlowCall& call : rows) add_slow_call(table, call);
  std::string text = table.take_text(view.style);
  if (rows.empty()) {
    const std::string_view note =
        has_filter(options) ? "\nNo slow call matches. Without filters: gpuperfctl slow list\n"
                            : "\nNo call was slow yet. Thresholds: gpuperfctl probes\n";
    text += paint(note, Tone::kDim, view.style);
  }
  return text;
}

Result<std::string> draw_one(Connection& connection, const View& view, uint64_t id) {
  v1::GetSlowCallRequest request;
  request.set_id(id);
  v1::GetSlowCallResponse response;
  RETURN_IF_ERROR(connection.call(fmt::format("show slow call {}", id), request, &response));
  const SlowCall& call = response.slow_call();
  if (view.format == Format::kTable) {
    return explain_slow_call(call, read_wall_clock_ns(), view.style);
  }
  return render_message(call, view.format, view.shape, view.style);
}

// Prints slow calls as they come, in the form asked for.
class SlowCallPrinter {
 public:
  SlowCallPrinter(const Output& output, Format format)
      : output_(output), format_(format), table_(make_table(/*streamed=*/true)) {}

  // The header: whoever sees it knows that nothing is missed from now on.
  Status begin() {
    if (format_ == Format::kTable) return output_.write(table_.take_text(output_.read_style()));
    if (format_ == Format::kCsv) return output_.write(write_csv_header(*SlowCall::descriptor()));
    return absl::OkStatus();
  }

  Status print(const SlowCall& call) {
    const TextStyle style = output_.read_style();
    if (format_ == Format::kJson) {
      return output_.write(write_json(to_json(call), JsonShape::kOneLine));
    }
    if (format_ == Format::kCsv) return output_.write(write_csv_row(call, style));
    add_slow_call(table_, call);
    return output_.write(table_.take_text(style));
  }

 private:
  const Output& output_;
  Format format_;
  Table table_;
};

void report_missed(uint64_t missed_count) {
  std::cerr << "gpuperfctl: missed " << missed_count
            << ": slow calls came faster than they were read; narrow the filter, or ask for "
               "those kept: gpuperfctl slow list\n";
}

// Reads until `limit` calls were printed (0 = no limit), the user interrupts or the daemon stops.
Status run_watch(const Invocation& invocation) {
  const Options& options = invocation.options;
  ASSIGN_OR_RETURN(const std::unique_ptr<Interrupt> interrupt,
                   Interrupt::make(invocation.output.fd()));
  ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection,
                   connect(invocation, interrupt.get()));
  v1::WatchSlowCallsRequest request;
  ASSIGN_OR_RETURN(*request.mutable_filter(), make_filter(options, read_wall_clock_ns()));
  SlowCallPrinter printer(invocation.output, find_format(options));
  Status printed = absl::OkStatus();
  uint64_t count = 0;
  const auto on_message = [&](const v1::WatchSlowCallsResponse& message) {
    if (!printed.ok()) return false;  // the header was not written
    if (message.missed_count() > 0) report_missed(message.missed_count());
    if (!message.has_slow_call()) return true;
    printed = printer.print(message.slow_call());
    ++count;
    return printed.ok() && (options.limit == 0 || count < options.limit);
  };
  RETURN_IF_ERROR(connection->watch_slow_calls(
      "go on watching slow calls", request, [&] { printed = printer.begin(); }, on_message));
  return printed;
}

void declare_list(CLI::App& slow, Invocation& invocation) {
  Options& options = invocation.options;
  CLI::App& app = *slow.add_subcommand("list", "Slow calls kept, the longest first");
  add_process_flags(app, options);
  add_function_flags(app, options);
  add_time_flags(app, options);
  add_sort_flag(app, options, "duration_ns or start_unix_ns");
  add_limit_flag(app, options);
  add_watch_flag(app, options);
  app.callback([&invocation] {
    invocation.run = [&invocation] {
      return run_view(invocation, [&](Connection& connection, const View& view) {
        return draw_list(connection, view, invocation.options);
      });
    };
  });
}

void declare_show(CLI::App& slow, Invocation& invocation) {
  CLI::App& app = *slow.add_subcommand("show", "One slow call, explained");
  const auto id = std::make_shared<uint64_t>(0);
  app.add_option("ID", *id, "Its number in slow list")
      ->required()
      ->check(make_whole_number_check(1, UINT64_MAX));
  app.callback([&invocation, id] {
    invocation.run = [&invocation, id] {
      return run_view(invocation, [&](Connection& connection, const View& view) {
        return draw_one(connection, view, *id);
      });
    };
  });
}

void declare_watch(CLI::App& slow, Invocation& invocation) {
  Options& options = invocation.options;
  CLI::App& app = *slow.add_subcommand("watch", "Slow calls as they happen, until interrupted");
  add_process_flags(app, options);
  add_function_flags(app, options);
  add_time_flags(app, options);
  app.add_option("--limit", options.limit, "End after so many calls; 0 = never")
      ->check(make_whole_number_check(0, UINT64_MAX))
      ->capture_default_str();
  app.callback([&invocation] { invocation.run = [&invocation] { return run_watch(invocation); }; });
}

}  // namespace

void declare_slow(CLI::App& app, Invocation& invocation) {
  app.require_subcommand(1);
  declare_list(app, invocation);
  declare_show(app, invocation);
  declare_watch(app, invocation);
}

}  // namespace gpuperf::client
