// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
/* Tasks: abandons a dying thread's calls, reports process exits to the daemon, and lists every thread's calls in
 * flight and what its probes cost it. */
#include "bpf/hooked_process.bpf.h"

#define TICKS_NS 20000000ull /* two ticks of the slowest kernels, which tick every 10 ms */

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

/* The task's thread has ended, or the program it ran. */
static __always_inline void end_thread(struct task_struct *task)
{
	struct gpuperf_thread *thread = bpf_task_storage_get(&threads, task, NULL, 0);

	if (!thread)
		return;
	call_stack_cut(thread, 0);
	thread->hooked.address = 0; /* others may still have its memory */
	thread->hooked.start_ns = 0;
}

/* Each thread, before it releases the process's memory. Loaded before Linux 6.16: there the memory is gone when
 * process_exit runs. */
SEC("fentry/exit_mm_release")
int BPF_PROG(before_exit, struct task_struct *task)
{
	if (task->signal->live.counter == 0)
		hooked_process_end(1);
	return 0;
}

/* Within execve: the process's other threads are gone, and the memory is still the previous program's. Also loaded
 * before Linux 6.16, where the next program needs it. */
SEC("fentry/exec_mm_release")
int BPF_PROG(before_exec, struct task_struct *task)
{
	end_thread(task);
	hooked_process_end(1);
	return 0;
}

/* Within execve, before the process's other threads are ended. Since Linux 6.10. */
SEC("tp_btf/sched_prepare_exec")
int BPF_PROG(prepare_exec, struct task_struct *task)
{
	end_thread(task);
	hooked_process_exec(task);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(process_exit, struct task_struct *task)
{
	__u32 tid = task->pid;

	end_thread(task);
	bpf_map_delete_elem(&walks_by_thread, &tid);
	bpf_map_delete_elem(&known_rules_by_thread, &tid);
	if (task->signal->live.counter == 0) { /* the last thread; two that end at once may both get here */
		__u32 pid = task->tgid;

		hooked_process_end(task->mm != NULL);
		bpf_map_delete_elem(&address_spaces, &pid);
		bpf_map_delete_elem(&code_changes, &pid);
		bpf_map_delete_elem(&trace_processes, &pid);
		emit_process_exit(task);
	} else if (task->signal->live.counter == 1 && task->mm) {
		hooked_process_leave();
	}
	return 0;
}

/* Traces child processes like their parent, if the order says so. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(inherit_trace, struct task_struct *parent, struct task_struct *child)
{
	__u32 parent_pid = parent->tgid, child_pid = child->tgid;
	struct gpuperf_child_process *record;
	struct gpuperf_trace_order *order;

	if (parent_pid == child_pid) /* a thread */
		return 0;
	order = bpf_map_lookup_elem(&trace_processes, &parent_pid);
	if (!order || !(order->flags & GPUPERF_TRACE_INHERIT))
		return 0;
	bpf_map_update_elem(&trace_processes, &child_pid, order, BPF_ANY);
	record = bpf_ringbuf_reserve(&process_ring, sizeof(*record), 0);
	if (!record) {
		emit_loss(GPUPERF_LOSS_PROCESS_RING_FULL);
		return 0;
	}
	record->header.kind = GPUPERF_RECORD_CHILD;
	record->header.length_bytes = sizeof(*record);
	record->parent_start_boot_ns = parent->group_leader->start_boottime;
	record->child_start_boot_ns = child->start_boottime;
	record->parent_pid = parent_pid;
	record->child_pid = child_pid;
	bpf_ringbuf_submit(record, 0);
	return 0;
}

/* Lists every thread's calls in flight, as a stream of struct gpuperf_in_flight: shows a hung call before it
 * returns. */
SEC("iter/task")
int list_in_flight(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct gpuperf_thread *thread;
	__u64 now_ns, process_start_boot_ns;
	__u32 depth;

	if (!task)
		return 0;
	thread = bpf_task_storage_get(&threads, task, NULL, 0);
	if (!thread)
		return 0;
	process_start_boot_ns = task->group_leader->start_boottime;
	depth = thread->depth;
	now_ns = bpf_ktime_get_ns();
	for (__u32 i = 0; i < GPUPERF_CALL_DEPTH && i < depth; i++) {
		struct gpuperf_frame *frame = call_stack_at(thread, i);
		__u64 until_ns = call_known_until(thread, frame, now_ns);
		struct gpuperf_in_flight call = {
			.process_start_boot_ns = process_start_boot_ns,
			.start_mono_ns = frame->start_ns,
			.cookie = frame->cookie,
			.pid = task->tgid,
			.tid = task->pid,
			.depth = i,
		};

		if (frame->cell == GPUPERF_NO_CELL || until_ns + TICKS_NS < now_ns)
			continue;
		bpf_probe_read_kernel(call.comm, sizeof(call.comm), task->comm);
		bpf_seq_write(ctx->meta->seq, &call, sizeof(call)); /* full: the kernel retries */
	}
	return 0;
}

/* Lists what probes cost each thread, as a stream of struct gpuperf_thread_cost. */
SEC("iter/task")
int list_thread_costs(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct gpuperf_thread *thread;
	struct gpuperf_thread_cost cost = {};

	if (!task)
		return 0;
	thread = bpf_task_storage_get(&threads, task, NULL, 0);
	if (!thread || !thread->cost_ns)
		return 0;
	cost.process_start_boot_ns = task->group_leader->start_boottime;
	cost.cost_ns = thread->cost_ns;
	cost.pid = task->tgid;
	cost.tid = task->pid;
	bpf_seq_write(ctx->meta->seq, &cost, sizeof(cost)); /* full: the kernel retries */
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
