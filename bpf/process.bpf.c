// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
/* Exits: calls a dying thread is inside of are abandoned, and the daemon hears of a process's end. */
#include "bpf/call_stack.bpf.h"

static __always_inline void emit_process_exit(struct task_struct *task)
{
	struct gpuperf_process_key key = {
		.process_start_boot_ns = task->group_leader->start_boottime,
		.pid = task->tgid,
	};
	struct gpuperf_process_exit *record;

	if (!bpf_map_lookup_elem(&processes, &key))
		return;
	record = bpf_ringbuf_reserve(&process_ring, sizeof(*record), 0);
	if (!record) {
		emit_loss(GPUPERF_LOSS_PROCESS_RING_FULL);
		return;
	}
	record->header.kind = GPUPERF_RECORD_PROCESS_EXIT;
	record->header.length_bytes = sizeof(*record);
	record->process_start_boot_ns = key.process_start_boot_ns;
	record->pid = key.pid;
	record->pad = 0;
	bpf_ringbuf_submit(record, BPF_RB_FORCE_WAKEUP);
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(process_exit, struct task_struct *task)
{
	struct gpuperf_thread *thread = bpf_task_storage_get(&threads, task, NULL, 0);

	if (thread) {
		__u32 depth = thread->depth;

		for (__u32 i = 0; i < GPUPERF_CALL_DEPTH && i < depth; i++)
			call_stack_abandon(call_stack_at(thread, i));
		thread->depth = 0;
	}
	if (task->signal->live.counter == 0) /* the last thread; two that end at once may both say so */
		emit_process_exit(task);
	return 0;
}

/* Unused: they bring the ring records into the BTF, where tests/abi compares them with the C++ side. */
const struct gpuperf_slow_call *gpuperf_btf_slow_call;
const struct gpuperf_process_exit *gpuperf_btf_process_exit;

char LICENSE[] SEC("license") = "Dual BSD/GPL";
