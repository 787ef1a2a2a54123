#include "client/request_text.h"

#include <fmt/format.h>

#include "client/render.h"
#include "client/step_text.h"

namespace gpuperf::client {
namespace {

constexpr auto kRight = Column::Align::kRight;

// "512 ms step 17: prefill, 8,192 tokens", the longest step of the wait; else the one before its
// end, which took none of it.
std::string describe_steps(const v1::RequestWait& wait) {
  if (wait.longest_step_id() == 0) {
    return wait.duration_ns() == 0 ? "" : "no step within it";
  }
  const std::string tokens =
      wait.longest_step_tokens() == 0
          ? ""
          : fmt::format(", {} tokens", format_count(wait.longest_step_tokens()));
  return fmt::format("{} step {}: {}{}", format_duration(wait.longest_step_ns()),
                     wait.longest_step_id(), name_phase(wait.longest_step_phase()), tokens);
}

std::string describe_servers(const std::vector<v1::RequestProcess>& rows) {
  const v1::RequestProcess& busiest = rows.front();
  if (busiest.requests_per_second() == 0) {
    return "No process has begun to answer a request within the last 10 seconds.";
  }
  const std::string gaps = busiest.gaps() == 0
                               ? ""
                               : fmt::format(", and then for 99 of 100 parts at most {}",
                                             format_duration(busiest.gap_p99_ns()));
  return fmt::format(
      "{} (pid {}) answers {:.3g} requests per second; 99 of 100 clients wait at most {} for the "
      "first part{}.",
      make_printable(busiest.comm()), busiest.pid(), busiest.requests_per_second(),
      format_duration(busiest.first_p99_ns()), gaps);
}

}  // namespace

std::string render_request_processes(const std::vector<v1::RequestProcess>& rows,
                                     const TextStyle& style) {
  Table table({{"PID", kRight},
               {.title = "COMM", .shrink_to = 8},
               {"REQUESTS", kRight},
               {"PER SECOND", kRight},
               {"OPEN", kRight},
               {"FIRST P50", kRight},
               {"P99", kRight},
               {"GAP P50", kRight},
               {"P99", kRight},
               {"SLOW", kRight},
               {.title = "STATE", .optional = true},
               {.title = "CONTAINER", .optional = true},
               {.title = "POD", .optional = true, .shrink_to = 12}});
  for (const v1::RequestProcess& row : rows) {
    table.add_row({{std::to_string(row.pid())},
                   {row.comm()},
                   {format_count(row.requests())},
                   {fmt::format("{:.3g}", row.requests_per_second())},
                   {format_count(row.open())},
                   {format_duration(row.first_p50_ns())},
                   {format_duration(row.first_p99_ns())},
                   {row.gaps() == 0 ? "" : format_duration(row.gap_p50_ns())},
                   {row.gaps() == 0 ? "" : format_duration(row.gap_p99_ns())},
                   {format_count(row.slow_requests())},
                   {row.exited() ? "exited" : ""},
                   {row.container()},
                   {row.pod()}});
  }
  return (rows.empty() ? "" : describe_servers(rows) + "\n\n") + table.take_text(style);
}

std::string render_requests(const std::vector<v1::Request>& rows, const TextStyle& style) {
  Table table({{"ID", kRight},
               {"STARTED"},
               {"PID", kRight},
               {.title = "COMM", .shrink_to = 8},
               {"DURATION", kRight},
               {"FIRST", kRight},
               {"LONGEST GAP", kRight},
               {.title = "LONGEST WAIT SPENT ON", .shrink_to = 20},
               {"PARTS", kRight},
               {.title = "STATE", .optional = true},
               {.title = "CONTAINER", .optional = true},
               {.title = "POD", .optional = true, .shrink_to = 12}});
  for (const v1::Request& row : rows) {
    const bool is_gap = row.longest_gap().duration_ns() > row.first().duration_ns();
    table.add_row({{std::to_string(row.id())},
                   {format_local_time(row.start_unix_ns())},
                   {std::to_string(row.pid())},
                   {row.comm()},
                   {format_duration(row.duration_ns())},
                   {row.parts() == 0 ? "" : format_duration(row.first().duration_ns())},
                   {row.parts() < 2 ? "" : format_duration(row.longest_gap().duration_ns())},
                   {describe_steps(is_gap ? row.longest_gap() : row.first())},
                   {format_count(row.parts())},
                   {row.slow()   ? "slow"
                    : row.open() ? "open"
                                 : ""},
                   {row.container()},
                   {row.pod()}});
  }
  return table.take_text(style);
}

}  // namespace gpuperf::client
