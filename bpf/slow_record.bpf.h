/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* What the record of a slow call says of the state of its thread, whether it has returned or is in flight. */
#pragma once

#include "bpf/call_stack.bpf.h"

/* All of it becomes zero. */
static __always_inline void clear_slow_call(struct gpuperf_slow_call *record)
{
	__builtin_memset(record, 0, __builtin_offsetof(struct gpuperf_slow_call, outer));
	__builtin_memset(&record->outer, 0, __builtin_offsetof(struct gpuperf_slow_call, waits) -
						    __builtin_offsetof(struct gpuperf_slow_call, outer));
	for (__u32 i = 0; i < GPUPERF_WAITS; i++) {
		struct gpuperf_wait *wait = &record->waits[i];

		barrier_var(wait); /* one by one: the compiler expands no memset over 1,024 bytes */
		__builtin_memset(wait, 0, sizeof(*wait));
	}
}

/* What the thread's state says of the call that stands, or stood last, at `index`. The faults are the thread's up to
 * now. */
int keep_call_state(struct gpuperf_slow_call *record, struct gpuperf_thread *thread, __u32 index, __u64 minor_faults,
		    __u64 major_faults);

/* The smaller of the thresholds in force that the duration passes; 0 = it is not slow. */
static __always_inline __u64 find_passed_threshold(const struct gpuperf_function *function,
						   __u64 duration_ns, __u8 *adaptive)
{
	__u64 absolute_ns = function->slow_threshold_ns, adaptive_ns = function->adaptive_threshold_ns;

	*adaptive = 0;
	if (absolute_ns && duration_ns >= absolute_ns)
		return absolute_ns;
	if (!adaptive_ns || duration_ns < adaptive_ns)
		return 0;
	*adaptive = 1;
	return adaptive_ns;
}
