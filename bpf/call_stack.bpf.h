/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * The stack of probed calls of one thread. Frames are told apart by the user stack pointer at entry: the next entry or
 * return on the thread detects a call left by longjmp, an exception or the thread's exit, and counts it as abandoned.
 *
 * The verifier checks each function of call_stack.bpf.c once, not on every path to it.
 */
#pragma once

#include "bpf/cells.bpf.h"

/* Abandons the frames from index `first` up. */
int call_stack_cut(struct gpuperf_thread *thread, __u32 first);

/* Frames below the new stack pointer are gone. Those at the same stack pointer may be live (a tail call keeps them),
 * unless one is of the same probe: then it and all above it were left by longjmp. A wrong guess is corrected when
 * that call returns. */
int call_stack_drop_stale(struct gpuperf_thread *thread, __u64 sp, __u64 cookie);

/* Pops the frame of the call that returns, and any lost ones above it. Returns its index, where it stays until the
 * next push; GPUPERF_CALL_DEPTH = no such frame. start_ns 0 = not known (no session cookie): stack pointer and probe
 * decide. */
__u32 call_stack_pop(struct gpuperf_thread *thread, __u64 sp, __u64 cookie, __u64 start_ns);

/* The abandoned call that now returns, if it is among the last few; else GPUPERF_GHOSTS. */
__u32 call_stack_find_ghost(struct gpuperf_thread *thread, __u64 sp, __u64 cookie);

/* Adds a call to the frame's children. The first functions seen get a row each; all others share the last. */
int call_stack_add_child(struct gpuperf_frame *frame, __u32 function_id, __u64 duration_ns);

/* The mask only tells the verifier what callers have checked; the barrier keeps the compiler from
 * turning the index into a running pointer, which the verifier cannot follow. */
static __always_inline struct gpuperf_frame *call_stack_at(struct gpuperf_thread *thread, __u32 index)
{
	barrier_var(index);
	return &thread->frames[index & (GPUPERF_CALL_DEPTH - 1)];
}

static __always_inline __u32 cookie_function(__u64 cookie)
{
	return cookie & ((1u << GPUPERF_COOKIE_FUNCTION_BITS) - 1);
}

static __always_inline __u32 cookie_lane(__u64 cookie)
{
	return cookie >> GPUPERF_COOKIE_LANE_SHIFT & ((1u << GPUPERF_COOKIE_LANE_BITS) - 1);
}

/* Whether the call comes from the same function of another file: a library that only forwards its calls (libcudnn to
 * libcudnn_ops). That is one call, and the outer one is counted. */
static __always_inline _Bool call_stack_forwards(struct gpuperf_thread *thread, __u64 cookie)
{
	__u32 top = thread->depth - 1;
	const struct gpuperf_frame *around;

	if (top >= GPUPERF_CALL_DEPTH)
		return 0;
	around = call_stack_at(thread, top);
	return !around->is_hooked && cookie_function(around->cookie) == cookie_function(cookie) &&
	       cookie_lane(around->cookie) != cookie_lane(cookie);
}

/* Time of the thread's outermost hooked calls so far; 0 if none is known. */
static __always_inline __u64 call_stack_read_hooked_ns(const struct gpuperf_thread *thread)
{
	const struct gpuperf_hooked_thread *said = (const void *)thread->hooked.address;
	__u64 hooked_ns = 0;

	if (said) /* unreadable: zero, as before */
		bpf_probe_read_user(&hooked_ns, sizeof(hooked_ns), &said->total_ns);
	return hooked_ns;
}

/* Pushes a frame; NULL = too deep. The caller sets start_ns last. */
static __always_inline struct gpuperf_frame *call_stack_push(struct gpuperf_thread *thread, __u64 sp,
							     __u64 cookie, __u32 cell)
{
	__u32 depth = thread->depth;
	struct gpuperf_frame *frame;

	if (thread->next_ghost) {
		__u32 ghost = call_stack_find_ghost(thread, sp, cookie);

		if (ghost < GPUPERF_GHOSTS) /* that call's stack is reused: it will not return */
			thread->ghosts[ghost].sp = 0;
	}
	if (depth >= GPUPERF_CALL_DEPTH)
		return NULL;
	frame = call_stack_at(thread, depth);
	frame->sp = sp;
	frame->start_ns = 0; /* not begun yet, for readers of calls in flight */
	frame->child_ns = 0;
	frame->hooked_ns = call_stack_read_hooked_ns(thread);
	frame->cookie = cookie;
	frame->cell = cell;
	frame->has_split = 0;
	frame->child_count = 0;
	frame->is_hooked = 0;
	thread->depth = depth + 1;
	return frame;
}

/* `outside_ns`: what probing cost beyond the call, so that probing does not inflate a caller's self time. */
static __always_inline void call_stack_charge_parent(struct gpuperf_thread *thread, __u32 function_id,
						     __u64 duration_ns, __u64 outside_ns)
{
	__u32 parent = thread->depth - 1;
	struct gpuperf_frame *frame;

	if (parent >= GPUPERF_CALL_DEPTH)
		return;
	frame = call_stack_at(thread, parent);
	frame->child_ns += duration_ns + outside_ns;
	call_stack_add_child(frame, function_id, duration_ns);
}

/* Charges an ended call, whose frame was popped, with the hooked calls made inside it. The call around it is not
 * charged with them again. */
static __always_inline void call_stack_charge_hooked(struct gpuperf_thread *thread, struct gpuperf_frame *frame,
						     __u64 duration_ns)
{
	__u32 parent = thread->depth - 1;
	__u64 hooked_ns;

	if (!thread->hooked.address)
		return;
	hooked_ns = call_stack_read_hooked_ns(thread) - frame->hooked_ns;
	if (hooked_ns > duration_ns)
		return; /* not what it was at entry */
	frame->child_ns += hooked_ns;
	if (parent < GPUPERF_CALL_DEPTH)
		call_stack_at(thread, parent)->hooked_ns += hooked_ns;
}
