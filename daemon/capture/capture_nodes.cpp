// Nodes of graphs and who put them there.

#include <algorithm>
#include <tuple>

#include "daemon/capture/capture_builder.h"

namespace gpuperf {
namespace {

// Whether a captured launch becomes a node of this kind. Copies and sets are not told apart:
// CUPTI's records of those in graphs have been seen with the kind and size of another graph's node,
// where handles of destroyed graphs came again (13.0, H200).
bool may_become(std::string_view plain_name, WorkKind kind) {
  if (plain_name.starts_with("cuLaunch")) return kind == WorkKind::kKernel;
  const bool is_memory = plain_name.starts_with("cuMemcpy") || plain_name.starts_with("cuMemset");
  return is_memory && (kind == WorkKind::kCopy || kind == WorkKind::kSet);
}

// Those at the front that are equal by `key`.
template <typename Row, typename Key>
std::span<Row> get_equal(std::span<Row> rows, const Key& key) {
  const auto is_other = [&](const Row& row) { return key(row) != key(rows.front()); };
  return rows.first(std::ranges::find_if(rows, is_other) - rows.begin());
}

}  // namespace

// Nodes of this process that are replays of known captures, by executable, launch and number.
std::vector<CaptureBuilder::Node> CaptureBuilder::list_nodes(uint32_t process_index) {
  Process& process = processes_[process_index];
  std::vector<Node> nodes;
  if (process.replays.empty()) return nodes;
  std::ranges::sort(process.replays, {}, &Replay::launch);
  // This process's work was added last.
  const size_t first_work = capture_.work.size() - process.work.size();
  for (size_t i = 0; i < process.work.size(); ++i) {
    const auto index = static_cast<uint32_t>(first_work + i);
    const CaptureWork& row = capture_.work[index];
    if (row.kind == WorkKind::kGraph || row.graph_id == 0 || process.work[i].has_no_node) continue;
    const auto replay = std::ranges::lower_bound(process.replays, row.launch, {}, &Replay::launch);
    if (replay == process.replays.end() || replay->launch != row.launch) continue;
    nodes.push_back({.captured = replay->captured,
                     .graph_id = row.graph_id,
                     .launch = row.launch,
                     .node_id = row.node_id,
                     .work = index});
  }
  std::ranges::sort(nodes, {}, [](const Node& node) {
    return std::make_tuple(node.captured, node.graph_id, node.launch, node.node_id);
  });
  return nodes;
}

// A graph's nodes are numbered in the order in which they were captured, and its executables keep
// the numbers. So the nodes that one launch replayed, by number, are the captured launches in turn:
// where there are as many of each, and kernels where kernels were launched. What is learned from
// one whole launch holds for every launch of the same executable. Otherwise nothing is said: nodes
// were added by other calls, or launches to other streams fell into the time of the capture.
void CaptureBuilder::place_nodes(uint32_t process_index) {
  const std::vector<Node> nodes = list_nodes(process_index);
  for (std::span rest(nodes); !rest.empty();) {
    const auto exec = get_equal(
        rest, [](const Node& node) { return std::make_pair(node.captured, node.graph_id); });
    rest = rest.subspan(exec.size());
    const CapturedGraph& graph = *captured_[exec.front().captured];
    const std::vector<uint32_t> node_ids = find_node_ids(graph, exec);
    for (const Node& node : exec) {
      const auto place = std::ranges::lower_bound(node_ids, node.node_id);
      if (place == node_ids.end() || *place != node.node_id) continue;
      const uint32_t site = graph.launches[place - node_ids.begin()];
      capture_.work[node.work].capture_site = get_capture_site(process_index, node.captured, site);
    }
  }
}

// The numbers of the captured launches' nodes, by the first launch that is whole; empty = none is.
std::vector<uint32_t> CaptureBuilder::find_node_ids(const CapturedGraph& graph,
                                                    std::span<const Node> exec) {
  while (!exec.empty()) {
    const auto launch = get_equal(exec, [](const Node& node) { return node.launch; });
    exec = exec.subspan(launch.size());
    if (!is_replay_of(graph, launch)) continue;
    std::vector<uint32_t> node_ids;
    for (const Node& node : launch) node_ids.push_back(node.node_id);
    return node_ids;
  }
  return {};
}

// Whether these nodes, by number, are what the graph's captured launches made: each once.
bool CaptureBuilder::is_replay_of(const CapturedGraph& graph, std::span<const Node> nodes) {
  if (nodes.size() != graph.launches.size()) return false;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (i > 0 && nodes[i].node_id == nodes[i - 1].node_id) return false;
    const uint32_t name = get_probed(graph.sites[graph.launches[i]].function_id).plain_name;
    if (!may_become(get_plain_text(name), capture_.work[nodes[i].work].kind)) return false;
  }
  return true;
}

uint32_t CaptureBuilder::get_capture_site(uint32_t process_index, uint32_t captured,
                                          uint32_t site) {
  const auto [known, is_new] = capture_sites_.try_emplace(
      {captured, site}, static_cast<uint32_t>(capture_.capture_sites.size()));
  if (!is_new) return known->second;
  const CapturedGraph& graph = *captured_[captured];
  const CapturedGraph::Site& from = graph.sites[site];
  CaptureLaunch row{.start_mono_ns = graph.captured_mono_ns,
                    .thread = get_thread(process_index, from.tid),
                    .function = get_probed(from.function_id).function,
                    .stack = get_stack(process_index, from.site.stack_id, from.stack),
                    .operation = get_operation(from.site)};
  capture_.capture_sites.push_back(row);
  return known->second;
}

}  // namespace gpuperf
