// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
/* Operators: see operator_call.bpf.h. */
#include "bpf/operator_call.bpf.h"

/* Sources of a MUL_MAT_ID: the experts' matrices, the third dimension for the experts; and where tokens go. */
#define MATRICES_SOURCE 0
#define IDS_SOURCE 2

/* The matrix whose product every mixture of experts ends with: the others of its layer have the same tokens. */
static __always_inline _Bool ends_mixture(const char *name)
{
	static const char wanted[] = "ffn_moe_down";

	for (int i = 0; i < (int)sizeof(wanted) - 1; i++) {
		if (name[i] != wanted[i])
			return 0;
	}
	return 1;
}

static __always_inline __u64 count_lost(__u32 loss)
{
	const __u64 *count = bpf_map_lookup_elem(&losses, &loss);

	return count ? *count : 0;
}

static __always_inline long read_word(__u64 at, __u64 *value)
{
	return bpf_probe_read_user(value, sizeof(*value), (void *)at);
}

/* Non-zero: it could not be read. */
__attribute__((noinline)) int read_experts(struct gpuperf_routing *record, const struct gpuperf_tensor_layout *layout,
					   __u64 ids)
{
	__u64 experts = 0, tokens = 0, stride_bytes = 0, data = 0;
	__u32 row_bytes;

	if (!record || !layout)
		return 1;
	if (read_word(ids + layout->dimensions_at, &experts) || read_word(ids + layout->dimensions_at + 8, &tokens) ||
	    read_word(ids + layout->strides_at + 8, &stride_bytes) || read_word(ids + layout->data_at, &data))
		return 1;
	if (!experts || experts > GPUPERF_ROUTED_EXPERTS)
		return 1;
	record->tokens = tokens;
	record->experts_per_token = experts;
	row_bytes = (__u32)experts * sizeof(record->experts[0][0]);
	for (__u32 i = 0; i < GPUPERF_ROUTED_TOKENS; i++) {
		if (i >= tokens)
			break;
		if (row_bytes > sizeof(record->experts[0]))
			return 1; /* cannot be: for the verifier */
		if (bpf_probe_read_user(record->experts[i], row_bytes, (void *)(data + i * stride_bytes)))
			return 1;
		record->read_tokens = i + 1;
	}
	return 0;
}

__attribute__((noinline)) int report_routing(const struct gpuperf_operator_call *call,
					     const struct gpuperf_tensor_layout *layout, __u64 tensor)
{
	struct gpuperf_routing *record;
	__u64 matrices = 0, ids = 0, expert_count = 0;

	if (!call || !layout)
		return 0;
	record = bpf_ringbuf_reserve(&report_ring, sizeof(*record), 0);
	if (!record) {
		emit_loss(GPUPERF_LOSS_OPERATORS_FULL);
		return 0;
	}
	record->header.kind = GPUPERF_RECORD_ROUTING;
	record->header.length_bytes = sizeof(*record);
	record->process_start_boot_ns = call->process_start_boot_ns;
	record->pid = call->pid;
	record->tid = call->tid;
	record->function_id = call->function_id;
	record->read_tokens = 0;
	__builtin_memcpy(record->name, call->name, sizeof(record->name));
	if (read_word(tensor + layout->sources_at + 8 * MATRICES_SOURCE, &matrices) ||
	    read_word(matrices + layout->dimensions_at + 8 * 2, &expert_count) ||
	    read_word(tensor + layout->sources_at + 8 * IDS_SOURCE, &ids) || read_experts(record, layout, ids)) {
		bpf_ringbuf_discard(record, BPF_RB_NO_WAKEUP);
		emit_loss(GPUPERF_LOSS_OPERATOR_UNREAD);
		return 0;
	}
	record->expert_count = expert_count > (__u32)-1 ? (__u32)-1 : expert_count;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 0;
}

int report_operator(const struct operator_entry *entry)
{
	struct task_struct *task = bpf_get_current_task_btf();
	const struct gpuperf_tensor_layout *layout;
	struct gpuperf_operator_call call = {
		.header = {.kind = GPUPERF_RECORD_OPERATOR_CALL, .length_bytes = sizeof(call)},
	};
	__s32 thread[2] = {}; /* its number, and how many there are */
	__u32 index;

	if (!entry || !entry->layout)
		return 0;
	index = entry->layout - 1;
	layout = bpf_map_lookup_elem(&tensor_layouts, &index);
	if (!layout)
		return 0;
	if (bpf_probe_read_user(thread, sizeof(thread), (void *)entry->params) || thread[1] < 1 ||
	    thread[0] < 0 || thread[0] >= thread[1]) {
		emit_loss(GPUPERF_LOSS_OPERATOR_UNREAD);
		return 0;
	}
	if (thread[0])
		return 0;
	if (bpf_probe_read_user(&call.operation, sizeof(call.operation), (void *)(entry->tensor + layout->operation_at)) ||
	    bpf_probe_read_user_str(call.name, sizeof(call.name), (void *)(entry->tensor + layout->name_at)) < 0) {
		emit_loss(GPUPERF_LOSS_OPERATOR_UNREAD);
		return 0;
	}
	if (!report_ring_has_room()) {
		emit_loss(GPUPERF_LOSS_OPERATORS_FULL);
		return 0;
	}
	call.process_start_boot_ns = task->group_leader->start_boottime;
	call.pid = task->tgid;
	call.tid = task->pid;
	call.function_id = entry->function_id;
	call.layout = entry->layout;
	call.lost = count_lost(GPUPERF_LOSS_OPERATORS_FULL) + count_lost(GPUPERF_LOSS_OPERATOR_UNREAD);
	if (call.operation == layout->routed_operation && ends_mixture(call.name))
		report_routing(&call, layout, entry->tensor);
	call.start_mono_ns = bpf_ktime_get_ns(); /* last: our own work is of the operator before */
	if (bpf_ringbuf_output(&report_ring, &call, sizeof(call), emit_wake_flags(call.start_mono_ns)))
		emit_loss(GPUPERF_LOSS_OPERATORS_FULL);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
