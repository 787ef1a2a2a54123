#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "daemon/capture/trace_sources.h"
#include "daemon/model/event.h"
#include "daemon/model/gpu_during_call.h"
#include "daemon/model/snapshot.h"
#include "daemon/slow/slow_call_hold.h"
#include "daemon/slow/slow_call_namer.h"
#include "daemon/slow/slow_calls.h"
#include "daemon/state/kernel_names.h"

namespace gpuperf {

// The path of a slow call from the kernel's record to whoever watches, one function a step:
//
//   take      a record; of a call in flight that is known only age and waits are new
//   name      functions, stacks and arguments (SlowCallNamer): resolve thread and back
//   hold      calls of injected processes, until the recorder has all of their time (SlowCallHold)
//   read_gpu  what the GPU did meanwhile: build thread and back
//   keep      explained by all that is known, and given an id (SlowCalls)
//   store     on disk: the store's thread and back
//   notify    whoever watches; what they saw is on disk, whatever happens to the daemon
//
// Thread: loop only. What it is given must outlive it; threads that call back stop before it ends.
// Promises: every call that is kept is reported, once it is on disk. One that cannot be written is
// reported, too, and counted (kSlowStoreFailed, kSlowStoreQueueFull). A call in flight is reported
// when it is first seen and when it ends.
class SlowCallPipeline {
 public:
  using CallPtr = std::shared_ptr<const SlowCall>;
  struct Parts {
    const TraceSources& sources;
    const FunctionRegistry& functions;
    KernelNames& kernel_names;
    size_t max_gpu_work = 0;  // pieces of GPU work that a call carries one by one
    SlowCallNamer::PostResolve post_resolve;
    // Calls back from any thread; false = no room, and it does not. Empty = there is no store.
    std::function<bool(CallPtr, std::function<void(bool is_stored)>)> post_write;
    // On the loop.
    std::function<void(const SlowCall&)> on_named;
    std::function<void(const CallPtr&)> on_call;
    std::function<void()> on_change;  // something to publish
  };

  SlowCallPipeline(const SlowCalls::Limits& limits, Parts parts);
  SlowCallPipeline(const SlowCallPipeline&) = delete;
  SlowCallPipeline& operator=(const SlowCallPipeline&) = delete;

  void take(SlowCallEvent event) { namer_.take(std::move(event)); }
  void take(SlowInFlightCalls& found);
  void apply(const ProcessExited& exited) { calls_.apply(exited); }
  void follow(SessionRegistry& sessions) { held_.follow(sessions); }
  // Call often: held calls move on.
  void advance();
  // Lets the held calls go on, and holds no more.
  void stop_holding();
  void fill(Snapshot& snapshot) const {
    calls_.fill(snapshot);
    snapshot.self.add(Bound::kHeldCalls, held_.count(), SlowCallHold::kMaxHeld);
  }

 private:
  bool is_on_loop() const { return parts_.sources.loop.on_loop(); }
  uint64_t now_ns() const { return static_cast<uint64_t>(parts_.sources.clock.mono_ns()); }
  void hold(SlowCall call);
  void read_gpu(SlowCallHold::Batch batch);
  void post_found(uint64_t batch_id, std::vector<GpuDuringCall> found, uint64_t cpu_ns);
  void keep(SlowCall call);
  void keep_all(std::vector<SlowCall> calls);
  void store(const SlowCalls::Kept& kept);
  void notify(const SlowCalls::Kept& kept, bool is_stored);

  // Set once in the constructor.
  const Parts parts_;
  // Loop thread only: the steps, in their order.
  SlowCallNamer namer_;
  SlowCallHold held_;
  bool is_holding_ = true;
  uint64_t next_batch_mono_ns_ = 0;
  SlowCalls calls_;
};

}  // namespace gpuperf
