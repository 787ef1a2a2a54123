#pragma once

// The calling thread's stack, walked by the thread itself, with BPF's steps (bpf/unwind.h,
// bpf/python_frames.h) and the rules of the running code (own_rules.h).
//
// Memory is read through the kernel (own_memory.h), so a corrupted frame or a wrong layout ends a
// walk and never faults. A walk depends only on its start, the rules and the words it read: if each
// word is unchanged, so is the stack (known_stacks.h).

#include <cstddef>
#include <cstdint>

#include "bpf/hook_notes.h"
#include "injector/own_python.h"

namespace gpuperf::injector {

// Where a walk begins: the caller's registers after its call has returned.
struct WalkStart {
  uint64_t pc;
  uint64_t sp;
  uint64_t bp;
  uint64_t python_thread;  // PyThreadState; 0 = the thread has none
};

// What a walk reads and finds.
struct StackWord {
  uint64_t address : 56;    // user space ends below
  uint64_t size_bytes : 8;  // 1, 4 or 8
  uint64_t value;
};

struct WalkedStack {
  static constexpr size_t kWordsMax = 1024;

  gpuperf_noted_stack head;
  gpuperf_native_frame frames[GPUPERF_STACK_FRAMES];
  gpuperf_python_frame python[GPUPERF_PYTHON_FRAMES];
  // Each is compared only after those before it were found unchanged. They lead from one live frame
  // to the next, so none lies in memory that is gone. 8-byte words come first.
  StackWord words[kWordsMax];
  uint32_t word_count;
  bool starts_by_bp;  // the walk used start.bp
};

// Hashes stacks, a word at a time.
inline uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
  return hash ^ hash >> 29;
}

// False: BPF has to walk this stack. It leads through a call whose return address a probe has
// replaced, through code that no loaded file holds or that has no rule, or to memory that cannot be
// read; `stack.words` then tell when it is the same stack again. `python` null = there is none.
// Takes 34 us in a PyTorch program, half of it in system calls. Thread: one at a time.
bool walk_own_stack(const WalkStart& start, const OwnPython* python, WalkedStack& stack);

}  // namespace gpuperf::injector
