// gpuperfctl top: which functions take the time right now, which calls do not come back, and what
// the overhead budget has taken out.

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "client/pages.h"
#include "client/top_screen.h"
#include "client/view.h"

namespace gpuperf::client {
namespace {

constexpr double kIntervalSeconds = 2;
constexpr uint64_t kInFlightRows = 5;

uint64_t read_mono_clock_ns() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

Result<FunctionTotalsSample> read_sample(Connection& connection, const Options& options) {
  v1::ListFunctionsRequest request;
  ASSIGN_OR_RETURN(*request.mutable_filter(), make_filter(options, read_wall_clock_ns()));
  FunctionTotalsSample sample = {.asked_mono_ns = read_mono_clock_ns()};
  const auto note_moment = [&sample](const v1::ListFunctionsResponse& page) {
    sample.taken_mono_ns = page.taken_mono_ns();
  };
  ASSIGN_OR_RETURN(sample.functions,
                   read_pages(connection, kListFunctions, request, 0, note_moment));
  return sample;
}

Status read_rest(Connection& connection, const Options& options, TopScreen& screen) {
  v1::ListInFlightCallsRequest request;
  ASSIGN_OR_RETURN(*request.mutable_filter(), make_filter(options, read_wall_clock_ns()));
  request.mutable_page()->set_limit(kInFlightRows);
  v1::ListInFlightCallsResponse response;
  RETURN_IF_ERROR(connection.call("list calls in flight", request, &response));
  screen.in_flight.assign(response.calls().begin(), response.calls().end());
  return connection.call("read the status", v1::GetStatusRequest(), &screen.status);
}

Result<std::string> render(const TopScreen& screen, const View& view,
                           const Invocation& invocation) {
  const uint64_t limit = invocation.options.limit;
  if (view.format == Format::kJson) return write_json(to_json(screen, limit), view.shape);
  if (view.format == Format::kCsv) return write_top_csv(screen, limit, view.style);
  const int rows = invocation.output.read_rows();
  if (limit != 0 || rows == 0) return render_top(screen, limit, view.style);
  return render_top(screen, find_function_room(screen, rows), view.style);
}

// `live`: again and again; else once.
Status show(const Invocation& invocation, Interrupt& interrupt, Connection& connection, bool live) {
  const Output& output = invocation.output;
  const Options& options = invocation.options;
  const double seconds = options.watch_seconds.value_or(kIntervalSeconds);
  const auto interval =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
  const Format format = find_format(options);
  const bool redraw = live && output.is_terminal() && format == Format::kTable;
  if (redraw) RETURN_IF_ERROR(output.write(fmt::format("Measuring for {:g} s …\n", seconds)));
  ASSIGN_OR_RETURN(FunctionTotalsSample before, read_sample(connection, options));
  bool first = true;
  while (interrupt.wait_for(interval)) {
    ASSIGN_OR_RETURN(FunctionTotalsSample now, read_sample(connection, options));
    TopScreen screen = {.rates = compute_rates(before, now)};
    RETURN_IF_ERROR(read_rest(connection, options, screen));
    const View view = {format, live ? JsonShape::kOneLine : JsonShape::kIndented,
                       output.read_style()};
    ASSIGN_OR_RETURN(std::string text, render(screen, view, invocation));
    if (redraw) text = make_screen(output, text);
    if (!first && !redraw && format != Format::kJson) text = "\n" + text;
    RETURN_IF_ERROR(output.write(text));
    if (!live) return absl::OkStatus();
    first = false;
    before = std::move(now);
  }
  return absl::OkStatus();
}

Status run_top(const Invocation& invocation, bool once) {
  const bool asked_again = invocation.options.watch_seconds.has_value();
  const bool live = !once && (invocation.output.is_terminal() || asked_again);
  ASSIGN_OR_RETURN(const std::unique_ptr<Interrupt> interrupt,
                   Interrupt::make(invocation.output.fd()));
  ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection,
                   connect(invocation, interrupt.get()));
  return show(invocation, *interrupt, *connection, live);
}

}  // namespace

void declare_top(CLI::App& app, Invocation& invocation) {
  Options& options = invocation.options;
  const auto once = std::make_shared<bool>(false);
  add_process_flags(app, options);
  add_function_flags(app, options);
  add_limit_flag(app, options);
  add_watch_flag(app, options);
  app.add_flag("--once", *once, "One answer; the default where output is no terminal");
  app.callback([&invocation, once] {
    invocation.run = [&invocation, once] { return run_top(invocation, *once); };
  });
}

}  // namespace gpuperf::client
