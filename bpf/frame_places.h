/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * The places where a frame's CFA and saved registers are, as far as rules can name them. What the including file
 * defines, and what is promised: bpf/frame_cursor.h.
 */
#pragma once

#include "bpf/frame_cursor.h"

/* Numbers of registers: System V ABI for x86-64, 3.6.2. */
#define FRAME_REGISTER_BP 6
#define FRAME_REGISTER_SP 7
#define FRAME_REGISTER_RETURN_ADDRESS 16

/* DW_OP_*. */
enum frame_operation {
	FRAME_DEREFERENCE = 0x06,
	FRAME_AND = 0x1a,
	FRAME_PLUS = 0x22,
	FRAME_SHIFT_LEFT = 0x24,
	FRAME_GREATER_OR_EQUAL = 0x2a,
	FRAME_LITERAL_0 = 0x30,                /* to + 15 */
	FRAME_REGISTER_PLUS_0 = 0x70           /* to + 31; then a signed offset */
};

/* How the CFA is found: the value of sp before the call that made the frame. */
enum frame_cfa {
	FRAME_CFA_NONE = 0,
	FRAME_CFA_SP,             /* sp + offset */
	FRAME_CFA_BP,             /* bp + offset */
	FRAME_CFA_REGISTER,       /* another register + offset */
	FRAME_CFA_SP_MEMORY,      /* *(sp + offset) */
	FRAME_CFA_BP_MEMORY,      /* *(bp + offset) */
	FRAME_CFA_PLT,            /* sp + 8 + ((pc & 15) >= offset) * 8 */
	FRAME_CFA_EXPRESSION      /* by another one */
};

/* Where the value is that a register had in the caller. */
enum frame_saved {
	FRAME_SAVED_UNSPECIFIED = 0,
	FRAME_SAVED_UNDEFINED,
	FRAME_SAVED_SAME,         /* still in the register */
	FRAME_SAVED_AT_CFA,       /* in memory, at CFA + offset */
	FRAME_SAVED_AT_SP,        /* sp + offset */
	FRAME_SAVED_AT_BP,        /* bp + offset */
	FRAME_SAVED_ELSEWHERE
};

struct frame_place {
	__s64 offset_bytes;
	__u8 kind;                /* FRAME_CFA_* or FRAME_SAVED_* */
};

static inline struct frame_place frame_make_place(__u8 kind, __u64 offset_bytes)
{
	struct frame_place place;

	place.kind = kind;
	place.offset_bytes = (__s64)offset_bytes;
	return place;
}

static inline int frame_takes(struct frame_cursor *cursor, __u64 byte)
{
	return frame_take(cursor, 1) == byte;
}

static inline int frame_is_at_end(const struct frame_cursor *cursor)
{
	return cursor->result == FRAME_OK && cursor->at == cursor->end;
}

/* What linkers write behind "sp + 8" to describe all of .plt at once: its stubs are of 16 bytes, and from byte K on one
 * has pushed a number. K, or -1. */
static inline __s64 frame_match_plt(struct frame_cursor *cursor)
{
	__s64 push_end;

	if (frame_take_sleb(cursor) != 0 || !frame_takes(cursor, FRAME_LITERAL_0 + 15) ||
	    !frame_takes(cursor, FRAME_AND))
		return -1;
	push_end = (__s64)frame_take(cursor, 1) - FRAME_LITERAL_0;
	if (push_end < 0 || push_end > 15)
		return -1;
	if (!frame_takes(cursor, FRAME_GREATER_OR_EQUAL) || !frame_takes(cursor, FRAME_LITERAL_0 + 3) ||
	    !frame_takes(cursor, FRAME_SHIFT_LEFT) || !frame_takes(cursor, FRAME_PLUS) || !frame_is_at_end(cursor))
		return -1;
	return push_end;
}

static inline struct frame_place frame_match_cfa(struct frame_cursor *cursor)
{
	const __u64 first = frame_take(cursor, 1);
	const __s64 offset_bytes = frame_take_sleb(cursor);
	const __u64 next = frame_take(cursor, 1);
	const int is_memory = next == FRAME_DEREFERENCE && frame_is_at_end(cursor);
	__s64 push_end;

	if (first == FRAME_REGISTER_PLUS_0 + FRAME_REGISTER_BP && is_memory)
		return frame_make_place(FRAME_CFA_BP_MEMORY, (__u64)offset_bytes);
	if (first != FRAME_REGISTER_PLUS_0 + FRAME_REGISTER_SP)
		return frame_make_place(FRAME_CFA_EXPRESSION, 0);
	if (is_memory)
		return frame_make_place(FRAME_CFA_SP_MEMORY, (__u64)offset_bytes);
	if (offset_bytes == 8 && next == FRAME_REGISTER_PLUS_0 + FRAME_REGISTER_RETURN_ADDRESS) {
		push_end = frame_match_plt(cursor);
		if (push_end >= 0)
			return frame_make_place(FRAME_CFA_PLT, (__u64)push_end);
	}
	return frame_make_place(FRAME_CFA_EXPRESSION, 0);
}

static inline struct frame_place frame_match_saved(struct frame_cursor *cursor)
{
	const __u64 first = frame_take(cursor, 1);
	const __s64 offset_bytes = frame_take_sleb(cursor);

	if (frame_is_at_end(cursor) && first == FRAME_REGISTER_PLUS_0 + FRAME_REGISTER_BP)
		return frame_make_place(FRAME_SAVED_AT_BP, (__u64)offset_bytes);
	if (frame_is_at_end(cursor) && first == FRAME_REGISTER_PLUS_0 + FRAME_REGISTER_SP)
		return frame_make_place(FRAME_SAVED_AT_SP, (__u64)offset_bytes);
	return frame_make_place(FRAME_SAVED_ELSEWHERE, 0);
}
