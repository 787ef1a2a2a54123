#include "daemon/view/flamegraph_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "daemon/view/assets.h"
#include "daemon/view/escape.h"

namespace gpuperf {

namespace {

// Of the drawing without a script, pixels.
constexpr double kWidth = 1200;
constexpr double kPad = 10;
constexpr int kRow = 19;  // as in flamegraph.js
constexpr double kLetter = 7.3;
constexpr double kNarrowest = 3;
constexpr size_t kMostBoxes = 4000;

// At most `letters` of UTF-8, "…" for what is left out; empty where too little would be left.
std::string fit_text(const std::string& text, size_t letters) {
  if (letters < 4) return "";
  size_t seen = 0;
  size_t cut = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if ((static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) continue;
    ++seen;
    if (seen == letters) cut = at;
    if (seen > letters) return text.substr(0, cut) + "…";
  }
  return text;
}

// What is drawn before any script runs.
class StaticBoxes {
 public:
  StaticBoxes(const FlameGraph& graph, const FrameTree& tree,
              std::span<const FrameTree::Node> nodes, int top)
      : graph_(graph), tree_(tree), nodes_(nodes), top_(top) {}

  void draw() {
    std::vector<double> begins(nodes_.size());  // where each node begins
    std::vector<double> filled(nodes_.size());  // and how much of it is taken by children so far
    const auto all_ns = static_cast<double>(get_total(0));
    for (size_t index = 0; index < nodes_.size() && drawn_ < kMostBoxes; ++index) {
      const FrameTree::Node& node = nodes_[index];
      const double width =
          all_ns > 0 ? static_cast<double>(get_total(index)) / all_ns * (kWidth - 2 * kPad) : 0;
      if (node.parent != kNoIndex) {
        begins[index] = begins[node.parent] + filled[node.parent];
        filled[node.parent] += width;
      }
      if (width >= kNarrowest) draw_box(node, kPad + begins[index], width);
    }
  }

  std::string text;
  int height = 0;

 private:
  uint64_t get_total(size_t index) const {
    return nodes_[index].totals[FrameTree::kAfter].total_ns;
  }

  void draw_box(const FrameTree::Node& node, double x, double width) {
    const std::string& name = node.frame == kNoIndex ? all_ : tree_.get_name(node.frame);
    const int y = top_ + static_cast<int>(node.depth) * kRow;
    const uint64_t total_ns = node.totals[FrameTree::kAfter].total_ns;
    fmt::format_to(std::back_inserter(text),
                   "<g class=\"{}\"><title>{}: {} {}</title>"
                   "<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\"/>",
                   get_flamegraph_class(graph_, tree_, node), escape_markup(fit_text(name, 300)),
                   format_grouped(total_ns, 3), escape_markup(graph_.unit), x, y, width - 0.5,
                   kRow - 1);
    const std::string label = fit_text(name, static_cast<size_t>(width / kLetter));
    if (!label.empty()) {
      fmt::format_to(std::back_inserter(text), "<text x=\"{:.2f}\" y=\"{}\">{}</text>", x + 4,
                     y + 14, escape_markup(label));
    }
    text += "</g>\n";
    height = std::max(height, y - top_ + kRow);
    ++drawn_;
  }

  const FlameGraph& graph_;
  const FrameTree& tree_;
  const std::span<const FrameTree::Node> nodes_;
  const int top_;
  const std::string all_ = "all";
  size_t drawn_ = 0;
};

std::string draw_head(const ViewHeader& header) {
  std::string text = fmt::format("<text class=\"fg-title\" x=\"{}\" y=\"26\">{}</text>\n", kPad,
                                 escape_markup(fit_text(header.title, 110)));
  int y = 46;
  for (const std::string& line : header.lines) {
    text += fmt::format("<text class=\"fg-head\" x=\"{}\" y=\"{}\">{}</text>\n", kPad, y,
                        escape_markup(fit_text(line, 160)));
    y += 17;
  }
  return text;
}

std::string draw_legend(bool is_diff, int y) {
  std::string text;
  double x = kPad;
  for (const auto& [colour, meaning] : list_flamegraph_colours(is_diff)) {
    text += fmt::format(
        "<g class=\"{}\"><rect x=\"{:.0f}\" y=\"{}\" width=\"11\" height=\"11\"/>"
        "<text class=\"fg-head\" x=\"{:.0f}\" y=\"{}\">{}</text></g>\n",
        colour, x, y - 10, x + 16, y, meaning);
    x += 40 + static_cast<double>(meaning.size()) * kLetter;
  }
  return text;
}

}  // namespace

std::string render_flamegraph(const Capture& capture, const ViewOptions& options) {
  const FrameTree tree = make_frame_tree(capture, options);
  const std::vector<FrameTree::Node> nodes = tree.list(FrameTree::Order::kByWeight);
  const uint64_t shown_ns = nodes[0].totals[FrameTree::kAfter].total_ns;
  return draw_flamegraph({.header = make_view_header(capture, options, shown_ns)}, tree, nodes);
}

std::string draw_flamegraph(const FlameGraph& graph, const FrameTree& tree,
                            std::span<const FrameTree::Node> nodes) {
  const int legend_y = 54 + static_cast<int>(graph.header.lines.size()) * 17;
  StaticBoxes boxes(graph, tree, nodes, legend_y + 14);
  boxes.draw();
  const int height = legend_y + 14 + boxes.height + static_cast<int>(kPad);

  std::string svg = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"fg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\">\n<title>{2}</title>\n<desc>{3}</desc>\n<style>{4}</style>\n"
      "<rect class=\"fg-ground\" width=\"100%\" height=\"{1}\"/>\n<g class=\"fg-static\">\n",
      kWidth, height, escape_markup(graph.header.title),
      escape_markup(fmt::format("{}", fmt::join(graph.header.lines, ". "))),
      escape_markup(get_flamegraph_style()));
  svg += draw_head(graph.header);
  svg += draw_legend(graph.is_diff, legend_y);
  svg += boxes.text;
  svg += "</g>\n<script><![CDATA[\n";
  svg += get_flamegraph_script();
  svg += "\ndrawFlameGraph(document.documentElement, ";
  svg += make_flamegraph_json(graph, tree, nodes);
  svg += ");\n]]></script>\n</svg>\n";
  return svg;
}

}  // namespace gpuperf
