#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "daemon/base/bounded_queue.h"
#include "daemon/base/mutex.h"
#include "daemon/base/proc_files.h"
#include "daemon/capture/capture_builder.h"
#include "daemon/model/capture.h"
#include "daemon/model/snapshot.h"
#include "daemon/model/trace_event.h"
#include "daemon/resolve/symbolizer.h"

namespace gpuperf {

// Builds captures of windows of the recorder, for whoever orders one: joins launches, calls and
// work, has the stacks named, and hands the capture over.
//
// Thread: every method from any; owns the one that builds. `board` and `functions` must outlive it.
// Bounds: kMaxJobs jobs wait; a build beyond that is refused, and its on_refused called. Stopping
// it builds what waits, without the names of stacks once the symbolizer is gone.
class BuildThread {
 public:
  static constexpr size_t kMaxJobs = 64;

  struct Parts {
    const SnapshotBoard& board;
    const FunctionRegistry& functions;
    ProcFiles proc;
    // Build thread: stacks without which a capture was built.
    std::function<void(std::vector<uint64_t> stack_ids)> on_missing_stacks;
  };
  // One capture on its way. What it is built from does not change any more.
  struct Build {
    CaptureScope scope;
    TraceWindow window;
    std::function<void(const Build&, const Capture&)> on_built;  // build thread
    std::function<void()> on_refused;                            // any thread
    // Set by post_build, and on the way.
    std::shared_ptr<const FunctionList> functions;
    CaptureNames names;
    std::unique_ptr<CaptureBuilder> builder;
    uint64_t cpu_ns = 0;  // of the build thread, so far
  };

  explicit BuildThread(Parts parts);
  ~BuildThread() { stop(); }
  BuildThread(const BuildThread&) = delete;
  BuildThread& operator=(const BuildThread&) = delete;

  void stop();
  // Null = there is none any more; it answers what it took.
  void set_symbolizer(Symbolizer* symbolizer);

  // Of the order all but what post_build sets.
  void post_build(Build order);
  // Between two builds; false = too much to do.
  bool post(std::function<void()> job) { return jobs_.try_push(std::move(job)); }
  size_t take_highest_queued() { return jobs_.take_highest(); }
  // As Symbolizer::post_resolve, of nobody; false as well where there is no symbolizer.
  bool post_resolve(std::vector<StackRequest> requests, Symbolizer::OnResolved on_resolved);

 private:
  // Build thread.
  void join(const std::shared_ptr<Build>& build);
  void finish(const std::shared_ptr<Build>& build, const std::vector<StackPtr>& stacks);

  // Set once in the constructor.
  const Parts parts_;
  const std::string host_;
  Mutex symbolizer_mutex_;
  Symbolizer* symbolizer_ ABSL_GUARDED_BY(symbolizer_mutex_) = nullptr;

  BoundedQueue<std::function<void()>> jobs_;
  std::thread thread_;  // last: runs on all of the above
};

}  // namespace gpuperf
