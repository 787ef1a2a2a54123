#pragma once

// The stacks from which one thread has launched. Each is walked once (stack_walk.h). Later launches
// compare the words that the walk read, some 100 loads, with their earlier values.
//
// No load can fault: a word is loaded only after those that lead to it were found unchanged. It
// lies in the frame of a function that will return through it or, for Python, in a frame that the
// thread state leads to.
//
// A program's stacks differ in few frames, those of a model's layers in one. So common parts are
// kept once: words in runs of eight, and native frames. A search follows a tree of runs: those that
// come next after the same words begin at the same address, and one of them at most is unchanged.
// Memory: chunks of 8 KiB as they are needed, up to four per thread, and more from a
// pool that all threads share.

#include <cstddef>
#include <cstdint>

#include "injector/stack_walk.h"

namespace gpuperf::injector {

// Call before all others, within cuInit. False: stacks cannot be walked here.
bool set_up_known_stacks();
// Checks whether code was mapped or unmapped since the last call: what is there now has other
// rules, and may be a Python. Thread: injector's.
void notice_code_changes();

// A stack that a launch may name.
struct KnownStack {
  gpuperf_noted_stack noted;
  // BPF has the stack until then, as long as the daemon's number is noted_to.
  uint64_t noted_until_ns;
  uint32_t noted_to;
  uint16_t site;         // in the note of kept launches
  uint64_t kept_number;  // number of that note
};

// Makes noted stacks be noted again: the daemon may be another one. Thread: injector's.
void forget_noted_stacks();
// The current daemon's number. Thread: any.
uint32_t read_daemon_number();

class KnownStacks {
 public:
  static constexpr size_t kChunkBytes = 8 << 10;
  static constexpr uint32_t kOwnChunks = 4;           // each thread may have these at least
  static constexpr uint32_t kSharedChunksMax = 768;   // of all threads, further ones
  static constexpr uint32_t kWalksPerSecond = 2'000;  // bounds the share of the thread's time

  // The calling thread's stack. Null = BPF has to walk it, or there is no room: see must_clear.
  KnownStack* take(uint64_t pc, uint64_t sp, uint64_t bp, uint64_t now_mono_ns);
  // True: there is room again only after clear(), once the stacks taken are no longer needed.
  bool must_clear() const;
  void clear();

 private:
  static constexpr size_t kBuckets = 128;
  static constexpr size_t kRunBuckets = 256;  // a model has thousands of runs
  static constexpr uint32_t kRunWords = 8;

  // Runs that a search compares; to walk a stack anew takes longer.
  static constexpr uint32_t kComparedMax = 256;

  // Words compared one after the other.
  struct Run {
    Run* next;  // in its bucket
    uint32_t word_count;
    bool has_small;  // words of less than 8 bytes
    StackWord words[kRunWords];
  };
  // Native frames.
  struct Frames {
    Frames* next;  // in its bucket
    uint32_t count;
    uint32_t pad;
    // The frames follow the struct.
    gpuperf_native_frame* frames() { return reinterpret_cast<gpuperf_native_frame*>(this + 1); }
  };
  struct Known {
    Known* next_id;  // in the bucket of its stack's id
    Known* follows;  // the stack taken after it: the first guess
    WalkStart start;
    KnownStack stack;
    bool is_whole;  // else BPF walks it
    bool starts_by_bp;
    uint32_t run_count;
    // The runs follow the struct, then its Python frames.
    Run** runs() { return reinterpret_cast<Run**>(this + 1); }
  };
  // A run of those that may come next in the tree.
  struct Node {
    Node* other;   // that may come instead
    Node* child;   // those that may come after it
    Known* known;  // the only stack below; then there is no child
    Run* run;
  };
  struct Start {
    Start* next;  // in its bucket
    WalkStart at;
    bool is_by_bp;
    Known* only;  // that has no words: it depends on nothing else
    Node* first;
  };
  // The head of each bucket. Lies in the first chunk: a thread that launches without stacks has
  // none.
  struct Buckets {
    Start* starts[kBuckets];
    Known* ids[kBuckets];
    Run* runs[kRunBuckets];
    Frames* frames[kBuckets];
  };

  // What lies in a chunk follows the struct.
  struct Chunk {
    Chunk* next;
    std::byte* bytes() { return reinterpret_cast<std::byte*>(this + 1); }
  };
  static constexpr size_t kUsableBytes = kChunkBytes - sizeof(Chunk);

  static bool is_from(const WalkStart& start, const WalkStart& at, bool is_by_bp);
  static bool is_same(const Run& run);
  // From its run `first` on.
  static bool is_same(Known& known, uint32_t first);
  Start* find_start(const WalkStart& at) const;
  bool place(Known& known);
  // Where it finds nothing, `nearest` is the last node that it compared; unchanged if there was
  // none.
  Known* find(const WalkStart& start, const Node*& nearest);
  Known* find_id(const WalkStart& start, uint64_t stack_id) const;
  static size_t bucket_of(const WalkStart& start);
  Known* learn(const WalkStart& start, const Node* nearest, uint64_t now_mono_ns);
  // `like`: a stack that has much in common with it, or null.
  Known* keep(const WalkStart& start, const WalkedStack& walked, bool is_whole, Known* like);
  // `like`: one that may be the same, or null. A search of the others finds few in the caches.
  Run* keep_run(const StackWord* words, uint32_t count, Run* like);
  const gpuperf_native_frame* keep_frames(const gpuperf_native_frame* frames, uint32_t count);
  bool set_up_buckets();
  void* allocate(size_t size_bytes);
  Chunk* make_chunk();

  uint32_t generation_ = 0;  // 0 = nothing was taken yet
  bool is_busy_ = false;     // a signal handler may launch meanwhile
  bool is_full_ = false;
  uint32_t walks_left_ = 0;
  uint64_t next_walks_ns_ = 0;
  Known* last_ = nullptr;
  Buckets* buckets_ = nullptr;
  Chunk* first_chunk_ = nullptr;
  Chunk* chunk_ = nullptr;  // the one being filled
  uint32_t chunk_count_ = 0;
  size_t used_bytes_ = 0;
};

}  // namespace gpuperf::injector
