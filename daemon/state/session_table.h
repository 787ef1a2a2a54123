#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/model/drops.h"
#include "daemon/model/gpu_rows.h"
#include "daemon/model/session.h"

namespace gpuperf {

// The sessions of injected processes: those that are open and those that were lately.
//
// Thread: loop only; times are passed in. Rows handed out by `fill` never change: the next change
// copies. Bounds: the ingest bounds open sessions; closed ones leave after `keep_closed`, and
// earlier, oldest first, when there are more than `max_closed`: nothing but their rows is lost.
class SessionTable {
 public:
  struct Limits {
    std::chrono::seconds keep_closed{600};
    size_t max_closed = 1'000;
  };

  explicit SessionTable(const Limits& limits) : limits_(limits) {}
  SessionTable(const SessionTable&) = delete;
  SessionTable& operator=(const SessionTable&) = delete;

  // Of ids that are not open all but the first are ignored.
  void apply(SessionOpened opened);
  void apply(const SessionStatus& status, int64_t now_mono_ns);
  void apply(const SessionClosed& closed);
  void apply(const ClockStepped&) { ++clock_steps_; }
  void add_gap(uint64_t session_id, const SessionGap& gap);
  void set_join(uint64_t session_id, const JoinTotals& join);
  void set_keep_closed(std::chrono::seconds keep_closed) { limits_.keep_closed = keep_closed; }
  void expire(int64_t now_mono_ns);

  // Sets the sessions, what they lost, and the clock's steps.
  void fill(GpuReport& report) const;
  // Ids of the open sessions of whoever has this pid, or of this session; 0 = any.
  std::vector<uint64_t> find_open(uint32_t pid, uint64_t session_id) const;

 private:
  struct Slot {
    std::shared_ptr<SessionRow> row;
    mutable bool shared = false;  // some snapshot holds `row`: copy before changing it
  };

  static SessionRow& change(Slot& slot);
  Slot* find_open_slot(uint64_t session_id);
  void count_losses(const SessionRow& row, const SessionStatus& status);

  // Loop thread only.
  Limits limits_;
  std::map<uint64_t, Slot> sessions_;  // by id
  std::deque<uint64_t> closed_;        // oldest first
  // Injectors count since their process began, over all its sessions.
  std::map<ProcessKey, std::array<uint64_t, GPUPERF_SESSION_LOSS_COUNT>> losses_;
  std::array<uint64_t, GPUPERF_SESSION_LOSS_COUNT> lost_{};
  uint64_t clock_steps_ = 0;
};

}  // namespace gpuperf
