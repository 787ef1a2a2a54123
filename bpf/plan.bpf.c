// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
/* Arguments: see plan.bpf.h. */
#include "bpf/plan.bpf.h"

/* The value of one capture: see struct gpuperf_capture. Non-zero: its memory could not be read. */
__attribute__((noinline)) int plan_read(const struct gpuperf_capture *capture, const struct plan_registers *registers,
					__u64 *value)
{
	__u32 source, loads, size_bytes;
	__u64 v = 0;

	if (!capture || !registers || !value)
		return 1;
	source = capture->source;
	loads = capture->loads;
	size_bytes = capture->size_bytes;
	if (source < GPUPERF_ARGUMENTS) {
		barrier_var(source);
		v = registers->values[source & 7];
	} else if (bpf_probe_read_user(&v, sizeof(v), (void *)(registers->sp + 8 * (source - GPUPERF_ARGUMENTS + 1)))) {
		return 1; /* the return address is at sp, the arguments above it */
	}
	for (__u32 i = 0; i < GPUPERF_CHAIN && i < loads; i++) {
		void *from = (void *)(v + capture->offset_bytes[i]);
		long error;

		v = 0;
		if (i + 1 < loads || capture->blob || size_bytes == 8)
			error = bpf_probe_read_user(&v, 8, from);
		else if (size_bytes == 4)
			error = bpf_probe_read_user(&v, 4, from);
		else if (size_bytes == 2)
			error = bpf_probe_read_user(&v, 2, from);
		else
			error = bpf_probe_read_user(&v, 1, from);
		if (error)
			return 1;
	}
	if (capture->blob) { /* its address; it is read when the call is reported */
		*value = v + capture->offset_bytes[loads & (GPUPERF_CHAIN - 1)];
		return 0;
	}
	v >>= capture->shift_bits & 63;
	if (size_bytes == 4)
		v = (__u32)v;
	else if (size_bytes == 2)
		v = (__u16)v;
	else if (size_bytes == 1)
		v = (__u8)v;
	*value = v;
	return 0;
}

int plan_keep(const struct plan_registers *registers, __u32 function_id, struct gpuperf_frame *frame)
{
	const struct gpuperf_plan *plan = bpf_map_lookup_elem(&plans, &function_id);
	__u32 count, unread = 0;

	if (!plan || !registers || !frame)
		return 0;
	count = plan->capture_count;
	for (__u32 i = 0; i < GPUPERF_VALUES && i < count; i++) {
		__u64 value = 0;

		if (plan_read(&plan->captures[i], registers, &value))
			unread |= 1u << i;
		frame->values[i] = value;
	}
	frame->values_unread = unread;
	return 0;
}

static __always_inline void plan_add_bytes(const struct gpuperf_plan *plan,
					   const struct gpuperf_frame *frame, struct gpuperf_cell *cell)
{
	__u64 bytes = 1;
	__u64 type = 0;
	__u64 slot = plan->byte_slot;

	for (int i = 0; i < 3; i++) {
		if (plan->byte_factors[i])
			bytes *= plan_value(frame, plan->byte_factors[i]);
	}
	if (plan->byte_type)
		type = plan_value(frame, plan->byte_type);
	barrier_var(type);
	if (type >= GPUPERF_TYPE_SIZES)
		return;
	bytes *= plan->element_bytes[type];
	if (plan->byte_kind)
		slot = plan_value(frame, plan->byte_kind) + GPUPERF_BYTES_HOST_TO_HOST;
	barrier_var(slot);
	if (slot < GPUPERF_BYTE_SLOTS)
		__sync_fetch_and_add(&cell->bytes[slot], bytes);
}

static __always_inline void plan_add_shape(const struct gpuperf_plan *plan,
					   const struct gpuperf_frame *frame, struct gpuperf_cell *cell,
					   __u64 duration_ns)
{
	__u64 batch = plan->shape_dimensions > 3 ? frame->values[3] : 1;
	struct gpuperf_shape_key key = {
		.cell = frame->cell,
		.dimensions = {frame->values[0], frame->values[1], frame->values[2], batch},
	};
	struct gpuperf_shape_totals first = {.calls = 1, .total_ns = duration_ns}, *totals;

	if (plan->shape_swap && plan_value(frame, plan->shape_swap)) {
		key.dimensions[0] = frame->values[2];
		key.dimensions[2] = frame->values[0];
	}
	for (int i = 0; i < 4; i++) {
		if (4 + i < plan->capture_count)
			key.types[i] = frame->values[4 + i];
	}
	__sync_fetch_and_add(&cell->flops, 2 * key.dimensions[0] * key.dimensions[1] *
						   key.dimensions[2] * batch);
	totals = bpf_map_lookup_elem(&shapes, &key);
	if (!totals) {
		if (!bpf_map_update_elem(&shapes, &key, &first, BPF_NOEXIST))
			return;
		totals = bpf_map_lookup_elem(&shapes, &key); /* another thread was first */
	}
	if (!totals) {
		emit_loss(GPUPERF_LOSS_SHAPES_FULL);
		return;
	}
	__sync_fetch_and_add(&totals->calls, 1);
	__sync_fetch_and_add(&totals->total_ns, duration_ns);
}

static __always_inline void plan_emit_name(const struct gpuperf_plan *plan,
					   const struct gpuperf_frame *frame)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct gpuperf_handle_name *record;
	__u64 handle = 0;
	long length;

	if (bpf_probe_read_user(&handle, sizeof(handle), (void *)plan_value(frame, plan->name_handle)))
		return;
	record = bpf_ringbuf_reserve(&name_ring, sizeof(*record), 0);
	if (!record) {
		emit_loss(GPUPERF_LOSS_NAME_RING_FULL);
		return;
	}
	__builtin_memset(record, 0, sizeof(*record));
	record->header.kind = GPUPERF_RECORD_HANDLE_NAME;
	record->header.length_bytes = sizeof(*record);
	record->process_start_boot_ns = task->group_leader->start_boottime;
	record->pid = task->tgid;
	record->handle = handle;
	if (plan->name_source) {
		record->source_handle = plan_value(frame, plan->name_source);
	} else {
		length = bpf_probe_read_user_str(record->name, sizeof(record->name),
						 (void *)plan_value(frame, plan->name_text));
		if (length <= 0) {
			bpf_ringbuf_discard(record, BPF_RB_NO_WAKEUP);
			return;
		}
		record->name_bytes = length;
	}
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

int plan_add(struct gpuperf_frame *frame, struct gpuperf_cell *cell, __u64 duration_ns)
{
	const struct gpuperf_plan *plan;
	__u32 function_id;

	if (!frame || !cell)
		return 0;
	function_id = cookie_function(frame->cookie);
	plan = bpf_map_lookup_elem(&plans, &function_id);
	if (!plan)
		return 0;
	if (plan->byte_factors[0] && !frame->values_unread)
		plan_add_bytes(plan, frame, cell);
	if (plan->shape_dimensions && !frame->values_unread)
		plan_add_shape(plan, frame, cell, duration_ns);
	if (plan->name_handle)
		plan_emit_name(plan, frame);
	return 0;
}

/* Reads the string or array that value `i` points to. */
__attribute__((noinline)) int plan_read_blob(struct gpuperf_slow_call *record, __u32 i, __u32 blob)
{
	long length;
	void *from;

	if (!record || blob >= GPUPERF_BLOBS || i >= GPUPERF_VALUES)
		return 0;
	if (record->blob_count <= blob)
		record->blob_count = blob + 1;
	if (record->values_unread >> i & 1)
		return 0;
	from = (void *)record->values[i];
	/* A short string may end right before unreadable memory. */
	if (!bpf_probe_read_user(record->blobs[blob], GPUPERF_BLOB_BYTES, from)) {
		record->blob_bytes[blob] = GPUPERF_BLOB_BYTES;
		return 0;
	}
	length = bpf_probe_read_user_str(record->blobs[blob], GPUPERF_BLOB_BYTES, from);
	record->blob_bytes[blob] = length > 0 ? length : 0;
	return 0;
}

int plan_read_blobs(struct gpuperf_slow_call *record)
{
	const struct gpuperf_plan *plan;
	__u32 function_id;

	if (!record)
		return 0;
	function_id = record->function_id;
	plan = bpf_map_lookup_elem(&plans, &function_id);
	if (!plan)
		return 0;
	for (__u32 i = 0; i < GPUPERF_VALUES && i < plan->capture_count; i++) {
		if (plan->captures[i].blob)
			plan_read_blob(record, i, plan->captures[i].blob - 1);
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
