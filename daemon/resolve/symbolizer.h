#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "daemon/base/bounded_queue.h"
#include "daemon/base/clock.h"
#include "daemon/model/snapshot.h"
#include "daemon/resolve/frame_finder.h"
#include "daemon/resolve/kernel_symbols.h"

namespace gpuperf {

// Addresses to name, innermost first.
struct StackAddresses {
  std::optional<ProcessKey> process;  // empty = the kernel's
  std::vector<uint64_t> addresses;
};

// Frames that hold the addresses alone.
std::vector<StackFrame> make_unnamed_frames(const std::vector<uint64_t>& addresses);

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
  using Stacks = std::vector<std::vector<StackFrame>>;
  using OnResolved = std::function<void(Stacks)>;

  explicit Symbolizer(Options options);
  ~Symbolizer();
  Symbolizer(const Symbolizer&) = delete;
  Symbolizer& operator=(const Symbolizer&) = delete;

  // One stack per request and one frame per address, in order.
  bool post_resolve(std::vector<StackAddresses> stacks, OnResolved on_resolved);
  // Reads the mappings of a process early, so that its stacks can be named after it has gone.
  bool post_prefetch(const ProcessKey& process);

 private:
  struct Request {
    std::vector<StackAddresses> stacks;
    OnResolved on_resolved;  // empty = prefetch
  };

  void run();
  std::vector<StackFrame> find_frames(const StackAddresses& stack);

  SystemClock clock_;
  FrameFinder finder_;            // resolve thread only
  KernelSymbols kernel_symbols_;  // likewise
  BoundedQueue<Request> queue_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;  // last: everything above is there when it starts
};

}  // namespace gpuperf
