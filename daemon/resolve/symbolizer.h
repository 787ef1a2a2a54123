#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include "daemon/base/bounded_queue.h"
#include "daemon/base/clock.h"
#include "daemon/model/drops.h"
#include "daemon/model/snapshot.h"
#include "daemon/model/stack.h"
#include "daemon/resolve/frame_finder.h"
#include "daemon/resolve/kernel_symbols.h"
#include "daemon/resolve/stack_namer.h"
#include "daemon/unwind/address_spaces.h"

namespace gpuperf {

// A stack to name.
struct TakenStack {
  uint64_t id = 0;  // of a RawStack posted before
};
struct StackInFlight {
  ProcessKey process;
  LiveStack live;  // read from the process's memory when its turn comes
};
struct KernelStack {
  std::vector<uint64_t> addresses;  // innermost first
};
// A place in a process's code, as a stack of one frame.
struct CodePlace {
  ProcessKey process;
  uint64_t address = 0;
};
using StackRequest =
    std::variant<std::monostate, TakenStack, StackInFlight, KernelStack, CodePlace>;

// Makes stacks out of what was taken, on a thread of its own: walks those to their end that the
// kernel side could not, teaches it how for the next time, and names all frames.
//
// Thread: `post_…` from any; callbacks come on the resolve thread, in the order of the posts. Owns
// its thread, which ends with it. Bounds: at most `queue_requests` wait, and stacks with
// kMaxCopyBytes of memory to be walked; copies beyond that are left out, counted as kBpfStackCopy.
// A post beyond the queue answers false and its callback is never called: the caller counts it.
// Destroying it answers whatever still waits with what is named already.
class Symbolizer {
 public:
  struct Options {
    FrameFinder::Options frames;
    WalkTables tables;
    std::function<void(uint64_t raw_id)> forget_sent;  // so that the kernel side sends it again
    // The first stack that leads through PyTorch's libraries takes seconds, until their symbols are
    // read; some 3 KB each.
    size_t queue_requests = 8'192;
  };
  using Stacks = std::vector<StackPtr>;
  using OnResolved = std::function<void(Stacks)>;
  static constexpr size_t kMaxCopyBytes = size_t{16} << 20;

  Symbolizer(Options options, DropCounters& drops);
  ~Symbolizer();
  Symbolizer(const Symbolizer&) = delete;
  Symbolizer& operator=(const Symbolizer&) = delete;

  // One stack per request, in order; null where none was asked for, or none could be had.
  bool post_resolve(std::vector<StackRequest> requests, OnResolved on_resolved);
  // Stacks that later requests may name.
  bool post_stacks(std::vector<RawStack> stacks);
  // Reads what a process has mapped early: so that its first stacks can be walked in the kernel,
  // with their frames of Python. With its start given, they can be named after it has gone, too;
  // without (start_boot_ns = 0), a process that is known already is left alone. What cannot be
  // queued now is read with the first stack.
  void post_prepare(const ProcessKey& process);
  // Code was mapped: what is known of that process may not hold any more, or it is a Python.
  void note_mapping(uint32_t pid, const std::string& path);

 private:
  struct Resolve {
    std::vector<StackRequest> requests;
    OnResolved on_resolved;
  };
  struct Prepare {
    ProcessKey process;
  };
  using Task = std::variant<Resolve, std::vector<RawStack>, Prepare>;

  void run();
  void handle(Resolve& task);
  void handle(std::vector<RawStack>& stacks);
  void handle(const Prepare& task);
  StackPtr resolve(const StackRequest& request);
  void sweep();
  void queue_prepare(const ProcessKey& process);

  DropCounters& drops_;
  const SystemClock clock_;
  // Resolve thread only.
  StackNamer namer_;
  int64_t sweep_mono_ns_ = 0;
  // Any.
  BoundedQueue<Task> queue_;
  std::atomic<size_t> copy_bytes_ = 0;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;
  std::unordered_map<uint32_t, bool> prepared_;  // guarded by mutex_. By pid: whether it is queued
  std::thread thread_;                           // last: everything above is there when it starts
};

}  // namespace gpuperf
