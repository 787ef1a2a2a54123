#include "injector/known_stacks.h"

#include <link.h>
#include <sys/mman.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>

#include "injector/hook_code.h"
#include "injector/own_rules.h"

namespace gpuperf::injector {
namespace {

constexpr uint64_t kNsPerSecond = 1'000'000'000;

std::atomic<bool> g_can_walk = false;
std::atomic<const OwnPython*> g_python = nullptr;
std::atomic<uint32_t> g_generation = 1;
std::atomic<uint32_t> g_shared_chunks = 0;
std::atomic<uint32_t> g_daemon_number = 1;

// One walk at a time: meanwhile other threads leave theirs to BPF.
std::atomic<bool> g_is_walking = false;
WalkedStack g_walked;

uint64_t hash_bytes(const void* bytes, size_t size_bytes) {
  uint64_t hash = size_bytes;
  for (size_t at = 0; at < size_bytes; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, static_cast<const std::byte*>(bytes) + at, sizeof(word));
    hash = mix(hash, word);
  }
  return hash;
}

template <size_t kCount>
size_t get_bucket(uint64_t hash) {
  static_assert(std::has_single_bit(kCount));
  return hash >> (64 - std::countr_zero(kCount));
}

struct LoadCounts {
  unsigned long long loads;
  unsigned long long unloads;
  const OwnPython* python;
};

int read_load_counts(dl_phdr_info* info, size_t size_bytes, void* data) {
  auto& counts = *static_cast<LoadCounts*>(data);
  if (size_bytes >= offsetof(dl_phdr_info, dlpi_subs) + sizeof(info->dlpi_subs)) {
    counts.loads = info->dlpi_adds;
    counts.unloads = info->dlpi_subs;
  }
  return 1;  // the same for every module
}

template <typename T>
struct [[gnu::packed, gnu::may_alias]] Unaligned {
  T value;
};

// Sanitizers would report reads of memory that is not the reader's own.
template <typename T>
[[gnu::no_sanitize_address, gnu::no_sanitize_thread]] inline uint64_t load(uint64_t address) {
  return reinterpret_cast<const volatile Unaligned<T>*>(address)->value;
}

// Whether 8-byte words are unchanged.
GPUPERF_HOOK_CODE bool are_same(const StackWord* words, uint32_t count) {
#pragma GCC unroll 8
  for (uint32_t i = 0; i < count; ++i) {
    if (load<uint64_t>(words[i].address) != words[i].value) return false;
  }
  return true;
}

// Likewise, for words of any size.
GPUPERF_HOOK_CODE bool are_small_same(const StackWord* words, uint32_t count) {
  for (const StackWord* const end = words + count; words != end; ++words) {
    const uint64_t now = words->size_bytes == 1   ? load<uint8_t>(words->address)
                         : words->size_bytes == 4 ? load<uint32_t>(words->address)
                                                  : load<uint64_t>(words->address);
    if (now != words->value) return false;
  }
  return true;
}

}  // namespace

bool set_up_known_stacks() {
  const OwnPython* const python = find_own_python();
  g_python.store(python, std::memory_order_release);
  // If this Python is not known here, BPF has to find its frames.
  const bool is_known = python == nullptr || python->layout.form != GPUPERF_PYTHON_NONE;
  g_can_walk.store(is_known && can_find_own_rules(), std::memory_order_release);
  return g_can_walk.load();
}

void notice_code_changes() {
  static LoadCounts seen = {};
  LoadCounts now = {};
  (void)dl_iterate_phdr(read_load_counts, &now);
  if (now.loads != seen.loads && g_python.load() == nullptr) (void)set_up_known_stacks();
  if (now.unloads != seen.unloads || g_python.load() != seen.python) {
    forget_own_rules();
    g_generation.fetch_add(1, std::memory_order_release);
  }
  seen = {now.loads, now.unloads, g_python.load()};
}

void forget_noted_stacks() { g_daemon_number.fetch_add(1, std::memory_order_release); }
uint32_t read_daemon_number() { return g_daemon_number.load(std::memory_order_acquire); }

GPUPERF_HOOK_CODE bool KnownStacks::is_same(const Run& run) {
  return run.has_small ? are_small_same(run.words, run.word_count)
                       : are_same(run.words, run.word_count);
}

GPUPERF_HOOK_CODE bool KnownStacks::is_same(Known& known, uint32_t first) {
  Run** const runs = known.runs();
  for (uint32_t i = first; i < known.run_count; ++i) {
    if (!is_same(*runs[i])) return false;
  }
  return true;
}

GPUPERF_HOOK_CODE bool KnownStacks::is_from(const WalkStart& start, const WalkStart& at,
                                            bool is_by_bp) {
  return start.pc == at.pc && start.sp == at.sp && start.python_thread == at.python_thread &&
         (!is_by_bp || start.bp == at.bp);
}

GPUPERF_HOOK_CODE bool KnownStacks::must_clear() const {
  return is_full_ ||
         (generation_ != 0 && generation_ != g_generation.load(std::memory_order_acquire));
}

void KnownStacks::clear() {
  buckets_ = nullptr;
  last_ = nullptr;
  chunk_ = first_chunk_;
  used_bytes_ = 0;
  is_full_ = false;
  generation_ = g_generation.load(std::memory_order_acquire);
}

size_t KnownStacks::bucket_of(const WalkStart& start) {
  return get_bucket<kBuckets>(mix(start.pc, start.sp));
}

GPUPERF_HOOK_CODE KnownStacks::Start* KnownStacks::find_start(const WalkStart& at) const {
  Start* start = buckets_->starts[bucket_of(at)];
  while (start != nullptr && !is_from(start->at, at, start->is_by_bp)) start = start->next;
  return start;
}

GPUPERF_HOOK_CODE KnownStacks::Known* KnownStacks::find(const WalkStart& at, const Node*& nearest) {
  if (buckets_ == nullptr) return nullptr;
  if (Known* guess = last_ == nullptr ? nullptr : last_->follows;
      guess != nullptr && is_from(guess->start, at, guess->starts_by_bp) && is_same(*guess, 0)) {
    return guess;
  }
  const Start* const start = find_start(at);
  if (start == nullptr) return nullptr;
  if (start->only != nullptr) return start->only;
  const Node* node = start->first;
  for (uint32_t depth = 0, compared = 0; node != nullptr && compared < kComparedMax; ++compared) {
    nearest = node;
    if (!is_same(*node->run)) {
      node = node->other;
    } else if (node->known != nullptr) {
      return is_same(*node->known, depth + 1) ? node->known : nullptr;
    } else {
      node = node->child;
      ++depth;
    }
  }
  return nullptr;
}

// Puts a stack into the tree. False: no memory.
bool KnownStacks::place(Known& known) {
  Start* start = find_start(known.start);
  if (start == nullptr) {
    void* const memory = allocate(sizeof(Start));
    if (memory == nullptr) return false;
    Start*& first = buckets_->starts[bucket_of(known.start)];
    start = first = new (memory) Start{.next = first,
                                       .at = known.start,
                                       .is_by_bp = known.starts_by_bp,
                                       .only = nullptr,
                                       .first = nullptr};
  }
  if (known.run_count == 0) start->only = &known;
  Node** nodes = &start->first;
  for (uint32_t depth = 0; depth < known.run_count; ++depth) {
    Run* const run = known.runs()[depth];
    Node* node = *nodes;
    while (node != nullptr && node->run != run) node = node->other;
    if (node == nullptr) {
      void* const memory = allocate(sizeof(Node));
      if (memory == nullptr) return false;
      *nodes = new (memory) Node{.other = *nodes, .child = nullptr, .known = &known, .run = run};
      return true;
    }
    if (Known* const only = node->known; only != nullptr) {
      if (only->run_count == depth + 1) break;  // the same words: the walk would be the same
      void* const memory = allocate(sizeof(Node));
      if (memory == nullptr) return false;
      node->child = new (memory)
          Node{.other = nullptr, .child = nullptr, .known = only, .run = only->runs()[depth + 1]};
      node->known = nullptr;
    }
    nodes = &node->child;
  }
  return true;
}

KnownStacks::Known* KnownStacks::find_id(const WalkStart& start, uint64_t stack_id) const {
  if (buckets_ == nullptr) return nullptr;
  Known* known = buckets_->ids[get_bucket<kBuckets>(stack_id)];
  while (known != nullptr && (known->stack.noted.stack_id != stack_id ||
                              known->start.pc != start.pc || known->start.sp != start.sp)) {
    known = known->next_id;
  }
  return known;
}

bool KnownStacks::set_up_buckets() {
  static_assert(sizeof(Buckets) <= kUsableBytes);
  if (buckets_ != nullptr) return true;
  void* const memory = allocate(sizeof(Buckets));
  if (memory == nullptr) return false;
  buckets_ = new (memory) Buckets{};
  return true;
}

void* KnownStacks::allocate(size_t size_bytes) {
  if (chunk_ == nullptr || used_bytes_ + size_bytes > kUsableBytes) {
    Chunk*& next = chunk_ == nullptr ? first_chunk_ : chunk_->next;
    if (next == nullptr) next = make_chunk();
    if (next == nullptr) return nullptr;
    chunk_ = next;
    used_bytes_ = 0;
  }
  void* const at = chunk_->bytes() + used_bytes_;
  used_bytes_ += size_bytes;
  return at;
}

// Null = no memory, or too many.
KnownStacks::Chunk* KnownStacks::make_chunk() {
  const bool is_shared = chunk_count_ >= kOwnChunks;
  if (is_shared && g_shared_chunks.fetch_add(1) >= kSharedChunksMax) {
    g_shared_chunks.fetch_sub(1);
    return nullptr;
  }
  void* const memory =
      mmap(nullptr, kChunkBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    if (is_shared) g_shared_chunks.fetch_sub(1);
    return nullptr;
  }
  ++chunk_count_;
  return new (memory) Chunk{.next = nullptr};
}

KnownStacks::Run* KnownStacks::keep_run(const StackWord* words, uint32_t count, Run* like) {
  const size_t bytes = count * sizeof(*words);
  const auto is_it = [&](const Run& run) {
    return run.word_count == count && std::memcmp(run.words, words, bytes) == 0;
  };
  if (like != nullptr && is_it(*like)) return like;
  Run*& first = buckets_->runs[get_bucket<kRunBuckets>(hash_bytes(words, bytes))];
  for (Run* run = first; run != nullptr; run = run->next) {
    if (is_it(*run)) return run;
  }
  void* const memory = allocate(sizeof(Run));
  if (memory == nullptr) return nullptr;
  auto* const run =
      new (memory) Run{.next = first, .word_count = count, .has_small = false, .words = {}};
  std::memcpy(run->words, words, bytes);
  for (uint32_t i = 0; i < count; ++i) run->has_small |= words[i].size_bytes != sizeof(uint64_t);
  first = run;
  return run;
}

const gpuperf_native_frame* KnownStacks::keep_frames(const gpuperf_native_frame* frames,
                                                     uint32_t count) {
  const size_t bytes = count * sizeof(*frames);
  Frames*& first = buckets_->frames[get_bucket<kBuckets>(hash_bytes(frames, bytes))];
  for (Frames* kept = first; kept != nullptr; kept = kept->next) {
    if (kept->count == count && std::memcmp(kept->frames(), frames, bytes) == 0) {
      return kept->frames();
    }
  }
  void* const memory = allocate(sizeof(Frames) + bytes);
  if (memory == nullptr) return nullptr;
  auto* const kept = new (memory) Frames{.next = first, .count = count, .pad = 0};
  std::memcpy(kept->frames(), frames, bytes);
  first = kept;
  return kept->frames();
}

KnownStacks::Known* KnownStacks::keep(const WalkStart& start, const WalkedStack& walked,
                                      bool is_whole, Known* like) {
  static_assert(sizeof(Known) % 8 == 0 && sizeof(Run) % 8 == 0 && sizeof(Frames) % 8 == 0);
  static_assert(sizeof(Known) + WalkedStack::kWordsMax / kRunWords * sizeof(Run*) +
                    sizeof(WalkedStack::python) <=
                kUsableBytes);
  static_assert(sizeof(Frames) + sizeof(WalkedStack::frames) <= kUsableBytes);
  is_full_ = true;  // until all of it has found room
  if (!set_up_buckets()) return nullptr;
  const uint32_t run_count = (walked.word_count + kRunWords - 1) / kRunWords;
  const size_t python_bytes =
      is_whole ? walked.head.python_count * sizeof(gpuperf_python_frame) : 0;
  void* const memory = allocate(sizeof(Known) + run_count * sizeof(Run*) + python_bytes);
  if (memory == nullptr) return nullptr;
  auto* const known =
      new (memory) Known{.next_id = nullptr,
                         .follows = nullptr,
                         .start = start,
                         .stack = {.noted = walked.head, .noted_until_ns = 0, .noted_to = 0},
                         .is_whole = is_whole,
                         .starts_by_bp = walked.starts_by_bp,
                         .run_count = run_count};
  for (uint32_t i = 0; i < run_count; ++i) {
    const uint32_t at = i * kRunWords;
    const uint32_t left = walked.word_count - at;
    Run* const run = keep_run(walked.words + at, left < kRunWords ? left : kRunWords,
                              like != nullptr && i < like->run_count ? like->runs()[i] : nullptr);
    if (run == nullptr) return nullptr;
    known->runs()[i] = run;
  }
  if (is_whole) {
    const gpuperf_native_frame* const frames = keep_frames(walked.frames, walked.head.frame_count);
    if (frames == nullptr) return nullptr;
    auto* const python = reinterpret_cast<std::byte*>(known->runs() + run_count);
    std::memcpy(python, walked.python, python_bytes);
    known->stack.noted.frames_address = reinterpret_cast<uint64_t>(frames);
    known->stack.noted.python_address = reinterpret_cast<uint64_t>(python);
  }
  if (!place(*known)) return nullptr;
  if (is_whole) {
    Known*& first_id = buckets_->ids[get_bucket<kBuckets>(walked.head.stack_id)];
    known->next_id = first_id;
    first_id = known;
  }
  is_full_ = false;
  return known;
}

KnownStacks::Known* KnownStacks::learn(const WalkStart& start, const Node* nearest,
                                       uint64_t now_mono_ns) {
  if (now_mono_ns >= next_walks_ns_) {
    next_walks_ns_ = now_mono_ns + kNsPerSecond;
    walks_left_ = kWalksPerSecond;
  }
  if (walks_left_ == 0) return nullptr;
  --walks_left_;
  const int error = errno;
  if (g_is_walking.exchange(true, std::memory_order_acquire)) return nullptr;
  const bool is_whole = walk_own_stack(start, g_python.load(), g_walked);
  Known* known = is_whole ? find_id(start, g_walked.head.stack_id) : nullptr;
  if (known == nullptr) {
    while (nearest != nullptr && nearest->known == nullptr) nearest = nearest->child;
    known = keep(start, g_walked, is_whole, nearest != nullptr ? nearest->known : last_);
  }
  g_is_walking.store(false, std::memory_order_release);
  errno = error;
  return known;
}

GPUPERF_HOOK_CODE KnownStack* KnownStacks::take(uint64_t pc, uint64_t sp, uint64_t bp,
                                                uint64_t now_mono_ns) {
  if (!g_can_walk.load(std::memory_order_acquire) || is_busy_) return nullptr;
  is_busy_ = true;
  if (generation_ == 0) generation_ = g_generation.load(std::memory_order_acquire);
  const OwnPython* const python = g_python.load(std::memory_order_acquire);
  void* const python_thread = python == nullptr ? nullptr : python->find_thread();
  const WalkStart start{
      .pc = pc, .sp = sp, .bp = bp, .python_thread = reinterpret_cast<uint64_t>(python_thread)};
  const Node* nearest = nullptr;
  Known* known = find(start, nearest);
  if (known == nullptr) known = learn(start, nearest, now_mono_ns);
  if (last_ != nullptr && known != nullptr && last_->follows != known) last_->follows = known;
  last_ = known;
  is_busy_ = false;
  return known == nullptr || !known->is_whole ? nullptr : &known->stack;
}

}  // namespace gpuperf::injector
