/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Finds and reads the entries of .eh_frame: CIEs and FDEs. Linux Standard Base, "Exception Frames". What the
 * including file defines, and what is promised: bpf/frame_cursor.h.
 */
#pragma once

#include "bpf/frame_cursor.h"

/* Behind the length. The longest in 1,617 files of Debian and CUDA 13 has 60,768 bytes, in libcufft. */
#define FRAME_MAX_ENTRY_BYTES (256u << 10)
/* Of a CIE's augmentation: five are defined. */
#define FRAME_MAX_LETTERS 16

/* .eh_frame_hdr: this, then `count` rows by rising address of the code; both addresses in a row are relative to the
 * header's. */
struct frame_table_header {
	__u8 version;
	__u8 entries_encoding;
	__u8 count_encoding;
	__u8 row_encoding;
	__s32 entries;            /* .eh_frame, relative to this field */
	__u32 count;
};

struct frame_table_row {
	__s32 code;
	__s32 entry;              /* its FDE */
};

/* Instructions of an entry. */
struct frame_program {
	__u64 begin;              /* addresses */
	__u64 end;
	__u8 is_cut;              /* it goes on beyond FRAME_MAX_ENTRY_BYTES */
};

/* A CIE. */
struct frame_common {
	struct frame_program program;
	__u64 code_alignment;
	__s64 data_alignment;
	__u64 return_address_register;
	__u8 pointers;            /* FRAME_POINTER_* */
	__u8 exception_tables;    /* FRAME_POINTER_* */
	__u8 is_augmented;
	__u8 is_signal_frame;     /* its caller did not call, but was interrupted */
};

/* An FDE with its CIE. */
struct frame_description {
	struct frame_common common;
	struct frame_program program;
	__u64 begin;              /* of the code */
	__u64 end;
	__u64 exception_table;    /* address of its LSDA, 0 = none */
};

static inline enum frame_result frame_read_table(void *memory, __u64 table, struct frame_table_header *header)
{
	if (frame_read(memory, table, header, sizeof(*header)))
		return FRAME_UNREADABLE;
	if (header->version != 1 || (header->entries_encoding & FRAME_POINTER_FORM) != FRAME_POINTER_SIGNED_4)
		return FRAME_UNKNOWN_FORM;
	return FRAME_OK;
}

/* The only FDE that can cover `address`, by the search table at `table`: 17 reads for 100,000 functions. FRAME_NONE:
 * all code described begins later. FRAME_UNKNOWN_FORM: there may be entries, but no table to find them by. */
static inline enum frame_result frame_find_entry(
	void *memory, __u64 table, __u64 table_bytes, __u64 address, __u64 *entry)
{
	const __s64 target = (__s64)(address - table);
	struct frame_table_header header;
	struct frame_table_row row;
	enum frame_result result = frame_read_table(memory, table, &header);
	__u64 low = 0, high, middle;

	if (result != FRAME_OK)
		return result;
	if (header.count_encoding != FRAME_POINTER_UNSIGNED_4 ||
	    header.row_encoding != (FRAME_POINTER_TO_TABLE | FRAME_POINTER_SIGNED_4))
		return FRAME_UNKNOWN_FORM;
	high = header.count;
	if (high > table_bytes / sizeof(row))
		return FRAME_DAMAGED;
	while (low < high) {
		middle = low + (high - low) / 2;
		if (frame_read(memory, table + sizeof(header) + middle * sizeof(row), &row, sizeof(row)))
			return FRAME_UNREADABLE;
		if (row.code <= target) {
			low = middle + 1;
			*entry = table + (__u64)(__s64)row.entry;
		} else {
			high = middle;
		}
	}
	return low ? FRAME_OK : FRAME_NONE;
}

/* Leads the cursor to what is behind the length. */
static inline enum frame_result frame_open_entry(
	struct frame_cursor *cursor, __u64 entry, struct frame_program *program)
{
	__u32 length = 0;

	if (frame_read(cursor->memory, entry, &length, sizeof(length)))
		return FRAME_UNREADABLE;
	if (!length || length == 0xffffffff)
		return FRAME_DAMAGED;
	program->is_cut = length > FRAME_MAX_ENTRY_BYTES;
	if (program->is_cut)
		length = FRAME_MAX_ENTRY_BYTES;
	cursor->at = entry + sizeof(length);
	cursor->end = cursor->at + length;
	program->end = cursor->end;
	return FRAME_OK;
}

/* Passes over what belongs to the augmentation, to the instructions; returns where it began. */
static inline __u64 frame_pass_augmentation(
	struct frame_cursor *cursor, const struct frame_common *common, struct frame_program *program)
{
	const __u64 size_bytes = common->is_augmented ? frame_take_uleb(cursor) : 0;
	const __u64 begin = cursor->at;

	frame_skip(cursor, size_bytes);
	program->begin = cursor->at;
	return begin;
}

/* CIE: 0, version, augmentation, code and data alignment, return address register, then with 'z' the length of what
 * the other letters of the augmentation announce, and that; instructions. */
static inline enum frame_result frame_read_common(
	struct frame_cursor *cursor, __u64 entry, struct frame_common *common)
{
	enum frame_result result = frame_open_entry(cursor, entry, &common->program);
	__u8 letters[FRAME_MAX_LETTERS];
	__u32 letter_count = 0, i;
	__u64 version, announced;
	__u8 letter;

	if (result != FRAME_OK)
		return result;
	if (frame_take(cursor, 4))
		return FRAME_DAMAGED; /* an FDE */
	version = frame_take(cursor, 1);
	while ((letter = (__u8)frame_take(cursor, 1)) != 0) {
		if (letter_count == FRAME_MAX_LETTERS)
			return FRAME_UNKNOWN_FORM;
		letters[letter_count++] = letter;
	}
	common->is_augmented = letter_count && letters[0] == 'z';
	if (letter_count && !common->is_augmented)
		return FRAME_DAMAGED;
	common->code_alignment = frame_take_uleb(cursor);
	common->data_alignment = frame_take_sleb(cursor);
	common->return_address_register = version == 1 ? frame_take(cursor, 1) : frame_take_uleb(cursor);
	announced = frame_pass_augmentation(cursor, common, &common->program);
	if (cursor->result != FRAME_OK)
		return cursor->result;
	if (version != 1 && version != 3)
		return FRAME_DAMAGED;
	cursor->at = announced;
	common->pointers = FRAME_POINTER_ABSOLUTE;
	common->exception_tables = FRAME_POINTER_OMITTED;
	common->is_signal_frame = 0;
	for (i = 1; i < letter_count; ++i) {
		switch (letters[i]) {
		case 'R':
			common->pointers = (__u8)frame_take(cursor, 1);
			break;
		case 'L':
			common->exception_tables = (__u8)frame_take(cursor, 1);
			break;
		case 'S':
			common->is_signal_frame = 1;
			break;
		case 'P':
			/* Relative to what makes no difference to its length. */
			letter = (__u8)frame_take(cursor, 1);
			(void)frame_take_encoded(cursor, letter & FRAME_POINTER_FORM);
			break;
		}
	}
	return cursor->result;
}

/* FDE: distance back to its CIE, begin and length of the code, with 'z' the length of what belongs to the
 * augmentation and that: the address of its exception table; instructions. */
static inline enum frame_result frame_read_description(
	struct frame_cursor *cursor, __u64 entry, struct frame_description *frame)
{
	enum frame_result result = frame_open_entry(cursor, entry, &frame->program);
	__u64 distance, size_bytes, announced;

	if (result != FRAME_OK)
		return result;
	distance = frame_take(cursor, 4);
	if (cursor->result != FRAME_OK)
		return cursor->result;
	if (!distance)
		return FRAME_DAMAGED; /* a CIE */
	entry += 4;
	result = frame_read_common(cursor, entry - distance, &frame->common);
	if (result != FRAME_OK)
		return result;
	cursor->at = entry + 4;
	cursor->end = frame->program.end;
	frame->begin = frame_take_encoded(cursor, frame->common.pointers);
	size_bytes = frame_take_encoded(cursor, frame->common.pointers & FRAME_POINTER_FORM);
	if (__builtin_add_overflow(frame->begin, size_bytes, &frame->end))
		return FRAME_DAMAGED;
	announced = frame_pass_augmentation(cursor, &frame->common, &frame->program);
	frame->exception_table = 0;
	if (cursor->result == FRAME_OK && frame->common.is_augmented &&
	    frame->common.exception_tables != FRAME_POINTER_OMITTED) {
		cursor->at = announced;
		frame->exception_table = frame_take_encoded(cursor, frame->common.exception_tables);
	}
	return cursor->result;
}
