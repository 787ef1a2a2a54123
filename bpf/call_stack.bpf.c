// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
/* The stack of probed calls of one thread: see call_stack.bpf.h. */
#include "bpf/call_stack.bpf.h"

/* Counts a call as abandoned, and remembers it: a coroutine that switched to another stack has not left for good. */
__attribute__((noinline)) int call_stack_abandon(struct gpuperf_thread *thread, __u32 index)
{
	const struct gpuperf_frame *frame;
	struct gpuperf_ghost *ghost;
	struct gpuperf_cell *cell;
	__u32 cell_index; /* before Linux 6.3 a key must not be in memory that was passed as an argument */

	if (!thread)
		return 0;
	frame = call_stack_at(thread, index);
	if (frame->is_hooked) {
		thread->hooked.place = 0;
		return 0;
	}
	cell_index = frame->cell;
	cell = bpf_map_lookup_elem(&cells, &cell_index);
	if (!cell)
		return 0;
	__sync_fetch_and_add(&cell->abandoned, 1);
	ghost = &thread->ghosts[thread->next_ghost++ & (GPUPERF_GHOSTS - 1)];
	ghost->sp = frame->sp;
	ghost->cookie = frame->cookie;
	ghost->start_ns = frame->start_ns;
	ghost->cell = cell_index;
	return 0;
}

int call_stack_cut(struct gpuperf_thread *thread, __u32 first)
{
	__u32 depth;

	if (!thread)
		return 0;
	depth = thread->depth;
	for (__u32 i = 0; i < GPUPERF_CALL_DEPTH; i++) {
		__u32 index = first + i;

		if (index >= depth || index >= GPUPERF_CALL_DEPTH)
			break;
		call_stack_abandon(thread, index);
	}
	if (first < depth)
		thread->depth = first;
	return 0;
}

int call_stack_drop_stale(struct gpuperf_thread *thread, __u64 sp, __u64 cookie)
{
	__u32 depth, keep;

	if (!thread)
		return 0;
	depth = thread->depth;
	keep = depth;
	for (__u32 i = 0; i < GPUPERF_CALL_DEPTH; i++) {
		__u32 index = depth - 1 - i;
		struct gpuperf_frame *frame;

		if (index >= GPUPERF_CALL_DEPTH)
			break;
		frame = call_stack_at(thread, index);
		if (frame->sp > sp)
			break;
		if (frame->sp < sp || frame->cookie == cookie)
			keep = index;
	}
	if (keep < depth)
		call_stack_cut(thread, keep);
	return 0;
}

__u32 call_stack_pop(struct gpuperf_thread *thread, __u64 sp, __u64 cookie, __u64 start_ns)
{
	__u32 depth, found = GPUPERF_CALL_DEPTH;

	if (!thread)
		return found;
	depth = thread->depth;
	for (__u32 i = 0; i < GPUPERF_CALL_DEPTH; i++) {
		__u32 index = depth - 1 - i;
		struct gpuperf_frame *frame;

		if (index >= GPUPERF_CALL_DEPTH)
			break;
		frame = call_stack_at(thread, index);
		if (frame->sp > sp)
			break;
		if (frame->sp == sp && frame->cookie == cookie &&
		    (!start_ns || frame->start_ns == start_ns)) {
			found = index;
			break;
		}
	}
	if (found >= GPUPERF_CALL_DEPTH)
		return found;
	if (found + 1 < depth)
		call_stack_cut(thread, found + 1);
	thread->depth = found;
	return found;
}

__u32 call_stack_find_ghost(struct gpuperf_thread *thread, __u64 sp, __u64 cookie)
{
	for (__u32 i = 0; i < GPUPERF_GHOSTS && thread; i++) {
		const struct gpuperf_ghost *ghost = &thread->ghosts[i];

		if (ghost->sp == sp && ghost->cookie == cookie)
			return i;
	}
	return GPUPERF_GHOSTS;
}

int call_stack_add_child(struct gpuperf_frame *frame, __u32 function_id, __u64 duration_ns)
{
	struct gpuperf_child *child = NULL;

	if (!frame)
		return 0;
	for (__u32 i = 0; i < GPUPERF_CHILDREN; i++) {
		child = &frame->children[i];
		if (i >= frame->child_count) {
			child->function_id = function_id;
			child->calls = 0;
			child->total_ns = 0;
			frame->child_count = i + 1;
			break;
		}
		if (child->function_id == function_id)
			break;
	}
	if (child->function_id != function_id)
		child->function_id = GPUPERF_OTHER_CHILDREN;
	child->calls++;
	child->total_ns += duration_ns;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
