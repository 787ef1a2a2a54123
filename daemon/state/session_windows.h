#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "daemon/base/thread_checker.h"
#include "daemon/model/overhead.h"
#include "daemon/model/session.h"
#include "daemon/model/trace_event.h"
#include "daemon/state/launch_costs.h"
#include "daemon/state/session_registry.h"

namespace gpuperf {

// Decides which sessions collect all the time and which in windows only.
//
// CUPTI costs each launch something (LaunchCosts), and a process that waits for its launches pays
// for all of them; one that waits for its GPU pays nothing. So a session is judged while it
// collects: its launches a second, by what one costs, and how busy it keeps GPUs. Where launches
// cost more than the budget and the GPU is idle between them, the session is paused, which ends
// CUPTI in the process once its CUDA graphs are made (injector/finalizer.h), and opens for
// kWindowNs at distances that, after the first few, keep the average within the budget, what
// opening itself costs included. Every window is a new look.
//
// A process pays for CUPTI even between windows until it is old enough to end it (kYoungNs), so
// one whose launches hooks count waits at first (SessionOrder::is_later): until its launches have
// cost less than the budget for kLightNs, it has graphs, which CUPTI stays for, it is no longer
// young, or somebody asks.
//
// Left alone are sessions with graphs, those whose calls CUPTI records (it stays then), and those
// that somebody has paused. Captures hold sessions open.
//
// Thread: loop only; times are passed in. Bounds: those of the registry.
class SessionWindows {
 public:
  // How long a look takes, in a window or outside of any: twice as long as a session keeps records
  // back (ingest.flush_interval_ms), so that each look has some.
  static constexpr int64_t kWindowNs = 500'000'000;
  // The first rest: programs begin by work of another kind than what they do then. Each one after
  // it is twice as long, until at most 0.8 % of the time lies in a window.
  static constexpr int64_t kFirstRestNs = 5'000'000'000;
  static constexpr int64_t kRestNsMin = 60'000'000'000;
  static constexpr int64_t kRestNsMax = 600'000'000'000;
  static constexpr int64_t kLightNs = 3'000'000'000;
  // That long CUPTI cannot be ended (injector/entry.cpp).
  static constexpr int64_t kYoungNs = 120'000'000'000;

  using Order = std::function<void(uint64_t session_id, SessionOrder::Mode mode)>;
  // Which processes a capture is of.
  struct Target {
    bool all_processes = true;
    std::vector<ProcessKey> processes;
  };

  // kCuptiShare of a process's budget is for CUPTI; one without a budget collects all the time.
  // Each window is told to `costs`, which says what launches cost.
  SessionWindows(OverheadLimits limits, LaunchCosts& costs, Order order)
      : limits_(std::move(limits)), costs_(costs), order_(std::move(order)) {}
  SessionWindows(const SessionWindows&) = delete;
  SessionWindows& operator=(const SessionWindows&) = delete;

  void follow(SessionRegistry& sessions);
  void set_limits(const OverheadLimits& limits) { limits_ = limits; }
  // While it stands down, no session collects.
  void set_standing_down(bool is_standing_down, int64_t now_mono_ns);
  // Processes whose sessions collect in windows.
  std::set<ProcessKey, ProcessOrder> list_in_windows() const;
  // Somebody else has told these sessions what to do.
  void note_order(const SessionTarget& target, SessionOrder::Mode mode);
  // Opens their sessions for a window. True: some were not open, and will be soon.
  bool open(const Target& target, int64_t now_mono_ns);
  // Some session of it was told to collect, and has not said yet that it does.
  bool is_opening(const Target& target) const;
  // Their sessions are open until the next call.
  void hold_open(const std::vector<Target>& targets, int64_t now_mono_ns);
  // Several times a second.
  void advance(int64_t now_mono_ns);
  // False while something is captured: what is new then collects from its first launch on. Thread:
  // any.
  bool may_wait() const { return may_wait_.load(std::memory_order_relaxed); }

 private:
  enum class Phase {
    kWaiting,     // has not collected yet
    kCollecting,  // all the time, or in a window
    kResting,     // until due_mono_ns
    kLeft,        // somebody has paused it
  };
  struct Session final : SessionFollower {
    Session(SessionWindows& its_windows, SessionEntry& its_entry);
    void take_batch(const SessionBatch& batch, int64_t now_mono_ns) override;
    void take_status(const SessionStatus& status, int64_t now_mono_ns) override;
    void close(const SessionClosed& closed) override;
    uint64_t id() const { return entry.row().facts.session_id; }

    SessionWindows& windows;
    SessionEntry& entry;
    Phase phase = Phase::kWaiting;
    bool are_graphs_covered = false;
    bool is_held = false;
    bool has_graphs = false;
    bool are_calls_hooked = false;
    std::set<uint32_t> devices;
    // Of the look: since when, and when it ends; 0 = the session does not collect yet.
    int64_t since_mono_ns = 0;
    int64_t due_mono_ns = 0;
    int64_t seen_mono_ns = 0;   // up to when its records have come
    int64_t rest_mono_ns = 0;   // since when it rests, or rested last; it waits: since when
    int64_t light_mono_ns = 0;  // since when its launches cost little; 0 = they do not, or it waits
    int64_t rest_ns_max = kFirstRestNs;
    uint64_t launches = 0;
    uint64_t work_ns = 0;
    LaunchCosts::Window window;  // what its launches were; begin 0 = this look is in no window
    uint64_t opening_ns = 0;     // what the last window's beginning and end held launches up
  };

  void open(Session& session, int64_t now_mono_ns);
  void rest(Session& session, int64_t now_mono_ns);
  void stand_down(Session& session);
  static void set_in_windows(Session& session, bool is_in_windows);
  void begin_look(Session& session, int64_t now_mono_ns);
  static double get_seen_ns(const Session& session);
  double get_cost_ratio(const Session& session) const;
  double get_budget_ratio(const Session& session) const;
  bool must_wait(Session& session, int64_t now_mono_ns) const;
  // Whether it would collect if it were told to.
  static bool is_closed(const Session& session) {
    return session.phase == Phase::kResting ||
           (session.phase == Phase::kWaiting && session.rest_mono_ns != 0);
  }
  bool must_rest(const Session& session) const;

  OverheadLimits limits_;
  bool is_standing_down_ = false;
  LaunchCosts& costs_;
  const Order order_;
  std::atomic<bool> may_wait_ = true;
  ThreadChecker loop_thread_;
  std::map<uint64_t, Session*> sessions_;  // open ones, by id
};

}  // namespace gpuperf
