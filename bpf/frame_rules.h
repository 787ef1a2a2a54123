/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Makes the rule by which a frame finds its caller's, for one address, of what .eh_frame says of it: of the many forms
 * that it can express those of struct gpuperf_unwind_rule. The same for the daemon and for the injected library. What
 * the including file defines, and what is promised: bpf/frame_cursor.h. Takes some 1.2 KiB of stack.
 */
#pragma once

#include "bpf/frame_program.h"
#include "bpf/stack_records.h"

/* In struct ucontext of x86-64: where the registers of the interrupted code stand. */
#define FRAME_SIGNAL_BP 120
#define FRAME_SIGNAL_SP 160
#define FRAME_SIGNAL_PC 168

/* Of code without a description, which may have a frame pointer. */
static inline struct gpuperf_unwind_rule frame_guess_rule(void)
{
	const struct gpuperf_unwind_rule guess = {GPUPERF_UNWIND_GUESS, GPUPERF_UNWIND_BP_AT_CFA, -16, 0};

	return guess;
}

static inline int frame_is(const struct frame_place *place, __u8 kind, __s64 offset_bytes)
{
	return place->kind == kind && place->offset_bytes == offset_bytes;
}

/* Both answer whether the rule can say it. */
static inline int frame_put_cfa(const struct frame_place *cfa, struct gpuperf_unwind_rule *rule)
{
	switch (cfa->kind) {
	case FRAME_CFA_SP:
		rule->kind = GPUPERF_UNWIND_SP;
		break;
	case FRAME_CFA_BP:
		rule->kind = GPUPERF_UNWIND_BP;
		break;
	case FRAME_CFA_BP_MEMORY:
		rule->kind = GPUPERF_UNWIND_BP_MEMORY;
		break;
	case FRAME_CFA_PLT:
		rule->kind = GPUPERF_UNWIND_PLT;
		break;
	default:
		return 0;
	}
	rule->cfa_offset_bytes = (__s32)cfa->offset_bytes;
	return rule->cfa_offset_bytes == cfa->offset_bytes;
}

static inline int frame_put_bp(const struct frame_place *bp, struct gpuperf_unwind_rule *rule)
{
	switch (bp->kind) {
	case FRAME_SAVED_UNSPECIFIED:
	case FRAME_SAVED_SAME:
		return 1;
	case FRAME_SAVED_AT_CFA:
		/* At CFA + 0 it would be the caller's own memory; and 0 says something else. */
		if (!bp->offset_bytes)
			return 0;
		break;
	case FRAME_SAVED_AT_BP:
		rule->bp_at = GPUPERF_UNWIND_BP_AT_BP;
		break;
	default:
		/* Callers may find their frame by bp: without it the walk would go astray, not end. */
		return 0;
	}
	rule->bp_offset_bytes = (__s16)bp->offset_bytes;
	return rule->bp_offset_bytes == bp->offset_bytes;
}

static inline struct gpuperf_unwind_rule frame_make_rule(
	const struct frame_common *common, const struct frame_row *row)
{
	const struct gpuperf_unwind_rule unknown = {GPUPERF_UNWIND_UNKNOWN, 0, 0, 0};
	struct gpuperf_unwind_rule rule = unknown;

	if (common->return_address_register != FRAME_REGISTER_RETURN_ADDRESS)
		return unknown;
	if (row->return_address.kind == FRAME_SAVED_UNDEFINED) {
		rule.kind = GPUPERF_UNWIND_END;
		return rule;
	}
	/* Other rules than GPUPERF_UNWIND_SIGNAL would take the interrupted address for a return address. Described as
	 * C libraries describe their signal trampoline. */
	if (common->is_signal_frame) {
		if (frame_is(&row->cfa, FRAME_CFA_SP_MEMORY, FRAME_SIGNAL_SP) &&
		    frame_is(&row->return_address, FRAME_SAVED_AT_SP, FRAME_SIGNAL_PC) &&
		    frame_is(&row->bp, FRAME_SAVED_AT_SP, FRAME_SIGNAL_BP))
			rule.kind = GPUPERF_UNWIND_SIGNAL;
		return rule;
	}
	/* It stands right below the CFA: calls push it. */
	if (!frame_is(&row->return_address, FRAME_SAVED_AT_CFA, -8))
		return unknown;
	return frame_put_cfa(&row->cfa, &rule) && frame_put_bp(&row->bp, &rule) ? rule : unknown;
}

/* The rule of the FDE at `entry` for `address`; GPUPERF_UNWIND_UNKNOWN for what no rule can say. Of a return address
 * ask for the byte before it: a call may be the last instruction of its function. FRAME_NONE: does not cover it. */
static inline enum frame_result frame_read_rule(
	void *memory, __u64 entry, __u64 address, struct gpuperf_unwind_rule *rule)
{
	const struct frame_row none = {{0, 0}, {0, 0}, {0, 0}};
	struct frame_run run;
	enum frame_result result;

	frame_begin(&run.cursor, memory);
	result = frame_read_description(&run.cursor, entry, &run.frame);
	if (result != FRAME_OK)
		return result;
	if (address < run.frame.begin || address >= run.frame.end)
		return FRAME_NONE;
	run.address = address;
	run.location = 0;
	run.row = none;
	run.initial = none;
	run.remembered_count = 0;
	result = frame_run_program(&run, &run.frame.common.program);
	if (result != FRAME_OK)
		return result;
	run.initial = run.row;
	run.location = run.frame.begin;
	result = frame_run_program(&run, &run.frame.program);
	if (result != FRAME_OK)
		return result;
	*rule = frame_make_rule(&run.frame.common, &run.row);
	return FRAME_OK;
}
