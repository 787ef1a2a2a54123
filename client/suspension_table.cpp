#include "client/suspension_table.h"

#include <fmt/format.h>

namespace gpuperf::client {

std::string render_suspension_table(
    const google::protobuf::RepeatedPtrField<v1::Suspension>& suspensions, std::string_view indent,
    const TextStyle& style) {
  constexpr auto kRight = Column::Align::kRight;
  Table table({{fmt::format("{}CATEGORY", indent)},
               {.title = "FUNCTION", .shrink_to = 20},
               {"SHARE", kRight},
               {"PID", kRight},
               {.title = "COMM", .shrink_to = 8},
               {"COUNTED IN", kRight},
               {"TIMES", kRight}});
  for (const v1::Suspension& row : suspensions) {
    const bool any_moment = row.remaining_ns() == 0;
    table.add_row({{fmt::format("{}{}", indent, row.category())},
                   {row.function()},
                   {format_ratio(row.share_ratio()), Tone::kWarning},
                   {row.pid() == 0 ? "" : std::to_string(row.pid())},
                   {row.comm()},
                   {any_moment ? "any moment" : format_duration(row.remaining_ns())},
                   {format_count(row.times())}});
  }
  return table.take_text(style);
}

}  // namespace gpuperf::client
