#include "daemon/view/frame_tree.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace gpuperf {

void FrameTree::add(const PathTable& table, std::span<const PathWeight> weights, Side side) {
  std::vector<uint32_t> ours(table.count_frames(), kNoIndex);  // the table's frame -> our name
  const auto get_ours = [&](uint32_t frame) {
    if (ours[frame] == kNoIndex) {
      ours[frame] = add_name(table.get_text(frame), table.get_kind(frame));
    }
    return ours[frame];
  };
  for (const PathWeight& weight : weights) {
    uint32_t node = 0;
    for (const uint32_t frame : table.get_frames(weight.path)) {
      node = add_child(node, get_ours(frame));
    }
    for (const uint32_t frame : {weight.gpu_frame, weight.stall_frame}) {
      if (frame != kNoIndex) node = add_child(node, get_ours(frame));
    }
    nodes_[node].totals[side].self_ns += weight.weight_ns;
    nodes_[node].totals[side].count += weight.count;
  }
}

std::vector<FrameTree::Node> FrameTree::list(Order order) const {
  std::vector<Node> nodes = nodes_;
  for (Node& node : nodes) {
    for (Totals& totals : node.totals) totals.total_ns = totals.self_ns;
  }
  for (size_t index = nodes.size(); index-- > 1;) {
    for (const Side side : {kBefore, kAfter}) {
      Totals& outer = nodes[nodes[index].parent].totals[side];
      outer.total_ns += nodes[index].totals[side].total_ns;
      outer.count += nodes[index].totals[side].count;
    }
  }
  // Children of one parent side by side, the last first: they are taken from a stack.
  const auto weigh = [&](const Node& node) {
    return order == Order::kByName
               ? 0
               : std::max(node.totals[kBefore].total_ns, node.totals[kAfter].total_ns);
  };
  std::vector<uint32_t> by_parent(nodes.size() - 1);
  for (uint32_t index = 0; index < by_parent.size(); ++index) by_parent[index] = index + 1;
  std::sort(by_parent.begin(), by_parent.end(), [&](uint32_t left, uint32_t right) {
    const Node& one = nodes[left];
    const Node& other = nodes[right];
    if (one.parent != other.parent) return one.parent < other.parent;
    if (weigh(one) != weigh(other)) return weigh(one) < weigh(other);
    return names_[one.frame] > names_[other.frame];
  });
  std::vector<uint32_t> begin(nodes.size() + 1, 0);
  for (const uint32_t index : by_parent) ++begin[nodes[index].parent + 1];
  for (size_t index = 1; index < begin.size(); ++index) begin[index] += begin[index - 1];

  std::vector<Node> listed;
  listed.reserve(nodes.size());
  std::vector<std::pair<uint32_t, uint32_t>> open = {{0, kNoIndex}};  // node, its parent's place
  while (!open.empty()) {
    const auto [index, parent] = open.back();
    open.pop_back();
    const auto place = static_cast<uint32_t>(listed.size());
    listed.push_back(nodes[index]);
    listed.back().parent = parent;
    for (uint32_t child = begin[index]; child < begin[index + 1]; ++child) {
      open.emplace_back(by_parent[child], place);
    }
  }
  return listed;
}

uint32_t FrameTree::add_name(const std::string& name, FrameKind kind) {
  const auto [found, is_new] = name_ids_.try_emplace(name, static_cast<uint32_t>(names_.size()));
  if (is_new) {
    names_.push_back(name);
    kinds_.push_back(kind);
  }
  return found->second;
}

uint32_t FrameTree::add_child(uint32_t parent, uint32_t frame) {
  const uint64_t key = uint64_t{parent} << 32 | frame;
  const auto [found, is_new] = children_.try_emplace(key, static_cast<uint32_t>(nodes_.size()));
  if (is_new) {
    nodes_.push_back({.parent = parent, .frame = frame, .depth = nodes_[parent].depth + 1});
  }
  return found->second;
}

FrameTree make_frame_tree(const Capture& capture, const ViewOptions& options) {
  PathTable table(capture, options.path);
  FrameTree tree;
  tree.add(table, weigh_paths(capture, options, table), FrameTree::kAfter);
  return tree;
}

}  // namespace gpuperf
