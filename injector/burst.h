#pragma once

// A burst under way: for a bounded time more is recorded, the kernels inside graphs (by node) or
// every call of the API.
//
// Thread: under the collector's lock.

#include <cstdint>

#include "injector/cupti_records.h"
#include "injector/session_abi.h"

namespace gpuperf::injector {

class Burst {
 public:
  // Bursts by node may be asked for: what they cost is graph level, for good. Before the first
  // order.
  void allow_nodes() { allows_nodes_ = true; }
  // One by node was asked for and not allowed.
  bool refuses_nodes() const { return refuses_nodes_; }

  void begin(const gpuperf_control& control, const CuptiRecords& records, uint64_t now_ms);
  void end() { flags_ = 0; }
  // Ends a burst by node early by what its records show. `saw_nodes`: kernels inside graphs since
  // the last look.
  void watch(const CuptiRecords& records, bool saw_nodes, uint64_t now_ms);

  bool is_on() const { return flags_ != 0; }
  bool is_over(uint64_t now_ms) const { return is_on() && now_ms >= end_ms_; }
  bool is_by_node() const { return (flags_ & GPUPERF_SESSION_BURST_NODES) != 0; }
  bool has_all_apis() const { return (flags_ & GPUPERF_SESSION_BURST_ALL_APIS) != 0; }

 private:
  bool allows_nodes_ = false;
  bool refuses_nodes_ = false;
  uint32_t flags_ = 0;
  uint64_t end_ms_ = 0;
  uint64_t nodes_before_ = 0;
  uint64_t launches_before_ = 0;  // when the last kernel inside a graph was seen
};

}  // namespace gpuperf::injector
