#pragma once

// The current burst: for a limited time, more is collected: kernels inside graphs (by node), every
// API call, or what the warps of kernels do.
//
// Thread: under the collector's lock.

#include <cstdint>

#include "injector/cupti_records.h"
#include "injector/session_abi.h"

namespace gpuperf::injector {

class Burst {
 public:
  // Allows bursts by node, which cost graph level for good. Call before the first order.
  void allow_nodes() { allows_nodes_ = true; }
  // A burst by node was requested and not allowed.
  bool refuses_nodes() const { return refuses_nodes_; }

  void begin(const gpuperf_control& control, const CuptiRecords& records, uint64_t now_ms);
  void end() { flags_ = 0; }
  // Ends a burst by node early if its records call for it. `saw_nodes`: kernels inside graphs were
  // recorded since the last call.
  void watch(const CuptiRecords& records, bool saw_nodes, uint64_t now_ms);

  bool is_on() const { return flags_ != 0; }
  bool is_over(uint64_t now_ms) const { return is_on() && now_ms >= end_ms_; }
  bool is_by_node() const { return (flags_ & GPUPERF_SESSION_BURST_NODES) != 0; }
  bool has_samples() const { return (flags_ & GPUPERF_SESSION_BURST_SAMPLES) != 0; }
  bool has_all_apis() const { return (flags_ & GPUPERF_SESSION_BURST_ALL_APIS) != 0; }

 private:
  bool allows_nodes_ = false;
  bool refuses_nodes_ = false;
  uint32_t flags_ = 0;
  uint64_t end_ms_ = 0;
  uint64_t nodes_before_ = 0;
  uint64_t launches_before_ = 0;  // graph launches when the last kernel inside a graph was seen
};

}  // namespace gpuperf::injector
