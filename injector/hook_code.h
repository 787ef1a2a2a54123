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

// A counted call, on its thread's stack.
struct CallFrame {
  gpuperf_noted_call nested;  // what `note` leads to for a call inside another hooked one
  gpuperf_noted_call* note;
  ThreadCounts* thread;
  uint64_t start_ns;
  CallTarget target;  // of a call that is logged
  uint64_t is_logged;
  // From here on as the code has written it.
  Word arguments[kRegisterArguments];
  Word caller_bp;
  Word caller_pc;
  Word caller_stack[1];  // where the caller's stack goes on: its further arguments
};

struct WayIntoDriver {
  Word past;  // the driver's function behind its first instruction; 0 = through the front door
  Word front_or_stack_words;  // that is here; else how many arguments lie on the stack
};

extern "C" {
// By enum gpuperf_hook_entry: the driver's function. Written before the stubs are first called.
__attribute__((visibility("hidden"))) extern Word gpuperf_real[GPUPERF_HOOK_COUNT];

WayIntoDriver gpuperf_begin_call(Word a, Word b, Word c, Word d, Word e, Word f, CallFrame* frame,
                                 uint32_t entry);
// Returns `result`.
uint32_t gpuperf_end_call(CallFrame* frame, uint32_t result);
}

// The stub of an entry.
Word find_hook(uint32_t entry);

}  // namespace gpuperf::injector
