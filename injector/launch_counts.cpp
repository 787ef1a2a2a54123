#include "injector/launch_counts.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "injector/hook_code.h"
#include "injector/note_points.h"
#include "injector/own_thread.h"

namespace gpuperf::injector {
namespace {

template <typename T>
T load(const T& counter) {
  return __atomic_load_n(&counter, __ATOMIC_ACQUIRE);
}

// Not reordered before what precedes it or after what follows it.
void store(__u64& word, uint64_t value) {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  __atomic_store_n(&word, value, __ATOMIC_RELEASE);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

// Zeroed. Null = no memory.
void* allocate_resident(size_t size_bytes) {
  const int before = errno;
  void* memory = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  errno = before;
  return memory == MAP_FAILED ? nullptr : memory;
}

// The calling thread's counts. By a TLS descriptor (-mtls-dialect=gnu2): the C library then gives a
// library that was loaded late a place in each thread's static block, as long as there is room.
__thread ThreadCounts* t_mine = nullptr;

// Never inlined: a descriptor's function may change registers that no compiler expects it to
// (glibc bug 31372).
__attribute__((noinline)) void* find_place(void*) {
  uintptr_t base = 0;
  __asm__ volatile("mov %%fs:0, %0" : "=r"(base));
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(&t_mine) - base);
}

// Where t_mine is, relative to a thread's base. 0 = not at the same place in all threads: there was
// no room, and the C library allocates it for each.
uintptr_t find_slot() {
  pthread_t other;
  void* others_place = nullptr;
  const bool is_known = start_own_thread(other, nullptr, find_place, nullptr) &&
                        pthread_join(other, &others_place) == 0;
  void* const place = find_place(nullptr);
  return is_known && place == others_place ? reinterpret_cast<uintptr_t>(place) : 0;
}

uintptr_t g_slot = 0;

// What the calling thread finds by ThreadTable::read_slot from now on.
void remember(ThreadCounts* mine) {
  if (g_slot != 0) __asm__ volatile("mov %0, %%fs:(%1)" : : "r"(mine), "r"(g_slot) : "memory");
}

}  // namespace

__attribute__((noinline, cold)) void add_errors(gpuperf_entry_counts& counts, uint64_t status_tag,
                                                uint64_t count) {
  for (gpuperf_error_count& slot : counts.errors) {
    if (slot.status_tag == 0) slot.status_tag = status_tag;
    if (slot.status_tag == status_tag) return add(slot.count, count);
  }
  add(counts.other_errors, count);
}

// An outer call's frame lies above that of a call that begins at `sp`; a frame at or below it was
// left.
void ThreadCounts::drop_left_frames(uint64_t sp) {
  uint32_t live = depth() < kDepthMax ? depth() : kDepthMax;
  while (live > 0 && frame(live - 1).sp <= sp) --live;
  if (live < depth() && live < kDepthMax) drop_frames(live);
}

void ThreadCounts::drop_frames(uint32_t left) {
  while (depth() > left) {
    set_depth(depth() - 1);
    gpuperf_entry_counts* const counts = depth() < kDepthMax ? frame(depth()).counts : nullptr;
    if (counts != nullptr) add(counts->abandoned, 1);
  }
  if (left == 0) hide_outermost();
}

bool ThreadCounts::begin(gpuperf_hook_entry entry, uint64_t sp) {
  gpuperf_entry_counts* const found = find(entry);
  gpuperf_entry_counts* const counts = found != nullptr ? found : make(entry);
  if (counts == nullptr) return false;
  drop_left_frames(sp);
  const uint32_t outer_count = depth();
  if (outer_count < kDepthMax) frame(outer_count) = {.sp = sp, .child_ns = 0, .counts = counts};
  set_depth(outer_count + 1);
  add(counts->calls, 1);
  return true;
}

uint64_t ThreadCounts::get_calls() const {
  uint64_t calls = __atomic_load_n(&uncounted_calls_, __ATOMIC_RELAXED);
  for (uint32_t entry = 0; entry < GPUPERF_HOOK_COUNT; ++entry) {
    const gpuperf_entry_counts* const counts = find(entry);
    if (counts != nullptr) calls += __atomic_load_n(&counts->calls, __ATOMIC_RELAXED);
  }
  return calls;
}

void ThreadCounts::begin_watched(uint64_t sp) {
  drop_left_frames(sp);
  if (depth() < kDepthMax) frame(depth()) = {.sp = sp, .child_ns = 0, .counts = nullptr};
  set_depth(depth() + 1);
}

void ThreadCounts::end(uint64_t duration_ns, int32_t status) {
  if (depth() == 0) return;  // cannot happen
  set_depth(depth() - 1);
  if (depth() >= kDepthMax || frame(depth()).counts == nullptr) return;
  const Frame& mine = frame(depth());
  if (depth() > 0) {
    frame(depth() - 1).child_ns += duration_ns;
  } else {
    add(hooked_.total_ns, duration_ns);
  }
  if (status != 0) add_errors(*mine.counts, kStatusTag | static_cast<uint32_t>(status), 1);
  add_duration(mine, duration_ns);
}

// A signal handler that launches meanwhile takes the next counts; whichever comes first assigns its
// own to the entry.
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
  const bool is_first = __atomic_compare_exchange_n(&counts_.entries[entry], &none, counts, false,
                                                    __ATOMIC_RELEASE, __ATOMIC_RELAXED);
  return reinterpret_cast<gpuperf_entry_counts*>(is_first ? counts : none);
}

__attribute__((noinline, cold)) void ThreadCounts::note_place_now(gpuperf_hook_entry entry) {
  state_.is_place_due.store(0, std::memory_order_relaxed);
  note_thread({.hooked_address = reinterpret_cast<uint64_t>(&hooked_),
               .process_address = reinterpret_cast<uint64_t>(process_),
               .entry = entry,
               .pad = 0});
}

// Randomized so that no loop of the program stays in step: on average the next one is due
// GPUPERF_PACED_STACK_NS later.
GPUPERF_HOOK_CODE bool ThreadCounts::is_stack_due(uint64_t now_mono_ns) {
  if (now_mono_ns < next_stack_ns_) return false;
  random_ = random_ * 1664525 + 1013904223;  // Numerical Recipes' generator
  const uint64_t share = uint64_t{random_ >> 16} * GPUPERF_PACED_STACK_NS >> 16;
  next_stack_ns_ = now_mono_ns + GPUPERF_PACED_STACK_NS / 2 + share;
  return true;
}

GPUPERF_HOOK_CODE KnownStack* ThreadCounts::take_stack(uint64_t pc, uint64_t sp, uint64_t bp,
                                                       uint64_t now_mono_ns) {
  // Kept launches refer to stacks by address.
  if (stacks_.must_clear()) [[unlikely]] {
    if (!send_all()) return nullptr;
    stacks_.clear();
  }
  return stacks_.take(pc, sp, bp, now_mono_ns);
}

// Returns 1 + its index; 0 = no room.
GPUPERF_HOOK_CODE uint16_t ThreadCounts::keep_stack(KnownStack& stack, uint64_t now_mono_ns,
                                                    bool each) {
  gpuperf_noted_launches& launches = *filling_;
  if (stack.kept_number == kept_.number) return stack.site;
  if (launches.site_count == GPUPERF_LAUNCH_SITES) return 0;
  const uint32_t daemon = read_daemon_number();
  const bool is_known = each && stack.noted_to == daemon && now_mono_ns < stack.noted_until_ns;
  if (!is_known) {
    stack.noted_to = each ? daemon : 0;
    stack.noted_until_ns = now_mono_ns + kNotedNs;
  }
  launches.sites[launches.site_count++] = {stack.noted.stack_id,
                                           is_known ? 0 : reinterpret_cast<uint64_t>(&stack.noted)};
  stack.kept_number = kept_.number;
  stack.site = static_cast<uint16_t>(launches.site_count);
  return stack.site;
}

// Moves on to the next note. False: it was not reported yet and cannot be now.
bool ThreadCounts::fill_next() {
  const uint64_t next = kept_.number + 1;
  const uint64_t waiting = kept_.number - sent_number_.load(std::memory_order_acquire);
  if (waiting >= GPUPERF_KEPT_NOTES / 2) must_send_ = true;
  if (waiting == GPUPERF_KEPT_NOTES && !send_launches()) return false;
  gpuperf_noted_launches& launches = kept_.notes[next % GPUPERF_KEPT_NOTES];
  launches.site_count = 0;
  __atomic_store_n(&launches.count, 0, __ATOMIC_RELEASE);
  __atomic_store_n(&launches.number, next, __ATOMIC_RELEASE);
  __atomic_store_n(&kept_.number, next, __ATOMIC_RELEASE);
  kept_count_ = 0;
  filling_ = &launches;
  return true;
}

GPUPERF_HOOK_CODE bool ThreadCounts::keep_launch(gpuperf_hook_entry entry, uint64_t now_mono_ns,
                                                 KnownStack* stack, bool each) {
  if (is_keeping_) return false;
  set_keeping(true);
  bool is_kept = true;
  if (kept_count_ > 0 && !has_room(now_mono_ns)) {
    if (kept_count_ < GPUPERF_LAUNCHES) must_send_ = true;  // they have waited kLaunchesNs
    is_kept = fill_next();
  }
  uint16_t site = 0;
  if (stack != nullptr && is_kept && (site = keep_stack(*stack, now_mono_ns, each)) == 0) {
    is_kept = fill_next();
    if (is_kept) site = keep_stack(*stack, now_mono_ns, each);
  }
  if (is_kept) {
    if (kept_count_ == 0) filling_->base_mono_ns = base_ns_ = now_mono_ns;
    add_launch(entry, now_mono_ns, site);
  }
  set_keeping(false);
  return is_kept;
}

bool ThreadCounts::send_launches() {
  if (is_sending_.exchange(true, std::memory_order_acquire)) return false;
  const uint64_t filled = load(kept_.number);
  for (uint64_t number = sent_number_.load(std::memory_order_relaxed) + 1; number <= filled;
       ++number) {
    gpuperf_noted_launches& launches = kept_.notes[number % GPUPERF_KEPT_NOTES];
    if (load(launches.count) > 0) note_launches(launches);
    if (number == filled) break;  // more may still be kept in it
    __atomic_store_n(&launches.count, 0, __ATOMIC_RELEASE);
    sent_number_.store(number, std::memory_order_release);
  }
  is_sending_.store(false, std::memory_order_release);
  return true;
}

// Also those of the note that is being filled, which is closed: no kept launch names a stack any
// more. False: another thread is sending, or a signal handler launched while one was being kept.
bool ThreadCounts::send_all() {
  if (is_keeping_) return false;
  set_keeping(true);
  const bool is_sent = fill_next() && send_launches();
  set_keeping(false);
  return is_sent;
}

bool ThreadTable::set_up() {
  process_ =
      static_cast<gpuperf_hooked_process*>(allocate_resident(sizeof(gpuperf_hooked_process)));
  if (process_ == nullptr) return false;
  process_->threads = reinterpret_cast<uint64_t>(blocks_);
  if (pthread_key_create(&key_, give_back) != 0) return false;
  g_slot = find_slot();
  remember(nullptr);
  return true;
}

uintptr_t ThreadTable::slot() { return g_slot; }

void ThreadTable::give_back(void* counts) {
  auto& gone = *static_cast<ThreadCounts*>(counts);
  remember(nullptr);
  (void)gone.send_all();
  gone.drop_frames(0);
  note_thread({});  // another thread uses the block next
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
  block->hooked_.counts_address = reinterpret_cast<uint64_t>(&block->counts_);
  block->counts_.launches = reinterpret_cast<uint64_t>(&block->kept_);
  for (gpuperf_noted_launches& launches : block->kept_.notes) {
    launches.thread_address = reinterpret_cast<uint64_t>(&block->hooked_);
  }
  (void)block->fill_next();
  block->random_ = static_cast<uint32_t>(reinterpret_cast<uint64_t>(block) >> 12);
  block->is_taken_.store(true, std::memory_order_relaxed);
  for (uint32_t i = count(); i < kThreadsMax; ++i) {
    ThreadCounts* none = nullptr;
    if (!blocks_[i].compare_exchange_strong(none, block, std::memory_order_acq_rel)) continue;
    // The blocks before it are in place: the thread that placed them raises the count at least that
    // far.
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
  if (mine == nullptr) {
    mine = take();
    if (mine == nullptr) return nullptr;
    mine->tid_ = static_cast<uint32_t>(syscall(SYS_gettid));
    if (pthread_setspecific(key_, mine) != 0) {
      give_back(mine);
      return nullptr;
    }
  }
  remember(mine);
  return mine;
}

// Null = no memory: it is noted another time.
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
  // Errors keep their slots.
  for (size_t i = 0; i < GPUPERF_ERROR_SLOTS; ++i) {
    sum.errors[i].status_tag = noted.errors[i].status_tag;
  }
  const uint32_t thread_count = threads_.count();
  for (uint32_t i = 0; i < thread_count; ++i) {
    const gpuperf_entry_counts* const found = threads_.at(i).find(entry);
    if (found == nullptr) continue;
    const gpuperf_entry_counts& counts = *found;
    // Read before all else of the calls it includes. The next note covers a call that ends
    // meanwhile.
    sum.total_ns += load(counts.total_ns);
    for (size_t bucket = 0; bucket < GPUPERF_BUCKETS; ++bucket) {
      sum.buckets[bucket] += load(counts.buckets[bucket]);
    }
    for (const gpuperf_error_count& error : counts.errors) {
      if (load(error.count) != 0) add_errors(sum, load(error.status_tag), load(error.count));
    }
    sum.other_errors += load(counts.other_errors);
    sum.self_ns += load(counts.self_ns);
    sum.abandoned += load(counts.abandoned);
    sum.inverted_min_ns = std::max(sum.inverted_min_ns, load(counts.inverted_min_ns));
    sum.max_ns = std::max(sum.max_ns, load(counts.max_ns));
    // Read after the ends, so that calls in flight never go below zero.
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

// At any moment one of the two is as it was noted, whether or not the process lives to see the note
// return.
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
