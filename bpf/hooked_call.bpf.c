// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
/* The hooked call in flight on a thread: see hooked_call.bpf.h. */
#include "bpf/hooked_call.bpf.h"

#define CLOCK_ERROR_NS 1000000ull /* hooks convert the cycle counter to the kernel's clock */

/* Reads field by field: the BPF stack is small, and plans read a lot. */
__u32 hooked_call_push(struct gpuperf_thread *thread, __u64 address, __u64 start_ns)
{
	const struct gpuperf_noted_call *noted = (const void *)address;
	struct task_struct *task = bpf_get_current_task_btf();
	const struct gpuperf_function *function;
	struct plan_registers registers = {};
	struct gpuperf_frame *frame;
	__u32 entry, function_id, top;
	__u64 bp;

	if (!thread || bpf_probe_read_user(&entry, sizeof(entry), &noted->entry) ||
	    bpf_probe_read_user(&registers.sp, sizeof(registers.sp), &noted->sp) ||
	    bpf_probe_read_user(&bp, sizeof(bp), &noted->bp) ||
	    bpf_probe_read_user(registers.values, sizeof(noted->arguments), noted->arguments))
		return 0;
	function = hooked_call_function(entry, &function_id);
	if (!function)
		return 0;
	registers.sp -= 8; /* at entry */
	top = thread->depth - 1;
	if (top < GPUPERF_CALL_DEPTH && call_stack_at(thread, top)->sp <= registers.sp)
		return 0;
	frame = call_stack_push(thread, registers.sp, function_id, 0);
	if (!frame)
		return 0;
	frame->is_hooked = 1;
	frame->bp = bp;
	frame->minor_faults = task->min_flt;
	frame->major_faults = task->maj_flt;
	if (function->flags & GPUPERF_FN_PLAN) {
		plan_keep(&registers, function_id, frame);
	} else {
		frame->values_unread = 0;
		__builtin_memcpy(frame->values, registers.values, sizeof(noted->arguments));
	}
	frame->start_ns = start_ns;
	return top + 2;
}

/* The address of the call the thread reports, if it began at `start_ns`; 0 = it was left, or cannot be read. */
static __always_inline __u64 find_said_call(const struct gpuperf_hooked_thread *said, __u64 start_ns)
{
	const struct gpuperf_noted_call *call;
	__u64 call_start_ns;

	if (bpf_probe_read_user(&call, sizeof(call), &said->call_address) ||
	    bpf_probe_read_user(&call_start_ns, sizeof(call_start_ns), &call->start_mono_ns) ||
	    call_start_ns != start_ns)
		return 0;
	return (__u64)call;
}

int hooked_call_look(struct gpuperf_thread *thread, __u64 now_ns)
{
	const struct gpuperf_hooked_thread *said;
	__u64 start_ns, last_ns, call = 0;

	if (!thread)
		return 0;
	said = (const void *)thread->hooked.address;
	if (bpf_probe_read_user(&start_ns, sizeof(start_ns), &said->start_mono_ns))
		return 0; /* not in memory now: nothing is known */
	last_ns = thread->hooked.start_ns;
	if (start_ns != last_ns) {
		if (__sync_val_compare_and_swap(&thread->hooked.start_ns, last_ns, start_ns) != last_ns)
			return 0; /* another program got here first */
		if (thread->hooked.place)
			call_stack_cut(thread, thread->hooked.place - 1);
		if (start_ns && start_ns < now_ns + CLOCK_ERROR_NS)
			call = find_said_call(said, start_ns);
		if (call)
			thread->hooked.place = hooked_call_push(thread, call, start_ns < now_ns ? start_ns : now_ns);
	}
	thread->hooked.seen_ns = now_ns;
	return 0;
}

int hooked_call_look_now(struct gpuperf_thread *thread)
{
	if (thread && thread->hooked.address)
		hooked_call_look(thread, bpf_ktime_get_ns());
	return 0;
}

__u32 hooked_call_settle(struct gpuperf_thread *thread, __u64 sp, __u64 cookie)
{
	if (!thread)
		return 0;
	hooked_call_look_now(thread);
	if (thread->depth)
		call_stack_drop_stale(thread, sp, cookie);
	return thread->depth;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
