#include "daemon/view/frame_ranking.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace gpuperf {

namespace {

constexpr size_t kMostRanked = 200;      // nobody reads more; each costs a pass over all frames
constexpr double kNearlyEqual = 0.99;    // ranks; scaled times are rounded
constexpr double kPreferPython = 0.5;    // of the rank of machine code inside
constexpr double kHoldsNearlyAll = 0.9;  // of a change

// One way down to work.
struct Path {
  uint32_t node = kNoIndex;
  int64_t delta_ns = 0;
  bool is_explained = false;
  std::vector<uint32_t> frames;  // candidates on it, each once, outermost first
};

struct Candidate {
  RankedFrame row;
  std::vector<uint32_t> paths;  // through it
  int64_t left_ns = 0;          // of its change, not explained yet
  uint64_t depth_sum = 0;       // of it in its paths
  bool is_listed = false;
};

class Ranking {
 public:
  Ranking(const FrameTree& tree, std::span<const FrameTree::Node> nodes,
          std::span<const std::array<uint64_t, 2>> counts)
      : tree_(tree), nodes_(nodes), counts_(counts), candidates_(tree.count_names()) {
    for (uint32_t node = 1; node < nodes.size(); ++node) {
      if (counts[node][0] + counts[node][1] > 0) add_path(node);
    }
  }

  std::vector<RankedFrame> rank() {
    std::vector<RankedFrame> rows;
    while (rows.size() < kMostRanked) {
      const uint32_t best = prefer_python(find_best());
      if (best == kNoIndex) break;
      Candidate& chosen = candidates_[best];
      chosen.row.explained_ns = chosen.left_ns;
      chosen.is_listed = true;
      for (const uint32_t path : chosen.paths) explain(path);
      rows.push_back(chosen.row);
    }
    append_rest(rows);
    return rows;
  }

 private:
  void add_path(uint32_t node) {
    Path path = {.node = node,
                 .delta_ns = static_cast<int64_t>(nodes_[node].totals[1].self_ns) -
                             static_cast<int64_t>(nodes_[node].totals[0].self_ns)};
    path.frames = list_candidates(node);
    const auto index = static_cast<uint32_t>(paths_.size());
    for (size_t depth = 0; depth < path.frames.size(); ++depth) {
      Candidate& candidate = candidates_[path.frames[depth]];
      candidate.row.frame = path.frames[depth];
      candidate.row.before_ns += nodes_[node].totals[0].self_ns;
      candidate.row.after_ns += nodes_[node].totals[1].self_ns;
      candidate.row.before_count += counts_[node][0];
      candidate.row.after_count += counts_[node][1];
      candidate.row.delta_ns += path.delta_ns;
      candidate.left_ns += path.delta_ns;
      candidate.depth_sum += depth;
      const bool is_most =
          candidate.paths.empty() || std::abs(path.delta_ns) > std::abs(most_change(candidate));
      candidate.paths.push_back(index);
      if (is_most) candidate.row.most_changed = node;
    }
    paths_.push_back(std::move(path));
  }

  int64_t most_change(const Candidate& candidate) const {
    const FrameTree::Node& node = nodes_[candidate.row.most_changed];
    return static_cast<int64_t>(node.totals[1].self_ns) -
           static_cast<int64_t>(node.totals[0].self_ns);
  }

  // The host's own functions on the way to a node; all frames where there are none.
  std::vector<uint32_t> list_candidates(uint32_t node) const {
    std::vector<uint32_t> host;
    std::vector<uint32_t> all;
    for (uint32_t at = node; nodes_[at].frame != kNoIndex; at = nodes_[at].parent) {
      const uint32_t frame = nodes_[at].frame;
      const FrameKind kind = tree_.get_kind(frame);
      const bool is_host = kind == FrameKind::kPython || kind == FrameKind::kNative;
      for (std::vector<uint32_t>* list : {&host, &all}) {
        if (list == &host && !is_host) continue;
        if (std::find(list->begin(), list->end(), frame) == list->end()) list->push_back(frame);
      }
    }
    std::vector<uint32_t>& chosen = host.empty() ? all : host;
    std::reverse(chosen.begin(), chosen.end());
    return std::move(chosen);
  }

  double get_rank(const Candidate& candidate) const {
    const auto most =
        static_cast<double>(std::max(candidate.row.before_ns, candidate.row.after_ns));
    const auto left = static_cast<double>(candidate.left_ns);
    return candidate.is_listed || most == 0 ? 0 : left * left / most;
  }

  static double get_depth(const Candidate& candidate) {
    return static_cast<double>(candidate.depth_sum) / static_cast<double>(candidate.paths.size());
  }

  // kNoIndex: nothing is left to explain.
  uint32_t find_best() const {
    double highest = 0;
    for (const Candidate& candidate : candidates_) {
      highest = std::max(highest, get_rank(candidate));
    }
    uint32_t best = kNoIndex;
    for (uint32_t frame = 0; frame < candidates_.size() && highest > 0; ++frame) {
      if (get_rank(candidates_[frame]) < highest * kNearlyEqual) continue;
      if (best == kNoIndex || get_depth(candidates_[frame]) > get_depth(candidates_[best])) {
        best = frame;
      }
    }
    return best;
  }

  // The Python function around machine code, where that tells nearly as much.
  uint32_t prefer_python(uint32_t best) const {
    if (best == kNoIndex || tree_.get_kind(best) == FrameKind::kPython) return best;
    const Candidate& chosen = candidates_[best];
    const double enough = get_rank(chosen) * kPreferPython;
    const double held = std::abs(static_cast<double>(chosen.left_ns)) * kHoldsNearlyAll;
    uint32_t found = kNoIndex;
    const Path* path = find_path(chosen.row.most_changed);
    if (path == nullptr) return best;
    for (const uint32_t frame : path->frames) {
      if (frame == best) break;
      const Candidate& other = candidates_[frame];
      if (tree_.get_kind(frame) != FrameKind::kPython || get_rank(other) < enough) continue;
      if (std::abs(static_cast<double>(other.left_ns)) < held) continue;
      if (found == kNoIndex || get_rank(other) >= get_rank(candidates_[found]) * kNearlyEqual) {
        found = frame;
      }
    }
    return found == kNoIndex ? best : found;
  }

  // Paths are in the order of their nodes.
  const Path* find_path(uint32_t node) const {
    const auto found =
        std::lower_bound(paths_.begin(), paths_.end(), node,
                         [](const Path& path, uint32_t wanted) { return path.node < wanted; });
    return found != paths_.end() && found->node == node ? &*found : nullptr;
  }

  void explain(uint32_t index) {
    Path& path = paths_[index];
    if (path.is_explained) return;
    path.is_explained = true;
    for (const uint32_t frame : path.frames) candidates_[frame].left_ns -= path.delta_ns;
  }

  void append_rest(std::vector<RankedFrame>& rows) const {
    const auto begin = static_cast<ptrdiff_t>(rows.size());
    for (const Candidate& candidate : candidates_) {
      if (candidate.row.frame != kNoIndex && !candidate.is_listed) rows.push_back(candidate.row);
    }
    std::sort(rows.begin() + begin, rows.end(),
              [&](const RankedFrame& left, const RankedFrame& right) {
                const int64_t one = std::abs(left.delta_ns);
                const int64_t other = std::abs(right.delta_ns);
                return one != other ? one > other
                                    : tree_.get_name(left.frame) < tree_.get_name(right.frame);
              });
  }

  const FrameTree& tree_;
  const std::span<const FrameTree::Node> nodes_;
  const std::span<const std::array<uint64_t, 2>> counts_;
  std::vector<Path> paths_;
  std::vector<Candidate> candidates_;  // by frame of the tree
};

}  // namespace

std::vector<RankedFrame> rank_frames(const FrameTree& tree, std::span<const FrameTree::Node> nodes,
                                     std::span<const std::array<uint64_t, 2>> counts) {
  return Ranking(tree, nodes, counts).rank();
}

}  // namespace gpuperf
