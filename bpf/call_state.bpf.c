// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
/* Follows threads in probed calls, and in traced processes those that ever made one: when they are off the CPU and
 * why, and who wakes them. All other threads cost a load or two per tracepoint. A thread off the CPU pushes and pops no
 * frames, so the programs need no lock. A thread's hooked call is found only here and on ticks (hooked_call.bpf.h). */
#include "bpf/call_state.bpf.h"
#include "bpf/hooked_call.bpf.h"
#include "bpf/stack.bpf.h"
#include "bpf/trace.bpf.h"
#include "bpf/waits.bpf.h"

#define GPUPERF_NOTED_WAIT_NS 50000ull      /* shorter waits are added up but not described */
#define GPUPERF_WAKER_STACK_WAIT_NS 1000000ull /* a stack walk takes a few microseconds */
#define THREAD_STACKS_AT_ONCE 32 /* a short wait's does not use up that of the long one behind it */
#define GPUPERF_PF_KTHREAD 0x00200000

struct cfs_rq {
	__u64 throttled_clock_self_time;
} __attribute__((preserve_access_index));

struct cfs_bandwidth {
	__u64 throttled_time;
} __attribute__((preserve_access_index));

struct task_group {
	struct task_group *parent;
	struct cfs_bandwidth cfs_bandwidth;
} __attribute__((preserve_access_index));

#define GROUP_LEVELS 4 /* a container's quota is on its cgroup, or on the pod's above it */

/* Nanoseconds for which the task's cgroup has been throttled on this CPU so far, by its own quota or one above.
 * Linux 6.6 and later. */
static __always_inline __u64 read_queue_throttle_ns(struct task_struct *task)
{
	struct cfs_rq *queue = task->se.cfs_rq;

	if (!bpf_core_field_exists(queue->throttled_clock_self_time))
		return 0;
	return queue->throttled_clock_self_time;
}

/* The same over all CPUs, of the cgroup and its ancestors: each CPU adds its own, so this is only an upper bound. */
static __always_inline __u64 read_group_throttle_ns(struct task_struct *task)
{
	struct task_group *group = task->sched_task_group;
	__u64 sum_ns = 0;

	if (!bpf_core_field_exists(group->cfs_bandwidth))
		return 0;
	for (int i = 0; i < GROUP_LEVELS && group; i++) {
		sum_ns += group->cfs_bandwidth.throttled_time;
		group = group->parent;
	}
	return sum_ns;
}

/* Drops the waits of earlier calls. */
__attribute__((noinline)) int forget_stale_waits(struct gpuperf_thread *thread)
{
	for (__u32 i = 0; i < GPUPERF_WAITS && thread; i++) {
		if (thread->waits[i].start_mono_ns < thread->frames[0].start_ns)
			thread->waits[i].duration_ns = 0;
	}
	return 0;
}

/* Keeps the wait if it is among the longest of the calls in flight. */
static __always_inline void note_wait(struct gpuperf_thread *thread, struct task_struct *task, __u32 kind,
				      __u64 blocked_ns)
{
	struct gpuperf_wait *wait;

	forget_stale_waits(thread);
	wait = shortest_wait(thread->waits);
	if (blocked_ns <= wait->duration_ns)
		return;
	describe_wait(task, &thread->off_cpu, kind, wait);
	wait->duration_ns = blocked_ns;
	wait->start_mono_ns = thread->off_cpu.since_ns;
}

/* One period off the CPU, and where its time goes. */
struct absence {
	__u64 since_ns;
	__u64 blocked_ns;
	__u64 runnable_ns; /* throttled or not */
	__u64 throttled_ns;
	__u32 kind;
	__u16 is_preemption;
	__u16 is_migration;
};

/* Charges the calls that were in flight by then. */
__attribute__((noinline)) int charge_absence(struct gpuperf_thread *thread, const struct absence *absence)
{
	__u32 kind;

	if (!thread || !absence)
		return 0;
	kind = absence->kind;
	barrier_var(kind);
	if (kind >= GPUPERF_WAIT_KINDS)
		return 0; /* cannot happen */
	for (__u32 i = 0; i < GPUPERF_CALL_DEPTH && i < thread->depth; i++) {
		struct gpuperf_frame *frame = call_stack_at(thread, i);
		struct gpuperf_time_split *split;

		if (!frame->start_ns || frame->start_ns > absence->since_ns)
			continue;
		split = split_of(frame);
		split->waits_ns[kind] += absence->blocked_ns;
		split->throttled_ns += absence->throttled_ns;
		split->runnable_ns += absence->runnable_ns - absence->throttled_ns;
		split->preemptions += absence->is_preemption;
		split->migrations += absence->is_migration;
	}
	return 0;
}

/* Sends a time off the CPU of `task`, which comes back to it or is the current one. */
static __attribute__((noinline)) int trace_absence(struct gpuperf_thread *thread, struct task_struct *task,
						   const struct absence *absence)
{
	const struct gpuperf_off_cpu *off = &thread->off_cpu;
	struct gpuperf_thread_time *record =
		reserve_thread_time(task, absence->kind, absence->since_ns, off->stack_id);

	if (!record)
		return 0;
	record->blocked_ns = absence->blocked_ns;
	record->throttled_ns = absence->throttled_ns;
	record->runnable_ns = absence->runnable_ns - absence->throttled_ns;
	record->waker_pid = off->waker_pid;
	record->waker_tid = off->waker_tid;
	bpf_ringbuf_submit(record, emit_wake_flags(absence->since_ns + absence->blocked_ns + absence->runnable_ns));
	return 0;
}

static __always_inline void return_to_cpu(struct gpuperf_thread *thread, struct task_struct *task,
					  __u64 now_ns, _Bool describe)
{
	struct gpuperf_off_cpu *off = &thread->off_cpu;
	__u64 since_ns = off->since_ns;
	__u64 woken_ns = !off->blocked ? since_ns : off->wake_ns ? off->wake_ns : now_ns;
	_Bool migrated = off->cpu != bpf_get_smp_processor_id();
	_Bool same_queue = !migrated && bpf_core_field_exists(task->se.cfs_rq->throttled_clock_self_time);
	struct absence absence = {
		.since_ns = since_ns,
		.throttled_ns = same_queue ? read_queue_throttle_ns(task) - off->queue_throttle_ns
					   : read_group_throttle_ns(task) - off->group_throttle_ns,
		.is_preemption = !off->blocked,
		.is_migration = migrated,
	};

	if (!since_ns)
		return; /* its first call began meanwhile */
	/* The clock may step back slightly between two readings, around its own update and between CPUs. */
	if (now_ns < since_ns)
		now_ns = since_ns;
	if (woken_ns < since_ns)
		woken_ns = since_ns;
	if (woken_ns > now_ns)
		woken_ns = now_ns;
	absence.blocked_ns = woken_ns - since_ns;
	absence.runnable_ns = now_ns - woken_ns;
	if (absence.throttled_ns > absence.runnable_ns)
		absence.throttled_ns = absence.runnable_ns;
	if (off->blocked)
		absence.kind = find_wait_kind(task, off->syscall, off->fd);
	charge_absence(thread, &absence);
	if (off->is_traced && now_ns - since_ns >= GPUPERF_THREAD_TIME_MIN_NS)
		trace_absence(thread, task, &absence);
	if (describe && off->blocked && absence.blocked_ns >= GPUPERF_NOTED_WAIT_NS)
		note_wait(thread, task, absence.kind, absence.blocked_ns);
	off->since_ns = 0;
}

int mend_missed_return(struct gpuperf_thread *thread)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct gpuperf_off_cpu *off;
	__u64 ran_ns, away_ns, waited_ns;

	if (!thread)
		return 0;
	off = &thread->off_cpu;
	ran_ns = task->se.sum_exec_runtime - off->exec_sum_ns;
	away_ns = task->se.exec_start - off->exec_start_ns - ran_ns;
	waited_ns = task->sched_info.run_delay - off->run_delay_ns;
	if (off->cpu == bpf_get_smp_processor_id() && away_ns < bpf_ktime_get_ns() - off->since_ns) {
		off->wake_ns = off->since_ns + (waited_ns < away_ns ? away_ns - waited_ns : 0);
		return_to_cpu(thread, task, off->since_ns + away_ns, 0);
	}
	off->since_ns = 0;
	return 0;
}

static __always_inline void leave_cpu(struct gpuperf_thread *thread, struct task_struct *task,
				      _Bool blocked, _Bool is_traced, __u64 now_ns)
{
	struct gpuperf_off_cpu *off = &thread->off_cpu;

	if (off->since_ns)
		mend_missed_return(thread);
	off->cpu = bpf_get_smp_processor_id();
	off->blocked = blocked;
	off->wake_ns = 0;
	off->waker_tid = 0;
	off->waker_pid = 0;
	off->waker_is_kernel = 0;
	off->waker_stack_id = 0;
	off->is_traced = is_traced;
	off->stack_id = 0;
	if (is_traced && blocked) {
		/* No function of its own: the walk is as deep as the verifier lets calls nest. */
		if (now_ns - thread->thread_stack_ns > THREAD_STACKS_AT_ONCE * GPUPERF_THREAD_STACK_INTERVAL_NS)
			thread->thread_stack_ns = now_ns - THREAD_STACKS_AT_ONCE * GPUPERF_THREAD_STACK_INTERVAL_NS;
		if (now_ns - thread->thread_stack_ns >= GPUPERF_THREAD_STACK_INTERVAL_NS) {
			thread->thread_stack_ns += GPUPERF_THREAD_STACK_INTERVAL_NS;
			off->stack_id = take_user_stack(task);
		}
	}
	if (blocked) {
		off->syscall = syscall_of(task);
		off->fd = find_waited_fd(off->syscall);
	}
	off->queue_throttle_ns = read_queue_throttle_ns(task);
	off->group_throttle_ns = read_group_throttle_ns(task);
	off->run_delay_ns = task->sched_info.run_delay;
	off->exec_start_ns = task->se.exec_start; /* now, by the scheduler's clock */
	off->exec_sum_ns = task->se.sum_exec_runtime;
	off->since_ns = now_ns;
}

/* Everything after the first test is in a separate function: the tracepoint program itself then saves no registers,
 * which is half of its cost for all other threads. */
static __attribute__((noinline)) int switch_threads(struct task_struct *prev, struct task_struct *next,
						    _Bool preempt)
{
	struct gpuperf_thread *leaving = known_thread(prev);
	struct gpuperf_thread *coming = absent_thread(next);

	if (leaving) {
		__u64 now_ns = bpf_ktime_get_ns();
		_Bool is_traced = traces_threads();

		if (leaving->hooked.address)
			hooked_call_look(leaving, now_ns);
		if (leaving->depth || is_traced)
			leave_cpu(leaving, prev, !preempt && prev->__state, is_traced, now_ns);
	}
	if (coming)
		return_to_cpu(coming, next, bpf_ktime_get_ns(), coming->depth > 0);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(follow_switch, _Bool preempt, struct task_struct *prev, struct task_struct *next)
{
	if (prev->bpf_storage || next->bpf_storage)
		switch_threads(prev, next, preempt);
	return 0;
}

/* A wake-up from a timer or another interrupt runs on whatever thread was current: only one in a system call that
 * wakes counts as the waker. */
static __always_inline _Bool wakes(struct task_struct *waker, __s32 waits_in)
{
	__s32 syscall;

	if (!waker->pid || waits_in == SYSCALL_NANOSLEEP || waits_in == SYSCALL_CLOCK_NANOSLEEP)
		return 0;
	if (waker->flags & GPUPERF_PF_KTHREAD)
		return waits_in != SYSCALL_FUTEX;
	syscall = syscall_of(waker);
	if (waits_in == SYSCALL_FUTEX || waits_in == SYSCALL_FUTEX_WAIT || waits_in == SYSCALL_FUTEX_WAITV)
		return syscall == SYSCALL_FUTEX || syscall == SYSCALL_FUTEX_WAKE ||
		       syscall == SYSCALL_EXIT || syscall == SYSCALL_EXIT_GROUP;
	return syscall >= 0;
}

static __attribute__((noinline)) int wake_thread(struct task_struct *task)
{
	struct gpuperf_thread *thread = absent_thread(task);
	struct task_struct *waker;
	struct gpuperf_off_cpu *off;
	__u64 now_ns;

	if (!thread)
		return 0;
	off = &thread->off_cpu;
	if (!off->since_ns || !off->blocked || off->wake_ns)
		return 0;
	now_ns = bpf_ktime_get_ns();
	waker = bpf_get_current_task_btf();
	if (wakes(waker, off->syscall)) {
		off->waker_tid = waker->pid;
		off->waker_pid = waker->tgid;
		off->waker_is_kernel = !!(waker->flags & GPUPERF_PF_KTHREAD);
		off->waker_start_boot_ns = waker->group_leader->start_boottime;
		bpf_probe_read_kernel(off->waker_comm, sizeof(off->waker_comm), waker->comm);
		if (thread->depth && now_ns - off->since_ns >= GPUPERF_WAKER_STACK_WAIT_NS &&
		    !off->waker_is_kernel) {
			off->waker_stack_id = take_user_stack(waker);
		}
	}
	off->wake_ns = now_ns;
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(follow_waking, struct task_struct *task)
{
	if (task->bpf_storage)
		wake_thread(task);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
