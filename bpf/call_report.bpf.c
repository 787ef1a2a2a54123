// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
/* Reports of single calls: see call_report.bpf.h. */
#include "bpf/call_report.bpf.h"
#include "bpf/turn.bpf.h"

#define OUT_OF_MEMORY 2 /* cudaErrorMemoryAllocation, CUDA_ERROR_OUT_OF_MEMORY */

/* 0 = it succeeded, or its return value is not known. */
static __always_inline __u32 status_of(const struct ended_call *call)
{
	return call->has_return_value ? (__u32)call->return_value : 0;
}

/* What a call stored where its plan says. */
__attribute__((noinline)) __u64 read_call_result(const struct gpuperf_frame *frame)
{
	const struct gpuperf_plan *plan;
	__u64 result = 0;
	__u32 function_id;

	if (!frame)
		return 0;
	function_id = cookie_function(frame->cookie);
	plan = bpf_map_lookup_elem(&plans, &function_id);
	if (!plan || !plan->result_at)
		return 0;
	if (bpf_probe_read_user(&result, sizeof(result), (void *)plan_value(frame, plan->result_at)))
		return 0;
	return result;
}

/* The function of the outermost call in flight. */
__attribute__((noinline)) __u32 outermost_function(struct gpuperf_thread *thread)
{
	return thread ? cookie_function(call_stack_at(thread, 0)->cookie) : 0;
}

/* The values that the call's frame kept. */
__attribute__((noinline)) int add_frame_to_report(struct gpuperf_reported_call *record,
						  const struct gpuperf_frame *frame)
{
	if (!record || !frame)
		return 0;
	record->has_values = 1;
	record->values_unread = frame->values_unread;
	__builtin_memcpy(record->values, frame->values, sizeof(record->values));
	return 0;
}

__u64 take_report_stack(const struct ended_call *call)
{
	__u32 status;

	if (!call)
		return 0;
	if (call->flags & GPUPERF_FN_RESULT_WAIT)
		return 0;
	status = status_of(call);
	/* Calls that fail made nothing; many fail again and again. */
	return !status || status == OUT_OF_MEMORY ? take_callers_stack(&call->caller) : 0;
}

int report_call(const struct ended_call *call, struct gpuperf_thread *thread, __u64 stack_id)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct gpuperf_reported_call *record;
	struct gpuperf_frame *frame;

	if (!call)
		return 0;
	record = bpf_ringbuf_reserve(&report_ring, sizeof(*record), 0);
	if (!record) {
		emit_loss(GPUPERF_LOSS_REPORT_RING_FULL);
		return 0;
	}
	__builtin_memset(record, 0, sizeof(*record));
	record->header.kind = GPUPERF_RECORD_REPORTED_CALL;
	record->header.length_bytes = sizeof(*record);
	record->start_mono_ns = call->start_ns;
	record->duration_ns = call->duration_ns;
	record->process_start_boot_ns = task->group_leader->start_boottime;
	record->pid = task->tgid;
	record->tid = task->pid;
	record->function_id = call->function_id;
	record->outermost = call->depth ? outermost_function(thread) : call->function_id;
	record->stack_id = stack_id;
	record->has_return_value = call->has_return_value;
	record->return_value = call->return_value;
	record->depth = call->depth;
	frame = get_frame(call, thread);
	if (frame) {
		add_frame_to_report(record, frame);
		record->result = status_of(call) ? 0 : read_call_result(frame);
	}
	if (call->flags & GPUPERF_FN_RESULT_COPY)
		turn_take(&record->turn, thread);
	bpf_ringbuf_submit(record, emit_wake_flags(call->start_ns + call->duration_ns));
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
