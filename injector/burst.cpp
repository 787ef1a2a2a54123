#include "injector/burst.h"

namespace gpuperf::injector {
namespace {

// Kernels after which a burst by node ends. Device buffers were seen not to come back while graphs
// that GRAPH_TRACE had covered ran by node: with 32 of them, 3,198,400 kernels were recorded and
// then, silently, none.
constexpr uint64_t kNodesMax = 2'500'000;
// Graph launches in a burst by node without a record of any kernel inside.
constexpr uint64_t kSilentGraphLaunches = 20;

}  // namespace

void Burst::begin(const gpuperf_control& control, const CuptiRecords& records, uint64_t now_ms) {
  flags_ = control.burst_flags;
  if (is_by_node() && !allows_nodes_) {
    flags_ &= ~GPUPERF_SESSION_BURST_NODES;
    refuses_nodes_ = true;  // the status reports it from now on
  }
  nodes_before_ = records.node_count();
  launches_before_ = records.graph_launch_count();
  const uint32_t longest_ms = GPUPERF_SESSION_BURST_MS_MAX;
  end_ms_ = now_ms + (control.burst_ms < longest_ms ? control.burst_ms : longest_ms);
}

void Burst::watch(const CuptiRecords& records, bool saw_nodes, uint64_t now_ms) {
  if (!is_by_node()) return;
  if (saw_nodes) launches_before_ = records.graph_launch_count();
  if (records.node_count() - nodes_before_ >= kNodesMax ||
      records.graph_launch_count() - launches_before_ >= kSilentGraphLaunches) {
    end_ms_ = now_ms;  // the gap and its cause are recorded as for any other end
  }
}

}  // namespace gpuperf::injector
