#pragma once

// What the launch hooks count, per thread and entry of the driver, and how it is handed to the
// daemon's kernel side: by notes, and what was not noted when the process ends as it lies in memory
// (bpf/hook_notes.h).
//
// Counting is the launching thread's own: no lock and no shared cache line, and each addition is
// one instruction, so that a signal handler that launches in the middle of one loses nothing.
// Memory: 4 KiB per launching thread, 12 KiB for each five entries that it calls, its stacks
// (known_stacks.h) and its log of calls (call_log.h), kept for the next one when it ends;
// kThreadsMax at once, further ones are not counted by hooks. All of it is resident from the first,
// for the kernel side reads it when the process ends, where nothing can be brought into memory any
// more.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "bpf/hook_notes.h"
#include "injector/call_log.h"
#include "injector/known_stacks.h"

namespace gpuperf::injector {

// One thread's hooked calls.
class ThreadCounts {
 public:
  // A call that begins with its caller's stack pointer at `sp`. Calls that were left without a
  // return are found by it. False: it cannot be counted, for want of memory.
  bool begin(gpuperf_hook_entry entry, uint64_t sp);
  // The call begun last that has not ended.
  void end(uint64_t duration_ns, int32_t status);
  // Hooked calls that the thread is inside of. Any thread.
  uint32_t depth() const { return __atomic_load_n(&depth_, __ATOMIC_RELAXED); }
  // Its call has begun, and is kept from entering the driver (launch_gate.h).
  std::atomic<bool>& is_at_gate() { return is_at_gate_; }
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
  // Null = it was not called yet.
  gpuperf_entry_counts* find(uint32_t entry) const {
    return reinterpret_cast<gpuperf_entry_counts*>(
        __atomic_load_n(&hooked_.entries[entry], __ATOMIC_ACQUIRE));
  }
  // Tells the kernel side where it finds this thread's hooked calls and the process's, before the
  // thread's first call of an entry and once a second: a daemon that has come since does not know.
  // On the thread itself, as are the next two.
  void note_place(gpuperf_hook_entry entry, uint64_t now_mono_ns);
  // With the next call. Any thread.
  void renote_place() { next_place_ns_.store(0, std::memory_order_relaxed); }
  // Whether a launch is to be reported at once, so that its stack can be walked: from time to time.
  bool is_stack_due(uint64_t now_mono_ns);
  // The stack from the caller on, whose registers these are once its call has returned. Null = the
  // kernel side has to walk it.
  KnownStack* take_stack(uint64_t pc, uint64_t sp, uint64_t bp, uint64_t now_mono_ns);
  // Keeps a launch to be reported with others, within kLaunchesNs; `stack` from take_stack, null =
  // without. `each`: the kernel side takes every stack, so that it knows those it was told lately.
  // False: it cannot be kept.
  bool keep_launch(gpuperf_hook_entry entry, uint64_t now_mono_ns, KnownStack* stack, bool each);
  // Reports what was kept. Any thread.
  void send_launches();
  // Its calls, where they are logged.
  CallRing& ring() { return ring_; }
  uint32_t tid() const { return tid_; }

 private:
  friend class ThreadTable;
  // Deeper ones are counted, and their time is their callers' own.
  static constexpr uint32_t kDepthMax = 8;
  struct Frame {
    uint64_t sp;
    uint64_t child_ns;
    gpuperf_entry_counts* counts;
  };
  // Counts of entries are made in chunks, in the order of their first calls. Some are left over
  // where a signal handler launches while they are made.
  static constexpr size_t kChunkBytes = 12 << 10;
  static constexpr uint32_t kChunkCounts = kChunkBytes / sizeof(gpuperf_entry_counts);
  static constexpr uint32_t kChunksMax = 2 * GPUPERF_HOOK_COUNT / kChunkCounts + 1;
  // Launches that are kept wait so long for more, and longer until the injector's thread looks when
  // none comes.
  static constexpr uint64_t kLaunchesNs = 10'000'000;
  // The kernel side takes every second of these, at random.
  static constexpr uint64_t kStackNs = GPUPERF_PACED_STACK_NS / 2;
  // A stack is noted again so often: the kernel side may have lost it.
  static constexpr uint64_t kNotedNs = 1'000'000'000;

  void set_depth(uint32_t depth) { __atomic_store_n(&depth_, depth, __ATOMIC_RELAXED); }
  gpuperf_entry_counts* make(uint32_t entry);
  void drop_frames(uint32_t left);
  void report_kept();
  uint16_t keep_stack(KnownStack& stack, uint64_t now_mono_ns, bool each);

  gpuperf_hooked_thread hooked_ = {};  // read by BPF
  std::atomic<bool> is_taken_ = false;
  std::atomic<bool> is_at_gate_ = false;
  uint32_t depth_ = 0;
  gpuperf_hooked_process* process_ = nullptr;
  std::atomic<uint64_t> next_place_ns_ = 0;
  uint64_t next_stack_ns_ = 0;
  std::atomic<bool> is_launches_busy_ = false;  // whoever finds it set does without
  gpuperf_noted_launches launches_ = {};
  KnownStacks stacks_;
  CallRing ring_;
  uint32_t tid_ = 0;  // of the thread that has it now
  Frame frames_[kDepthMax] = {};
  std::atomic<uint32_t> made_count_ = 0;
  std::atomic<gpuperf_entry_counts*> chunks_[kChunksMax] = {};
};

// All threads' counts. One in a process: threads are told apart by a key of its own.
class ThreadTable {
 public:
  static constexpr uint32_t kThreadsMax = GPUPERF_HOOKED_THREADS;

  // Before any other; once. False: the system has no key or no memory left.
  bool set_up();
  // The calling thread's; null = there are too many threads, or no memory.
  ThreadCounts* find();
  // How many are in use or were. Those below it never go away.
  uint32_t count() const { return __atomic_load_n(&process_->thread_count, __ATOMIC_ACQUIRE); }
  ThreadCounts& at(uint32_t index) const { return *blocks_[index].load(std::memory_order_acquire); }
  gpuperf_hooked_process& process() const { return *process_; }

 private:
  ThreadCounts* take();
  static void give_back(void* counts);

  gpuperf_hooked_process* process_ = nullptr;            // read by BPF, and
  std::atomic<ThreadCounts*> blocks_[kThreadsMax] = {};  // each a gpuperf_hooked_thread
  unsigned key_ = 0;
};

// Notes what was counted. Thread: injector's.
class CallNotes {
 public:
  explicit CallNotes(const ThreadTable& threads) : threads_(threads) {}

  // A note for each entry whose counts have changed. Where no daemon listens they go nowhere.
  using Note = void (*)(const gpuperf_noted_calls&);
  void send(Note note);

 private:
  gpuperf_noted_counts* get_noted(uint32_t entry);
  bool has_changed(uint32_t entry, const gpuperf_entry_counts& noted) const;
  void sum(uint32_t entry, const gpuperf_entry_counts& noted, gpuperf_entry_counts& sum) const;
  void send(uint32_t entry, Note note);

  const ThreadTable& threads_;
};

// Index of the bucket that a call of this length belongs to (bpf/records.h).
uint32_t find_bucket(uint64_t duration_ns);

}  // namespace gpuperf::injector
