#pragma once

#include <span>
#include <string>

#include "daemon/model/capture.h"
#include "daemon/view/flamegraph_data.h"
#include "daemon/view/formats.h"

namespace gpuperf {

// One SVG file that needs nothing beside it: zoom, search, and what is under the pointer by a
// script in it; a drawing of the widest boxes for viewers that run none. Paths begin at the top.
std::string render_flamegraph(const Capture& capture, const ViewOptions& options);

// The same of a tree that is there already.
std::string draw_flamegraph(const FlameGraph& graph, const FrameTree& tree,
                            std::span<const FrameTree::Node> nodes);

}  // namespace gpuperf
