#include "client/view.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace gpuperf::client {
namespace {

constexpr std::string_view kClearScreen = "\x1b[H\x1b[2J";

std::string make_watch_header(double interval_seconds) {
  const std::string now = format_local_time(read_wall_clock_ns());
  return fmt::format("Every {:g} s, {} (Ctrl-C ends)\n\n", interval_seconds, now.substr(11, 8));
}

// What stands around one drawing of a watch.
std::string frame(const Output& output, Format format, double interval_seconds, bool first,
                  const std::string& text) {
  if (output.is_terminal() && format == Format::kTable) {
    return make_screen(output, make_watch_header(interval_seconds) + text);
  }
  return first || format == Format::kJson ? text : "\n" + text;
}

Status run_watch(const Invocation& invocation, const Draw& draw, double interval_seconds) {
  const Output& output = invocation.output;
  ASSIGN_OR_RETURN(const std::unique_ptr<Interrupt> interrupt, Interrupt::make(output.fd()));
  ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection,
                   connect(invocation, interrupt.get()));
  const Format format = find_format(invocation.options);
  const auto interval = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(interval_seconds));
  bool first = true;
  do {
    const View view = {format, JsonShape::kOneLine, output.read_style()};
    ASSIGN_OR_RETURN(const std::string text, draw(*connection, view));
    RETURN_IF_ERROR(output.write(frame(output, format, interval_seconds, first, text)));
    first = false;
  } while (interrupt->wait_for(interval));
  return absl::OkStatus();
}

}  // namespace

Result<std::unique_ptr<Connection>> connect(const Invocation& invocation, Interrupt* interrupt) {
  return Connection::open(invocation.options.address, invocation.options.tls,
                          find_timeout(invocation.options), interrupt);
}

Result<std::unique_ptr<Connection>> connect_to_change(const Invocation& invocation) {
  return Connection::open(invocation.options.address, invocation.options.tls,
                          find_change_timeout(invocation.options), nullptr);
}

std::string make_screen(const Output& output, const std::string& text) {
  const std::string lines = cut_to_width(text, output.read_style().columns);
  return std::string(kClearScreen) + cut_to_height(lines, output.read_rows());
}

std::string cut_to_height(const std::string& text, int rows) {
  const auto lines = std::count(text.begin(), text.end(), '\n');
  if (rows < 3 || lines < rows) return text;  // the cursor needs a line of its own
  const int kept = rows - 2;
  size_t end = 0;
  for (int i = 0; i < kept; ++i) end = text.find('\n', end) + 1;
  return text.substr(0, end) + fmt::format("… {} more lines\n", lines - kept);
}

Status run_view(const Invocation& invocation, const Draw& draw) {
  if (invocation.options.watch_seconds.has_value()) {
    return run_watch(invocation, draw, *invocation.options.watch_seconds);
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, connect(invocation, nullptr));
  const View view = {find_format(invocation.options), JsonShape::kIndented,
                     invocation.output.read_style()};
  ASSIGN_OR_RETURN(const std::string text, draw(*connection, view));
  return invocation.output.write(text);
}

}  // namespace gpuperf::client
