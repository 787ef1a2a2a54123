#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "daemon/base/bounded_queue.h"
#include "daemon/base/clock.h"
#include "daemon/base/task_loop.h"
#include "daemon/config.h"
#include "daemon/model/control_port.h"
#include "daemon/model/drops.h"
#include "daemon/model/event.h"
#include "daemon/model/session.h"
#include "daemon/model/snapshot.h"
#include "daemon/probe/programs.h"
#include "daemon/resolve/symbolizer.h"
#include "daemon/state/captures.h"
#include "daemon/state/slow_call_hold.h"
#include "daemon/state/trace_recorder.h"
#include "daemon/store/capture_store.h"

namespace gpuperf {

// Captures and the flight recorder: tells the kernel side what to trace, keeps what comes, and
// makes captures of it on a thread of its own; says of slow calls what the GPU did meanwhile; and
// makes a profile of every period, where somebody wants them.
//
// Thread: loop, but its own for joining, naming and writing. What it is given must outlive it;
// the programs and the symbolizer are told as they come and go. Bounds: those of its parts; builds
// wait in a queue of kMaxJobs. Stopping it builds what is over; what runs is lost, and slow calls
// go on without what the GPU did.
class Tracing {
 public:
  struct Parts {
    const Clock& clock;
    DropCounters& drops;
    const SnapshotBoard& board;
    FunctionRegistry& functions;
    std::function<void(SessionTarget, SessionOrder)> post_session_order;
    size_t slow_call_work = 0;        // pieces of GPU work that a slow call carries one by one
    std::function<void()> on_change;  // on the loop: something to publish
    std::function<void(SlowCall)> on_slow_call;  // on the loop: a call that was held
    // Of how much time a profile is made, one after the other; 0 = of none.
    uint64_t profile_period_ns = 0;
    std::function<void(const Capture&)> on_profile;  // tracing thread: what happened in it
  };

  Tracing(const Settings& settings, Parts parts);
  ~Tracing();
  Tracing(const Tracing&) = delete;
  Tracing& operator=(const Tracing&) = delete;

  // Opens the store. What is wrong with it is a problem to show, not an error: captures then fail
  // one by one, saying why.
  std::optional<Problem> start(TaskLoop& loop);
  void stop();
  // Null = there are none any more.
  void set_programs(Programs* programs);
  void set_symbolizer(Symbolizer* symbolizer);
  void set_settings(const Settings& settings);

  template <typename SessionPart>
  void apply(const SessionPart& event) {
    recorder_.apply(event);
    if constexpr (requires { held_.apply(event); }) held_.apply(event);
  }
  void apply(const ChildStarted& child) { captures_->add_child(child.parent, child.child); }
  // A slow call may freeze the recorder.
  void note_slow_call(const SlowCall& call);
  // True = taken: it comes back through on_slow_call, with what the GPU did. False = it is to go on
  // at once.
  bool hold(SlowCall& call);
  // No slow call is held any more: those that are come back now.
  void stop_holding();
  // So may an alert. Any thread; false = one did less than a minute ago.
  bool post_alert(const std::string& name);
  // Often: captures begin and end on it.
  void advance();

  Result<CaptureRow> start_capture(const CaptureOrder& order);
  Result<CaptureRow> stop_capture(uint64_t id);
  Result<CaptureRow> freeze(const FreezeOrder& order);
  Result<CaptureRow> remove(uint64_t id);
  // Probes are not to be taken out meanwhile.
  bool needs_every_probe() const;
  void fill(Snapshot& snapshot) const;
  const CaptureStore* store() const { return store_.get(); }

 private:
  using Job = std::function<void()>;
  struct Build;

  Captures::Now now() const;
  Result<std::vector<ProcessKey>> find_processes(const CaptureTarget& target,
                                                 uint32_t requester_uid) const;
  void expire_stored();
  void name_graphs();
  void order_traces();
  void order_bursts();
  std::shared_ptr<Build> make_build(CaptureScope scope, TraceWindow window);
  void build(FinishedCapture finished);
  void join(const std::shared_ptr<Build>& build);
  bool post_resolve(const std::shared_ptr<Build>& build, std::vector<StackRequest> requests);
  void finish(const std::shared_ptr<Build>& build, const std::vector<StackPtr>& stacks);
  void advance_slow_calls();
  void advance_profiles();
  void begin_profile(uint64_t from_mono_ns);
  void read_slow_calls(SlowCallHold::Batch batch);
  void post_found(uint64_t batch_id, std::vector<GpuDuringCall> found, uint64_t cpu_ns);
  void post_result(uint64_t id, Result<CaptureRow> row);
  uint64_t count_lost_hits() const;

  // Set once in the constructor.
  const Parts parts_;
  const std::string host_;
  const std::string store_folder_;  // empty = none
  const CaptureStore::Options store_options_;
  // Loop thread only.
  Settings settings_;
  TaskLoop* loop_ = nullptr;
  TraceRecorder recorder_;
  std::unique_ptr<CaptureStore> store_;  // null = none; used by the tracing thread, too
  std::unique_ptr<Captures> captures_;
  Programs* programs_ = nullptr;
  std::vector<Captures::Wanted> ordered_;
  uint64_t next_expire_mono_ns_ = 0;
  std::atomic<uint64_t> alert_mono_ns_ = 0;  // any thread
  uint64_t frozen_mono_ns_ = 0;              // by a slow call, last
  SlowCallHold held_;
  bool is_holding_ = true;
  uint64_t next_batch_mono_ns_ = 0;  // of slow calls
  struct Profile {
    uint64_t start_mono_ns = 0;
    uint64_t start_unix_ns = 0;
    uint64_t lost_hits_before = 0;
    std::shared_ptr<TraceRecorder::Pin> pin;  // null = none has begun
  } profile_;
  // Guarded by symbolizer_mutex_: the tracing thread asks, too.
  std::mutex symbolizer_mutex_;
  Symbolizer* symbolizer_ = nullptr;
  // Its own thread takes from it.
  BoundedQueue<Job> jobs_;
  std::thread thread_;
};

}  // namespace gpuperf
