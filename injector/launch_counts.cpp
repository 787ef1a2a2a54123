#include "injector/launch_counts.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
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

void raise_to(__u64& highest, uint64_t value) {
  if (value > highest) __atomic_store_n(&highest, value, __ATOMIC_RELAXED);
}

template <typename T>
T load(const T& counter) {
  return __atomic_load_n(&counter, __ATOMIC_ACQUIRE);
}

// Neither before what comes before it nor after what comes behind it.
void store(__u64& word, uint64_t value) {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  __atomic_store_n(&word, value, __ATOMIC_RELEASE);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

void add_error(gpuperf_entry_counts& counts, uint64_t status_tag, uint64_t count) {
  for (gpuperf_error_count& slot : counts.errors) {
    if (slot.status_tag == 0) slot.status_tag = status_tag;
    if (slot.status_tag == status_tag) return add(slot.count, count);
  }
  add(counts.other_errors, count);
}

// Zeroes. Null = there is none.
void* allocate_resident(size_t size_bytes) {
  const int before = errno;
  void* memory = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  errno = before;
  return memory == MAP_FAILED ? nullptr : memory;
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
    set_depth(depth_ - 1);
    if (depth_ < kDepthMax) add(frames_[depth_].counts->abandoned, 1);
  }
  if (left == 0) hide_outermost();
}

// A signal handler that launches meanwhile takes the counts behind these, and whoever is first
// gives the entry its own.
__attribute__((noinline, cold)) gpuperf_entry_counts* ThreadCounts::make(uint32_t entry) {
  const uint32_t index = made_count_.fetch_add(1, std::memory_order_relaxed);
  if (index >= kChunksMax * kChunkCounts) {
    made_count_.store(kChunksMax * kChunkCounts, std::memory_order_relaxed);
    return nullptr;
  }
  std::atomic<gpuperf_entry_counts*>& place = chunks_[index / kChunkCounts];
  gpuperf_entry_counts* chunk = place.load(std::memory_order_relaxed);
  if (chunk == nullptr) {
    auto* const made = static_cast<gpuperf_entry_counts*>(allocate_resident(kChunkBytes));
    if (made == nullptr) return nullptr;
    if (place.compare_exchange_strong(chunk, made, std::memory_order_relaxed)) {
      chunk = made;
    } else {
      (void)munmap(made, kChunkBytes);
    }
  }
  __atomic_fetch_or(&process_->is_called[entry / 64], uint64_t{1} << entry % 64, __ATOMIC_RELAXED);
  renote_place();
  uint64_t none = 0;
  const auto counts = reinterpret_cast<uint64_t>(chunk + index % kChunkCounts);
  const bool is_first = __atomic_compare_exchange_n(&hooked_.entries[entry], &none, counts, false,
                                                    __ATOMIC_RELEASE, __ATOMIC_RELAXED);
  return reinterpret_cast<gpuperf_entry_counts*>(is_first ? counts : none);
}

bool ThreadCounts::begin(gpuperf_hook_entry entry, uint64_t sp) {
  gpuperf_entry_counts* counts = find(entry);
  if (counts == nullptr) [[unlikely]] {
    counts = make(entry);
    if (counts == nullptr) return false;
  }
  // An outer call's frame lies above ours; one at or below it has been left.
  uint32_t live = depth_ < kDepthMax ? depth_ : kDepthMax;
  while (live > 0 && frames_[live - 1].sp <= sp) --live;
  if (live < depth_ && live < kDepthMax) drop_frames(live);
  if (depth_ < kDepthMax) frames_[depth_] = {sp, 0, counts};
  set_depth(depth_ + 1);
  add(counts->calls, 1);
  return true;
}

void ThreadCounts::end(uint64_t duration_ns, int32_t status) {
  if (depth_ == 0) return;  // cannot be
  set_depth(depth_ - 1);
  if (depth_ >= kDepthMax) return;
  const Frame& frame = frames_[depth_];
  gpuperf_entry_counts& counts = *frame.counts;
  const uint64_t self_ns =
      duration_ns - (frame.child_ns < duration_ns ? frame.child_ns : duration_ns);
  if (depth_ > 0) {
    frames_[depth_ - 1].child_ns += duration_ns;
  } else {
    add(hooked_.total_ns, duration_ns);
  }
  if (status != 0) add_error(counts, kStatusTag | static_cast<uint32_t>(status), 1);
  increment(counts.buckets[find_bucket(duration_ns)]);
  raise_to(counts.inverted_min_ns, ~duration_ns);
  raise_to(counts.max_ns, duration_ns);
  add(counts.self_ns, self_ns);
  add(counts.total_ns, duration_ns);
}

void ThreadCounts::note_place(gpuperf_hook_entry entry, uint64_t now_mono_ns) {
  if (now_mono_ns < next_place_ns_.load(std::memory_order_relaxed)) return;
  next_place_ns_.store(now_mono_ns + 1'000'000'000, std::memory_order_relaxed);
  note_thread({.hooked_address = reinterpret_cast<uint64_t>(&hooked_),
               .process_address = reinterpret_cast<uint64_t>(process_),
               .entry = entry,
               .pad = 0});
}

bool ThreadCounts::is_stack_due(uint64_t now_mono_ns) {
  if (now_mono_ns < next_stack_ns_) return false;
  next_stack_ns_ = now_mono_ns + kStackNs;
  return true;
}

void ThreadCounts::report_kept() {
  note_launches(launches_);
  launches_.count = 0;
  launches_.site_count = 0;
}

KnownStack* ThreadCounts::take_stack(uint64_t pc, uint64_t sp, uint64_t bp, uint64_t now_mono_ns) {
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
uint16_t ThreadCounts::keep_stack(KnownStack& stack, uint64_t now_mono_ns, bool each) {
  const uint64_t id = stack.noted.stack_id;
  for (uint32_t i = launches_.site_count; i-- > 0;) {
    if (launches_.sites[i].id == id) return static_cast<uint16_t>(i + 1);
  }
  if (launches_.site_count == GPUPERF_LAUNCH_SITES) return 0;
  const uint32_t daemon = read_daemon_number();
  const bool is_known = each && stack.noted_to == daemon && now_mono_ns < stack.noted_until_ns;
  if (!is_known) {
    stack.noted_to = each ? daemon : 0;
    stack.noted_until_ns = now_mono_ns + kNotedNs;
  }
  launches_.sites[launches_.site_count++] = {
      id, is_known ? 0 : reinterpret_cast<uint64_t>(&stack.noted)};
  return static_cast<uint16_t>(launches_.site_count);
}

bool ThreadCounts::keep_launch(gpuperf_hook_entry entry, uint64_t now_mono_ns, KnownStack* stack,
                               bool each) {
  // Set: the injector's thread reports them just now, or a signal handler launches here.
  if (is_launches_busy_.exchange(true, std::memory_order_acquire)) return false;
  if (launches_.count > 0 && now_mono_ns - launches_.base_mono_ns > kLaunchesNs) report_kept();
  uint16_t site = 0;
  if (stack != nullptr && (site = keep_stack(*stack, now_mono_ns, each)) == 0) {
    report_kept();
    site = keep_stack(*stack, now_mono_ns, each);
  }
  if (launches_.count == 0) launches_.base_mono_ns = now_mono_ns;
  launches_.launches[launches_.count] = {
      static_cast<uint32_t>(now_mono_ns - launches_.base_mono_ns), entry, site};
  if (++launches_.count == GPUPERF_LAUNCHES) report_kept();
  is_launches_busy_.store(false, std::memory_order_release);
  return true;
}

void ThreadCounts::send_launches() {
  if (is_launches_busy_.exchange(true, std::memory_order_acquire)) return;  // its thread is at it
  if (launches_.count > 0) report_kept();
  is_launches_busy_.store(false, std::memory_order_release);
}

bool ThreadTable::set_up() {
  process_ =
      static_cast<gpuperf_hooked_process*>(allocate_resident(sizeof(gpuperf_hooked_process)));
  if (process_ == nullptr) return false;
  process_->threads = reinterpret_cast<uint64_t>(blocks_);
  return pthread_key_create(&key_, give_back) == 0;
}

void ThreadTable::give_back(void* counts) {
  auto& gone = *static_cast<ThreadCounts*>(counts);
  gone.send_launches();
  gone.drop_frames(0);
  note_thread({});  // the block is another thread's next
  gone.renote_place();
  gone.is_taken_.store(false, std::memory_order_release);
}

ThreadCounts* ThreadTable::take() {
  const uint32_t known = count();
  for (uint32_t i = 0; i < known; ++i) {
    ThreadCounts* block = blocks_[i].load(std::memory_order_acquire);
    if (block->is_taken_.load(std::memory_order_relaxed)) continue;
    if (!block->is_taken_.exchange(true, std::memory_order_acq_rel)) return block;
  }
  void* memory = allocate_resident(sizeof(ThreadCounts));
  if (memory == nullptr) return nullptr;
  auto* block = new (memory) ThreadCounts;
  static_assert(offsetof(ThreadCounts, hooked_) == 0);
  static_assert(sizeof(blocks_[0]) == sizeof(uint64_t));
  block->process_ = process_;
  block->hooked_.launches = reinterpret_cast<uint64_t>(&block->launches_);
  block->launches_.thread_address = reinterpret_cast<uint64_t>(&block->hooked_);
  block->is_taken_.store(true, std::memory_order_relaxed);
  for (uint32_t i = count(); i < kThreadsMax; ++i) {
    ThreadCounts* none = nullptr;
    if (!blocks_[i].compare_exchange_strong(none, block, std::memory_order_acq_rel)) continue;
    // Those before it are there: whoever put them there raises the count at least as far.
    uint32_t seen = count();
    while (seen <= i && !__atomic_compare_exchange_n(&process_->thread_count, &seen, i + 1, true,
                                                     __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
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
  mine->tid_ = static_cast<uint32_t>(syscall(SYS_gettid));
  if (pthread_setspecific(key_, mine) == 0) return mine;
  give_back(mine);
  return nullptr;
}

// Null = there is no memory: it is noted another time.
gpuperf_noted_counts* CallNotes::get_noted(uint32_t entry) {
  __u64& place = threads_.process().counts[entry];
  if (place == 0) {
    place = reinterpret_cast<uint64_t>(allocate_resident(sizeof(gpuperf_noted_counts)));
  }
  return reinterpret_cast<gpuperf_noted_counts*>(place);
}

void CallNotes::sum(uint32_t entry, const gpuperf_entry_counts& noted,
                    gpuperf_entry_counts& sum) const {
  sum = {};
  // Errors keep the slots they have had.
  for (size_t i = 0; i < GPUPERF_ERROR_SLOTS; ++i) {
    sum.errors[i].status_tag = noted.errors[i].status_tag;
  }
  const uint32_t thread_count = threads_.count();
  for (uint32_t i = 0; i < thread_count; ++i) {
    const gpuperf_entry_counts* const found = threads_.at(i).find(entry);
    if (found == nullptr) continue;
    const gpuperf_entry_counts& counts = *found;
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
}

bool CallNotes::has_changed(uint32_t entry, const gpuperf_entry_counts& noted) const {
  uint64_t begun_and_ended = 0;
  const uint32_t thread_count = threads_.count();
  for (uint32_t i = 0; i < thread_count; ++i) {
    const gpuperf_entry_counts* const counts = threads_.at(i).find(entry);
    if (counts == nullptr) continue;
    begun_and_ended += load(counts->calls) + load(counts->abandoned) + load(counts->total_ns);
  }
  return begun_and_ended != noted.calls + noted.abandoned + noted.total_ns;
}

void CallNotes::send(Note note) {
  const gpuperf_hooked_process& process = threads_.process();
  for (uint32_t entry = 0; entry < GPUPERF_HOOK_COUNT; ++entry) {
    if ((load(process.is_called[entry / 64]) >> entry % 64 & 1) != 0) send(entry, note);
  }
}

// At each moment one of the two is as it was noted, whether the process still sees the note's end
// or not.
void CallNotes::send(uint32_t entry, Note note) {
  gpuperf_noted_counts* const noted = get_noted(entry);
  if (noted == nullptr) return;
  const size_t older = noted->sequence[0] < noted->sequence[1] ? 0 : 1;
  const gpuperf_entry_counts& before = noted->counts[1 - older];
  if (!has_changed(entry, before)) return;
  gpuperf_hooked_process& process = threads_.process();
  const uint64_t sequence = process.noted + 1;
  store(noted->sequence[older], ~uint64_t{0});
  sum(entry, before, noted->counts[older]);
  store(noted->sequence[older], sequence);
  note({.process_address = reinterpret_cast<uint64_t>(&process),
        .sequence = sequence,
        .entry = entry,
        .pad = 0});
  store(process.noted, sequence);
}

}  // namespace gpuperf::injector
