/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* Arguments: keeping values at entry, and adding up what they mean at a successful return. */
#pragma once

#include "bpf/call_stack.bpf.h"

static __always_inline void plan_keep_registers(struct pt_regs *ctx, __u64 *values)
{
	values[0] = PT_REGS_PARM1(ctx);
	values[1] = PT_REGS_PARM2(ctx);
	values[2] = PT_REGS_PARM3(ctx);
	values[3] = PT_REGS_PARM4(ctx);
	values[4] = PT_REGS_PARM5(ctx);
	values[5] = ctx->r9; /* PARM6 of libbpf 1.1 is missing */
}

/* The value of one capture: see struct gpuperf_capture. Non-zero: its memory could not be read. */
static __always_inline long plan_read(const struct gpuperf_capture *capture, const __u64 *registers,
				      __u64 sp, __u64 *value)
{
	__u32 source = capture->source;
	__u32 loads = capture->loads;
	__u32 size_bytes = capture->size_bytes;
	__u64 v = 0;

	if (source < GPUPERF_ARGUMENTS) {
		barrier_var(source);
		v = registers[source & 7];
	} else if (bpf_probe_read_user(&v, sizeof(v), (void *)(sp + 8 * (source - GPUPERF_ARGUMENTS + 1)))) {
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
	if (capture->blob) { /* where it lies; it is read when the call is shown */
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

static __always_inline void plan_keep(struct pt_regs *ctx, __u32 function_id,
				      struct gpuperf_frame *frame)
{
	const struct gpuperf_plan *plan = bpf_map_lookup_elem(&plans, &function_id);
	__u64 registers[8] = {};
	__u32 count;

	if (!plan)
		return;
	plan_keep_registers(ctx, registers);
	count = plan->capture_count;
	frame->values_unread = 0;
	for (__u32 i = 0; i < GPUPERF_VALUES && i < count; i++) {
		__u64 value = 0;

		if (plan_read(&plan->captures[i], registers, PT_REGS_SP(ctx), &value))
			frame->values_unread |= 1u << i;
		frame->values[i] = value;
	}
}

/* number: 1 + index of a value. Zero when there is none or it could not be read. */
static __always_inline __u64 plan_value(const struct gpuperf_frame *frame, __u64 number)
{
	__u64 index = number - 1;

	barrier_var(index);
	return index < GPUPERF_VALUES ? frame->values[index] : 0;
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
					   const struct gpuperf_frame *frame, struct task_struct *task)
{
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

/* What a successful call adds. */
static __always_inline void plan_add(__u32 function_id, const struct gpuperf_frame *frame,
				     struct gpuperf_cell *cell, struct task_struct *task,
				     __u64 duration_ns)
{
	const struct gpuperf_plan *plan = bpf_map_lookup_elem(&plans, &function_id);

	if (!plan)
		return;
	if (plan->byte_factors[0] && !frame->values_unread)
		plan_add_bytes(plan, frame, cell);
	if (plan->shape_dimensions && !frame->values_unread)
		plan_add_shape(plan, frame, cell, duration_ns);
	if (plan->name_handle)
		plan_emit_name(plan, frame, task);
}

/* The strings and arrays of a slow call, as they are at its return: keeping them at entry would cost
 * every call and 4 KiB a thread. */
static __always_inline void plan_read_blobs(__u32 function_id, const struct gpuperf_frame *frame,
					    struct gpuperf_slow_call *record)
{
	const struct gpuperf_plan *plan = bpf_map_lookup_elem(&plans, &function_id);

	if (!plan)
		return;
	for (__u32 i = 0; i < GPUPERF_VALUES && i < plan->capture_count; i++) {
		__u64 blob = (__u64)plan->captures[i].blob - 1;
		void *from = (void *)frame->values[i];

		barrier_var(blob);
		if (blob >= GPUPERF_BLOBS)
			continue;
		if (record->blob_count <= blob)
			record->blob_count = blob + 1;
		if (frame->values_unread >> i & 1)
			continue;
		/* A short string may end right before memory that cannot be read. */
		if (!bpf_probe_read_user(record->blobs[blob], GPUPERF_BLOB_BYTES, from)) {
			record->blob_bytes[blob] = GPUPERF_BLOB_BYTES;
		} else {
			long length = bpf_probe_read_user_str(record->blobs[blob],
							      GPUPERF_BLOB_BYTES, from);

			record->blob_bytes[blob] = length > 0 ? length : 0;
		}
	}
}
