#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "daemon/view/frame_tree.h"

namespace gpuperf {

// A function and its change, everything it called included.
struct RankedFrame {
  uint32_t frame = kNoIndex;         // of the tree
  uint32_t most_changed = kNoIndex;  // node that ends the path through it which changed most
  uint64_t before_ns = 0;
  uint64_t after_ns = 0;
  int64_t delta_ns = 0;
  int64_t explained_ns = 0;
  uint64_t before_count = 0;
  uint64_t after_count = 0;
};

// The frames of a tree of two captures, best explanation first: the rule is at diff_captures().
// `counts`: of work, or of calls, of each node alone. Ranks 200 frames so; the others follow by
// their change.
std::vector<RankedFrame> rank_frames(const FrameTree& tree, std::span<const FrameTree::Node> nodes,
                                     std::span<const std::array<uint64_t, 2>> counts);

}  // namespace gpuperf
