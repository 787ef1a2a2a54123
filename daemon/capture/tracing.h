#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "daemon/base/proc_files.h"
#include "daemon/capture/build_thread.h"
#include "daemon/capture/capture_orders.h"
#include "daemon/capture/profiles.h"
#include "daemon/capture/trace_recorder.h"
#include "daemon/capture/trace_sources.h"
#include "daemon/model/session.h"
#include "daemon/probe/attach/programs.h"
#include "daemon/state/session_registry.h"
#include "daemon/state/session_windows.h"

namespace gpuperf {

// The flight recorder: what the kernel side and sessions record for it, what freezes it (slow
// calls, alerts and rules), and what is made of it: captures and profiles, each by a part of its
// own.
//
// Thread: loop, but post_alert and the build thread. What it is given must outlive it; programs and
// symbolizer come and go. Bounds: those of its parts; a freeze a minute each for slow calls,
// alerts and rules. Stopping it builds what is over; what runs is lost.
class Tracing {
 public:
  struct Parts {
    TaskLoop& loop;
    const Clock& clock;
    DropCounters& drops;
    const SnapshotBoard& board;
    ProcFiles proc;
    FunctionRegistry& functions;
    std::function<void(SessionTarget, SessionOrder)> post_session_order;
    // On the loop: of what captures want GPU work.
    SessionWindows* windows = nullptr;
    std::function<void()> on_change;  // on the loop: something to publish
    // On the loop, as often as it likes: what launch hooks are to report.
    std::function<void(gpuperf_launch_reports)> on_launch_reports;
    std::function<void()> on_orders;  // on the loop: captures have begun, or are to begin or end
    // Of how much time a profile is made, one after the other; 0 = of none.
    uint64_t profile_period_ns = 0;
    Profiles::OnProfile on_profile;
  };

  Tracing(const Settings& settings, Parts parts);
  ~Tracing() { stop(); }
  Tracing(const Tracing&) = delete;
  Tracing& operator=(const Tracing&) = delete;

  void stop() {
    captures_.stop_awaiting();
    builds_.stop();
  }
  // Null = there are none any more.
  void set_programs(Programs* programs);
  void set_symbolizer(Symbolizer* symbolizer) { builds_.set_symbolizer(symbolizer); }
  void set_settings(const Settings& settings);

  void follow(SessionRegistry& sessions) { recorder_.follow(sessions); }
  void apply(const TraceBatch& batch) { recorder_.apply(batch); }
  void apply(const Step& step) { recorder_.apply(step); }
  void apply(const ProcessExited& exited) { recorder_.apply(exited); }
  void apply(const GpuHealthReport& report) { recorder_.apply(report); }
  void apply(const ChildStarted& child) { captures_.apply(child); }
  // A slow call may freeze the recorder.
  void note_slow_call(const SlowCall& call);
  // So may an alert. Any thread; false = one did less than a minute ago.
  bool post_alert(const std::string& name);
  // So does a rule whose limit is exceeded.
  void note_breach(const std::string& name);
  // Often: captures and profiles begin and end on it.
  void advance();
  void fill(Snapshot& snapshot);

  CaptureOrders& captures() { return captures_; }
  const TraceSources& sources() const { return sources_; }

 private:
  void name_graphs();
  void order_traces();
  void hold_sessions(const std::vector<Captures::Wanted>& wanted);
  void order_bursts(const std::vector<Captures::Wanted>& wanted);
  void forget_stacks(const std::vector<uint64_t>& stack_ids);
  void freeze(const std::string& name, const std::string& trigger);
  // Unless it did less than a minute ago.
  void freeze_rarely(uint64_t& last_mono_ns, const std::string& name, const std::string& trigger);

  const Parts parts_;  // set once in the constructor
  // Loop thread only, but for what the parts say.
  Settings settings_;
  TraceRecorder recorder_;
  BuildThread builds_;
  const TraceSources sources_;
  CaptureOrders captures_;
  Profiles profiles_;
  Programs* programs_ = nullptr;
  std::vector<Captures::Wanted> ordered_;
  uint64_t slow_mono_ns_ = 0;    // frozen by a slow call, last
  uint64_t breach_mono_ns_ = 0;  // by a rule, last

  std::atomic<uint64_t> alert_mono_ns_ = 0;  // by an alert; any thread
};

}  // namespace gpuperf
