#pragma once

// How frames of this process's code find their caller's: by the rules that the daemon makes of the
// same .eh_frame (bpf/frame_rules.h), here found in memory.
//
// Known rules are kept in a table of 1 MiB, mapped on first use, without a lock: 64 Ki of them; one
// that finds no room is made again each time. Nothing allocates, follows a pointer that was read,
// or changes errno. Measured in libc, on a virtual machine: 12 us for a rule not known before, some
// 25 reads of own memory; 45 ns for a known one.

#include <cstdint>

#include "bpf/stack_records.h"

namespace gpuperf::injector {

// Whether there are rules here: glibc finds modules without a lock since 2.35 (_dl_find_object),
// and own memory can be read. Within cuInit or on the injector's own thread: it looks symbols up.
// Before it has said so, find_own_rule knows nothing.
bool can_find_own_rules();

// The rule of a frame that goes on at `pc` after a call, or, exact, was stopped there. Code without
// a description has GPUPERF_UNWIND_GUESS; GPUPERF_UNWIND_UNKNOWN: no rule can say it, its
// description is damaged or has no search table (there the daemon passes over all entries), or
// nothing readable is there. Data is taken for code without a description, unlike in the daemon,
// which knows the mappings. Any thread, also within a signal handler.
gpuperf_unwind_rule find_own_rule(uint64_t pc, bool is_exact);

// Whether a loaded file holds the code that goes on at `pc`. Any thread, also within a signal
// handler.
bool is_own_code(uint64_t pc);

// After code was unmapped: none of the rules known is found any more. One thread at a time.
void forget_own_rules();

}  // namespace gpuperf::injector
