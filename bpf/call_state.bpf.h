/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Where the time of calls in flight goes while their thread is off the CPU, and what a slow call's record
 * says of it: see call_state.bpf.c.
 */
#pragma once

#include "bpf/call_stack.bpf.h"

/* One in some thousand switches to a thread was seen to pass the hooks by. The wait is then added when the
 * thread is next heard of, not described: by the scheduler's own accounts, which say when it came back to the
 * CPU (when it was last accounted for, less what it ran since) and how long it waited for one before. They are
 * kept by each CPU's clock: for a thread that moved they say nothing, and the time counts as running.
 * `thread`: of the current task, off the CPU by what is known of it. */
int mend_missed_return(struct gpuperf_thread *thread);

/* All of it becomes zero. */
int clear_slow_call(struct gpuperf_slow_call *record);

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
