// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
/* The hooked call that a thread is inside of: see hooked_call.bpf.h. */
#include "bpf/hooked_call.bpf.h"

#define CLOCK_ERROR_NS 1000000ull /* hooks read the cycle counter and make the kernel's clock of it */

__u32 hooked_call_push(struct gpuperf_thread *thread, const struct gpuperf_noted_call *noted, __u64 start_ns)
{
	struct task_struct *task = bpf_get_current_task_btf();
	const struct gpuperf_function *function;
	struct plan_registers registers = {};
	struct gpuperf_frame *frame;
	__u32 function_id, top;

	if (!thread || !noted)
		return 0;
	function = hooked_call_function(noted->entry, &function_id);
	if (!function)
		return 0;
	registers.sp = noted->sp - 8; /* at entry */
	top = thread->depth - 1;
	if (top < GPUPERF_CALL_DEPTH && call_stack_at(thread, top)->sp <= registers.sp)
		return 0;
	frame = call_stack_push(thread, registers.sp, function_id, 0);
	if (!frame)
		return 0;
	frame->is_hooked = 1;
	frame->bp = noted->bp;
	frame->minor_faults = task->min_flt;
	frame->major_faults = task->maj_flt;
	__builtin_memcpy(registers.values, noted->arguments, sizeof(noted->arguments));
	if (function->flags & GPUPERF_FN_PLAN) {
		plan_keep(&registers, function_id, frame);
	} else {
		frame->values_unread = 0;
		__builtin_memcpy(frame->values, noted->arguments, sizeof(noted->arguments));
	}
	frame->start_ns = start_ns;
	return top + 2;
}

/* Finds the call in flight in what the thread says. A function of its own for the verifier. */
__attribute__((noinline)) int push_present_call(struct gpuperf_thread *thread, __u64 start_ns)
{
	const struct gpuperf_hooked_thread *said;
	struct gpuperf_noted_call noted;

	if (!thread)
		return 0;
	said = (const void *)thread->hooked.address;
	if (!bpf_probe_read_user(&noted, sizeof(noted), &said->call))
		thread->hooked.place = hooked_call_push(thread, &noted, start_ns);
	return 0;
}

int hooked_call_look(struct gpuperf_thread *thread, __u64 now_ns)
{
	const struct gpuperf_hooked_thread *said;
	__u64 start_ns, last_ns;

	if (!thread)
		return 0;
	said = (const void *)thread->hooked.address;
	if (bpf_probe_read_user(&start_ns, sizeof(start_ns), &said->start_mono_ns))
		return 0; /* not in memory just now: nothing is known */
	last_ns = thread->hooked.start_ns;
	if (start_ns != last_ns) {
		if (__sync_val_compare_and_swap(&thread->hooked.start_ns, last_ns, start_ns) != last_ns)
			return 0; /* another program was here meanwhile */
		if (thread->hooked.place)
			call_stack_cut(thread, thread->hooked.place - 1);
		if (start_ns && start_ns < now_ns + CLOCK_ERROR_NS)
			push_present_call(thread, start_ns < now_ns ? start_ns : now_ns);
	}
	thread->hooked.seen_ns = now_ns;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
