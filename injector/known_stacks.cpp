#include "injector/known_stacks.h"

#include <link.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>

#include "injector/own_rules.h"

namespace gpuperf::injector {
namespace {

constexpr uint64_t kNsPerSecond = 1'000'000'000;

std::atomic<bool> g_can_walk = false;
std::atomic<const OwnPython*> g_python = nullptr;
std::atomic<uint32_t> g_generation = 1;
std::atomic<uint32_t> g_shared_chunks = 0;

// One walk at a time: the next thread has the kernel side do it.
std::atomic<bool> g_is_walking = false;
WalkedStack g_walked;

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
  return 1;  // the same of every module
}

template <typename T>
struct [[gnu::packed, gnu::may_alias]] Unaligned {
  T value;
};

// Sanitizers see memory that is not the reader's own.
[[gnu::no_sanitize_address, gnu::no_sanitize_thread]] uint64_t load(const StackWord& word) {
  const auto* const at = reinterpret_cast<const void*>(uint64_t{word.address});
  switch (word.size_bytes) {
    case 1:
      return *static_cast<const volatile uint8_t*>(at);
    case 4:
      return static_cast<const volatile Unaligned<uint32_t>*>(at)->value;
    default:
      return static_cast<const volatile Unaligned<uint64_t>*>(at)->value;
  }
}

}  // namespace

bool set_up_known_stacks() {
  const OwnPython* const python = find_own_python();
  g_python.store(python, std::memory_order_release);
  // Frames of a Python that is not known here are the kernel side's to find.
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

bool KnownStacks::is_same(const Known& known, const WalkStart& start) {
  if (known.start.pc != start.pc || known.start.sp != start.sp ||
      known.start.python_thread != start.python_thread ||
      (known.starts_by_bp && known.start.bp != start.bp)) {
    return false;
  }
  const StackWord* const words = known.words();
  for (uint32_t i = 0; i < known.word_count; ++i) {
    if (load(words[i]) != words[i].value) return false;
  }
  return true;
}

bool KnownStacks::must_clear() const {
  return is_full_ ||
         (generation_ != 0 && generation_ != g_generation.load(std::memory_order_acquire));
}

void KnownStacks::clear() {
  std::memset(buckets_, 0, sizeof(buckets_));
  last_ = nullptr;
  chunk_ = 0;
  used_bytes_ = 0;
  is_full_ = false;
  generation_ = g_generation.load(std::memory_order_acquire);
}

size_t KnownStacks::bucket_of(const WalkStart& start) {
  // 2^64 / the golden ratio: Fibonacci hashing.
  const uint64_t hash = (start.pc ^ start.sp << 20) * 0x9e3779b97f4a7c15ull;
  static_assert(kBuckets == size_t{1} << (64 - 58));
  return hash >> 58;
}

KnownStacks::Known* KnownStacks::find(const WalkStart& start) const {
  if (last_ != nullptr && last_->follows != nullptr && is_same(*last_->follows, start)) {
    return last_->follows;
  }
  for (Known* known = buckets_[bucket_of(start)]; known != nullptr; known = known->next) {
    if (is_same(*known, start)) return known;
  }
  return nullptr;
}

void* KnownStacks::allocate(size_t size_bytes) {
  if (chunk_count_ > 0 && used_bytes_ + size_bytes > kChunkBytes) {
    ++chunk_;
    used_bytes_ = 0;
  }
  if (chunk_ >= kChunksMax) return nullptr;
  if (chunk_ >= chunk_count_) {
    const bool is_shared = chunk_count_ > 0;
    if (is_shared && g_shared_chunks.fetch_add(1) >= kSharedChunksMax) {
      g_shared_chunks.fetch_sub(1);
      return nullptr;
    }
    void* memory =
        mmap(nullptr, kChunkBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      if (is_shared) g_shared_chunks.fetch_sub(1);
      return nullptr;
    }
    chunks_[chunk_count_++] = static_cast<std::byte*>(memory);
  }
  void* const at = chunks_[chunk_] + used_bytes_;
  used_bytes_ += size_bytes;
  return at;
}

KnownStacks::Known* KnownStacks::keep(const WalkStart& start, const WalkedStack& walked,
                                      bool is_whole) {
  const size_t words_bytes = walked.word_count * sizeof(StackWord);
  const size_t native_bytes = walked.head.frame_count * sizeof(gpuperf_native_frame);
  const size_t python_bytes = walked.head.python_count * sizeof(gpuperf_python_frame);
  const size_t stack_bytes = is_whole ? sizeof(walked.head) + native_bytes + python_bytes : 0;
  static_assert(sizeof(Known) % 8 == 0 && sizeof(walked.head) % 8 == 0);
  static_assert(sizeof(Known) + sizeof(WalkedStack) < kChunkBytes);
  void* const memory = allocate(sizeof(Known) + words_bytes + stack_bytes);
  if (memory == nullptr) {
    is_full_ = true;
    return nullptr;
  }
  auto* const known = new (memory) Known{.next = buckets_[bucket_of(start)],
                                         .follows = nullptr,
                                         .start = start,
                                         .stack = nullptr,
                                         .word_count = walked.word_count,
                                         .starts_by_bp = walked.starts_by_bp};
  auto* const words = static_cast<std::byte*>(memory) + sizeof(Known);
  std::memcpy(words, walked.words, words_bytes);
  if (is_whole) {
    std::byte* const stack = words + words_bytes;
    std::memcpy(stack, &walked.head, sizeof(walked.head));
    std::memcpy(stack + sizeof(walked.head), walked.frames, native_bytes);
    std::memcpy(stack + sizeof(walked.head) + native_bytes, walked.python, python_bytes);
    known->stack = reinterpret_cast<const gpuperf_noted_stack*>(stack);
  }
  buckets_[bucket_of(start)] = known;
  return known;
}

KnownStacks::Known* KnownStacks::learn(const WalkStart& start, uint64_t now_mono_ns) {
  if (now_mono_ns >= next_walks_ns_) {
    next_walks_ns_ = now_mono_ns + kNsPerSecond;
    walks_left_ = kWalksPerSecond;
  }
  if (walks_left_ == 0) return nullptr;
  --walks_left_;
  const int error = errno;
  if (g_is_walking.exchange(true, std::memory_order_acquire)) return nullptr;
  const bool is_whole = walk_own_stack(start, g_python.load(), g_walked);
  Known* const known = keep(start, g_walked, is_whole);
  g_is_walking.store(false, std::memory_order_release);
  errno = error;
  return known;
}

const gpuperf_noted_stack* KnownStacks::take(uint64_t pc, uint64_t sp, uint64_t bp,
                                             uint64_t now_mono_ns) {
  if (!g_can_walk.load(std::memory_order_acquire) || is_busy_) return nullptr;
  is_busy_ = true;
  if (generation_ == 0) generation_ = g_generation.load(std::memory_order_acquire);
  const OwnPython* const python = g_python.load(std::memory_order_acquire);
  void* const python_thread = python == nullptr ? nullptr : python->find_thread();
  const WalkStart start{
      .pc = pc, .sp = sp, .bp = bp, .python_thread = reinterpret_cast<uint64_t>(python_thread)};
  Known* known = find(start);
  if (known == nullptr) known = learn(start, now_mono_ns);
  if (last_ != nullptr && known != nullptr && last_->follows != known) last_->follows = known;
  last_ = known;
  is_busy_ = false;
  return known == nullptr ? nullptr : known->stack;
}

}  // namespace gpuperf::injector
