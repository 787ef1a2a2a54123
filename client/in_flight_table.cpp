#include "client/in_flight_table.h"

namespace gpuperf::client {

std::string render_in_flight_table(const std::vector<v1::InFlightCall>& calls,
                                   const TextStyle& style) {
  constexpr auto kRight = Column::Align::kRight;
  Table table({{"AGE", kRight},
               {.title = "CATEGORY", .shrink_to = 8},
               {.title = "FUNCTION", .shrink_to = 16},
               {"PID", kRight},
               {"TID", kRight},
               {.title = "COMM", .shrink_to = 8},
               {.title = "CONTAINER", .optional = true},
               {.title = "POD", .optional = true, .shrink_to = 12},
               {.title = "NAMESPACE", .optional = true, .shrink_to = 12}});
  for (const v1::InFlightCall& call : calls) {
    table.add_row({{format_duration(call.age_ns())},
                   {call.category()},
                   {call.function()},
                   {std::to_string(call.pid())},
                   {std::to_string(call.tid())},
                   {call.comm()},
                   {call.container()},
                   {call.pod()},
                   {call.namespace_()}});
  }
  return table.take_text(style);
}

}  // namespace gpuperf::client
