/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * One step up a native stack, the same for the kernel side and for the daemon. Plain C that also compiles as
 * C++. Who includes it defines, before:
 *   static inline int unwind_read(void *memory, __u64 address, void *to, __u32 size_bytes); 0 = it was read
 */
#pragma once

#include "bpf/stack_records.h"
#include "bpf/unwind_frame.h"

/* Words of a struct ucontext: uc_flags, uc_link, uc_stack (3), then r8 to r15, rdi, rsi, rbp, rbx, rdx, rax,
 * rcx, rsp, rip. Linux asm/sigcontext.h, asm/ucontext.h. */
#define UNWIND_CONTEXT_BP 120
#define UNWIND_CONTEXT_SP 160
#define UNWIND_CONTEXT_PC 168

/* A frame of code without a description is taken for one with a frame pointer only when that points a little
 * further up the stack. */
#define UNWIND_MAX_GUESSED_BYTES (1u << 20)

#define UNWIND_GOES_ON (-1)

static inline int unwind_signal(void *memory, struct unwind_frame *frame)
{
	__u64 context = frame->sp;

	if (unwind_read(memory, context + UNWIND_CONTEXT_PC, &frame->pc, sizeof(frame->pc)) ||
	    unwind_read(memory, context + UNWIND_CONTEXT_SP, &frame->sp, sizeof(frame->sp)) ||
	    unwind_read(memory, context + UNWIND_CONTEXT_BP, &frame->bp, sizeof(frame->bp)))
		return GPUPERF_STACK_UNREADABLE;
	frame->is_exact = 1;
	return UNWIND_GOES_ON;
}

/* Moves `frame` on to its caller's. UNWIND_GOES_ON, or how the walk ends: GPUPERF_STACK_*. */
static inline int unwind_step(void *memory, const struct gpuperf_unwind_rule *rule, struct unwind_frame *frame)
{
	__u64 saved[2]; /* bp and the return address, where they stand side by side */
	__u64 cfa = 0, bp = frame->bp;

	switch (rule->kind) {
	case GPUPERF_UNWIND_SP:
		cfa = frame->sp + (__s64)rule->cfa_offset_bytes;
		break;
	case GPUPERF_UNWIND_BP:
		cfa = frame->bp + (__s64)rule->cfa_offset_bytes;
		break;
	case GPUPERF_UNWIND_BP_MEMORY:
		if (unwind_read(memory, frame->bp + (__s64)rule->cfa_offset_bytes, &cfa, sizeof(cfa)))
			return GPUPERF_STACK_UNREADABLE;
		break;
	case GPUPERF_UNWIND_PLT:
		cfa = frame->sp + 8 + ((__s32)(frame->pc & 15) >= rule->cfa_offset_bytes ? 8 : 0);
		break;
	case GPUPERF_UNWIND_SIGNAL:
		return unwind_signal(memory, frame);
	case GPUPERF_UNWIND_END:
		return GPUPERF_STACK_COMPLETE;
	case GPUPERF_UNWIND_GUESS:
		cfa = frame->bp + 16;
		if (frame->bp < frame->sp || frame->bp - frame->sp > UNWIND_MAX_GUESSED_BYTES || (frame->bp & 7))
			return GPUPERF_STACK_BROKEN;
		break;
	default:
		return GPUPERF_STACK_BROKEN;
	}
	if (cfa <= frame->sp) /* the return address stands at or above sp */
		return GPUPERF_STACK_BROKEN;
	if (rule->bp_at == GPUPERF_UNWIND_BP_AT_CFA && rule->bp_offset_bytes == 0) {
		if (unwind_read(memory, cfa - 8, &saved[1], sizeof(saved[1])))
			return GPUPERF_STACK_UNREADABLE;
	} else if (rule->bp_at == GPUPERF_UNWIND_BP_AT_CFA && rule->bp_offset_bytes == -16) {
		if (unwind_read(memory, cfa - 16, saved, sizeof(saved)))
			return GPUPERF_STACK_UNREADABLE;
		bp = saved[0];
	} else {
		__u64 at = rule->bp_at == GPUPERF_UNWIND_BP_AT_CFA ? cfa : frame->bp;

		if (unwind_read(memory, at + (__s64)rule->bp_offset_bytes, &bp, sizeof(bp)) ||
		    unwind_read(memory, cfa - 8, &saved[1], sizeof(saved[1])))
			return GPUPERF_STACK_UNREADABLE;
	}
	frame->pc = saved[1];
	frame->sp = cfa;
	frame->bp = bp;
	frame->is_exact = 0;
	return frame->pc ? UNWIND_GOES_ON : GPUPERF_STACK_COMPLETE;
}
