#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/view/frame_tree.h"
#include "daemon/view/view_header.h"

namespace gpuperf {

// A flame graph before it is drawn.
struct FlameGraph {
  ViewHeader header;
  bool is_diff = false;
  std::string unit = "µs";  // "µs per second" where captures are compared
};

// What drawFlameGraph() of assets/flamegraph.js takes: JSON that may stand in any script.
std::string make_flamegraph_json(const FlameGraph& graph, const FrameTree& tree,
                                 std::span<const FrameTree::Node> nodes);

// Colour class and meaning, in the order of a legend.
std::span<const std::array<std::string_view, 2>> list_flamegraph_colours(bool is_diff);

// The class of a node's box: "k4" by its kind, "d0" (shrunk) to "d8" (grown) by its change.
std::string get_flamegraph_class(const FlameGraph& graph, const FrameTree& tree,
                                 const FrameTree::Node& node);

}  // namespace gpuperf
