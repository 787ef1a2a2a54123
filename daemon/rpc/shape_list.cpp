#include "daemon/rpc/shape_list.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "daemon/rpc/function_list.h"
#include "daemon/rpc/to_proto.h"

namespace gpuperf {
namespace {

// What to sort by, largest first.
using Number = double (*)(const v1::Shape& shape);

Number find_sort_number(std::string_view sort) {
  if (sort.empty() || sort == "flops") return [](const auto& shape) { return shape.flops(); };
  if (sort == "calls") {
    return [](const auto& shape) { return static_cast<double>(shape.calls()); };
  }
  if (sort == "total_ns") {
    return [](const auto& shape) { return static_cast<double>(shape.total_ns()); };
  }
  return nullptr;
}

}  // namespace

Result<std::vector<v1::Shape>> list_shapes(const Snapshot& snapshot, const RowFilter& filter,
                                           std::string_view sort) {
  const Number number = find_sort_number(sort);
  if (number == nullptr) {
    return absl::InvalidArgumentError(
        fmt::format("sort: cannot sort by \"{}\"; fields: flops, calls, total_ns", sort));
  }
  using Key = std::tuple<uint32_t, std::array<uint64_t, 4>, std::array<uint16_t, 4>>;
  std::map<Key, ShapeRow> sums;
  for (const auto& row : snapshot.shapes) {
    const Function* function = find_function(snapshot, row->function_id);
    if (function == nullptr || !filter.matches_function(function->category, function->name) ||
        !filter.matches(row->process) || !filter.matches(row->owner)) {
      continue;
    }
    ShapeRow& sum = sums[{row->function_id, row->dimensions, row->types}];
    sum.function_id = row->function_id;
    sum.dimensions = row->dimensions;
    sum.types = row->types;
    sum.calls += row->calls;
    sum.total_ns += row->total_ns;
  }
  std::vector<v1::Shape> shapes;
  shapes.reserve(sums.size());
  for (const auto& [key, sum] : sums) {
    shapes.push_back(to_proto((*snapshot.functions)[sum.function_id], sum));
  }
  std::ranges::stable_sort(shapes, std::ranges::greater(), number);
  return shapes;
}

}  // namespace gpuperf
