#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "daemon/base/bounded_queue.h"
#include "daemon/base/clock.h"
#include "daemon/model/snapshot.h"
#include "daemon/resolve/frame_finder.h"

namespace gpuperf {

// Turns stacks of addresses into frames on a thread of its own.
//
// Thread: `post_…` from any; callbacks come on the resolve thread, in the order of the posts. Owns
// its thread, which ends with it. Bounds: at most `queue_requests` wait. A post beyond that answers
// false and its callback is never called: the caller counts it and goes on with the addresses.
// Destroying it answers whatever still waits with addresses alone, without looking anything up.
class Symbolizer {
 public:
  struct Options {
    FrameFinder::Options frames;
    size_t queue_requests = 256;
  };
  using OnResolved = std::function<void(std::vector<StackFrame>)>;

  explicit Symbolizer(Options options);
  ~Symbolizer();
  Symbolizer(const Symbolizer&) = delete;
  Symbolizer& operator=(const Symbolizer&) = delete;

  // One frame per address, in order.
  bool post_resolve(const ProcessKey& process, std::vector<uint64_t> addresses,
                    OnResolved on_resolved);
  // Reads the mappings of a process early, so that its stacks can be named after it has gone.
  bool post_prefetch(const ProcessKey& process);

 private:
  struct Request {
    ProcessKey process;
    std::vector<uint64_t> addresses;
    OnResolved on_resolved;  // empty = prefetch
  };

  void run();

  SystemClock clock_;
  FrameFinder finder_;  // resolve thread only
  BoundedQueue<Request> queue_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;  // last: everything above is there when it starts
};

}  // namespace gpuperf
