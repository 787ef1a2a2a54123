#pragma once

// The code in the place of the driver's entries (GPUPERF_HOOK_ENTRIES): one stub for each, and one
// function behind all of them that counts the call.
//
// A stub is a comparison and a jump while nothing is counted and no attention asked for, on the
// caller's stack as it is. Else the call passes gpuperf_begin_call, the driver's function and
// gpuperf_end_call (launch_hooks.cpp). All that an entry takes are words, six in registers and the
// others on the stack: they are handed on as they came, whatever they mean.

#include <cstddef>
#include <cstdint>

#include "bpf/hook_notes.h"
#include "injector/call_log.h"
#include "injector/data_patch.h"

namespace gpuperf::injector {

class ThreadCounts;

constexpr size_t kRegisterArguments = 6;

// What a launch runs through lies together: little of it is in the caches when a launch comes.
#define GPUPERF_HOOK_SECTION ".text.hot.gpuperf_hooks"
#define GPUPERF_HOOK_CODE __attribute__((section(GPUPERF_HOOK_SECTION)))

// A counted call, on its thread's stack.
struct CallFrame {
  gpuperf_noted_call call;  // its entry and arguments as the code has written them
  ThreadCounts* thread;
  CallTarget target;  // of a call that is logged
  bool is_logged;
  bool is_outermost;
  // From here on as the code has written it.
  Word caller_bp;
  Word caller_pc;
  Word caller_stack[1];  // where the caller's stack goes on: its further arguments
};

struct WayIntoDriver {
  Word past;  // the driver's function behind its first instruction; 0 = through the front door
  Word front_or_stack_words;  // that is here; else how many arguments lie on the stack
};

// A function of the driver.
struct alignas(32) HookedEntry {
  Word real;  // 0 = there is none, or it begins otherwise than is known: it is not hooked
  Word past;  // behind its first instruction
  // Its first 8 bytes, less the one that the daemon's breakpoint replaces.
  uint64_t first_bytes;
  uint32_t breakpoint_at;  // in bits
  uint32_t stack_words;    // arguments that lie on the stack
};

extern "C" {
// By enum gpuperf_hook_entry. Written before the stubs are first called.
__attribute__((visibility("hidden"))) extern HookedEntry gpuperf_entries[GPUPERF_HOOK_COUNT];

WayIntoDriver gpuperf_begin_call(CallFrame* frame);
// Returns `result`.
uint32_t gpuperf_end_call(CallFrame* frame, uint32_t result);
}

// The stub of an entry.
Word find_hook(uint32_t entry);

}  // namespace gpuperf::injector
