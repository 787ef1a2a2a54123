/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Reads numbers as .eh_frame writes them, from memory that may hold anything: the same for the daemon, which reads
 * files, and for the injected library, which reads its own process. Plain C that also compiles as C++; allocates
 * nothing and follows no pointer. Who includes it defines frame_read.
 */
#pragma once

#ifndef __BPF__
#include <linux/types.h>
#endif

/* 0 = it was read. */
static inline int frame_read(void *memory, __u64 address, void *to, __u32 size_bytes);

enum frame_result {
	FRAME_OK = 0,
	FRAME_NONE = 1,           /* nothing describes the address */
	FRAME_DAMAGED = 2,
	FRAME_UNKNOWN_FORM = 3,   /* one that no compiler or linker for x86-64 writes */
	FRAME_TOO_LARGE = 4,      /* beyond a bound */
	FRAME_UNREADABLE = 5      /* frame_read failed */
};

/* DW_EH_PE_*: how a pointer is written. Low half the form, high half what it is relative to. Linux Standard Base,
 * "DWARF Extensions". */
#define FRAME_POINTER_ABSOLUTE 0x00
#define FRAME_POINTER_ULEB 0x01
#define FRAME_POINTER_UNSIGNED_2 0x02
#define FRAME_POINTER_UNSIGNED_4 0x03
#define FRAME_POINTER_UNSIGNED_8 0x04
#define FRAME_POINTER_SIGNED_4 0x0b
#define FRAME_POINTER_SIGNED_8 0x0c
#define FRAME_POINTER_FORM 0x0f
#define FRAME_POINTER_TO_HERE 0x10
#define FRAME_POINTER_TO_TABLE 0x30
#define FRAME_POINTER_OMITTED 0xff

/* Holds most entries as a whole: the median in Debian's libc has 36 bytes. */
#define FRAME_WINDOW_BYTES 256

/* Takes from `at` on, and nothing from `end` on; addresses may wrap. After a failure all that is taken is 0. */
struct frame_cursor {
	void *memory;
	__u64 at;
	__u64 end;
	__u64 window_begin;       /* address of `window` */
	__u32 window_bytes;
	enum frame_result result; /* FRAME_OK, FRAME_DAMAGED (taken beyond the end) or FRAME_UNREADABLE */
	__u8 window[FRAME_WINDOW_BYTES];
};

/* An expression, within the entry around it. */
struct frame_block {
	__u64 end;
	__u64 outer_end;
	enum frame_result result; /* before it */
};

static inline void frame_begin(struct frame_cursor *cursor, void *memory)
{
	cursor->memory = memory;
	cursor->window_begin = 0;
	cursor->window_bytes = 0;
	cursor->at = 0;
	cursor->end = 0;
	cursor->result = FRAME_OK;
}

static inline void frame_fail(struct frame_cursor *cursor, enum frame_result result)
{
	if (cursor->result == FRAME_OK)
		cursor->result = result;
	cursor->at = cursor->end;
}

static inline int frame_fill(struct frame_cursor *cursor, __u32 size_bytes)
{
	const int result = frame_read(cursor->memory, cursor->at, cursor->window, size_bytes);

	cursor->window_begin = cursor->at;
	cursor->window_bytes = result ? 0 : size_bytes;
	return result;
}

/* A little-endian number of up to 8 bytes. */
static inline __u64 frame_take(struct frame_cursor *cursor, __u32 size_bytes)
{
	const __u64 left = cursor->end - cursor->at;
	__u64 offset = cursor->at - cursor->window_begin;
	__u64 value = 0;

	if (cursor->result != FRAME_OK)
		return 0;
	if (size_bytes > left) {
		frame_fail(cursor, FRAME_DAMAGED);
		return 0;
	}
	/* The offset of what lies before the window is huge. */
	if (offset > cursor->window_bytes || cursor->window_bytes - offset < size_bytes) {
		if (frame_fill(cursor, left < FRAME_WINDOW_BYTES ? (__u32)left : FRAME_WINDOW_BYTES) &&
		    frame_fill(cursor, size_bytes)) { /* the memory ends before the entry does */
			frame_fail(cursor, FRAME_UNREADABLE);
			return 0;
		}
		offset = 0;
	}
	__builtin_memcpy(&value, cursor->window + offset, size_bytes);
	cursor->at += size_bytes;
	return value;
}

static inline void frame_skip(struct frame_cursor *cursor, __u64 size_bytes)
{
	if (size_bytes > cursor->end - cursor->at)
		frame_fail(cursor, FRAME_DAMAGED);
	else
		cursor->at += size_bytes;
}

static inline __u64 frame_take_leb(struct frame_cursor *cursor, int is_signed)
{
	__u64 value = 0;
	__u64 byte;
	__u32 bits;

	for (bits = 0; bits < 64;) {
		byte = frame_take(cursor, 1);
		value |= (byte & 0x7f) << bits;
		bits += 7;
		if (byte & 0x80)
			continue;
		if (is_signed && (byte & 0x40) && bits < 64)
			value |= ~(__u64)0 << bits;
		return value;
	}
	frame_fail(cursor, FRAME_DAMAGED); /* longer than 64 bits */
	return 0;
}

static inline __u64 frame_take_uleb(struct frame_cursor *cursor)
{
	return frame_take_leb(cursor, 0);
}

static inline __s64 frame_take_sleb(struct frame_cursor *cursor)
{
	return (__s64)frame_take_leb(cursor, 1);
}

/* A pointer, or with `encoding` & FRAME_POINTER_FORM a plain number. */
static inline __u64 frame_take_encoded(struct frame_cursor *cursor, __u8 encoding)
{
	const __u64 here = cursor->at;
	__u64 value = 0;

	switch (encoding & FRAME_POINTER_FORM) {
	case FRAME_POINTER_ABSOLUTE:
	case FRAME_POINTER_UNSIGNED_8:
	case FRAME_POINTER_SIGNED_8:
		value = frame_take(cursor, 8);
		break;
	case FRAME_POINTER_ULEB:
		value = frame_take_uleb(cursor);
		break;
	case FRAME_POINTER_UNSIGNED_2:
		value = frame_take(cursor, 2);
		break;
	case FRAME_POINTER_UNSIGNED_4:
		value = frame_take(cursor, 4);
		break;
	case FRAME_POINTER_SIGNED_4:
		value = (__u64)(__s64)(__s32)frame_take(cursor, 4);
		break;
	default:
		frame_fail(cursor, FRAME_DAMAGED);
	}
	if (!value)
		return 0; /* null, whatever it would be relative to */
	if ((encoding & 0xf0) == FRAME_POINTER_TO_HERE)
		return here + value;
	if ((encoding & 0xf0) != FRAME_POINTER_ABSOLUTE) {
		frame_fail(cursor, FRAME_DAMAGED);
		return 0;
	}
	return value;
}

/* Limits the cursor to the bytes of an expression, whose length is taken first. */
static inline struct frame_block frame_enter_block(struct frame_cursor *cursor)
{
	const __u64 size_bytes = frame_take_uleb(cursor);
	struct frame_block block;

	block.outer_end = cursor->end;
	if (size_bytes > cursor->end - cursor->at)
		frame_fail(cursor, FRAME_DAMAGED);
	else
		cursor->end = cursor->at + size_bytes;
	block.end = cursor->end;
	block.result = cursor->result;
	return block;
}

/* Goes on behind it, however much of it was taken; taking more than it has damages nothing else. */
static inline void frame_leave_block(struct frame_cursor *cursor, const struct frame_block *block)
{
	cursor->at = block->end;
	cursor->end = block->outer_end;
	if (cursor->result == FRAME_DAMAGED)
		cursor->result = block->result;
}
