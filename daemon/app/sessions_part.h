#pragma once

#include <atomic>
#include <memory>

#include "daemon/app/part.h"
#include "daemon/app/session_log.h"
#include "daemon/model/control_port.h"
#include "daemon/owner/pod_names.h"
#include "daemon/session/session_source.h"
#include "daemon/state/gpu_state.h"
#include "daemon/state/launch_costs.h"
#include "daemon/state/session_costs.h"
#include "daemon/state/session_registry.h"
#include "daemon/state/session_windows.h"

namespace gpuperf {

// Sessions of injected processes: takes what they send, keeps what it adds up to, passes orders on.
// And the names of pods, which calls ask for, too.
class SessionsPart final : public Part {
 public:
  explicit SessionsPart(Core& core);
  Status start() override;
  void stop() override;
  void apply_settings(const Settings& settings) override;
  void advance(int64_t now_mono_ns) override;
  void fill(Snapshot& snapshot) const override;

  bool is_running() const { return source_ != nullptr; }
  PodNames& pod_names() { return *pod_names_; }
  SessionRegistry& registry() { return registry_; }
  SessionMemory& memory() { return memory_; }
  // On the loop; answers there, too.
  void post_order(const SessionTarget& target, const SessionOrder& order,
                  ControlPort::SessionsDone done);
  // See SessionSource::post_progress.
  void ask_progress(bool is_wanted);
  SessionWindows& windows() { return windows_; }
  LaunchCosts& launch_costs() { return launch_costs_; }
  // On the loop. A connection of a process that was attached to.
  void adopt(Fd connection, const AttachFacts& attach);

 private:
  void send_order(const SessionTarget& target, const SessionOrder& order,
                  ControlPort::SessionsDone done);
  void fill_self(Snapshot& snapshot) const;
  void post_taking();  // any thread
  void take_some_events();
  bool take_batch();  // false = none waits

  std::atomic<bool> is_taking_posted_ = false;
  std::unique_ptr<PodNames> pod_names_;
  std::unique_ptr<SessionSource> source_;  // null = sessions are not wanted
  // The features outlive the registry, whose sessions use them, and all of them have accounts.
  SessionMemory memory_;
  GpuStatistics statistics_;
  SessionLog log_;
  LaunchCosts launch_costs_;
  OverheadLimits limits_ = core_.settings.overhead.budget;  // as configured
  SessionWindows windows_;
  SessionCosts costs_{launch_costs_};
  SessionRegistry registry_;
};

}  // namespace gpuperf
