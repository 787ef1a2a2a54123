#pragma once

// What the launch hooks count, per thread and driver entry, and how the daemon's BPF programs get
// it: through notes; what was not noted when the process ends they read from memory
// (bpf/hook_notes.h).
//
// Each launching thread counts for itself: no lock and no shared cache line. Each addition is one
// instruction, so a signal handler that launches in the middle of one loses nothing. Memory per
// launching thread: 20 KiB, 8 KiB for every three entries it calls, its stacks (known_stacks.h) and
// its call log (call_log.h); when the thread ends, all of this is kept for the next one. At most
// kThreadsMax threads at once; hooks do not count further ones. All memory is resident from the
// start: BPF reads it when the process ends, and nothing can be paged in then.

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "bpf/hook_notes.h"
#include "injector/call_log.h"
#include "injector/known_stacks.h"

namespace gpuperf::injector {

// Index of the bucket for a call of this duration (bpf/records.h).
inline uint32_t find_bucket(uint64_t duration_ns) {
  if (duration_ns < 1u << GPUPERF_FIRST_OCTAVE) {
    return static_cast<uint32_t>(duration_ns >> GPUPERF_BUCKET_SHIFT);
  }
  const auto octave = static_cast<uint32_t>(63 - __builtin_clzll(duration_ns));
  if (octave > GPUPERF_LAST_OCTAVE) return GPUPERF_BUCKETS - 1;
  const auto place = static_cast<uint32_t>(duration_ns >> (octave - GPUPERF_SUB_BUCKET_BITS)) &
                     ((1u << GPUPERF_SUB_BUCKET_BITS) - 1);
  return ((octave - GPUPERF_FIRST_OCTAVE + 1) << GPUPERF_SUB_BUCKET_BITS) + place;
}

// One instruction: a signal comes before it or after it.
inline void add(__u64& counter, uint64_t value) {
  __asm__("addq %1, %0" : "+m"(counter) : "r"(value) : "cc");
}
inline void increment(uint32_t& counter) { __asm__("incl %0" : "+m"(counter) : : "cc"); }
inline void raise_to(__u64& highest, uint64_t value) {
  if (value > highest) __atomic_store_n(&highest, value, __ATOMIC_RELAXED);
}
// Marks a status as set. add_errors adds `count` calls that failed with that status.
constexpr uint64_t kStatusTag = uint64_t{1} << 32;
void add_errors(gpuperf_entry_counts& counts, uint64_t status_tag, uint64_t count);

// One thread's hooked calls. What every launch needs comes first, in one cache line, and its code
// is inline: a launch finds little of it in the caches.
class alignas(64) ThreadCounts {
 public:
  // Begins a call whose caller's stack pointer is `sp`, and uses it to find calls that were left
  // without a return. False: it cannot be counted, for lack of memory.
  bool begin(gpuperf_hook_entry entry, uint64_t sp);
  // The same for an outermost call of an entry that the thread has called before, if nothing else
  // is to be done first; false if so. The call counts once `count_plain` was called;
  // `take_back_plain` undoes the beginning.
  bool begin_plain(uint32_t entry, uint64_t sp) {
    auto* const counts = reinterpret_cast<gpuperf_entry_counts*>(counts_.entries[entry]);
    if (!is_at_rest() || counts == nullptr) [[unlikely]]
      return false;
    outer_.sp = sp;
    set_depth(1);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    // The sp again: a signal handler may have launched before the depth was set.
    outer_ = {.sp = sp, .child_ns = 0, .counts = counts};
    return true;
  }
  void take_back_plain() { set_depth(0); }
  void count_plain() { add(outer_.counts->calls, 1); }
  // A call of which nothing else is counted.
  void count_progress() { add(uncounted_calls_, 1); }
  // All its calls so far, counted or not. Thread: any.
  uint64_t get_calls() const;
  // A call that is followed but not counted.
  void begin_watched(uint64_t sp);
  void end_watched() {
    if (depth() > 0) set_depth(depth() - 1);
  }
  // Ends the call that began last and has not ended.
  void end(uint64_t duration_ns, int32_t status);
  // Whether the thread is in one call alone, a counted one. Where a program switches stacks, calls
  // do not end in turn.
  bool is_in_counted_call() const {
    return static_cast<int>(depth() == 1) & static_cast<int>(outer_.counts != nullptr);
  }
  // `end` for an outermost call that succeeded; with is_in_counted_call().
  void end_plain(uint64_t duration_ns) {
    set_depth(0);
    add(hooked_.total_ns, duration_ns);
    add_duration(outer_, duration_ns);
  }
  // Hooked calls the thread is in. Thread: any.
  uint32_t depth() const { return __atomic_load_n(&state_.depth, __ATOMIC_RELAXED); }
  // The thread's call has begun and is held before it enters the driver (launch_gate.h).
  std::atomic<bool>& is_at_gate() { return state_.is_at_gate; }
  // Publishes the outermost call, which begins now, so that BPF finds it in flight until its end
  // was noted. `call` stays in place until it ends.
  void show_outermost(const gpuperf_noted_call& call) {
    hooked_.call_address = reinterpret_cast<uint64_t>(&call);
    std::atomic_signal_fence(std::memory_order_release);
    hooked_.start_mono_ns = call.start_mono_ns;
  }
  void hide_outermost() {
    hooked_.start_mono_ns = 0;
    std::atomic_signal_fence(std::memory_order_release);
  }
  // Null = not called yet.
  gpuperf_entry_counts* find(uint32_t entry) const {
    return reinterpret_cast<gpuperf_entry_counts*>(
        __atomic_load_n(&counts_.entries[entry], __ATOMIC_ACQUIRE));
  }
  // Tells BPF, when due, where this thread's and the process's hooked calls are: before the
  // thread's first call of an entry, and once a second, for a daemon that started since. Thread:
  // this one.
  void note_place(gpuperf_hook_entry entry) {
    if (state_.is_place_due.load(std::memory_order_relaxed)) [[unlikely]]
      note_place_now(entry);
  }
  // Makes the next call do so. Thread: any.
  void renote_place() { state_.is_place_due.store(true, std::memory_order_relaxed); }
  // Keeps a launch without a stack, to be reported with others. False: it is due for a stack, where
  // few get one, or keep_launch has work to do first.
  bool keep_plain_launch(uint32_t entry, uint64_t now_mono_ns) {
    if (is_keeping_) [[unlikely]]
      return false;
    set_keeping(true);
    if (now_mono_ns >= next_stack_ns_ || !has_room(now_mono_ns)) [[unlikely]] {
      set_keeping(false);
      return false;
    }
    add_launch(entry, now_mono_ns, 0);
    set_keeping(false);
    return true;
  }
  // Whether a launch gets a stack, where few do. Thread: this one, as for the next two.
  bool is_stack_due(uint64_t now_mono_ns);
  // The stack from the caller on; the registers are the caller's once its call has returned. Null =
  // BPF has to walk it.
  KnownStack* take_stack(uint64_t pc, uint64_t sp, uint64_t bp, uint64_t now_mono_ns);
  // Like keep_plain_launch; `stack` from take_stack, null = none. `each`: BPF takes every stack, so
  // it knows those noted recently. False: the launch cannot be kept.
  bool keep_launch(gpuperf_hook_entry entry, uint64_t now_mono_ns, KnownStack* stack, bool each);
  // Whether it is time for the injector's thread to report what is kept. True once.
  bool must_send_launches() {
    const bool must = must_send_;
    must_send_ = false;
    return must;
  }
  // Reports what was kept. Thread: any. False: another thread is doing so.
  bool send_launches();
  // The thread's calls, if they are logged.
  CallRing& ring() { return ring_; }
  uint32_t tid() const { return tid_; }
  // What the hook took before the driver's function, of the call that is timed.
  void set_timed_ns(uint64_t ns) { timed_ns_ = ns; }
  uint64_t timed_ns() const { return timed_ns_; }

 private:
  friend class ThreadTable;
  // Deeper calls are counted, but their time counts as their callers' own.
  static constexpr uint32_t kDepthMax = 8;
  struct Frame {
    uint64_t sp;
    uint64_t child_ns;
    gpuperf_entry_counts* counts;  // null = of a watched call
  };
  // Counts are allocated in chunks, in the order of the entries' first calls. Some stay unused if a
  // signal handler launches during this.
  static constexpr size_t kChunkBytes = 8 << 10;
  static constexpr uint32_t kChunkCounts = kChunkBytes / sizeof(gpuperf_entry_counts);
  static constexpr uint32_t kChunksMax = 2 * GPUPERF_HOOK_COUNT / kChunkCounts + 1;
  // How long kept launches wait for more. If none comes they wait longer, until the injector's
  // thread looks.
  static constexpr uint64_t kLaunchesNs = 10'000'000;
  // Interval at which a stack is noted again: BPF may have lost it.
  static constexpr uint64_t kNotedNs = 1'000'000'000;

  // Also of a signal handler's call within another, on the thread itself.
  struct alignas(uint64_t) State {
    uint32_t depth = 0;
    std::atomic<bool> is_place_due = true;
    std::atomic<bool> is_at_gate = false;
    uint16_t pad = 0;
  };
  static_assert(sizeof(State) == sizeof(uint64_t));
  // In no call, with no place to note: one comparison.
  bool is_at_rest() const {
    uint64_t state = 0;
    __asm__("mov %1, %0" : "=r"(state) : "m"(state_));
    return state == 0;
  }
  void set_depth(uint32_t depth) { __atomic_store_n(&state_.depth, depth, __ATOMIC_RELAXED); }
  Frame& frame(uint32_t depth) { return depth == 0 ? outer_ : inner_[depth - 1]; }
  static void add_duration(const Frame& frame, uint64_t duration_ns);
  gpuperf_entry_counts* make(uint32_t entry);
  void drop_left_frames(uint64_t sp);
  void drop_frames(uint32_t left);
  void note_place_now(gpuperf_hook_entry entry);
  // False if no launches are being kept yet.
  bool has_room(uint64_t now_mono_ns) const {
    return kept_count_ - 1 < GPUPERF_LAUNCHES - 1 && now_mono_ns - base_ns_ <= kLaunchesNs;
  }
  // A signal handler may launch while a launch is being kept.
  void set_keeping(bool is_keeping) {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    is_keeping_ = is_keeping;
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  void add_launch(uint32_t entry, uint64_t now_mono_ns, uint16_t site) {
    filling_->launches[kept_count_] = {static_cast<uint32_t>(now_mono_ns - base_ns_),
                                       static_cast<uint16_t>(entry), site};
    __atomic_store_n(&filling_->count, ++kept_count_, __ATOMIC_RELEASE);
  }
  bool fill_next();
  bool send_all();
  uint16_t keep_stack(KnownStack& stack, uint64_t now_mono_ns, bool each);

  gpuperf_hooked_thread hooked_ = {};  // read by BPF
  State state_;
  Frame outer_ = {};
  // What a kept launch needs: one cache line.
  uint64_t next_stack_ns_ = 0;
  uint64_t base_ns_ = 0;  // of the launches that are being kept
  gpuperf_noted_launches* filling_ = nullptr;
  uint32_t kept_count_ = 0;  // launches in filling_
  uint32_t random_ = 1;
  bool is_keeping_ = false;
  bool must_send_ = false;
  std::atomic<bool> is_sending_ = false;
  std::atomic<uint64_t> sent_number_ = 0;  // all up to this number were sent
  gpuperf_hooked_process* process_ = nullptr;
  // The entries by which most kernels are launched are the first ones.
  alignas(64) gpuperf_thread_counts counts_ = {};  // read by BPF
  Frame inner_[kDepthMax - 1] = {};
  std::atomic<bool> is_taken_ = false;
  gpuperf_kept_launches kept_ = {};  // read by BPF
  KnownStacks stacks_;
  CallRing ring_;
  uint32_t tid_ = 0;  // of the thread that uses this now
  __u64 uncounted_calls_ = 0;
  uint64_t timed_ns_ = 0;
  std::atomic<uint32_t> made_count_ = 0;
  std::atomic<gpuperf_entry_counts*> chunks_[kChunksMax] = {};
};

inline void ThreadCounts::add_duration(const Frame& frame, uint64_t duration_ns) {
  gpuperf_entry_counts& counts = *frame.counts;
  const uint64_t child_ns = frame.child_ns < duration_ns ? frame.child_ns : duration_ns;
  increment(counts.buckets[find_bucket(duration_ns)]);
  raise_to(counts.inverted_min_ns, ~duration_ns);
  raise_to(counts.max_ns, duration_ns);
  add(counts.self_ns, duration_ns - child_ns);
  add(counts.total_ns, duration_ns);
}

// All threads' counts. One per process: it has its own key to tell threads apart.
class ThreadTable {
 public:
  static constexpr uint32_t kThreadsMax = GPUPERF_HOOKED_THREADS;

  // Call once, before all others. False: the system has no key or no memory left.
  bool set_up();
  // The calling thread's counts; null = too many threads, or no memory.
  ThreadCounts* find();
  // Reads where `find` has left the calling thread's counts, relative to the thread's base, without
  // a call: it would cost more than all the rest if its code is not in the caches. Null = `find`
  // has to make them.
  static ThreadCounts* read_slot(uintptr_t slot) {
    ThreadCounts* mine = nullptr;
    __asm__ volatile("mov %%fs:(%1), %0" : "=r"(mine) : "r"(slot));
    return mine;
  }
  // 0 = there is none, or set_up was not called.
  static uintptr_t slot();
  // Blocks that are or were in use. Those below this index never go away.
  uint32_t count() const { return __atomic_load_n(&process_->thread_count, __ATOMIC_ACQUIRE); }
  ThreadCounts& at(uint32_t index) const { return *blocks_[index].load(std::memory_order_acquire); }
  gpuperf_hooked_process& process() const { return *process_; }

 private:
  ThreadCounts* take();
  static void give_back(void* counts);

  gpuperf_hooked_process* process_ = nullptr;            // read by BPF
  std::atomic<ThreadCounts*> blocks_[kThreadsMax] = {};  // likewise: each a gpuperf_hooked_thread
  pthread_key_t key_ = 0;
};

// Notes what was counted. Thread: injector's.
class CallNotes {
 public:
  explicit CallNotes(const ThreadTable& threads) : threads_(threads) {}

  // Sends a note for each entry whose counts have changed. If no daemon listens, notes go nowhere.
  using Note = void (*)(const gpuperf_noted_calls&);
  void send(Note note);

 private:
  gpuperf_noted_counts* get_noted(uint32_t entry);
  bool has_changed(uint32_t entry, const gpuperf_entry_counts& noted) const;
  void sum(uint32_t entry, const gpuperf_entry_counts& noted, gpuperf_entry_counts& sum) const;
  void send(uint32_t entry, Note note);

  const ThreadTable& threads_;
};

}  // namespace gpuperf::injector
