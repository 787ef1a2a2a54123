#pragma once

// How to unwind frames of this process's code: with the rules that the daemon makes from the same
// .eh_frame (bpf/frame_rules.h), here found in memory.
//
// Known rules are kept in a lock-free table of 1 MiB for 64 Ki rules, mapped on first use; a rule
// that finds no room is made again each time. Nothing allocates, follows a pointer that was read,
// or changes errno. Measured on a virtual machine: the first walk of 93 frames, almost all with new
// rules, took 0.44 ms; 1.2 ms when no page of the tables was copied. A known rule takes 45 ns.

#include <cstdint>

#include "bpf/stack_records.h"

namespace gpuperf::injector {

// Whether rules can be found here: glibc finds modules without a lock since 2.35 (_dl_find_object),
// and own memory can be read. Thread: within cuInit or the injector's own, since it looks up
// symbols. Until it has returned true, find_own_rule knows nothing.
bool can_find_own_rules();

// The rule of a frame that continues at `pc` after a call or, if `is_exact`, was stopped there.
// GPUPERF_UNWIND_GUESS: code without a description. GPUPERF_UNWIND_UNKNOWN: no rule can express it,
// its description is damaged or has no search table (the daemon then scans all entries), or no
// loaded file holds it. Thread: any, also in a signal handler.
gpuperf_unwind_rule find_own_rule(uint64_t pc, bool is_exact);

// Call after code was unmapped: known rules are no longer found. Thread: one at a time.
void forget_own_rules();

}  // namespace gpuperf::injector
