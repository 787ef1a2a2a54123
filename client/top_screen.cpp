#include "client/top_screen.h"

#include <fmt/format.h>

#include <optional>

#include "client/in_flight_table.h"
#include "client/render.h"
#include "client/suspension_table.h"

namespace gpuperf::client {
namespace {

using nlohmann::ordered_json;

std::string format_rate(double per_second) {
  if (per_second == 0) return "0";
  if (per_second < 9.95) return fmt::format("{:.1f}", per_second);
  return format_count(static_cast<uint64_t>(per_second + 0.5));
}

std::string render_header(const TopScreen& screen, const TextStyle& style) {
  double calls = 0;
  double errors = 0;
  for (const FunctionRate& rate : screen.rates.functions) {
    calls += rate.calls_per_second;
    errors += rate.errors_per_second;
  }
  const std::string now = format_local_time(read_wall_clock_ns()).substr(11, 8);
  std::string text =
      fmt::format("{}, last {:.2f} s: {} calls/s, {} errors/s", now, screen.rates.interval_seconds,
                  format_rate(calls), format_rate(errors));
  if (screen.status.overhead_ratio() > 0) {
    text += fmt::format("; gpuperf takes an estimated {} of process {}",
                        format_ratio(screen.status.overhead_ratio()), screen.status.overhead_pid());
  }
  if (!screen.status.problems().empty()) {
    text += fmt::format("; {}", paint(fmt::format("problems: {}, see gpuperfctl doctor",
                                                  screen.status.problems_size()),
                                      Tone::kBad, style));
  }
  return text + "\n";
}

// Columns below this width: what is left out is in a wider terminal, or with -o json.
constexpr int kNarrow = 100;

// Which of the rows are shown, and what is marked.
struct ShownRows {
  uint64_t limit = 0;              // 0 = all
  std::optional<size_t> selected;  // shown whatever the limit
  bool per_process = false;
};

size_t find_first(const ShownRows& part) {
  if (part.limit == 0 || !part.selected.has_value() || *part.selected < part.limit) return 0;
  return *part.selected + 1 - part.limit;
}

std::vector<Column> list_columns(const ShownRows& part, bool narrow) {
  constexpr auto kRight = Column::Align::kRight;
  std::vector<Column> columns;
  if (part.selected.has_value()) columns.push_back({.title = " "});
  if (part.per_process) {
    columns.insert(columns.end(), {{"PID", kRight}, {.title = "COMM", .shrink_to = 8}});
  } else {
    if (!narrow) columns.push_back({.title = "CATEGORY", .shrink_to = 8});
    columns.push_back({.title = "FUNCTION", .shrink_to = 16});
  }
  columns.insert(columns.end(), {{"TIME", kRight},
                                 {"CALLS/S", kRight},
                                 {"ERRORS/S", kRight},
                                 {"AVG", kRight},
                                 {"P99", kRight}});
  if (!narrow) columns.push_back({"BYTES/S", kRight});
  columns.insert(columns.end(), {{"IN-FLIGHT", kRight}, {"OLDEST", kRight}});
  if (!narrow) columns.push_back({.title = "COVERAGE", .align = kRight, .optional = true});
  return columns;
}

std::vector<Cell> make_row(const FunctionRate& rate, const ShownRows& part, bool narrow,
                           bool marked) {
  const auto duration = [](uint64_t ns) { return ns == 0 ? "" : format_duration(ns); };
  std::vector<Cell> cells;
  const Tone name_tone = marked ? Tone::kHeader : Tone::kPlain;
  if (part.selected.has_value()) cells.push_back({marked ? ">" : " ", name_tone});
  if (part.per_process) {
    cells.insert(cells.end(), {{std::to_string(rate.pid)}, {rate.comm, name_tone}});
  } else {
    if (!narrow) cells.push_back({rate.category});
    cells.push_back({rate.function, name_tone});
  }
  const bool failing = rate.errors_per_second > 0;
  cells.insert(cells.end(),
               {{format_ratio(rate.time_ratio)},
                {format_rate(rate.calls_per_second)},
                {format_rate(rate.errors_per_second), failing ? Tone::kBad : Tone::kPlain},
                {duration(rate.avg_ns)},
                {duration(rate.p99_ns)}});
  if (!narrow) {
    const auto bytes = static_cast<uint64_t>(rate.bytes_per_second + 0.5);
    cells.push_back({bytes == 0 ? "" : format_bytes(bytes)});
  }
  cells.insert(cells.end(), {{format_count(rate.in_flight)}, {duration(rate.oldest_in_flight_ns)}});
  if (!narrow) {
    cells.push_back({rate.coverage < 1 ? format_ratio(rate.coverage) : "", Tone::kWarning});
  }
  return cells;
}

std::string render_functions(const FunctionRates& rates, const ShownRows& part,
                             const TextStyle& style) {
  if (rates.functions.empty()) {
    return paint("No probed function was called, and no call is in flight.\n", Tone::kDim, style);
  }
  const bool narrow = style.columns > 0 && style.columns < kNarrow;
  Table table(list_columns(part, narrow));
  const size_t first = find_first(part);
  for (size_t i = first; i < rates.functions.size(); ++i) {
    if (part.limit != 0 && i >= first + part.limit) break;
    table.add_row(make_row(rates.functions[i], part, narrow, part.selected == i));
  }
  return table.take_text(style);
}

// What the keys do, and what they have chosen.
std::string render_keys(const TopState& state, const TextStyle& style) {
  if (state.is_filtering)
    return fmt::format("Filter: {}_  (Enter keeps it, Esc clears it)\n", state.filter);
  std::string text = fmt::format(
      "q quit  s sort: {}  {}", list_top_sorts()[state.sort],
      state.opened.has_value() ? "Esc back"
                               : fmt::format("/ filter{}  Enter processes  ↑↓ select",
                                             state.filter.empty() ? "" : ": " + state.filter));
  return paint(make_printable(text), Tone::kDim, style) + "\n";
}

std::string render_slow_calls(const std::vector<v1::SlowCall>& calls, const TextStyle& style) {
  if (calls.empty()) return "";
  constexpr auto kRight = Column::Align::kRight;
  Table table({{"ID", kRight}, {"START"}, {"DURATION", kRight}, {"PID", kRight}, {"COMM"}});
  for (const v1::SlowCall& call : calls) {
    table.add_row({{std::to_string(call.id())},
                   {format_local_time(call.start_unix_ns())},
                   {format_duration(call.duration_ns())},
                   {std::to_string(call.pid())},
                   {call.comm()}});
  }
  return "\nLast slow calls (gpuperfctl slow show ID)\n" + table.take_text(style);
}

std::string render_in_flight(const std::vector<v1::InFlightCall>& calls, const TextStyle& style) {
  if (calls.empty()) return "";
  std::vector<v1::InFlightCall> rows = calls;
  for (v1::InFlightCall& row : rows) row.clear_namespace_();  // a screen has no room for it
  return "\nLongest calls in flight\n" + render_in_flight_table(rows, style);
}

std::string render_rest(const TopScreen& screen, const TextStyle& style) {
  const std::string in_flight = render_in_flight(screen.in_flight, style);
  if (screen.status.suspensions().empty()) return in_flight;
  return in_flight + "\nSuspended by the overhead budget\n" +
         render_suspension_table(screen.status.suspensions(), "", style);
}

ordered_json to_json(const FunctionRate& rate) {
  return {{"category", rate.category},
          {"function", rate.function},
          {"time_ratio", rate.time_ratio},
          {"calls_per_second", rate.calls_per_second},
          {"errors_per_second", rate.errors_per_second},
          {"avg_ns", rate.avg_ns},
          {"p99_ns", rate.p99_ns},
          {"bytes_per_second", rate.bytes_per_second},
          {"in_flight", rate.in_flight},
          {"oldest_in_flight_ns", rate.oldest_in_flight_ns},
          {"coverage", rate.coverage}};
}

ordered_json list_functions(const TopScreen& screen, uint64_t limit) {
  ordered_json functions = ordered_json::array();
  for (const FunctionRate& rate : screen.rates.functions) {
    if (limit == 0 || functions.size() < limit) functions.push_back(to_json(rate));
  }
  return functions;
}

}  // namespace

std::string render_top(const TopScreen& screen, uint64_t limit, const TextStyle& style) {
  return render_header(screen, style) + "\n" +
         render_functions(screen.rates, {.limit = limit}, style) + render_rest(screen, style);
}

std::string render_full_screen(const TopScreen& screen, const TopState& state, uint64_t limit,
                               const TextStyle& style) {
  const std::string of =
      !state.opened.has_value()
          ? "\n"
          : paint(fmt::format("{} ({}), by process\n", make_printable(state.opened->second),
                              make_printable(state.opened->first)),
                  Tone::kHeader, style);
  ShownRows part = {.limit = limit, .per_process = state.opened.has_value()};
  if (!part.per_process) part.selected = state.selected;  // a process cannot be opened
  return render_header(screen, style) + render_keys(state, style) + of +
         render_functions(screen.rates, part, style) + render_slow_calls(screen.slow_calls, style) +
         render_rest(screen, style);
}

uint64_t find_function_room(const TopScreen& screen, int terminal_rows) {
  const auto section = [](size_t rows) { return rows == 0 ? 0 : rows + 3; };
  const size_t others = section(screen.in_flight.size()) +
                        section(static_cast<size_t>(screen.status.suspensions_size())) +
                        section(screen.slow_calls.size()) + 5;
  const auto rows = static_cast<size_t>(terminal_rows);
  return rows > others + 3 ? rows - others : 3;
}

ordered_json to_json(const TopScreen& screen, uint64_t limit) {
  ordered_json in_flight = ordered_json::array();
  ordered_json suspensions = ordered_json::array();
  for (const auto& call : screen.in_flight) in_flight.push_back(to_json(call));
  for (const auto& row : screen.status.suspensions()) suspensions.push_back(to_json(row));
  return {{"interval_seconds", screen.rates.interval_seconds},
          {"functions", list_functions(screen, limit)},
          {"in_flight_calls", std::move(in_flight)},
          {"suspensions", std::move(suspensions)}};
}

std::string write_top_csv(const TopScreen& screen, uint64_t limit, const TextStyle& style) {
  return write_csv(to_json(FunctionRate()), list_functions(screen, limit), style);
}

}  // namespace gpuperf::client
