/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* User stacks of the current thread: see stack.bpf.c. */
#pragma once

#include "bpf/emit.bpf.h"

/* Hash of stacks and sites, a word at a time. */
static __always_inline __u64 mix(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
	return hash ^ hash >> 29;
}

/* A thread's value in a map like walks_by_thread, made from `empties` if it has none; NULL = no memory. */
static __always_inline void *get_of_thread(void *map, void *empties, __u32 tid)
{
	void *value = bpf_map_lookup_elem(map, &tid);
	const void *empty;
	__u32 key = 0;

	if (value)
		return value;
	empty = bpf_map_lookup_elem(empties, &key);
	if (!empty || bpf_map_update_elem(map, &tid, empty, BPF_NOEXIST))
		return NULL;
	return bpf_map_lookup_elem(map, &tid);
}

/* Walks the current thread's stack from the function that resumes at pc on, with these registers, once the call it
 * made has returned. Sends it unless an equal one was sent. Returns its stack_id; 0 = none could be taken. A
 * separate function for the verifier too: it checks callers without it. */
__u64 take_stack(__u64 pc, __u64 sp, __u64 bp);

/* The same from the caller on, at a function's entry or one of its exits: there the return address is on top. */
static __always_inline __u64 take_entry_stack(__u64 sp, __u64 bp)
{
	__u64 caller;

	if (bpf_probe_read_user(&caller, sizeof(caller), (const void *)sp))
		return 0;
	return take_stack(caller, sp + 8, bp);
}

/* The stack_id of a stack that the process calls `said_id`: no other process's stack has this one. */
static __always_inline __u64 noted_stack_id(struct task_struct *task, __u64 said_id)
{
	return mix(mix(said_id, task->tgid), task->group_leader->start_boottime) | 1;
}

/* Takes a stack that the process walked itself: a struct gpuperf_noted_stack (hook_notes.h) at `address` in it.
 * Sends it unless it was sent. Returns its stack_id, as take_stack() does. */
__u64 take_noted_stack(__u64 address);

/* Where a call comes from: the registers once it has returned there. pc 0 = the return address is on top of the
 * stack. */
struct caller {
	__u64 pc;
	__u64 sp;
	__u64 bp;
};

/* Takes the stack from the caller on. */
static __always_inline __u64 take_callers_stack(const struct caller *caller)
{
	return caller->pc ? take_stack(caller->pc, caller->sp, caller->bp) : take_entry_stack(caller->sp, caller->bp);
}

/* Takes the stack of `task`, which is the current one, from where it left user space on. */
static __always_inline __u64 take_user_stack(struct task_struct *task)
{
	const struct pt_regs *regs = (const void *)bpf_task_pt_regs(task);

	return take_stack(regs->rip, regs->rsp, regs->rbp);
}

/* Lists the return addresses that probes replaced on a task's stack, innermost first. Returns how many. By probe reads:
 * for each pointer that a program follows itself, the verifier searches all names of the kernel's types. */
static __always_inline __u32 list_replaced_returns(struct task_struct *task,
						   struct gpuperf_replaced_return *returns)
{
	struct return_instance *instance = BPF_CORE_READ(task, utask, return_instances);
	__u32 count = 0;

	for (__u32 i = 0; i < GPUPERF_REPLACED_RETURNS && instance; i++) {
		returns[i].sp = BPF_CORE_READ(instance, stack);
		returns[i].address = BPF_CORE_READ(instance, orig_ret_vaddr);
		instance = BPF_CORE_READ(instance, next);
		count = i + 1;
	}
	return count;
}
