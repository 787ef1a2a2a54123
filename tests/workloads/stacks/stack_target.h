#pragma once

// The probed function of the programs that know their own stacks, and the compiler's own view of a
// stack, which shares no code with gpuperf.

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// How long stack_target takes, nanoseconds: above the threshold that a test sets. 50,000 at first.
void set_stack_target_ns(uint64_t duration_ns);

// Keeps a CPU busy; returns `sample`, by which a record is told from others. 0 is a warm-up.
uint64_t stack_target(uint64_t sample);

// The instruction pointers of the calling thread's frames by libgcc's unwinder, innermost first:
// the caller of this function comes first. Where a signal came, the interrupted instruction itself;
// else the instruction after the call. Ends early where libgcc has no rule for a frame.
size_t read_own_stack(uintptr_t* addresses, size_t capacity);

#ifdef __cplusplus
}
#endif
