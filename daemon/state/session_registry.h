#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "daemon/base/thread_checker.h"
#include "daemon/model/drops.h"
#include "daemon/model/gpu_rows.h"
#include "daemon/model/session.h"
#include "daemon/state/session_memory.h"

namespace gpuperf {

// A session's row. Those that are shared never change: the next change copies.
class SessionEntry {
 public:
  SessionEntry(const SessionOpened& opened, SessionMemory& memory);

  const SessionRow& row() const { return *row_; }
  SessionRow& change();
  std::shared_ptr<const SessionRow> share() const;
  // Where followers account for what they keep, in accounts of their own.
  SessionMemory& memory() const { return memory_; }
  Shares::Holder holder() const { return {.uid = row_->facts.uid, .pid = row_->facts.process.pid}; }

 private:
  SessionMemory& memory_;
  std::shared_ptr<SessionRow> row_;
  mutable bool is_shared_ = false;
};

// What one feature keeps of one open session, and what it does when that session sends something.
// Calls come before the session's row changes; after close() it is destroyed.
class SessionFollower {
 public:
  virtual ~SessionFollower() = default;
  virtual void take_batch(const SessionBatch&, int64_t /*now_mono_ns*/) {}
  virtual void take_status(const SessionStatus&, int64_t /*now_mono_ns*/) {}
  virtual void close(const SessionClosed&) {}
  virtual void expire(int64_t /*now_mono_ns*/) {}
};

// The sessions of injected processes: those that are open, each with its followers, and the rows of
// those that closed lately. Hands every event of a session to its followers, in the order in which
// their features were added.
//
// Thread: loop only; times are passed in. `drops` and `memory` must outlive it; a feature must
// outlive the last event of its sessions. Bounds: the ingest bounds open sessions; closed ones
// leave after `keep_closed`, and earlier, oldest first, when there are more than `max_closed`:
// nothing but their rows is lost. What comes of a session that is not open is ignored, its records
// are counted (kSessionUnknown); an id that is known does not open again.
class SessionRegistry {
 public:
  struct Limits {
    std::chrono::seconds keep_closed{600};
    size_t max_closed = 1'000;
  };
  // The entry lives longer than the follower.
  using MakeFollower = std::function<std::unique_ptr<SessionFollower>(SessionEntry&)>;

  SessionRegistry(const Limits& limits, DropCounters& drops, SessionMemory& memory)
      : drops_(drops), memory_(memory), limits_(limits) {}
  SessionRegistry(const SessionRegistry&) = delete;
  SessionRegistry& operator=(const SessionRegistry&) = delete;

  // A feature: follows the sessions that open from now on.
  void add(MakeFollower feature) { features_.push_back(std::move(feature)); }
  void apply(const SessionEvent& event, int64_t now_mono_ns);
  void set_keep_closed(std::chrono::seconds keep_closed);
  // Call at least every few seconds.
  void expire(int64_t now_mono_ns);

  // Sets the sessions, what they lost, and the clock's steps.
  void fill(GpuReport& report) const;

 private:
  struct Session {
    SessionEntry entry;
    std::vector<std::unique_ptr<SessionFollower>> followers;  // of features_; closed: none
  };

  void take(const SessionOpened& opened, int64_t now_mono_ns);
  void take(const SessionBatch& batch, int64_t now_mono_ns);
  void take(const SessionStatus& status, int64_t now_mono_ns);
  void take(const SessionClosed& closed, int64_t now_mono_ns);
  void take(const ClockStepped& stepped, int64_t now_mono_ns);
  Session* find_open(uint64_t session_id);
  void count_losses(const SessionRow& row, const SessionStatus& status);

  // Set once in the constructor.
  DropCounters& drops_;
  SessionMemory& memory_;
  // Loop thread only.
  ThreadChecker loop_thread_;
  Limits limits_;
  std::vector<MakeFollower> features_;
  std::map<uint64_t, Session> sessions_;  // by id
  std::deque<uint64_t> closed_;           // oldest first
  // Injectors count since their process began, over all its sessions.
  std::map<ProcessKey, std::array<uint64_t, GPUPERF_SESSION_LOSS_COUNT>> losses_;
  std::array<uint64_t, GPUPERF_SESSION_LOSS_COUNT> lost_{};
  uint64_t clock_steps_ = 0;
};

}  // namespace gpuperf
