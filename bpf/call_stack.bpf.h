/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * The stack of probed calls of one thread. Frames are told apart by the user stack pointer at entry, so
 * a call left by longjmp, an exception or a thread's exit is found out by the next entry or return on
 * that thread and counted as abandoned.
 *
 * Functions of call_stack.bpf.c are looked at by the verifier once each, not on every path to them.
 */
#pragma once

#include "bpf/cells.bpf.h"

/* Abandons the frames from index `first` up. */
int call_stack_cut(struct gpuperf_thread *thread, __u32 first);

/* Frames below the new stack pointer are gone. Those at the same stack pointer may live (a tail call
 * keeps them), unless one is of the same probe: then it and all above it were left by longjmp. A
 * wrong guess is corrected when that call returns. */
int call_stack_drop_stale(struct gpuperf_thread *thread, __u64 sp, __u64 cookie);

/* Takes off the frame of the call that returns, and with it any lost ones above: its index, where it stays until
 * the next push. start_ns 0 = not known (no session cookie): stack pointer and probe decide.
 * GPUPERF_CALL_DEPTH: no such frame. */
__u32 call_stack_pop(struct gpuperf_thread *thread, __u64 sp, __u64 cookie, __u64 start_ns);

/* The call given up for lost that now returns, if it is among the last few; GPUPERF_GHOSTS otherwise. */
__u32 call_stack_find_ghost(struct gpuperf_thread *thread, __u64 sp, __u64 cookie);

/* Adds a call to those of the frame's children; the first functions seen get a row each, all further ones share the
 * last. */
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

/* Whether the call comes from the same function of another file: a library that only passes its
 * calls on (libcudnn to libcudnn_ops). That is one call, and the outer one is counted. */
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

/* What the thread's outermost hooked calls took so far; 0 where none are known. */
static __always_inline __u64 call_stack_read_hooked_ns(const struct gpuperf_thread *thread)
{
	const struct gpuperf_hooked_thread *said = (const void *)thread->hooked.address;
	__u64 hooked_ns = 0;

	if (said) /* unreadable: zero, as before */
		bpf_probe_read_user(&hooked_ns, sizeof(hooked_ns), &said->total_ns);
	return hooked_ns;
}

/* Puts a frame on the stack; NULL when it is too deep. The caller stamps start_ns last. */
static __always_inline struct gpuperf_frame *call_stack_push(struct gpuperf_thread *thread, __u64 sp,
							     __u64 cookie, __u32 cell)
{
	__u32 depth = thread->depth;
	struct gpuperf_frame *frame;

	if (thread->next_ghost) {
		__u32 ghost = call_stack_find_ghost(thread, sp, cookie);

		if (ghost < GPUPERF_GHOSTS) /* that call's stack is used again: it will not return */
			thread->ghosts[ghost].sp = 0;
	}
	if (depth >= GPUPERF_CALL_DEPTH)
		return NULL;
	frame = call_stack_at(thread, depth);
	frame->sp = sp;
	frame->start_ns = 0; /* not begun yet, for who lists calls in flight */
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

/* `outside_ns`: what probing cost beyond the call, so that a caller's self time does not grow by being
 * watched. */
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

/* The hooked calls made inside of a call that has ended, whose frame was popped: they are no more of the time of the
 * call around it. */
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
