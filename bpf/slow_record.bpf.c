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

char LICENSE[] SEC("license") = "Dual BSD/GPL";
