// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
/* Lists the calls in flight past their thresholds, when the daemon asks. */
#include "bpf/call_state.bpf.h"
#include "bpf/hooked_call.bpf.h"
#include "bpf/slow_record.bpf.h"
#include "bpf/stack.bpf.h"
#include "bpf/waits.bpf.h"

/* One task's output must fit the 32 KiB buffer of the kernel's iterators. Calls nested deeper are reported when they
 * return. */
#define SLOW_PER_THREAD 12
GPUPERF_ASSERT(SLOW_PER_THREAD * sizeof(struct gpuperf_slow_in_flight) < 32768);

/* Where records are built: the daemon has one reader. */
struct slow_in_flight_scratch {
	struct gpuperf_slow_in_flight record;
	/* Of the thread being examined. */
	__u64 now_ns;
	__u64 minor_faults;
	__u64 major_faults;
	__u64 blocked_ns; /* so far, in `wait` */
	__u64 runnable_ns;
	struct gpuperf_wait wait;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct slow_in_flight_scratch);
} slow_in_flight_scratches GPUPERF_MAP;

/* Reads what all calls of a thread have in common. */
static __always_inline void look_at_thread(struct slow_in_flight_scratch *scratch, const struct gpuperf_thread *thread,
					   struct task_struct *task)
{
	struct gpuperf_slow_in_flight *record = &scratch->record;
	const struct gpuperf_off_cpu *off = &thread->off_cpu;
	__u64 since_ns = off->since_ns, wake_ns = off->wake_ns, now_ns = scratch->now_ns;

	__builtin_memset(&record->entry_sp, 0,
			 sizeof(*record) - __builtin_offsetof(struct gpuperf_slow_in_flight, entry_sp));
	record->thread_pointer = task->thread.fsbase;
	record->return_count = list_replaced_returns(task, record->returns);
	scratch->minor_faults = task->min_flt;
	scratch->major_faults = task->maj_flt;
	scratch->blocked_ns = 0;
	scratch->runnable_ns = 0;
	record->state = GPUPERF_THREAD_RUNNING;
	if (!since_ns || since_ns > now_ns)
		return;
	if (off->blocked && !wake_ns) {
		record->state = GPUPERF_THREAD_BLOCKED;
		scratch->blocked_ns = now_ns - since_ns;
		describe_wait(task, off, find_wait_kind(task, off->syscall, off->fd), &scratch->wait);
		scratch->wait.start_mono_ns = since_ns;
		scratch->wait.duration_ns = scratch->blocked_ns;
	} else {
		record->state = GPUPERF_THREAD_RUNNABLE;
		if (now_ns > wake_ns)
			scratch->runnable_ns = now_ns - (off->blocked ? wake_ns : since_ns);
	}
}

/* Adds the thread's current state; its wait replaces the shortest. */
static __always_inline void add_present_state(const struct slow_in_flight_scratch *scratch,
					      struct gpuperf_slow_call *call)
{
	__u32 kind = scratch->wait.kind;

	call->split.runnable_ns += scratch->runnable_ns;
	if (!scratch->blocked_ns)
		return;
	barrier_var(kind);
	if (kind < GPUPERF_WAIT_KINDS)
		call->split.waits_ns[kind] += scratch->blocked_ns;
	*shortest_wait(call->waits) = scratch->wait;
}

/* The threshold that a call in flight has passed; 0 = not slow. `start_ns`: as read once, because the thread keeps
 * running and the frame may become another call's. A hooked call seen to be slow stays so: its end is noted. */
static __always_inline __u64 find_threshold_in_flight(const struct gpuperf_frame *frame, __u64 start_ns, __u64 until_ns,
						      __u8 *adaptive)
{
	__u32 function_id = cookie_function(frame->cookie);
	const struct gpuperf_function *function = bpf_map_lookup_elem(&functions, &function_id);

	if (!function || frame->cell == GPUPERF_NO_CELL || !start_ns || start_ns >= until_ns)
		return 0;
	if (frame->is_hooked && until_ns - start_ns < GPUPERF_NOTED_SLOW_NS)
		return 0;
	return find_passed_threshold(function, until_ns - start_ns, adaptive);
}

/* Whether one of the first SLOW_PER_THREAD calls is slow: few threads have one, and a closer look is expensive. A
 * separate function for the verifier, like the next one. */
__attribute__((noinline)) int has_slow_in_flight(struct gpuperf_thread *thread, __u64 now_ns)
{
	__u8 adaptive;

	for (__u32 i = 0; i < SLOW_PER_THREAD && thread && i < thread->depth; i++) {
		const struct gpuperf_frame *frame = call_stack_at(thread, i);
		__u64 until_ns = call_known_until(thread, frame, now_ns);
		__u64 start_ns = *(volatile __u64 *)&frame->start_ns;

		if (find_threshold_in_flight(frame, start_ns, until_ns, &adaptive))
			return 1;
	}
	return 0;
}

/* Fills the record of one call, except for the task's identity; 0 = not slow. */
__attribute__((noinline)) int keep_slow_in_flight(struct slow_in_flight_scratch *scratch, struct gpuperf_thread *thread,
						  __u32 index)
{
	struct gpuperf_frame *frame;
	struct gpuperf_slow_call *call;
	__u64 start_ns, until_ns, threshold_ns;
	__u8 adaptive = 0;

	if (!scratch || !thread)
		return 0;
	frame = call_stack_at(thread, index);
	until_ns = call_known_until(thread, frame, scratch->now_ns);
	start_ns = *(volatile __u64 *)&frame->start_ns;
	threshold_ns = find_threshold_in_flight(frame, start_ns, until_ns, &adaptive);
	if (!threshold_ns)
		return 0;
	call = &scratch->record.call;
	clear_slow_call(call);
	call->header.kind = GPUPERF_RECORD_SLOW_IN_FLIGHT;
	call->header.length_bytes = sizeof(scratch->record);
	call->start_mono_ns = start_ns;
	call->duration_ns = until_ns - start_ns;
	call->threshold_ns = threshold_ns;
	call->adaptive = adaptive;
	call->function_id = cookie_function(frame->cookie);
	call->has_values = 1;
	call->values_unread = frame->values_unread;
	__builtin_memcpy(call->values, frame->values, sizeof(call->values));
	keep_call_state(call, thread, index, scratch->minor_faults, scratch->major_faults);
	add_present_state(scratch, call);
	scratch->record.entry_sp = frame->sp;
	scratch->record.entry_bp = frame->bp;
	return 1;
}

/* Lists the calls in flight past their thresholds. The thread keeps running meanwhile: what is read of one on the
 * CPU may be from two moments. */
SEC("iter/task")
int list_slow_in_flight(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct slow_in_flight_scratch *scratch;
	struct gpuperf_thread *thread;
	__u64 process_start_boot_ns;
	__u32 depth, key = 0;

	if (!task)
		return 0;
	thread = thread_in_call(task);
	scratch = bpf_map_lookup_elem(&slow_in_flight_scratches, &key);
	if (!thread || !scratch)
		return 0;
	scratch->now_ns = bpf_ktime_get_ns();
	if (!has_slow_in_flight(thread, scratch->now_ns))
		return 0;
	look_at_thread(scratch, thread, task);
	process_start_boot_ns = task->group_leader->start_boottime;
	depth = thread->depth;
	for (__u32 i = 0; i < SLOW_PER_THREAD && i < depth; i++) {
		struct gpuperf_slow_call *call = &scratch->record.call;

		if (!keep_slow_in_flight(scratch, thread, i))
			continue;
		call->process_start_boot_ns = process_start_boot_ns;
		call->pid = task->tgid;
		call->tid = task->pid;
		bpf_probe_read_kernel(call->comm, sizeof(call->comm), task->comm);
		bpf_seq_write(ctx->meta->seq, &scratch->record, sizeof(scratch->record)); /* full: the kernel retries */
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
