/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * The hooked call in flight on a thread. No BPF program runs for it before it ends, so our programs read the thread's
 * account of it (struct gpuperf_hooked_thread) whenever they run on the thread: when it leaves the CPU, on a tick, at
 * its probed calls and at its notes. A call found in flight gets a frame, as if it had been probed: until then the
 * thread was on the CPU. The frame of a call that ended without a note is dropped at the next check.
 *
 * Programs on uprobes may be interrupted by those on ticks and switches. They check before they touch the frames. Until
 * they finish, the thread's account does not change, and the others find nothing to update.
 */
#pragma once

#include "bpf/plan.bpf.h"

/* Syncs the frames with the account of `thread`, which is the current task's. */
int hooked_call_look(struct gpuperf_thread *thread, __u64 now_ns);

/* The same with the current time, if the thread has an account. `thread` may be NULL. */
int hooked_call_look_now(struct gpuperf_thread *thread);

/* Before a probed call that begins at `sp`: updates the thread's calls in flight and returns their number. One
 * function, because the entry programs have no stack space left. */
__u32 hooked_call_settle(struct gpuperf_thread *thread, __u64 sp, __u64 cookie);

/* Pushes a frame for the call at `address` in the process (struct gpuperf_noted_call). Returns 1 + its index; 0 =
 * nested too deep, or not inside the calls already there. */
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

/* Until when the call is known to be in flight, for a reader on another thread; read this before the call's start. A
 * hooked call may have ended since its thread was checked, unless that check was when it left the CPU. */
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
