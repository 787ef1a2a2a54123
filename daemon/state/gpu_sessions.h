#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "daemon/model/drops.h"
#include "daemon/model/gpu_rows.h"
#include "daemon/model/session.h"
#include "daemon/state/gpu_state.h"
#include "daemon/state/session_table.h"

namespace gpuperf {

// All that is known of injected processes: hands each event to those it concerns.
//
// Thread: loop only; times are passed in. Bounds: those of its parts.
class GpuSessions {
 public:
  struct Limits {
    std::chrono::seconds keep_exited{600};
    size_t max_exited_processes = 1'000;
  };

  GpuSessions(const Limits& limits, DropCounters& drops);

  void apply(const SessionEvent& event, int64_t now_mono_ns);
  void set_keep_exited(std::chrono::seconds keep_exited);
  // Call at least every few seconds.
  void expire(int64_t now_mono_ns);

  void fill(GpuReport& report) const;
  // Ids of the open sessions of whoever has this pid, or of this session; 0 = any.
  std::vector<uint64_t> find_open(uint32_t pid, uint64_t session_id) const {
    return table_.find_open(pid, session_id);
  }

 private:
  SessionTable table_;
  GpuStatistics state_;
};

}  // namespace gpuperf
