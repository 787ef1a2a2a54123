#pragma once

// The stacks from which one thread has launched: each is walked once (stack_walk.h). Later a
// launch compares the words that the walk has read, some 100 loads, with what they were.
//
// No load can fault: a word is loaded only after those that lead to it were found unchanged, each
// in the frame of a function that will return by it, and of Python in frames that the thread's
// state leads to. Memory: kChunkBytes per thread, and more from what all threads share.

#include <cstddef>
#include <cstdint>

#include "injector/stack_walk.h"

namespace gpuperf::injector {

// Before any other, within cuInit. False: stacks cannot be walked here.
bool set_up_known_stacks();
// Looks whether code was mapped or unmapped since the last time: what lies there now has other
// rules, and may be a Python. Injector's thread.
void notice_code_changes();

class KnownStacks {
 public:
  static constexpr size_t kChunkBytes = 32 << 10;
  static constexpr size_t kChunksMax = 64;            // of a thread
  static constexpr size_t kSharedChunksMax = 256;     // of all, beside each thread's first
  static constexpr uint32_t kWalksPerSecond = 2'000;  // a share of the thread's time

  // Of the calling thread. Null = the kernel side has to walk, or there is no room: see must_clear.
  const gpuperf_noted_stack* take(uint64_t pc, uint64_t sp, uint64_t bp, uint64_t now_mono_ns);
  // There is room again only once those taken are no longer needed.
  bool must_clear() const;
  void clear();

 private:
  struct Known {
    Known* next;     // in its bucket
    Known* follows;  // that was taken after it: the first guess
    WalkStart start;
    const gpuperf_noted_stack* stack;  // null = the kernel side walks it
    uint32_t word_count;
    bool starts_by_bp;
    // Behind it: the words; then the stack with its frames.
    const StackWord* words() const { return reinterpret_cast<const StackWord*>(this + 1); }
  };
  static constexpr size_t kBuckets = 64;

  static bool is_same(const Known& known, const WalkStart& start);
  Known* find(const WalkStart& start) const;
  static size_t bucket_of(const WalkStart& start);
  Known* learn(const WalkStart& start, uint64_t now_mono_ns);
  Known* keep(const WalkStart& start, const WalkedStack& stack, bool is_whole);
  void* allocate(size_t size_bytes);

  uint32_t generation_ = 0;  // 0 = nothing was taken yet
  bool is_busy_ = false;     // a signal handler launches in the middle of it
  bool is_full_ = false;
  uint32_t walks_left_ = 0;
  uint64_t next_walks_ns_ = 0;
  Known* last_ = nullptr;
  Known* buckets_[kBuckets] = {};
  std::byte* chunks_[kChunksMax] = {};
  uint32_t chunk_count_ = 0;
  uint32_t chunk_ = 0;  // that is being filled
  size_t used_bytes_ = 0;
};

}  // namespace gpuperf::injector
