#pragma once

#include <absl/container/flat_hash_map.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "daemon/view/call_path.h"
#include "daemon/view/path_weights.h"

namespace gpuperf {

// Paths of one capture, or of two that are compared, put together where they begin alike.
//
// Thread: one. Owns its names: the tables that paths came from may go. Grows with distinct paths.
class FrameTree {
 public:
  enum Side : size_t { kBefore = 0, kAfter = 1 };  // a single capture is kAfter
  enum class Order { kByName, kByWeight };

  struct Totals {
    uint64_t self_ns = 0;   // of paths that end here
    uint64_t total_ns = 0;  // and of those that go on
    uint64_t count = 0;     // pieces of work or calls, as total_ns
    bool operator==(const Totals&) const = default;
  };
  struct Node {
    uint32_t parent = kNoIndex;  // an index below this one's
    uint32_t frame = kNoIndex;   // for get_name(); of the root kNoIndex
    uint32_t depth = 0;          // of the root 0
    std::array<Totals, 2> totals;
  };

  FrameTree() { nodes_.push_back({}); }

  void add(const PathTable& table, std::span<const PathWeight> weights, Side side);

  // Every node behind its parent: outer frames first, each followed by all inside it. Siblings by
  // name, or the largest first. Node 0 is the root. Totals are complete.
  std::vector<Node> list(Order order) const;

  const std::string& get_name(uint32_t frame) const { return names_[frame]; }
  FrameKind get_kind(uint32_t frame) const { return kinds_[frame]; }
  size_t count_names() const { return names_.size(); }

 private:
  uint32_t add_name(const std::string& name, FrameKind kind);
  uint32_t add_child(uint32_t parent, uint32_t frame);

  std::vector<Node> nodes_;  // in order of first use
  std::vector<std::string> names_;
  std::vector<FrameKind> kinds_;
  absl::flat_hash_map<std::string, uint32_t> name_ids_;
  absl::flat_hash_map<uint64_t, uint32_t> children_;  // by parent and frame
};

// The weights of a capture as a tree.
FrameTree make_frame_tree(const Capture& capture, const ViewOptions& options);

}  // namespace gpuperf
