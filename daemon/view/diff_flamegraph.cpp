#include <fmt/format.h>

#include <algorithm>

#include "daemon/view/diff.h"
#include "daemon/view/diff_tree.h"
#include "daemon/view/escape.h"
#include "daemon/view/flamegraph_svg.h"

namespace gpuperf {

namespace {

constexpr size_t kNamedGone = 3;  // in the header; the button shows all

// "3 paths are gone, 12.345 µs per second: …"; empty = none.
std::string describe_gone(const Capture& before, const Capture& after, const ViewOptions& options) {
  std::vector<DiffRow> rows = diff_captures(before, after, {.view = options});
  std::erase_if(rows, [](const DiffRow& row) { return row.after_count > 0; });
  if (rows.empty()) return "";
  uint64_t sum_ns = 0;
  for (const DiffRow& row : rows) sum_ns += row.before_ns;
  std::string text =
      fmt::format("{} {} gone, {} per second; “Widths: before” shows {}. Largest: ",
                  format_grouped(rows.size(), 0), rows.size() == 1 ? "path is" : "paths are",
                  format_duration(sum_ns), rows.size() == 1 ? "it" : "them");
  for (size_t index = 0; index < std::min(rows.size(), kNamedGone); ++index) {
    const std::string& path = rows[index].name;
    text += fmt::format("{}{} ({})", index == 0 ? "" : "; ", path.substr(path.rfind(';') + 1),
                        format_duration(rows[index].before_ns));
  }
  return text;
}

}  // namespace

std::string render_diff_flamegraph(const Capture& before, const Capture& after,
                                   const ViewOptions& options) {
  const FrameTree tree = make_diff_tree(before, after, options, DiffScale::kPerSecond);
  const std::vector<FrameTree::Node> nodes = tree.list(FrameTree::Order::kByWeight);
  const uint64_t before_ns = nodes[0].totals[FrameTree::kBefore].total_ns;
  const uint64_t after_ns = nodes[0].totals[FrameTree::kAfter].total_ns;

  FlameGraph graph = {.is_diff = true, .unit = "µs per second"};
  graph.header.title = options.title.empty() ? "Change of time by host stack" : options.title;
  graph.header.lines = {fmt::format("{} per second before, {} after", format_duration(before_ns),
                                    format_duration(after_ns)),
                        "Before: " + describe_window(before) + "; " + describe_matches(before),
                        "After: " + describe_window(after) + "; " + describe_matches(after)};
  if (std::string gone = describe_gone(before, after, options); !gone.empty()) {
    graph.header.lines.push_back(std::move(gone));
  }
  return draw_flamegraph(graph, tree, nodes);
}

}  // namespace gpuperf
