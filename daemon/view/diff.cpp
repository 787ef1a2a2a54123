#include "daemon/view/diff.h"

#include <absl/container/flat_hash_map.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "daemon/view/diff_tree.h"
#include "daemon/view/frame_ranking.h"

namespace gpuperf {

namespace {

constexpr auto kBefore = FrameTree::kBefore;
constexpr auto kAfter = FrameTree::kAfter;

void scale_weights(std::vector<PathWeight>& weights, const Capture& capture, DiffScale scale) {
  uint64_t whole = 1'000'000'000;
  switch (scale) {
    case DiffScale::kAbsolute:
      return;
    case DiffScale::kPerSecond:
      whole = capture.duration_ns;
      break;
    case DiffScale::kShare:
      whole = 0;
      for (const PathWeight& weight : weights) whole += weight.weight_ns;
      break;
  }
  if (whole == 0) return;
  for (PathWeight& weight : weights) {
    const long double part = static_cast<long double>(weight.weight_ns) / whole;
    weight.weight_ns = static_cast<uint64_t>(std::llroundl(part * 1e9L));
  }
}

// The frames of every node's path, joined.
std::string make_path_name(const FrameTree& tree, std::span<const FrameTree::Node> nodes,
                           uint32_t node) {
  std::vector<uint32_t> frames;
  for (uint32_t at = node; nodes[at].frame != kNoIndex; at = nodes[at].parent) {
    frames.push_back(nodes[at].frame);
  }
  std::string name;
  for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
    if (!name.empty()) name += ';';
    name += tree.get_name(*frame);
  }
  return name;
}

int64_t get_change(const FrameTree::Totals& before, const FrameTree::Totals& after) {
  return static_cast<int64_t>(after.self_ns) - static_cast<int64_t>(before.self_ns);
}

// Of a node alone: its `count` is of all that is inside, too.
std::vector<std::array<uint64_t, 2>> count_own(std::span<const FrameTree::Node> nodes) {
  std::vector<std::array<uint64_t, 2>> counts(nodes.size());
  for (size_t index = nodes.size(); index-- > 0;) {
    for (const auto side : {kBefore, kAfter}) {
      counts[index][side] += nodes[index].totals[side].count;
      if (nodes[index].parent == kNoIndex) continue;
      counts[nodes[index].parent][side] -= nodes[index].totals[side].count;
    }
  }
  return counts;
}

DiffRow make_row(const FrameTree::Node& node, const std::array<uint64_t, 2>& counts) {
  const int64_t change = get_change(node.totals[kBefore], node.totals[kAfter]);
  return {.before_ns = node.totals[kBefore].self_ns,
          .after_ns = node.totals[kAfter].self_ns,
          .delta_ns = change,
          .explained_ns = change,
          .before_count = counts[kBefore],
          .after_count = counts[kAfter]};
}

// Whether a path ends there.
bool is_path(const FrameTree::Node& node, const std::array<uint64_t, 2>& counts) {
  return counts[kBefore] + counts[kAfter] + node.totals[kBefore].self_ns +
             node.totals[kAfter].self_ns >
         0;
}

std::vector<DiffRow> list_paths(const FrameTree& tree, std::span<const FrameTree::Node> nodes) {
  const std::vector<std::array<uint64_t, 2>> counts = count_own(nodes);
  std::vector<DiffRow> rows;
  for (uint32_t index = 1; index < nodes.size(); ++index) {
    if (!is_path(nodes[index], counts[index])) continue;
    rows.push_back(make_row(nodes[index], counts[index]));
    rows.back().name = make_path_name(tree, nodes, index);
  }
  return rows;
}

// By the last frame.
std::vector<DiffRow> list_kernels(const FrameTree& tree, std::span<const FrameTree::Node> nodes) {
  const std::vector<std::array<uint64_t, 2>> counts = count_own(nodes);
  std::vector<DiffRow> rows;
  std::vector<uint32_t> most_changed;
  absl::flat_hash_map<uint32_t, size_t> by_frame;
  for (uint32_t index = 1; index < nodes.size(); ++index) {
    if (!is_path(nodes[index], counts[index])) continue;
    const auto [found, is_new] = by_frame.try_emplace(nodes[index].frame, rows.size());
    const DiffRow own = make_row(nodes[index], counts[index]);
    if (is_new) {
      rows.push_back(own);
      rows.back().name = tree.get_name(nodes[index].frame);
      most_changed.push_back(index);
      continue;
    }
    DiffRow& row = rows[found->second];
    row.before_ns += own.before_ns;
    row.after_ns += own.after_ns;
    row.delta_ns += own.delta_ns;
    row.explained_ns += own.delta_ns;
    row.before_count += own.before_count;
    row.after_count += own.after_count;
    uint32_t& most = most_changed[found->second];
    const FrameTree::Node& other = nodes[most];
    const int64_t other_change = get_change(other.totals[kBefore], other.totals[kAfter]);
    if (std::abs(own.delta_ns) > std::abs(other_change)) most = index;
  }
  for (size_t row = 0; row < rows.size(); ++row) {
    rows[row].path = make_path_name(tree, nodes, most_changed[row]);
  }
  return rows;
}

std::vector<DiffRow> list_frames(const FrameTree& tree, std::span<const FrameTree::Node> nodes) {
  const std::vector<std::array<uint64_t, 2>> counts = count_own(nodes);
  std::vector<RankedFrame> ranked = rank_frames(tree, nodes, counts);
  std::vector<DiffRow> rows;
  rows.reserve(ranked.size());
  for (const RankedFrame& frame : ranked) {
    rows.push_back({.name = tree.get_name(frame.frame),
                    .path = make_path_name(tree, nodes, frame.most_changed),
                    .before_ns = frame.before_ns,
                    .after_ns = frame.after_ns,
                    .delta_ns = frame.delta_ns,
                    .explained_ns = frame.explained_ns,
                    .before_count = frame.before_count,
                    .after_count = frame.after_count});
  }
  return rows;
}

void sort_by_change(std::vector<DiffRow>& rows) {
  std::sort(rows.begin(), rows.end(), [](const DiffRow& left, const DiffRow& right) {
    const int64_t one = std::abs(left.delta_ns);
    const int64_t other = std::abs(right.delta_ns);
    return one != other ? one > other : left.name < right.name;
  });
}

}  // namespace

FrameTree make_diff_tree(const Capture& before, const Capture& after, const ViewOptions& options,
                         DiffScale scale) {
  FrameTree tree;
  for (const auto side : {kBefore, kAfter}) {
    const Capture& capture = side == kBefore ? before : after;
    PathTable table(capture, options.path);
    std::vector<PathWeight> weights = weigh_paths(capture, options, table);
    scale_weights(weights, capture, scale);
    tree.add(table, weights, side);
  }
  return tree;
}

std::vector<DiffRow> diff_captures(const Capture& before, const Capture& after,
                                   const DiffOptions& options) {
  const FrameTree tree = make_diff_tree(before, after, options.view, options.scale);
  const std::vector<FrameTree::Node> nodes = tree.list(FrameTree::Order::kByName);
  std::vector<DiffRow> rows;
  switch (options.by) {
    case DiffBy::kPath:
      rows = list_paths(tree, nodes);
      break;
    case DiffBy::kKernel:
    case DiffBy::kStall:
      rows = list_kernels(tree, nodes);
      break;
    case DiffBy::kFrame:
      rows = list_frames(tree, nodes);
      break;
  }
  if (options.by != DiffBy::kFrame) sort_by_change(rows);
  if (options.limit > 0 && rows.size() > options.limit) rows.resize(options.limit);
  return rows;
}

}  // namespace gpuperf
