/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* Processes whose hooks count: what they counted and have not noted is taken when they end. See hooked_process.bpf.c. */
#pragma once

#include "bpf/hooked_counts.bpf.h"

/* Remembers where the current process says what it counts (struct gpuperf_hooked_process), before its first call of an
 * entry that is not known yet. */
int hooked_process_note(__u64 address, __u32 entry);

/* Adds what a note of `calls` at `address` says. */
int hooked_process_take(__u64 address);

/* Takes what the current process has not noted. None of its threads is in user space any more, its memory is still there
 * where `has_memory`. Once for each process: whoever comes later, or at the same time, finds it gone. */
int hooked_process_end(__u32 has_memory);

/* Launches that a thread kept (struct gpuperf_noted_launches). */
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

/* The current process executes another program, and its other threads are about to go: whoever is left alone takes what was
 * not noted. */
static __always_inline void hooked_process_exec(struct task_struct *task)
{
	struct gpuperf_process_key key = current_process();
	struct hooked_process *known = bpf_map_lookup_elem(&hooked_processes, &key);

	if (!known)
		return;
	/* Before it looks how many threads there are: one that ends from here on sees it. */
	__sync_val_compare_and_swap(&known->is_executing, 0, 1);
	if (task->signal->live.counter == 1)
		hooked_process_end(1);
}

/* A thread of the current process is ending that leaves one behind. */
static __always_inline void hooked_process_leave(void)
{
	struct gpuperf_process_key key = current_process();
	const struct hooked_process *known = bpf_map_lookup_elem(&hooked_processes, &key);

	if (known && known->is_executing)
		hooked_process_end(1);
}
