#include "client/attach_text.h"

#include <fmt/format.h>

#include <string_view>

#include "client/duration.h"

namespace gpuperf::client {
namespace {

using v1::Attachment;

Tone find_state_tone(std::string_view state) {
  if (state == "attached" || state == "injected") return Tone::kGood;
  return state == "cannot" ? Tone::kWarning : Tone::kPlain;
}

std::string describe_why(const Attachment& row) {
  if (row.state() == "attached" && row.held_ns() > 0) {
    return fmt::format("held one thread for {}", format_duration(row.held_ns()));
  }
  if (row.detail().empty()) return "";
  return row.hint().empty() ? row.detail() : fmt::format("{}; {}", row.detail(), row.hint());
}

}  // namespace

std::string render_attachments(const std::vector<Attachment>& rows, const TextStyle& style) {
  constexpr auto kRight = Column::Align::kRight;
  Table table({{"PID", kRight},
               {.title = "COMM", .shrink_to = 8},
               {"STATE"},
               {.title = "CONTAINER", .optional = true},
               {.title = "POD", .optional = true, .shrink_to = 12},
               {.title = "WHY", .optional = true, .shrink_to = 30}});
  for (const Attachment& row : rows) {
    table.add_row({{std::to_string(row.pid())},
                   {row.comm()},
                   {row.state(), find_state_tone(row.state())},
                   {row.container()},
                   {row.pod()},
                   {describe_why(row)}});
  }
  return table.take_text(style);
}

}  // namespace gpuperf::client
