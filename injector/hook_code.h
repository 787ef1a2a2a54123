#pragma once

// The code that replaces the driver's entries (GPUPERF_HOOK_ENTRIES): one stub per entry, and one
// function behind all of them that counts the call.
//
// While nothing is counted and no attention is asked for, a stub is a comparison and a jump, on the
// caller's unchanged stack. Otherwise the call goes through gpuperf_begin_call, the driver's
// function and gpuperf_end_call (launch_hooks.cpp). An entry takes only words, six in registers and
// the rest on the stack: they are passed on unchanged, whatever they mean.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "bpf/hook_notes.h"
#include "injector/call_log.h"
#include "injector/data_patch.h"

namespace gpuperf::injector {

class ThreadCounts;

constexpr size_t kRegisterArguments = 6;

// Keeps the code that a launch runs together: little of it is in the caches when a launch comes.
#define GPUPERF_HOOK_SECTION ".text.hot.gpuperf_hooks"
#define GPUPERF_HOOK_CODE __attribute__((section(GPUPERF_HOOK_SECTION)))

// Bits. A plain call is the thread's outermost hooked call.
enum FrameKind : uint32_t {
  kPlainCall = 0,
  kLoggedCall = 1,
  kInnerCall = 2,
  kWatchedCall = 4,
  kTimedCall = 8,  // how long its hook takes is measured
};

// A counted call, on its thread's stack.
struct CallFrame {
  gpuperf_noted_call call;  // entry and arguments as the assembly wrote them
  ThreadCounts* thread;
  CallTarget target;  // of a logged call
  uint32_t kind;      // bits of enum FrameKind
  // From here on as the assembly wrote it.
  Word caller_bp;
  Word caller_pc;
  Word caller_stack[1];  // where the caller's stack continues: further arguments
};

struct WayIntoDriver {
  // The driver's function after its first instruction, or gpuperf_front, which goes where the
  // frame's return_value says; 0 = through the front door, with no end to be seen.
  Word past;
  Word front_or_stack_words;  // the front door if 0; else the number of arguments on the stack
};

// A function of the driver.
struct alignas(32) HookedEntry {
  Word real;               // 0 = not hooked: it does not exist, or begins in an unknown way
  Word past;               // after its first instruction
  uint64_t first_bytes;    // its first 8
  uint32_t breakpoint_at;  // in bits: which of them the daemon's breakpoint replaces
  uint32_t stack_words;    // arguments on the stack

  uint64_t read_first_bytes() const {
    uint64_t bytes = 0;
    std::memcpy(&bytes, reinterpret_cast<const void*>(real), sizeof(bytes));
    return bytes;
  }
  // Whether nobody but the daemon patched it.
  bool is_unchanged() const {
    const uint64_t changed = read_first_bytes() ^ first_bytes;
    return std::rotr(changed, static_cast<int>(breakpoint_at)) >> 8 == 0;
  }
};

extern "C" {
// Indexed by enum gpuperf_hook_entry. Written before the stubs are first called.
__attribute__((visibility("hidden"))) extern HookedEntry gpuperf_entries[GPUPERF_HOOK_COUNT];

__attribute__((visibility("hidden"))) void gpuperf_front();

WayIntoDriver gpuperf_begin_call(CallFrame* frame);
// Returns `result`.
uint32_t gpuperf_end_call(CallFrame* frame, uint32_t result);
}

// The stub of an entry.
Word find_hook(uint32_t entry);

}  // namespace gpuperf::injector
