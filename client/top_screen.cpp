#include "client/top_screen.h"

#include <fmt/format.h>

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
    text += fmt::format("; probes take at most {} (process {})",
                        format_ratio(screen.status.overhead_ratio()), screen.status.overhead_pid());
  }
  if (!screen.status.problems().empty()) {
    text += fmt::format("; {}", paint(fmt::format("problems: {}, see gpuperfctl doctor",
                                                  screen.status.problems_size()),
                                      Tone::kBad, style));
  }
  return text + "\n";
}

std::string render_functions(const FunctionRates& rates, uint64_t limit, const TextStyle& style) {
  constexpr auto kRight = Column::Align::kRight;
  if (rates.functions.empty()) {
    return paint("No probed function was called, and no call is in flight.\n", Tone::kDim, style);
  }
  Table table({{.title = "CATEGORY", .shrink_to = 8},
               {.title = "FUNCTION", .shrink_to = 16},
               {"TIME", kRight},
               {"CALLS/S", kRight},
               {"ERRORS/S", kRight},
               {"AVG", kRight},
               {"P99", kRight},
               {"BYTES/S", kRight},
               {"IN-FLIGHT", kRight},
               {"OLDEST", kRight},
               {.title = "COVERAGE", .align = kRight, .optional = true}});
  for (size_t i = 0; i < rates.functions.size() && (limit == 0 || i < limit); ++i) {
    const FunctionRate& rate = rates.functions[i];
    const auto duration = [](uint64_t ns) { return ns == 0 ? "" : format_duration(ns); };
    const bool failing = rate.errors_per_second > 0;
    table.add_row({{rate.category},
                   {rate.function},
                   {format_ratio(rate.time_ratio)},
                   {format_rate(rate.calls_per_second)},
                   {format_rate(rate.errors_per_second), failing ? Tone::kBad : Tone::kPlain},
                   {duration(rate.avg_ns)},
                   {duration(rate.p99_ns)},
                   {rate.bytes_per_second < 0.5
                        ? ""
                        : format_bytes(static_cast<uint64_t>(rate.bytes_per_second + 0.5))},
                   {format_count(rate.in_flight)},
                   {duration(rate.oldest_in_flight_ns)},
                   {rate.coverage < 1 ? format_ratio(rate.coverage) : "", Tone::kWarning}});
  }
  return table.take_text(style);
}

std::string render_in_flight(const std::vector<v1::InFlightCall>& calls, const TextStyle& style) {
  if (calls.empty()) return "";
  std::vector<v1::InFlightCall> rows = calls;
  for (v1::InFlightCall& row : rows) row.clear_namespace_();  // a screen has no room for it
  return "\nLongest calls in flight\n" + render_in_flight_table(rows, style);
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
  std::string text = render_header(screen, style) + "\n" +
                     render_functions(screen.rates, limit, style) +
                     render_in_flight(screen.in_flight, style);
  if (screen.status.suspensions().empty()) return text;
  return text + "\nSuspended by the overhead budget\n" +
         render_suspension_table(screen.status.suspensions(), "", style);
}

uint64_t find_function_room(const TopScreen& screen, int terminal_rows) {
  const auto section = [](size_t rows) { return rows == 0 ? 0 : rows + 3; };
  const size_t others = section(screen.in_flight.size()) +
                        section(static_cast<size_t>(screen.status.suspensions_size())) + 4;
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
