#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "daemon/base/thread_checker.h"
#include "daemon/model/session.h"
#include "daemon/model/snapshot.h"
#include "daemon/state/launch_costs.h"
#include "daemon/state/session_registry.h"

namespace gpuperf {

// What CUPTI costs each injected process: its launches of the last second by what one costs, as
// measured there (LaunchCosts) or else kLaunchCostNs, and what the library says that launches were
// held for windows to begin and end; while it records nothing but CUPTI is attached, the launches
// that hooks count, by kAttachedCostNs. Where nothing was measured, launches cost nothing while the
// GPU has work anyway: a process that keeps it busy runs ahead of it.
//
// Thread: loop only; times are passed in. Bounds: those of the registry.
class SessionCosts {
 public:
  // What CUPTI's records cost a launch: 0.7 us on an H200 (decision 0012), 2.3 on an H100
  // (sessions_finalize: 6,369 ns beside 4,091).
  static constexpr uint64_t kLaunchCostNs = 2'000;
  // What CUPTI costs a launch while it is attached and records nothing: 0.5 us on an H200 (decision
  // 0012), 1.3, 1.9 and 2.2 on H100s (docs/overhead.md: between windows, CUPTI kept and ended).
  static constexpr uint64_t kAttachedCostNs = 1'500;
  // So much of its time a process keeps the GPU busy that waits for it.
  static constexpr double kBusyRatio = 0.8;

  explicit SessionCosts(const LaunchCosts& launch_costs) : launch_costs_(launch_costs) {}

  static double get_launch_cost_ns(const std::optional<LaunchCosts::Cost>& measured) {
    return measured ? std::max(measured->ns, 0.0) : static_cast<double>(kLaunchCostNs);
  }

  void follow(SessionRegistry& sessions);
  // Ends the interval at hand if it is a second old. Several times a second.
  void advance(int64_t now_mono_ns);
  // Adds to the overhead of processes.
  void fill(Snapshot& snapshot) const;

 private:
  struct Session final : SessionFollower {
    Session(SessionCosts& its_costs, SessionEntry& its_entry);
    void take_batch(const SessionBatch& batch, int64_t now_mono_ns) override;
    void take_status(const SessionStatus& status, int64_t now_mono_ns) override;
    void close(const SessionClosed& closed) override;

    SessionCosts& costs;
    SessionEntry& entry;
    bool is_attached = false;  // and records nothing
    std::set<uint32_t> devices;
    uint64_t launches = 0;  // of the interval, like what follows
    uint64_t work_ns = 0;
    uint64_t held_ns = 0;
    double ratio = 0;  // of the interval before
  };

  const LaunchCosts& launch_costs_;
  ThreadChecker loop_thread_;
  std::map<uint64_t, Session*> sessions_;  // open ones, by id
  int64_t since_mono_ns_ = 0;
};

}  // namespace gpuperf
