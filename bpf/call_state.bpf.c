// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
/* Follows the threads that are inside of probed calls: off the CPU and why, woken by whom, on it in user
 * space or in the kernel. All other threads cost a load or two per hook. */
#include "bpf/call_state.bpf.h"
#include "bpf/stack.bpf.h"

static __always_inline void leave_cpu(struct gpuperf_thread *thread, struct task_struct *task,
				      _Bool blocked, __u64 now_ns)
{
	struct gpuperf_off_cpu *off = &thread->off_cpu;

	if (off->since_ns)
		mend_missed_return(thread, task);
	off->cpu = bpf_get_smp_processor_id();
	off->blocked = blocked;
	off->wake_ns = 0;
	off->waker_tid = 0;
	off->waker_pid = 0;
	off->waker_is_kernel = 0;
	off->waker_stack_id = 0;
	if (blocked) {
		off->syscall = syscall_of(task);
		off->fd = find_waited_fd(task, off->syscall);
	}
	off->queue_throttle_ns = read_queue_throttle_ns(task);
	off->group_throttle_ns = read_group_throttle_ns(task);
	off->run_delay_ns = task->sched_info.run_delay;
	off->exec_start_ns = task->se.exec_start; /* now, by the scheduler's clock */
	off->exec_sum_ns = task->se.sum_exec_runtime;
	off->since_ns = now_ns;
}

/* What follows a hook's first test stands in a function of its own: the hook itself then saves no
 * registers, which is half of what it costs all other threads. */
static __attribute__((noinline)) int switch_threads(struct task_struct *prev, struct task_struct *next,
						    _Bool preempt)
{
	struct gpuperf_thread *leaving = thread_in_call(prev);
	struct gpuperf_thread *coming = thread_in_call(next);

	if (leaving)
		leave_cpu(leaving, prev, !preempt && prev->__state, bpf_ktime_get_ns());
	if (coming)
		return_to_cpu(coming, next, bpf_ktime_get_ns(), 1);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(follow_switch, _Bool preempt, struct task_struct *prev, struct task_struct *next)
{
	if (prev->bpf_storage || next->bpf_storage)
		switch_threads(prev, next, preempt);
	return 0;
}

/* A wake-up from a timer or another interrupt runs on whatever thread was there: only one that is in a
 * system call that wakes counts as the waker. */
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
	struct gpuperf_thread *thread = thread_in_call(task);
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
		if (now_ns - off->since_ns >= GPUPERF_WAKER_STACK_WAIT_NS && !off->waker_is_kernel) {
			const struct pt_regs *regs = (const void *)bpf_task_pt_regs(waker);

			off->waker_stack_id = take_stack(regs->rip, regs->rsp, regs->rbp);
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

/* Absent where the kernel hides its symbols: then faults count as user space. */
extern const void asm_exc_page_fault __ksym __weak;
#define FAULT_ENTRY_BYTES 64 /* the entry stub of an exception is shorter */

struct tick_scratch {
	__u64 stack[48];
};

/* A kernel stack to look at; a tick interrupts no tick. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tick_scratch);
} tick_scratches GPUPERF_MAP;

/* In user space and in a page fault alike no system call is under way: there the outermost frame of the
 * kernel stack is the exception's entry. */
static __always_inline __u32 find_tick_kind(void *ctx, struct task_struct *task)
{
	struct tick_scratch *scratch;
	__u64 fault_entry = (__u64)&asm_exc_page_fault;
	__u32 key = 0;
	long length;
	__u64 last;

	if (syscall_of(task) != -1)
		return GPUPERF_TICK_SYSCALL;
	scratch = bpf_map_lookup_elem(&tick_scratches, &key);
	if (!scratch || !fault_entry)
		return GPUPERF_TICK_USER;
	length = bpf_get_stack(ctx, scratch->stack, sizeof(scratch->stack), 0);
	if (length < (long)sizeof(__u64))
		return GPUPERF_TICK_USER;
	last = ((__u64)length >> 3) - 1;
	barrier_var(last);
	if (last >= sizeof(scratch->stack) / sizeof(__u64))
		return GPUPERF_TICK_USER;
	if (last == sizeof(scratch->stack) / sizeof(__u64) - 1)
		return GPUPERF_TICK_FAULT; /* too deep for anything else */
	last = scratch->stack[last];
	return last >= fault_entry && last < fault_entry + FAULT_ENTRY_BYTES ? GPUPERF_TICK_FAULT
									     : GPUPERF_TICK_USER;
}

SEC("tp_btf/local_timer_entry")
int BPF_PROG(follow_tick)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct gpuperf_thread *thread = thread_in_call(task);
	__u32 depth, kind;

	if (!thread)
		return 0;
	kind = find_tick_kind(ctx, task);
	barrier_var(kind);
	if (kind >= GPUPERF_TICK_KINDS)
		return 0; /* cannot be */
	depth = thread->depth;
	for (__u32 i = 0; i < GPUPERF_CALL_DEPTH && i < depth; i++) {
		struct gpuperf_frame *frame = call_stack_at(thread, i);

		if (frame->start_ns)
			split_of(frame)->ticks[kind]++;
	}
	return 0;
}

/* Where a record is put together: the daemon has one reader. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gpuperf_slow_in_flight);
} slow_in_flight_scratch GPUPERF_MAP;

/* The wait it is in, in the place of the shortest. */
static __always_inline void add_present_wait(struct gpuperf_slow_call *record,
					     const struct gpuperf_off_cpu *off, struct task_struct *task,
					     __u64 blocked_ns)
{
	__u32 kind = find_wait_kind(task, off->syscall, off->fd);
	struct gpuperf_wait *wait = shortest_wait(record->waits);

	barrier_var(kind);
	if (kind < GPUPERF_WAIT_KINDS)
		record->split.waits_ns[kind] += blocked_ns;
	describe_wait(task, off, kind, wait);
	wait->start_mono_ns = off->since_ns;
	wait->duration_ns = blocked_ns;
}

static __always_inline void keep_present_state(struct gpuperf_slow_in_flight *record,
					       struct gpuperf_thread *thread, struct task_struct *task,
					       __u64 now_ns)
{
	const struct gpuperf_off_cpu *off = &thread->off_cpu;
	__u64 since_ns = off->since_ns, wake_ns = off->wake_ns;

	record->state = GPUPERF_THREAD_RUNNING;
	if (!since_ns || since_ns > now_ns)
		return;
	if (off->blocked && !wake_ns) {
		record->state = GPUPERF_THREAD_BLOCKED;
		add_present_wait(&record->call, off, task, now_ns - since_ns);
	} else {
		record->state = GPUPERF_THREAD_RUNNABLE;
		if (now_ns > wake_ns)
			record->call.split.runnable_ns += now_ns - (off->blocked ? wake_ns : since_ns);
	}
}

/* Fills the record of one call; false: it is not slow. */
static __always_inline _Bool keep_slow_in_flight(struct gpuperf_slow_in_flight *record,
						 struct gpuperf_thread *thread, __u32 index,
						 struct task_struct *task, __u64 now_ns)
{
	struct gpuperf_frame *frame = call_stack_at(thread, index);
	__u32 function_id = cookie_function(frame->cookie);
	__u64 start_ns = frame->start_ns;
	struct gpuperf_slow_call *call = &record->call;
	const struct gpuperf_function *function = bpf_map_lookup_elem(&functions, &function_id);
	__u8 adaptive;
	__u64 threshold_ns;

	if (!function || frame->cell == GPUPERF_NO_CELL || !start_ns || start_ns >= now_ns)
		return 0;
	threshold_ns = find_passed_threshold(function, now_ns - start_ns, &adaptive);
	if (!threshold_ns)
		return 0;
	__builtin_memset(call, 0, __builtin_offsetof(struct gpuperf_slow_call, outer));
	clear_call_state(call);
	__builtin_memset(&record->entry_sp, 0,
			 sizeof(*record) - __builtin_offsetof(struct gpuperf_slow_in_flight, entry_sp));
	call->header.kind = GPUPERF_RECORD_SLOW_IN_FLIGHT;
	call->header.length_bytes = sizeof(*record);
	call->start_mono_ns = start_ns;
	call->duration_ns = now_ns - start_ns;
	call->threshold_ns = threshold_ns;
	call->adaptive = adaptive;
	call->process_start_boot_ns = task->group_leader->start_boottime;
	call->pid = task->tgid;
	call->tid = task->pid;
	call->function_id = function_id;
	call->has_values = 1;
	call->values_unread = frame->values_unread;
	__builtin_memcpy(call->values, frame->values, sizeof(call->values));
	bpf_probe_read_kernel(call->comm, sizeof(call->comm), task->comm);
	keep_call_state(call, thread, frame, index, task);
	keep_present_state(record, thread, task, now_ns);
	record->entry_sp = frame->sp;
	record->entry_bp = frame->bp;
	record->thread_pointer = task->thread.fsbase;
	record->return_count = list_replaced_returns(task, record->returns);
	return 1;
}

/* What one task writes must fit the 32 KiB buffer of the kernel's iterators. Calls nested deeper are told of
 * when they return. */
#define SLOW_PER_THREAD 12
GPUPERF_ASSERT(SLOW_PER_THREAD * sizeof(struct gpuperf_slow_in_flight) < 32768);

/* The calls in flight that have passed their thresholds. The thread runs on while it is looked at: what
 * is read of one that is on the CPU may be of two moments. */
SEC("iter/task")
int list_slow_in_flight(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct gpuperf_slow_in_flight *record;
	struct gpuperf_thread *thread;
	__u32 depth, key = 0;

	if (!task)
		return 0;
	thread = thread_in_call(task);
	record = bpf_map_lookup_elem(&slow_in_flight_scratch, &key);
	if (!thread || !record)
		return 0;
	depth = thread->depth;
	for (__u32 i = 0; i < SLOW_PER_THREAD && i < depth; i++) {
		if (keep_slow_in_flight(record, thread, i, task, bpf_ktime_get_ns()))
			bpf_seq_write(ctx->meta->seq, record, sizeof(*record)); /* full: the kernel asks again */
	}
	return 0;
}

/* Unused: it brings the record into the BTF, where tests/abi compares it with the C++ side. */
const struct gpuperf_slow_in_flight *gpuperf_btf_slow_in_flight;

char LICENSE[] SEC("license") = "Dual BSD/GPL";
