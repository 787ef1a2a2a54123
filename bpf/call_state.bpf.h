/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* The state of threads in probed calls, and where those calls spend their time: see call_state.bpf.c. */
#pragma once

#include "bpf/call_stack.bpf.h"

static __always_inline __s32 syscall_of(struct task_struct *task)
{
	const struct pt_regs *regs = (const void *)bpf_task_pt_regs(task);

	/* -1 in every exception and interrupt (the entry code stores it). */
	return (__s32)regs->orig_rax;
}

/* A task's state; NULL if it never made a probed call: for such tasks, which most are, this is one load. */
static __always_inline struct gpuperf_thread *known_thread(struct task_struct *task)
{
	if (!task->bpf_storage)
		return NULL;
	return bpf_task_storage_get(&threads, task, NULL, 0);
}

/* The same of a task that left the CPU while it was followed, and has not returned; else NULL. */
static __always_inline struct gpuperf_thread *absent_thread(struct task_struct *task)
{
	struct gpuperf_thread *thread = known_thread(task);

	return thread && thread->off_cpu.since_ns ? thread : NULL;
}

/* A task's state while it is in calls; of hooked calls, only those found. Else NULL. */
static __always_inline struct gpuperf_thread *thread_in_call(struct task_struct *task)
{
	struct gpuperf_thread *thread = known_thread(task);

	return thread && thread->depth ? thread : NULL;
}

static __always_inline struct gpuperf_time_split *split_of(struct gpuperf_frame *frame)
{
	if (!frame->has_split) {
		__builtin_memset(&frame->split, 0, sizeof(frame->split));
		frame->has_split = 1;
	}
	return &frame->split;
}

/* One in several thousand switches to a thread was seen to bypass our programs. The wait is then added when the
 * thread is next seen, without a description. It comes from the scheduler's own accounting, which says when the
 * thread returned to the CPU (when it was last accounted for, less what it ran since) and how long it waited for one
 * before. It is kept by each CPU's clock: for a thread that migrated it says nothing, and the time counts as
 * running. `thread`: of the current task, off the CPU as far as we know. */
int mend_missed_return(struct gpuperf_thread *thread);
