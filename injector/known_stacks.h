#pragma once

// The stacks from which one thread has launched: each is walked once (stack_walk.h). Later a
// launch compares the words that the walk has read, some 100 loads, with what they were.
//
// No load can fault: a word is loaded only after those that lead to it were found unchanged, each
// in the frame of a function that will return by it, and of Python in frames that the thread's
// state leads to.
//
// Stacks of a program differ in few frames: those of a model's layers in one. So what they have in
// common is kept once: words in runs of eight, and the frames of native code. Of the runs that were
// compared in the search for one stack the next one is told without a look.
// Memory: kChunkBytes per thread, and more from what all threads share.

#include <cstddef>
#include <cstdint>

#include "injector/stack_walk.h"

namespace gpuperf::injector {

// Before any other, within cuInit. False: stacks cannot be walked here.
bool set_up_known_stacks();
// Looks whether code was mapped or unmapped since the last time: what lies there now has other
// rules, and may be a Python. Injector's thread.
void notice_code_changes();

// A stack that a launch may name.
struct KnownStack {
  gpuperf_noted_stack noted;
  // The kernel side has it until then, as long as the daemon is the one of that number.
  uint64_t noted_until_ns;
  uint32_t noted_to;
  uint16_t site;         // in the note of kept launches
  uint64_t kept_number;  // of that number
};

// The stacks that were noted have to be noted again: it may be to another daemon. Injector's
// thread.
void forget_noted_stacks();
// The number of that daemon. Any thread.
uint32_t read_daemon_number();

class KnownStacks {
 public:
  static constexpr size_t kChunkBytes = 32 << 10;
  static constexpr size_t kChunksMax = 256;           // of a thread
  static constexpr size_t kSharedChunksMax = 256;     // of all, beside each thread's first
  static constexpr uint32_t kWalksPerSecond = 2'000;  // a share of the thread's time

  // Of the calling thread. Null = the kernel side has to walk, or there is no room: see must_clear.
  KnownStack* take(uint64_t pc, uint64_t sp, uint64_t bp, uint64_t now_mono_ns);
  // There is room again only once those taken are no longer needed.
  bool must_clear() const;
  void clear();

 private:
  static constexpr size_t kBuckets = 256;
  static constexpr uint32_t kRunWords = 8;

  // Words that are compared one after the other.
  struct Run {
    Run* next;          // in its bucket
    uint64_t same_in;   // the last search in which they were as they are here
    uint64_t other_in;  // likewise, in which one was not
    uint32_t word_count;
    bool has_small;  // words of less than 8 bytes
    StackWord words[kRunWords];
  };
  // Frames of native code.
  struct Frames {
    Frames* next;  // in its bucket
    uint32_t count;
    uint32_t pad;
    // Behind it: the frames.
    gpuperf_native_frame* frames() { return reinterpret_cast<gpuperf_native_frame*>(this + 1); }
  };
  struct Known {
    Known* next;     // in its bucket
    Known* follows;  // that was taken after it: the first guess
    WalkStart start;
    KnownStack stack;
    bool is_whole;  // else the kernel side walks it
    bool starts_by_bp;
    uint32_t run_count;
    // Behind it: the runs; then its frames of Python.
    Run** runs() { return reinterpret_cast<Run**>(this + 1); }
  };
  // The first of each bucket. In memory of the first chunk: a thread that launches without stacks
  // has none.
  struct Buckets {
    Known* known[kBuckets];
    Run* runs[kBuckets];
    Frames* frames[kBuckets];
  };

  bool is_same(Known& known, const WalkStart& start);
  bool is_same(Run& run) const;
  Known* find(const WalkStart& start);
  static size_t bucket_of(const WalkStart& start);
  Known* learn(const WalkStart& start, uint64_t now_mono_ns);
  Known* keep(const WalkStart& start, const WalkedStack& walked, bool is_whole);
  Run* keep_run(const StackWord* words, uint32_t count);
  const gpuperf_native_frame* keep_frames(const gpuperf_native_frame* frames, uint32_t count);
  bool set_up_buckets();
  void* allocate(size_t size_bytes);

  uint32_t generation_ = 0;  // 0 = nothing was taken yet
  bool is_busy_ = false;     // a signal handler launches in the middle of it
  bool is_full_ = false;
  uint32_t walks_left_ = 0;
  uint64_t next_walks_ns_ = 0;
  uint64_t search_ = 0;  // counts them
  Known* last_ = nullptr;
  Buckets* buckets_ = nullptr;
  std::byte* chunks_[kChunksMax] = {};
  uint32_t chunk_count_ = 0;
  uint32_t chunk_ = 0;  // that is being filled
  size_t used_bytes_ = 0;
};

}  // namespace gpuperf::injector
