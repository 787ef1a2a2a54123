#pragma once

// What the launch hooks count, per thread and entry of the driver, and how it is handed to the
// daemon's kernel side: by notes (bpf/hook_notes.h).
//
// Counting is the launching thread's own: no lock and no shared cache line, and each addition is
// one instruction, so that a signal handler that launches in the middle of one loses nothing.
// Memory: 20 KiB per launching thread and its stacks (known_stacks.h), kept for the next one when
// it ends; kThreadsMax at once, further ones are not counted by hooks.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "bpf/hook_notes.h"
#include "injector/known_stacks.h"

namespace gpuperf::injector {

// Of one entry, on one thread. Only ever growing.
struct EntryCounts {
  uint64_t calls = 0;
  uint64_t abandoned = 0;  // calls that will not return: left by longjmp or an exception
  uint64_t self_ns = 0;
  uint64_t inverted_min_ns = 0;
  uint64_t max_ns = 0;
  gpuperf_error_count errors[GPUPERF_ERROR_SLOTS] = {};
  uint64_t other_errors = 0;
  uint32_t buckets[GPUPERF_BUCKETS] = {};
  uint64_t total_ns = 0;  // written last: all else of the calls in it is there
};

// One thread's hooked calls.
class ThreadCounts {
 public:
  // A call that begins with its caller's stack pointer at `sp`. Calls that were left without a
  // return are found by it.
  void begin(gpuperf_hook_entry entry, uint64_t sp);
  // The call begun last that has not ended.
  void end(uint64_t duration_ns, int32_t status);
  // Hooked calls that the thread is inside of.
  uint32_t depth() const { return depth_; }
  // The call that no other is around, for the kernel side to find it in flight: filled, then shown
  // until its end was noted.
  gpuperf_noted_call& outermost() { return hooked_.call; }
  void show_outermost(uint64_t start_mono_ns) {
    std::atomic_signal_fence(std::memory_order_release);
    hooked_.start_mono_ns = start_mono_ns;
  }
  void hide_outermost() {
    hooked_.start_mono_ns = 0;
    std::atomic_signal_fence(std::memory_order_release);
  }
  const EntryCounts& of(uint32_t entry) const { return entries_[entry]; }
  // Tells the kernel side where it finds this thread's hooked calls, once a second: a daemon that
  // has come since does not know. On the thread itself, as are the next two.
  void note_place(uint64_t now_mono_ns);
  // Whether a launch is to be reported at once, so that its stack can be walked: from time to time.
  bool is_stack_due(uint64_t now_mono_ns);
  // The stack from the caller on, whose registers these are once its call has returned. Null = the
  // kernel side has to walk it.
  const gpuperf_noted_stack* take_stack(uint64_t pc, uint64_t sp, uint64_t bp,
                                        uint64_t now_mono_ns);
  // Keeps a launch to be reported with others, within kLaunchesNs; `stack` from take_stack, null =
  // without. False: it cannot be kept.
  bool keep_launch(gpuperf_hook_entry entry, uint64_t now_mono_ns,
                   const gpuperf_noted_stack* stack);
  // Reports what was kept. Any thread.
  void send_launches();

 private:
  friend class ThreadTable;
  // Deeper ones are counted, and their time is their callers' own.
  static constexpr uint32_t kDepthMax = 8;
  struct Frame {
    uint64_t sp;
    uint64_t child_ns;
    uint32_t entry;
  };
  // Launches that are kept wait so long for more, and longer until the injector's thread looks when
  // none comes.
  static constexpr uint64_t kLaunchesNs = 10'000'000;
  // The kernel side takes every second of these, at random.
  static constexpr uint64_t kStackNs = GPUPERF_PACED_STACK_NS / 2;

  void drop_frames(uint32_t left);
  void report_kept();
  uint16_t keep_stack(const gpuperf_noted_stack* stack);

  std::atomic<bool> is_taken_ = false;
  uint32_t depth_ = 0;
  gpuperf_hooked_thread hooked_ = {};  // read by BPF
  uint64_t next_place_ns_ = 0;
  uint64_t next_stack_ns_ = 0;
  std::atomic<bool> is_launches_busy_ = false;  // whoever finds it set does without
  gpuperf_noted_launches launches_ = {};
  KnownStacks stacks_;
  Frame frames_[kDepthMax] = {};
  EntryCounts entries_[GPUPERF_HOOK_COUNT];
};

// All threads' counts. One in a process: threads are told apart by a key of its own.
class ThreadTable {
 public:
  static constexpr uint32_t kThreadsMax = 4096;

  // Before any other; once. False: the system has no key left.
  bool set_up();
  // The calling thread's; null = there are too many threads, or no memory.
  ThreadCounts* find();
  // How many are in use or were. Those below it never go away.
  uint32_t count() const { return count_.load(std::memory_order_acquire); }
  ThreadCounts& at(uint32_t index) const { return *blocks_[index].load(std::memory_order_acquire); }

 private:
  ThreadCounts* take();
  static void give_back(void* counts);

  std::atomic<ThreadCounts*> blocks_[kThreadsMax] = {};
  std::atomic<uint32_t> count_ = 0;
  unsigned key_ = 0;
};

// Sends what was counted since it was sent last. Thread: injector's.
class CallNotes {
 public:
  explicit CallNotes(const ThreadTable& threads) : threads_(threads) {}

  // A note for each entry that was called. Where no daemon listens they go nowhere.
  using Note = void (*)(const gpuperf_noted_calls&);
  void send(Note note);

 private:
  bool has_changed(uint32_t entry) const;
  EntryCounts sum(uint32_t entry) const;
  void send(uint32_t entry, Note note);

  const ThreadTable& threads_;
  EntryCounts sent_[GPUPERF_HOOK_COUNT];
};

// Index of the bucket that a call of this length belongs to (bpf/records.h).
uint32_t find_bucket(uint64_t duration_ns);

}  // namespace gpuperf::injector
