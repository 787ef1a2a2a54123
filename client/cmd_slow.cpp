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
#include "client/stack_text.h"
#include "client/time_split_text.h"
#include "client/view.h"

namespace gpuperf::client {
namespace {

using v1::ListSlowCallsRequest;
using v1::SlowCall;

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
                            : "\nNo slow call yet. Thresholds: gpuperfctl probes\n";
    text += paint(note, Tone::kDim, view.style);
  }
  return text;
}

// Of the call's own stack and of its waits.
std::string draw_folded(SlowCall call, const TextStyle& style) {
  int folded = fold_interpreter_frames(*call.mutable_user_stack());
  if (call.has_time_split()) {
    for (v1::Wait& wait : *call.mutable_time_split()->mutable_waits()) {
      folded += fold_interpreter_frames(*wait.mutable_waker()->mutable_stack());
    }
  }
  std::string text = explain_slow_call(call, read_wall_clock_ns(), style);
  if (folded == 0) return text;
  return text +
         paint(fmt::format(
                   "\n{} of the Python interpreter {} hidden; show {} with --interpreter-frames\n",
                   folded == 1 ? "1 frame" : fmt::format("{} frames", folded),
                   folded == 1 ? "is" : "are", folded == 1 ? "it" : "them"),
               Tone::kDim, style);
}

Result<std::string> draw_one(Connection& connection, const View& view, uint64_t id,
                             bool interpreter_frames) {
  v1::GetSlowCallRequest request;
  request.set_id(id);
  v1::GetSlowCallResponse response;
  RETURN_IF_ERROR(connection.call(fmt::format("show slow call {}", id), request, &response));
  const SlowCall& call = response.slow_call();
  if (view.format == Format::kTable) {
    if (!interpreter_frames) return draw_folded(call, view.style);
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
            << ": slow calls came faster than they were read; narrow the filter, or list those "
               "that were kept: gpuperfctl slow list\n";
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
  CLI::App& app = *slow.add_subcommand("list", "List the slow calls that were kept, longest first");
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
  CLI::App& app = *slow.add_subcommand("show", "Explain one slow call");
  const auto id = std::make_shared<uint64_t>(0);
  app.add_option("ID", *id, "Id from slow list")
      ->required()
      ->check(make_whole_number_check(1, UINT64_MAX));
  const auto interpreter_frames = std::make_shared<bool>(false);
  add_interpreter_flag(app, [interpreter_frames] { *interpreter_frames = true; });
  app.callback([&invocation, id, interpreter_frames] {
    invocation.run = [&invocation, id, interpreter_frames] {
      return run_view(invocation, [&](Connection& connection, const View& view) {
        return draw_one(connection, view, *id, *interpreter_frames);
      });
    };
  });
}

void declare_watch(CLI::App& slow, Invocation& invocation) {
  Options& options = invocation.options;
  CLI::App& app =
      *slow.add_subcommand("watch", "Print slow calls as they happen, until interrupted");
  add_process_flags(app, options);
  add_function_flags(app, options);
  add_time_flags(app, options);
  app.add_option("--limit", options.limit, "Stop after this many calls; 0 = never")
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
