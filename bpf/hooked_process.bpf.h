/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* Processes whose hooks count. Counts they have not noted are taken when they end. See hooked_process.bpf.c. */
#pragma once

#include "bpf/hooked_counts.bpf.h"

/* Remembers where the current process's counts are (struct gpuperf_hooked_process), before its first call of an
 * entry not known yet. */
int hooked_process_note(__u64 address, __u32 entry);

/* Adds the counts of a `calls` note at `address`. */
int hooked_process_take(__u64 address);

/* Takes the counts the current process has not noted. None of its threads is in user space any more; with
 * `has_memory` its memory is still there. Once per process: a later or concurrent caller finds it gone. */
int hooked_process_end(__u32 has_memory);

/* Takes launches that a thread kept (struct gpuperf_noted_launches). */
int take_noted_launches(__u64 address);

static __always_inline struct gpuperf_process_key current_process(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct gpuperf_process_key key = {
		.process_start_boot_ns = task->group_leader->start_boottime,
		.pid = task->tgid,
	};

	return key;
}

/* The current process execs, and its other threads are about to end: the last one left takes the counts not noted. */
static __always_inline void hooked_process_exec(struct task_struct *task)
{
	struct gpuperf_process_key key = current_process();
	struct hooked_process *known = bpf_map_lookup_elem(&hooked_processes, &key);

	if (!known)
		return;
	/* Set before the thread count is read: a thread that ends from here on sees it. */
	__sync_val_compare_and_swap(&known->is_executing, 0, 1);
	if (task->signal->live.counter == 1)
		hooked_process_end(1);
}

/* A thread of the current process is ending and leaves one other. */
static __always_inline void hooked_process_leave(void)
{
	struct gpuperf_process_key key = current_process();
	const struct hooked_process *known = bpf_map_lookup_elem(&hooked_processes, &key);

	if (known && known->is_executing)
		hooked_process_end(1);
}
