/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * The hooked call that a thread is inside of. No program hears of it before it is over, so what the thread says of it
 * (struct gpuperf_hooked_thread) is looked at whenever the thread meets a program of ours: when it leaves the CPU, when
 * a tick falls on it, at its probed calls and its notes. The call found in flight gets a frame, as if it had been probed:
 * until then the thread was on the CPU. The frame of a call that has ended without a note goes at the next look.
 *
 * Programs on uprobes may be interrupted by those on ticks and switches. They look before they touch the frames; until
 * they are through the thread says the same, and the others find nothing to change.
 */
#pragma once

#include "bpf/plan.bpf.h"

/* Makes the frames agree with what the thread, the current task, says. */
int hooked_call_look(struct gpuperf_thread *thread, __u64 now_ns);

/* The same, now, where it says anything. `thread` may be NULL. */
int hooked_call_look_now(struct gpuperf_thread *thread);

/* Before a probed call that begins at `sp`: what the thread is inside of then. How many calls that is. One function, for the
 * stack of the programs on entries is full. */
__u32 hooked_call_settle(struct gpuperf_thread *thread, __u64 sp, __u64 cookie);

/* Puts a frame for the call that `address` in the process says (struct gpuperf_noted_call) on the stack of calls: 1 + its
 * index; 0 = nested too deep, or not inside of what is there. */
__u32 hooked_call_push(struct gpuperf_thread *thread, __u64 address, __u64 start_ns);

/* The function of an entry; NULL = not configured, or switched off. */
static __always_inline const struct gpuperf_function *hooked_call_function(__u32 entry, __u32 *function_id)
{
	const __u64 *number = bpf_map_lookup_elem(&hooked_functions, &entry);

	if (!number || !*number)
		return NULL;
	*function_id = *number - 1;
	return bpf_map_lookup_elem(&functions, function_id);
}

/* Up to when the call is known to be in flight, for who looks from another thread; to be read before its start. That of
 * a hook may have ended since its thread was looked at, unless that was when it left the CPU. */
static __always_inline __u64 call_known_until(const struct gpuperf_thread *thread, const struct gpuperf_frame *frame,
					      __u64 now_ns)
{
	__u64 seen_ns = *(volatile __u64 *)&thread->hooked.seen_ns;
	__u64 since_ns = *(volatile __u64 *)&thread->off_cpu.since_ns;

	if (!frame->is_hooked)
		return now_ns;
	if (!since_ns)
		return seen_ns;
	return seen_ns >= since_ns ? now_ns : 0;
}
