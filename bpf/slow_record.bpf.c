// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
/* Fills the record of a slow call from the state of its thread. */
#include "bpf/slow_record.bpf.h"

int keep_call_state(struct gpuperf_slow_call *record, struct gpuperf_thread *thread, __u32 index, __u64 minor_faults,
		    __u64 major_faults)
{
	struct gpuperf_frame *frame;
	__u32 count;

	if (!record || !thread)
		return 0;
	frame = call_stack_at(thread, index);
	for (__u32 i = 0; i < GPUPERF_CALL_DEPTH && i < index; i++) {
		const struct gpuperf_frame *outer = call_stack_at(thread, i);

		if (outer->cell == GPUPERF_NO_CELL)
			continue;
		count = record->outer_count;
		barrier_var(count);
		if (count >= GPUPERF_CALL_DEPTH)
			break;
		record->outer[count] = cookie_function(outer->cookie);
		record->outer_count = count + 1;
	}
	record->has_split = 1;
	if (frame->has_split)
		__builtin_memcpy(&record->split, &frame->split, sizeof(record->split));
	record->split.minor_faults = (__u32)minor_faults - frame->minor_faults;
	record->split.major_faults = (__u32)major_faults - frame->major_faults;
	for (__u32 i = 0; i < GPUPERF_CHILDREN; i++) {
		if (i < frame->child_count)
			record->children[i] = frame->children[i];
	}
	for (__u32 i = 0; i < GPUPERF_WAITS; i++) {
		if (thread->waits[i].start_mono_ns >= frame->start_ns)
			__builtin_memcpy(&record->waits[i], &thread->waits[i], sizeof(record->waits[i]));
	}
	return 0;
}

int emit_slow_call(const struct ended_call *call, struct gpuperf_thread *thread, __u32 cell_index)
{
	struct gpuperf_cell *cell = bpf_map_lookup_elem(&cells, &cell_index);
	struct task_struct *task = bpf_get_current_task_btf();
	struct gpuperf_slow_call *record;
	struct gpuperf_frame *frame;
	__u64 now_ns = bpf_ktime_get_ns(); /* a noted call's time is only what its process says */
	_Bool worst;

	if (!call || !cell)
		return 0;
	worst = cells_note_worst(cell, call->duration_ns);
	/* In a burst the rest of the ring is for the worst, and for other senders. */
	if (!slow_share_allows(task->tgid, now_ns, worst) ||
	    (!worst && bpf_ringbuf_query(&slow_ring, BPF_RB_AVAIL_DATA) > GPUPERF_SLOW_RING_BYTES / 2)) {
		emit_loss(GPUPERF_LOSS_SLOW_THINNED);
		return 0;
	}
	record = bpf_ringbuf_reserve(&slow_ring, sizeof(*record), 0);
	if (!record) {
		emit_loss(GPUPERF_LOSS_SLOW_RING_FULL);
		return 0;
	}
	clear_slow_call(record);
	record->header.kind = GPUPERF_RECORD_SLOW_CALL;
	record->header.length_bytes = sizeof(*record);
	record->start_mono_ns = call->start_ns;
	record->duration_ns = call->duration_ns;
	record->threshold_ns = call->threshold_ns;
	record->adaptive = call->adaptive;
	record->worst = worst;
	record->process_start_boot_ns = task->group_leader->start_boottime;
	record->pid = task->tgid;
	record->tid = task->pid;
	record->function_id = call->function_id;
	record->has_return_value = call->has_return_value;
	record->return_value = call->return_value;
	frame = get_frame(call, thread);
	if (frame) {
		record->has_values = 1;
		record->values_unread = frame->values_unread;
		__builtin_memcpy(record->values, frame->values, sizeof(record->values));
		if (call->flags & GPUPERF_FN_PLAN)
			plan_read_blobs(record);
		if (call->flags & GPUPERF_FN_SPLIT) {
			keep_call_state(record, thread, call->depth, task->min_flt, task->maj_flt);
			record->has_split = call->is_followed;
		}
	}
	bpf_get_current_comm(record->comm, sizeof(record->comm)); /* zeroes it on failure */
	if (call->flags & GPUPERF_FN_STACK)
		record->stack_id = take_callers_stack(&call->caller);
	bpf_ringbuf_submit(record, emit_wake_flags(now_ns));
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
