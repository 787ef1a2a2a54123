#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/high_mark.h"
#include "daemon/base/mutex.h"
#include "daemon/base/process_users.h"
#include "daemon/base/shares.h"
#include "daemon/model/drops.h"
#include "daemon/model/self_report.h"
#include "daemon/model/snapshot.h"
#include "daemon/model/stack.h"
#include "daemon/resolve/frame_finder.h"
#include "daemon/resolve/kernel_symbols.h"
#include "daemon/resolve/stack_namer.h"
#include "daemon/resolve/turn_queue.h"
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
struct SingleFrame {
  ProcessKey process;
  uint64_t address = 0;
};
using StackRequest =
    std::variant<std::monostate, TakenStack, StackInFlight, KernelStack, SingleFrame>;

// Makes stacks out of what was taken: one thread walks those to their end that the kernel side
// could not, and teaches it how for the next time; another names all frames. Of code that is met
// for the first time every stack is cut until it has been learned how to walk it: that must not
// wait for names, for which whole libraries are read.
//
// Users and their processes take turns with both threads, and have a share of their time
// (TurnQueue): whose files take long to read waits, others do not.
//
// Thread: `post_…` from any; callbacks come on one of its threads, for each process in the order of
// the posts. Owns its threads, which end with it. Bounds: at most `queue_requests` wait to be
// walked and kMaxUnnamed to be named, and stacks with kMaxCopyBytes of memory to be walked, of all
// of which users have shares; copies beyond that are left out, counted as kBpfStackCopy. A request
// beyond the first queue answers false and its callback is never called: the caller counts it. What
// the second has no room for goes without names, counted (kStacksQueueFull, kSymbolsQueueFull).
// Destroying it answers whatever still waits with what is named already.
class Symbolizer {
 public:
  struct Options {
    FrameFinder::Options frames;
    WalkTables tables;
    std::function<void(uint64_t raw_id)> forget_sent;  // so that the kernel side sends it again
    std::chrono::nanoseconds keep_gone_stacks = std::chrono::hours{1};  // as of StackNamer
    // The first stack that leads through PyTorch's libraries takes seconds, until their symbols are
    // read; some 3 KB each.
    size_t queue_requests = 8'192;
  };
  using Stacks = std::vector<StackPtr>;
  using OnResolved = std::function<void(Stacks)>;
  static constexpr size_t kMaxUnnamed = 16'384;  // some 3 KB each
  static constexpr size_t kMaxCopyBytes = size_t{32} << 20;

  // `memory`: as of StackNamer; outlives it, as `drops` does.
  Symbolizer(Options options, ProcessReader& memory, DropCounters& drops);
  ~Symbolizer();
  Symbolizer(const Symbolizer&) = delete;
  Symbolizer& operator=(const Symbolizer&) = delete;

  // One stack per request, in order; null where none was asked for, or none could be had. It is
  // the turn of `process`; of nobody ({}): of stacks of many, answered behind whatever was posted
  // before by those who may go on.
  bool post_resolve(const ProcessKey& process, std::vector<StackRequest> requests,
                    OnResolved on_resolved);
  // Stacks that later requests may name. The ids of those there is no room for.
  std::vector<uint64_t> post_stacks(std::vector<RawStack> stacks);
  // Reads what a process has mapped early: so that its first stacks can be walked in the kernel,
  // with their frames of Python. With its start given, they can be named after it has gone, too;
  // without (start_boot_ns = 0), a process that is known already is left alone. What cannot be
  // queued now is read with the first stack.
  void post_prepare(const ProcessKey& process);
  // Lets go of workers that have ended: to be called now and then, by any thread.
  void reap_workers() { namer_.reap_workers(); }
  // How full its queues and the kernel side's tables of rules are. Any thread.
  void fill(SelfReport& report);
  // Code was mapped: what is known of that process may not hold any more, or it is a Python.
  void note_mapping(uint32_t pid, const std::string& path);

 private:
  struct Resolve {
    std::vector<StackRequest> requests;
    OnResolved on_resolved;
    Stacks stacks;  // of the first requests
  };
  struct Prepare {
    ProcessKey process;
  };
  using Task = std::variant<Resolve, RawStack, Prepare>;

  // The walking thread.
  void walk_all();
  void walk(const WorkOwner& owner, Resolve& task);
  void walk(const WorkOwner& owner, RawStack& stack);
  void walk(const WorkOwner& owner, const Prepare& task);
  void sweep();
  // The naming thread. False: not done yet.
  void name_all();
  bool name(Resolve& task);
  bool name(const RawStack& stack);
  bool name(const Prepare& task);
  std::optional<StackPtr> resolve(const StackRequest& request);
  // Any.
  WorkOwner find_owner(const ProcessKey& process) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void limit_copy(const WorkOwner& owner, RawStack& stack) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void return_copy(const WorkOwner& owner, size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void queue_prepare(const ProcessKey& process) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  DropCounters& drops_;
  const SystemClock clock_;
  Mutex mutex_;
  ProcessUsers users_ ABSL_GUARDED_BY(mutex_);
  const std::function<void(uint64_t)> forget_sent_;
  StackNamer namer_;
  int64_t sweep_mono_ns_ = 0;  // walking thread only
  TurnQueue<Task> queue_;
  TurnQueue<Task> walked_{kMaxUnnamed};
  std::atomic<bool> stopping_ = false;
  // Of copy_bytes_, and of what the kernel side was told to walk by.
  HighMark copies_, rules_, spaces_;
  // Waiting to be walked.
  Shares copy_bytes_ ABSL_GUARDED_BY(mutex_){
      {.total = kMaxCopyBytes, .kept_for_root = kMaxCopyBytes / 4}};
  // By pid: whether it is queued.
  std::unordered_map<uint32_t, bool> prepared_ ABSL_GUARDED_BY(mutex_);
  std::thread naming_;
  std::thread walking_;  // last: everything above is there when they start
};

}  // namespace gpuperf
