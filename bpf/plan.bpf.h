/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* Arguments: keeps values at entry, and adds up what they mean at a successful return. The verifier checks each
 * function of plan.bpf.c once, not on every path to it. */
#pragma once

#include "bpf/call_stack.bpf.h"

/* Where the arguments are at a function's entry. */
struct plan_registers {
	__u64 values[8];
	__u64 sp;
};

/* Keeps the values of the function's plan. */
int plan_keep(const struct plan_registers *registers, __u32 function_id, struct gpuperf_frame *frame);

/* Adds what a successful call contributes. */
int plan_add(struct gpuperf_frame *frame, struct gpuperf_cell *cell, __u64 duration_ns);

/* Reads the strings and arrays of a slow call, as they are at its return: keeping them at entry would cost every
 * call, and 4 KiB per thread. */
int plan_read_blobs(struct gpuperf_slow_call *record);

static __always_inline void plan_keep_registers(struct pt_regs *ctx, __u64 *values)
{
	values[0] = PT_REGS_PARM1(ctx);
	values[1] = PT_REGS_PARM2(ctx);
	values[2] = PT_REGS_PARM3(ctx);
	values[3] = PT_REGS_PARM4(ctx);
	values[4] = PT_REGS_PARM5(ctx);
	values[5] = ctx->r9; /* libbpf 1.1 has no PARM6 */
}

/* number: 1 + index of a value. Zero when there is none or it could not be read. */
static __always_inline __u64 plan_value(const struct gpuperf_frame *frame, __u64 number)
{
	__u64 index = number - 1;

	barrier_var(index);
	return index < GPUPERF_VALUES ? frame->values[index] : 0;
}
