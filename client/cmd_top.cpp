// gpuperfctl top: which functions take the time right now, which calls do not come back, and what
// the overhead budget has suspended.

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/pages.h"
#include "client/terminal.h"
#include "client/top_screen.h"
#include "client/top_state.h"
#include "client/view.h"

namespace gpuperf::client {
namespace {

constexpr double kIntervalSeconds = 2;
constexpr uint64_t kInFlightRows = 5;
constexpr uint64_t kSlowRows = 5;

uint64_t read_mono_clock_ns() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

// What is asked for: of one function, by process, where it is opened.
Result<v1::Filter> make_top_filter(const Options& options, const TopState& state) {
  ASSIGN_OR_RETURN(v1::Filter filter, make_filter(options, read_wall_clock_ns()));
  if (!state.opened.has_value()) return filter;
  filter.set_category(state.opened->first);
  filter.set_function(state.opened->second);
  return filter;
}

Result<FunctionTotalsSample> read_sample(Connection& connection, const Options& options,
                                         const TopState& state) {
  v1::ListFunctionsRequest request;
  ASSIGN_OR_RETURN(*request.mutable_filter(), make_top_filter(options, state));
  request.set_per_process(state.opened.has_value());
  request.set_with_buckets(true);
  FunctionTotalsSample sample = {.asked_mono_ns = read_mono_clock_ns()};
  const auto note_moment = [&sample](const v1::ListFunctionsResponse& page) {
    sample.taken_mono_ns = page.taken_mono_ns();
  };
  ASSIGN_OR_RETURN(sample.functions,
                   read_pages(connection, kListFunctions, request, 0, note_moment));
  return sample;
}

Status read_rest(Connection& connection, const Options& options, const TopState& state,
                 TopScreen& screen) {
  v1::ListInFlightCallsRequest request;
  ASSIGN_OR_RETURN(*request.mutable_filter(), make_top_filter(options, state));
  request.mutable_page()->set_limit(kInFlightRows);
  v1::ListInFlightCallsResponse response;
  RETURN_IF_ERROR(connection.call("list calls in flight", request, &response));
  screen.in_flight.assign(response.calls().begin(), response.calls().end());
  if (state.opened.has_value()) {
    v1::ListSlowCallsRequest slow;
    *slow.mutable_filter() = request.filter();
    slow.set_sort("start_unix_ns");
    ASSIGN_OR_RETURN(screen.slow_calls, read_pages(connection, kListSlowCalls, slow, kSlowRows));
  }
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

std::chrono::nanoseconds to_interval(double seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(seconds));
}

// The whole terminal, steered by keys.
//
// Thread: one. Borrows everything it is made with.
class FullScreenTop {
 public:
  FullScreenTop(const Invocation& invocation, Interrupt& interrupt, Connection& connection,
                FullScreen& terminal)
      : invocation_(invocation),
        interrupt_(interrupt),
        connection_(connection),
        terminal_(terminal) {}

  // Until a key, a signal or the terminal's end says so.
  Status run() {
    const auto interval = to_interval(invocation_.options.watch_seconds.value_or(kIntervalSeconds));
    RETURN_IF_ERROR(begin());
    auto next = steady_clock::now() + interval;
    while (interrupt_.wait_for_input(
        STDIN_FILENO, std::max(next - steady_clock::now(), steady_clock::duration::zero()))) {
      const auto opened = state_.opened;
      for (const Key& key : terminal_.read_keys()) apply_key(state_, key, shown_.rates.functions);
      if (state_.quits || terminal_.has_ended()) return absl::OkStatus();
      if (state_.opened != opened) {
        RETURN_IF_ERROR(begin());
        next = steady_clock::now() + interval;
      } else if (steady_clock::now() >= next) {
        RETURN_IF_ERROR(measure());
        next = steady_clock::now() + interval;
      }
      RETURN_IF_ERROR(draw());
    }
    return absl::OkStatus();
  }

 private:
  using steady_clock = std::chrono::steady_clock;

  Status begin() {
    ASSIGN_OR_RETURN(before_, read_sample(connection_, invocation_.options, state_));
    screen_.reset();
    return draw();
  }

  Status measure() {
    ASSIGN_OR_RETURN(FunctionTotalsSample now,
                     read_sample(connection_, invocation_.options, state_));
    screen_ = TopScreen{.rates = compute_rates(before_, now)};
    before_ = std::move(now);
    return read_rest(connection_, invocation_.options, state_, *screen_);
  }

  Status draw() {
    const Output& output = invocation_.output;
    if (!screen_.has_value()) {
      shown_ = {};
      return output.write(make_screen(output, "Measuring … (q quits)\n"));
    }
    shown_ = *screen_;
    shown_.rates = arrange(screen_->rates, state_);
    state_.selected = std::min(
        state_.selected, shown_.rates.functions.empty() ? 0 : shown_.rates.functions.size() - 1);
    const uint64_t asked = invocation_.options.limit;
    const uint64_t limit = asked != 0 ? asked : find_function_room(shown_, output.read_rows());
    return output.write(
        make_screen(output, render_full_screen(shown_, state_, limit, output.read_style())));
  }

  // Set once in the constructor.
  const Invocation& invocation_;
  Interrupt& interrupt_;
  Connection& connection_;
  FullScreen& terminal_;
  // What the keys and the daemon said.
  TopState state_;
  FunctionTotalsSample before_;
  std::optional<TopScreen> screen_;  // empty = not measured yet
  TopScreen shown_;                  // the rows on the terminal
};

// `live`: again and again; else once.
Status show(const Invocation& invocation, Interrupt& interrupt, Connection& connection, bool live) {
  const Output& output = invocation.output;
  const Options& options = invocation.options;
  const double seconds = options.watch_seconds.value_or(kIntervalSeconds);
  const auto interval = to_interval(seconds);
  const Format format = find_format(options);
  const bool redraw = live && output.is_terminal() && format == Format::kTable;
  if (redraw) RETURN_IF_ERROR(output.write(fmt::format("Measuring for {:g} s …\n", seconds)));
  ASSIGN_OR_RETURN(FunctionTotalsSample before, read_sample(connection, options, TopState()));
  bool first = true;
  while (interrupt.wait_for(interval)) {
    ASSIGN_OR_RETURN(FunctionTotalsSample now, read_sample(connection, options, TopState()));
    TopScreen screen = {.rates = compute_rates(before, now)};
    RETURN_IF_ERROR(read_rest(connection, options, TopState(), screen));
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
  if (live && find_format(invocation.options) == Format::kTable) {
    ASSIGN_OR_RETURN(const std::unique_ptr<FullScreen> terminal,
                     FullScreen::open(invocation.output, STDIN_FILENO));
    if (terminal != nullptr) {
      return FullScreenTop(invocation, *interrupt, *connection, *terminal).run();
    }
  }
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
  app.add_flag("--once", *once, "Print once and exit; default if the output is not a terminal");
  app.callback([&invocation, once] {
    invocation.run = [&invocation, once] { return run_top(invocation, *once); };
  });
}

}  // namespace gpuperf::client
