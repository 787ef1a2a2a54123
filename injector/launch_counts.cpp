#include "injector/launch_counts.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "injector/note_points.h"

namespace gpuperf::injector {
namespace {

constexpr uint64_t kStatusTag = uint64_t{1} << 32;

// One instruction: a signal comes before it or after it.
template <typename Counter>
void add(Counter& counter, uint64_t value) {
  static_assert(sizeof(counter) == 8);
  __asm__("addq %1, %0" : "+m"(counter) : "r"(value) : "cc");
}
inline void increment(uint32_t& counter) { __asm__("incl %0" : "+m"(counter) : : "cc"); }

template <typename T>
T load(const T& counter) {
  return __atomic_load_n(&counter, __ATOMIC_ACQUIRE);
}

void add_error(EntryCounts& counts, uint64_t status_tag, uint64_t count) {
  for (gpuperf_error_count& slot : counts.errors) {
    if (slot.status_tag == 0) slot.status_tag = status_tag;
    if (slot.status_tag == status_tag) return add(slot.count, count);
  }
  add(counts.other_errors, count);
}

}  // namespace

uint32_t find_bucket(uint64_t duration_ns) {
  if (duration_ns < 1u << GPUPERF_FIRST_OCTAVE) {
    return static_cast<uint32_t>(duration_ns >> GPUPERF_BUCKET_SHIFT);
  }
  const auto octave = static_cast<uint32_t>(63 - __builtin_clzll(duration_ns));
  if (octave > GPUPERF_LAST_OCTAVE) return GPUPERF_BUCKETS - 1;
  const auto place = static_cast<uint32_t>(duration_ns >> (octave - GPUPERF_SUB_BUCKET_BITS)) &
                     ((1u << GPUPERF_SUB_BUCKET_BITS) - 1);
  return ((octave - GPUPERF_FIRST_OCTAVE + 1) << GPUPERF_SUB_BUCKET_BITS) + place;
}

void ThreadCounts::drop_frames(uint32_t left) {
  while (depth_ > left) {
    --depth_;
    if (depth_ < kDepthMax) add(entries_[frames_[depth_].entry].abandoned, 1);
  }
  if (left == 0) hide_outermost();
}

void ThreadCounts::begin(gpuperf_hook_entry entry, uint64_t sp) {
  // An outer call's frame lies above ours; one at or below it has been left.
  uint32_t live = depth_ < kDepthMax ? depth_ : kDepthMax;
  while (live > 0 && frames_[live - 1].sp <= sp) --live;
  if (live < depth_ && live < kDepthMax) drop_frames(live);
  if (depth_ < kDepthMax) frames_[depth_] = {sp, 0, entry};
  ++depth_;
  add(entries_[entry].calls, 1);
}

void ThreadCounts::end(uint64_t duration_ns, int32_t status) {
  if (depth_ == 0) return;  // cannot be
  --depth_;
  if (depth_ >= kDepthMax) return;
  const Frame& frame = frames_[depth_];
  EntryCounts& counts = entries_[frame.entry];
  const uint64_t self_ns =
      duration_ns - (frame.child_ns < duration_ns ? frame.child_ns : duration_ns);
  if (depth_ > 0) {
    frames_[depth_ - 1].child_ns += duration_ns;
  } else {
    add(hooked_.total_ns, duration_ns);
  }
  if (status != 0) add_error(counts, kStatusTag | static_cast<uint32_t>(status), 1);
  increment(counts.buckets[find_bucket(duration_ns)]);
  if (~duration_ns > counts.inverted_min_ns) counts.inverted_min_ns = ~duration_ns;
  if (duration_ns > counts.max_ns) counts.max_ns = duration_ns;
  add(counts.self_ns, self_ns);
  add(counts.total_ns, duration_ns);
}

void ThreadCounts::note_place(uint64_t now_mono_ns) {
  if (now_mono_ns < next_place_ns_) return;
  next_place_ns_ = now_mono_ns + 1'000'000'000;
  launches_.thread_address = reinterpret_cast<uint64_t>(&hooked_);
  note_thread({.hooked_address = launches_.thread_address});
}

bool ThreadCounts::is_stack_due(uint64_t now_mono_ns) {
  if (now_mono_ns < next_stack_ns_) return false;
  next_stack_ns_ = now_mono_ns + kStackNs;
  return true;
}

void ThreadCounts::report_kept() {
  note_launches(launches_);
  launches_.count = 0;
  launches_.stack_count = 0;
}

const gpuperf_noted_stack* ThreadCounts::take_stack(uint64_t pc, uint64_t sp, uint64_t bp,
                                                    uint64_t now_mono_ns) {
  if (stacks_.must_clear()) [[unlikely]] {
    // Launches that are kept name stacks by where they lie.
    if (is_launches_busy_.exchange(true, std::memory_order_acquire)) return nullptr;
    if (launches_.count > 0) report_kept();
    stacks_.clear();
    is_launches_busy_.store(false, std::memory_order_release);
  }
  return stacks_.take(pc, sp, bp, now_mono_ns);
}

// 1 + its index; 0 = there is no room for it.
uint16_t ThreadCounts::keep_stack(const gpuperf_noted_stack* stack) {
  const auto address = reinterpret_cast<uint64_t>(stack);
  for (uint16_t i = 0; i < launches_.stack_count; ++i) {
    if (launches_.stacks[i] == address) return static_cast<uint16_t>(i + 1);
  }
  if (launches_.stack_count == GPUPERF_NOTED_STACKS) return 0;
  launches_.stacks[launches_.stack_count++] = address;
  return static_cast<uint16_t>(launches_.stack_count);
}

bool ThreadCounts::keep_launch(gpuperf_hook_entry entry, uint64_t now_mono_ns,
                               const gpuperf_noted_stack* stack) {
  // Set: the injector's thread reports them just now, or a signal handler launches here.
  if (is_launches_busy_.exchange(true, std::memory_order_acquire)) return false;
  if (launches_.count > 0 && now_mono_ns - launches_.base_mono_ns > kLaunchesNs) report_kept();
  uint16_t place = 0;
  if (stack != nullptr && (place = keep_stack(stack)) == 0) {
    report_kept();
    place = keep_stack(stack);
  }
  if (launches_.count == 0) launches_.base_mono_ns = now_mono_ns;
  launches_.launches[launches_.count] = {
      static_cast<uint32_t>(now_mono_ns - launches_.base_mono_ns), entry, place};
  if (++launches_.count == GPUPERF_NOTED_LAUNCHES) report_kept();
  is_launches_busy_.store(false, std::memory_order_release);
  return true;
}

void ThreadCounts::send_launches() {
  if (is_launches_busy_.exchange(true, std::memory_order_acquire)) return;  // its thread is at it
  if (launches_.count > 0) report_kept();
  is_launches_busy_.store(false, std::memory_order_release);
}

bool ThreadTable::set_up() { return pthread_key_create(&key_, give_back) == 0; }

void ThreadTable::give_back(void* counts) {
  auto& gone = *static_cast<ThreadCounts*>(counts);
  gone.send_launches();
  gone.drop_frames(0);
  note_thread({.hooked_address = 0});  // the block is another thread's next
  gone.next_place_ns_ = 0;
  gone.is_taken_.store(false, std::memory_order_release);
}

ThreadCounts* ThreadTable::take() {
  const uint32_t known = count();
  for (uint32_t i = 0; i < known; ++i) {
    ThreadCounts* block = blocks_[i].load(std::memory_order_acquire);
    if (block->is_taken_.load(std::memory_order_relaxed)) continue;
    if (!block->is_taken_.exchange(true, std::memory_order_acq_rel)) return block;
  }
  void* memory = mmap(nullptr, sizeof(ThreadCounts), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto* block = new (memory) ThreadCounts;
  block->is_taken_.store(true, std::memory_order_relaxed);
  for (uint32_t i = count(); i < kThreadsMax; ++i) {
    ThreadCounts* none = nullptr;
    if (!blocks_[i].compare_exchange_strong(none, block, std::memory_order_acq_rel)) continue;
    // Those before it are there: whoever put them there raises the count at least as far.
    uint32_t seen = count();
    while (seen <= i && !count_.compare_exchange_weak(seen, i + 1, std::memory_order_acq_rel)) {
    }
    return block;
  }
  (void)munmap(memory, sizeof(ThreadCounts));
  return nullptr;
}

ThreadCounts* ThreadTable::find() {
  auto* mine = static_cast<ThreadCounts*>(pthread_getspecific(key_));
  if (mine != nullptr) [[likely]]
    return mine;
  mine = take();
  if (mine == nullptr) return nullptr;
  if (pthread_setspecific(key_, mine) == 0) return mine;
  give_back(mine);
  return nullptr;
}

EntryCounts CallNotes::sum(uint32_t entry) const {
  EntryCounts sum;
  // Errors keep the slots they have had.
  for (size_t i = 0; i < GPUPERF_ERROR_SLOTS; ++i) {
    sum.errors[i].status_tag = sent_[entry].errors[i].status_tag;
  }
  const uint32_t thread_count = threads_.count();
  for (uint32_t i = 0; i < thread_count; ++i) {
    const EntryCounts& counts = threads_.at(i).of(entry);
    // Before all else of the calls in it. A call that ends meanwhile is found by the next note.
    sum.total_ns += load(counts.total_ns);
    for (size_t bucket = 0; bucket < GPUPERF_BUCKETS; ++bucket) {
      sum.buckets[bucket] += load(counts.buckets[bucket]);
    }
    for (const gpuperf_error_count& error : counts.errors) {
      if (load(error.count) != 0) add_error(sum, load(error.status_tag), load(error.count));
    }
    sum.other_errors += load(counts.other_errors);
    sum.self_ns += load(counts.self_ns);
    sum.abandoned += load(counts.abandoned);
    sum.inverted_min_ns = std::max(sum.inverted_min_ns, load(counts.inverted_min_ns));
    sum.max_ns = std::max(sum.max_ns, load(counts.max_ns));
    // After the ends: calls in flight are never fewer than none.
    sum.calls += load(counts.calls);
  }
  return sum;
}

bool CallNotes::has_changed(uint32_t entry) const {
  uint64_t begun_and_ended = 0;
  const uint32_t thread_count = threads_.count();
  for (uint32_t i = 0; i < thread_count; ++i) {
    const EntryCounts& counts = threads_.at(i).of(entry);
    begun_and_ended += load(counts.calls) + load(counts.abandoned) + load(counts.total_ns);
  }
  const EntryCounts& sent = sent_[entry];
  return begun_and_ended != sent.calls + sent.abandoned + sent.total_ns;
}

void CallNotes::send(Note note) {
  for (uint32_t entry = 0; entry < GPUPERF_HOOK_COUNT; ++entry) {
    if (has_changed(entry)) send(entry, note);
  }
}

void CallNotes::send(uint32_t entry, Note note) {
  const EntryCounts now = sum(entry);
  EntryCounts& sent = sent_[entry];
  gpuperf_noted_calls noted = {};
  noted.entry = entry;
  noted.calls = now.calls - sent.calls;
  for (uint32_t bucket = 0; bucket < GPUPERF_BUCKETS; ++bucket) {
    const uint32_t gained = now.buckets[bucket] - sent.buckets[bucket];
    if (gained == 0) continue;
    if (noted.bucket_count == GPUPERF_NOTED_BUCKETS) {
      note(noted);
      noted = {};
      noted.entry = entry;
    }
    noted.buckets[noted.bucket_count++] = {bucket, gained};
  }
  noted.abandoned = now.abandoned - sent.abandoned;
  noted.total_ns = now.total_ns - sent.total_ns;
  noted.self_ns = now.self_ns - sent.self_ns;
  noted.inverted_min_ns = now.inverted_min_ns;
  noted.max_ns = now.max_ns;
  for (size_t i = 0; i < GPUPERF_ERROR_SLOTS; ++i) {
    noted.errors[i] = {now.errors[i].status_tag, now.errors[i].count - sent.errors[i].count};
  }
  noted.other_errors = now.other_errors - sent.other_errors;
  note(noted);
  sent = now;
}

}  // namespace gpuperf::injector
