#pragma once

#include <cstdint>

#include "daemon/base/shares.h"
#include "daemon/base/thread_checker.h"
#include "daemon/model/drops.h"

namespace gpuperf {

// What sessions make the daemon keep, in bytes: names, shapes, launches, allocations, rows.
//
// Thread: loop only. `drops` must outlive it, and it its accounts. Bounds: `max_bytes` for all, an
// eighth of which is kept for root and one process may have; Shares says what a user may have. What
// is refused is counted (kSessionMemoryFull), and whoever asked goes on without.
// The bytes are those of the large things, estimated with what an allocation costs beside them.
class SessionMemory {
 public:
  static constexpr uint64_t kDefaultBytes = uint64_t{128} << 20;

  explicit SessionMemory(DropCounters& drops, uint64_t max_bytes = kDefaultBytes)
      : drops_(drops),
        max_bytes_(max_bytes),
        shares_({.total = max_bytes, .kept_for_root = max_bytes / 8, .of_process = max_bytes / 8}) {
  }
  SessionMemory(const SessionMemory&) = delete;
  SessionMemory& operator=(const SessionMemory&) = delete;

  // Whether nothing more is to be kept: the daemon is at its ceiling, whoever brought it there.
  void set_pressed(bool is_pressed) {
    loop_thread_.check();
    is_pressed_ = is_pressed;
  }
  uint64_t used() const { return shares_.used(); }
  uint64_t max_bytes() const { return max_bytes_; }

  // What one session or process keeps; gives it back at its end.
  class Account {
   public:
    Account(SessionMemory& memory, Shares::Holder holder) : memory_(memory), holder_(holder) {}
    ~Account() { memory_.shares_.give_back(holder_, bytes_); }
    Account(const Account&) = delete;
    Account& operator=(const Account&) = delete;

    // False = refused, and counted: nothing may be kept.
    bool take(uint64_t bytes) {
      memory_.loop_thread_.check();
      const bool is_taken =
          !memory_.is_pressed_ && memory_.shares_.take(holder_, bytes) == Shares::Verdict::kTaken;
      if (is_taken) {
        bytes_ += bytes;
      } else {
        memory_.drops_.add(DropCause::kSessionMemoryFull);
      }
      return is_taken;
    }
    // For what grows by little while it is used: beyond the bounds, too. Ask has_room() before.
    void add(uint64_t bytes) {
      memory_.shares_.add(holder_, bytes);
      bytes_ += bytes;
    }
    bool has_room() const {
      return !memory_.is_pressed_ && memory_.shares_.look(holder_, 1) == Shares::Verdict::kTaken;
    }
    void give_back(uint64_t bytes) {
      memory_.shares_.give_back(holder_, bytes);
      bytes_ -= bytes;
    }
    uint64_t bytes() const { return bytes_; }
    const Shares::Holder& holder() const { return holder_; }

   private:
    SessionMemory& memory_;
    const Shares::Holder holder_;
    uint64_t bytes_ = 0;
  };

 private:
  // Set once in the constructor.
  DropCounters& drops_;
  const uint64_t max_bytes_;
  // Loop thread only.
  ThreadChecker loop_thread_;
  Shares shares_;
  bool is_pressed_ = false;
};

}  // namespace gpuperf
