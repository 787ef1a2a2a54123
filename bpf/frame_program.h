/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Runs the instructions of a CIE and of its FDE for one address. DWARF 5, 6.4. What the including file defines, and
 * what is promised: bpf/frame_cursor.h.
 */
#pragma once

#include "bpf/frame_entry.h"
#include "bpf/frame_places.h"

/* Compilers nest no two. */
#define FRAME_MAX_REMEMBERED 8

/* DW_CFA_*. The first three hold their operand in the low 6 bits. */
enum frame_instruction {
	FRAME_ADVANCE_INSIDE = 0x40,
	FRAME_OFFSET_INSIDE = 0x80,
	FRAME_RESTORE_INSIDE = 0xc0,
	FRAME_NOTHING = 0x00,
	FRAME_SET_LOCATION = 0x01,
	FRAME_ADVANCE_1 = 0x02,
	FRAME_ADVANCE_2 = 0x03,
	FRAME_ADVANCE_4 = 0x04,
	FRAME_OFFSET_EXTENDED = 0x05,
	FRAME_RESTORE_EXTENDED = 0x06,
	FRAME_UNDEFINED = 0x07,
	FRAME_SAME_VALUE = 0x08,
	FRAME_REGISTER = 0x09,
	FRAME_REMEMBER_STATE = 0x0a,
	FRAME_RESTORE_STATE = 0x0b,
	FRAME_DEFINE_CFA = 0x0c,
	FRAME_DEFINE_CFA_REGISTER = 0x0d,
	FRAME_DEFINE_CFA_OFFSET = 0x0e,
	FRAME_DEFINE_CFA_EXPRESSION = 0x0f,
	FRAME_EXPRESSION = 0x10,
	FRAME_OFFSET_EXTENDED_SIGNED = 0x11,
	FRAME_DEFINE_CFA_SIGNED = 0x12,
	FRAME_DEFINE_CFA_OFFSET_SIGNED = 0x13,
	FRAME_VALUE_OFFSET = 0x14,
	FRAME_VALUE_OFFSET_SIGNED = 0x15,
	FRAME_VALUE_EXPRESSION = 0x16,
	FRAME_ADVANCE_8 = 0x1d,                /* MIPS by name; assemblers write it for any machine */
	FRAME_ARGUMENTS_SIZE = 0x2e,           /* GNU: for exceptions only */
	FRAME_NEGATIVE_OFFSET_EXTENDED = 0x2f  /* GNU, old */
};

/* What a walk needs of the table of DWARF 5, 6.4.1, for one address. */
struct frame_row {
	struct frame_place cfa;
	struct frame_place bp;
	struct frame_place return_address;
};

/* Goes on until the instructions pass the address asked for. 1 KiB. */
struct frame_run {
	struct frame_cursor cursor;
	struct frame_description frame;
	__u64 address;
	__u64 location;           /* what the row holds from here on */
	struct frame_row row;
	struct frame_row initial; /* what "restore" restores */
	struct frame_row remembered[FRAME_MAX_REMEMBERED];
	__u32 remembered_count;
};

/* Wraps with nonsense: the result is an offset nobody uses. */
static inline __u64 frame_scale(const struct frame_run *run, __u64 count)
{
	return count * (__u64)run->frame.common.data_alignment;
}

static inline void frame_advance(struct frame_run *run, __u64 count)
{
	run->location += count * run->frame.common.code_alignment;
}

static inline void frame_set(struct frame_run *run, __u64 register_number, struct frame_place place)
{
	if (register_number == FRAME_REGISTER_BP)
		run->row.bp = place;
	if (register_number == FRAME_REGISTER_RETURN_ADDRESS)
		run->row.return_address = place;
}

static inline void frame_restore(struct frame_run *run, __u64 register_number)
{
	frame_set(run, register_number,
		  register_number == FRAME_REGISTER_BP ? run->initial.bp : run->initial.return_address);
}

static inline __u8 frame_cfa_kind(__u64 register_number)
{
	if (register_number == FRAME_REGISTER_SP)
		return FRAME_CFA_SP;
	return register_number == FRAME_REGISTER_BP ? FRAME_CFA_BP : FRAME_CFA_REGISTER;
}

static inline int frame_has_register(const struct frame_place *cfa)
{
	return cfa->kind == FRAME_CFA_SP || cfa->kind == FRAME_CFA_BP || cfa->kind == FRAME_CFA_REGISTER;
}

/* Instructions that name a register first. */
static inline enum frame_result frame_step_register(struct frame_run *run, __u8 instruction)
{
	struct frame_cursor *const cursor = &run->cursor;
	struct frame_place place = frame_make_place(FRAME_SAVED_ELSEWHERE, 0);
	struct frame_block block;
	__u64 register_number;

	if (instruction > FRAME_VALUE_EXPRESSION && instruction != FRAME_NEGATIVE_OFFSET_EXTENDED)
		return FRAME_UNKNOWN_FORM;
	register_number = frame_take_uleb(cursor);
	switch (instruction) {
	case FRAME_RESTORE_EXTENDED:
		frame_restore(run, register_number);
		return FRAME_OK;
	case FRAME_UNDEFINED:
		place.kind = FRAME_SAVED_UNDEFINED;
		break;
	case FRAME_SAME_VALUE:
		place.kind = FRAME_SAVED_SAME;
		break;
	case FRAME_OFFSET_EXTENDED:
		place = frame_make_place(FRAME_SAVED_AT_CFA, frame_scale(run, frame_take_uleb(cursor)));
		break;
	case FRAME_OFFSET_EXTENDED_SIGNED:
		place = frame_make_place(FRAME_SAVED_AT_CFA, frame_scale(run, (__u64)frame_take_sleb(cursor)));
		break;
	case FRAME_NEGATIVE_OFFSET_EXTENDED:
		place = frame_make_place(FRAME_SAVED_AT_CFA, frame_scale(run, 0 - frame_take_uleb(cursor)));
		break;
	case FRAME_EXPRESSION:
		block = frame_enter_block(cursor);
		place = frame_match_saved(cursor);
		frame_leave_block(cursor, &block);
		break;
	case FRAME_REGISTER:
	case FRAME_VALUE_OFFSET:
	case FRAME_VALUE_OFFSET_SIGNED: /* of the same length as unsigned */
		(void)frame_take_uleb(cursor);
		break;
	case FRAME_VALUE_EXPRESSION:
		frame_skip(cursor, frame_take_uleb(cursor));
		break;
	}
	frame_set(run, register_number, place);
	return FRAME_OK;
}

static inline enum frame_result frame_step_cfa(struct frame_run *run, __u8 instruction)
{
	struct frame_cursor *const cursor = &run->cursor;
	struct frame_place *const cfa = &run->row.cfa;
	struct frame_block block;

	switch (instruction) {
	case FRAME_DEFINE_CFA:
		cfa->kind = frame_cfa_kind(frame_take_uleb(cursor));
		cfa->offset_bytes = (__s64)frame_take_uleb(cursor);
		return FRAME_OK;
	case FRAME_DEFINE_CFA_SIGNED:
		cfa->kind = frame_cfa_kind(frame_take_uleb(cursor));
		cfa->offset_bytes = (__s64)frame_scale(run, (__u64)frame_take_sleb(cursor));
		return FRAME_OK;
	case FRAME_DEFINE_CFA_REGISTER:
		if (!frame_has_register(cfa))
			return FRAME_DAMAGED;
		cfa->kind = frame_cfa_kind(frame_take_uleb(cursor));
		return FRAME_OK;
	case FRAME_DEFINE_CFA_OFFSET:
		if (!frame_has_register(cfa))
			return FRAME_DAMAGED;
		cfa->offset_bytes = (__s64)frame_take_uleb(cursor);
		return FRAME_OK;
	case FRAME_DEFINE_CFA_OFFSET_SIGNED:
		if (!frame_has_register(cfa))
			return FRAME_DAMAGED;
		cfa->offset_bytes = (__s64)frame_scale(run, (__u64)frame_take_sleb(cursor));
		return FRAME_OK;
	case FRAME_DEFINE_CFA_EXPRESSION:
		block = frame_enter_block(cursor);
		*cfa = frame_match_cfa(cursor);
		frame_leave_block(cursor, &block);
		return FRAME_OK;
	default:
		return frame_step_register(run, instruction);
	}
}

static inline enum frame_result frame_step_row(struct frame_run *run, __u8 instruction)
{
	struct frame_cursor *const cursor = &run->cursor;

	switch (instruction) {
	case FRAME_NOTHING:
		return FRAME_OK;
	case FRAME_SET_LOCATION:
		run->location = frame_take_encoded(cursor, run->frame.common.pointers);
		return FRAME_OK;
	case FRAME_ADVANCE_1:
		frame_advance(run, frame_take(cursor, 1));
		return FRAME_OK;
	case FRAME_ADVANCE_2:
		frame_advance(run, frame_take(cursor, 2));
		return FRAME_OK;
	case FRAME_ADVANCE_4:
		frame_advance(run, frame_take(cursor, 4));
		return FRAME_OK;
	case FRAME_ADVANCE_8:
		frame_advance(run, frame_take(cursor, 8));
		return FRAME_OK;
	case FRAME_ARGUMENTS_SIZE:
		(void)frame_take_uleb(cursor);
		return FRAME_OK;
	case FRAME_REMEMBER_STATE:
		if (run->remembered_count == FRAME_MAX_REMEMBERED)
			return FRAME_TOO_LARGE;
		run->remembered[run->remembered_count++] = run->row;
		return FRAME_OK;
	case FRAME_RESTORE_STATE:
		if (!run->remembered_count)
			return FRAME_DAMAGED;
		run->row = run->remembered[--run->remembered_count];
		return FRAME_OK;
	default:
		return frame_step_cfa(run, instruction);
	}
}

static inline enum frame_result frame_step(struct frame_run *run)
{
	const __u8 instruction = (__u8)frame_take(&run->cursor, 1);
	const __u8 operand = instruction & 0x3f;

	switch (instruction & 0xc0) {
	case FRAME_ADVANCE_INSIDE:
		frame_advance(run, operand);
		return FRAME_OK;
	case FRAME_OFFSET_INSIDE:
		frame_set(run, operand, frame_make_place(FRAME_SAVED_AT_CFA,
							 frame_scale(run, frame_take_uleb(&run->cursor))));
		return FRAME_OK;
	case FRAME_RESTORE_INSIDE:
		frame_restore(run, operand);
		return FRAME_OK;
	default:
		return frame_step_row(run, instruction);
	}
}

static inline enum frame_result frame_run_program(struct frame_run *run, const struct frame_program *program)
{
	struct frame_cursor *const cursor = &run->cursor;
	enum frame_result result;

	cursor->at = program->begin;
	cursor->end = program->end;
	while (cursor->result == FRAME_OK && cursor->at != cursor->end) {
		result = frame_step(run);
		if (result != FRAME_OK)
			return result;
		if (run->location > run->address)
			return FRAME_OK;
	}
	return program->is_cut && cursor->result != FRAME_UNREADABLE ? FRAME_TOO_LARGE : cursor->result;
}
