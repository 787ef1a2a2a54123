#include "daemon/view/flamegraph_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "daemon/view/escape.h"

namespace gpuperf {

namespace {

using Colour = std::array<std::string_view, 2>;
constexpr auto kKindColours = std::to_array<Colour>({{"k1", "Python"},
                                                     {"k2", "native code"},
                                                     {"k3", "CUDA libraries and API"},
                                                     {"k4", "GPU kernels"},
                                                     {"k5", "GPU copies and memsets"},
                                                     {"k0", "other"}});
constexpr auto kChangeColours = std::to_array<Colour>({{"d8", "grown a lot, or new"},
                                                       {"d6", "grown"},
                                                       {"d4", "as before"},
                                                       {"d2", "shrunk"},
                                                       {"d0", "shrunk a lot"}});

template <typename Rows, typename Write>
void write_list(std::string& json, std::string_view key, const Rows& rows, Write write) {
  json += fmt::format(",\"{}\":[", key);
  bool is_first = true;
  for (const auto& row : rows) {
    if (!is_first) json += ',';
    is_first = false;
    write(row);
  }
  json += ']';
}

}  // namespace

std::string make_flamegraph_json(const FlameGraph& graph, const FrameTree& tree,
                                 std::span<const FrameTree::Node> nodes) {
  std::string json =
      fmt::format("{{\"title\":{},\"unit\":{},\"is_diff\":{}", to_json_string(graph.header.title),
                  to_json_string(graph.unit), graph.is_diff);
  write_list(json, "lines", graph.header.lines,
             [&](const std::string& line) { json += to_json_string(line); });
  write_list(json, "legend", list_flamegraph_colours(graph.is_diff), [&](const Colour& colour) {
    json += fmt::format("[\"{}\",\"{}\"]", colour[0], colour[1]);
  });
  std::vector<uint32_t> names(tree.count_names());
  std::string kinds;
  for (uint32_t name = 0; name < names.size(); ++name) {
    names[name] = name;
    kinds += static_cast<char>('0' + static_cast<int>(tree.get_kind(name)));
  }
  write_list(json, "names", names,
             [&](uint32_t name) { json += to_json_string(tree.get_name(name)); });
  json += fmt::format(",\"kinds\":\"{}\"", kinds);
  write_list(json, "nodes", nodes, [&](const FrameTree::Node& node) {
    const uint32_t name = node.frame == kNoIndex ? 0 : node.frame;
    fmt::format_to(std::back_inserter(json), "{},{},{}", node.depth, name,
                   node.totals[FrameTree::kAfter].self_ns);
    if (!graph.is_diff) return;
    fmt::format_to(std::back_inserter(json), ",{}", node.totals[FrameTree::kBefore].self_ns);
  });
  json += '}';
  return json;
}

std::span<const Colour> list_flamegraph_colours(bool is_diff) {
  if (is_diff) return kChangeColours;
  return kKindColours;
}

std::string get_flamegraph_class(const FlameGraph& graph, const FrameTree& tree,
                                 const FrameTree::Node& node) {
  if (node.frame == kNoIndex) return "k0";
  if (!graph.is_diff) return fmt::format("k{}", static_cast<int>(tree.get_kind(node.frame)));
  const auto before = static_cast<double>(node.totals[FrameTree::kBefore].total_ns);
  const auto after = static_cast<double>(node.totals[FrameTree::kAfter].total_ns);
  const double most = std::max(before, after);
  const double change = most > 0 ? (after - before) / most : 0;
  return fmt::format("d{}", static_cast<int>(std::floor(change * 4 + 4.5)));  // as Math.round
}

}  // namespace gpuperf
