#include "client/shape_table.h"

#include <fmt/format.h>

namespace gpuperf::client {
namespace {

// Three digits, or whole with separators.
std::string format_gflop(double flops) {
  const double gflop = flops / 1e9;
  return gflop < 999.5 ? fmt::format("{:.3g}", gflop)
                       : format_count(static_cast<uint64_t>(gflop + 0.5));
}

}  // namespace

std::string describe_types(const v1::Shape& shape) {
  const std::string& a = shape.a_type();
  const std::string& compute = shape.compute_type();
  std::string text = a;
  if (shape.b_type() != a) text += fmt::format(" x {}", shape.b_type());
  if (shape.c_type() != a || shape.b_type() != a) text += fmt::format(" -> {}", shape.c_type());
  if (compute != shape.c_type()) text += fmt::format(" in {}", compute);
  return text;
}

std::string render_shape_table(const std::vector<v1::Shape>& shapes, const TextStyle& style) {
  constexpr auto kRight = Column::Align::kRight;
  Table table({{.title = "CATEGORY", .shrink_to = 8},
               {.title = "FUNCTION", .shrink_to = 16},
               {"M", kRight},
               {"N", kRight},
               {"K", kRight},
               {"BATCH", kRight},
               {"TYPES"},
               {"CALLS", kRight},
               {"TOTAL", kRight},
               {"GFLOP", kRight},
               {"GFLOP/CALL", kRight}});
  for (const v1::Shape& shape : shapes) {
    const double per_call =
        shape.calls() == 0 ? 0 : shape.flops() / static_cast<double>(shape.calls());
    table.add_row({{shape.category()},
                   {shape.function()},
                   {std::to_string(shape.m())},
                   {std::to_string(shape.n())},
                   {std::to_string(shape.k())},
                   {std::to_string(shape.batch())},
                   {describe_types(shape)},
                   {format_count(shape.calls())},
                   {format_duration(shape.total_ns())},
                   {format_gflop(shape.flops())},
                   {format_gflop(per_call)}});
  }
  return table.take_text(style);
}

}  // namespace gpuperf::client
