// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
/* What threads in probed calls, and all that are traced, do on the CPU, sampled by the timer: user space, system call
 * or page fault. */
#include "bpf/call_state.bpf.h"
#include "bpf/hooked_call.bpf.h"
#include "bpf/trace.bpf.h"

/* Absent where the kernel hides its symbols: then faults count as user space. */
extern const void asm_exc_page_fault __ksym __weak;
#define FAULT_ENTRY_BYTES 64 /* an exception's entry stub is shorter */

struct tick_scratch {
	__u64 stack[48];
};

/* Space for a kernel stack; ticks do not interrupt each other. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tick_scratch);
} tick_scratches GPUPERF_MAP;

/* Neither user space nor a page fault has a system call in progress. In a page fault the outermost frame of the
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
	struct gpuperf_thread *thread = known_thread(task);
	__u32 depth, kind;
	_Bool is_traced;

	if (!thread)
		return 0;
	if (thread->hooked.address)
		hooked_call_look_now(thread);
	is_traced = traces_threads();
	if (!thread->depth && !is_traced)
		return 0;
	kind = find_tick_kind(ctx, task);
	barrier_var(kind);
	if (kind >= GPUPERF_TICK_KINDS)
		return 0; /* cannot happen */
	if (is_traced)
		trace_tick(kind, bpf_ktime_get_ns());
	depth = thread->depth;
	for (__u32 i = 0; i < GPUPERF_CALL_DEPTH && i < depth; i++) {
		struct gpuperf_frame *frame = call_stack_at(thread, i);

		if (frame->start_ns)
			split_of(frame)->ticks[kind]++;
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
