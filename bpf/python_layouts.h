/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Where each version of CPython has what a walk reads: the same for the daemon, which looks from outside, and for the
 * injected library. Plain C that also compiles as C++.
 */
#pragma once

#include <stddef.h>

#include "bpf/stack_records.h"

/* As of the CPython C API: 3.11 is 0x030b. */
#define PYTHON_OLDEST 0x0308
#define PYTHON_NEWEST 0x030f
/* From here on _PyRuntime begins with a table that describes the build. */
#define PYTHON_FIRST_SELF_DESCRIBING 0x030d

/* The beginning of that table, struct _Py_DebugOffsets, as 64-bit words. Derived: the last one used is the 93rd, in
 * 3.15. */
#define PYTHON_TABLE_WORDS 96
/* "xdebugpy" as it stands in memory: the first word. */
#define PYTHON_TABLE_COOKIE 0x7970677562656478ull
#define PYTHON_VERSION_WORD 1        /* PY_VERSION_HEX */
#define PYTHON_FREE_THREADED_WORD 2  /* 0 or 1 */

/* The largest structure, the _PyRuntime of 3.15, has 347 KB. */
#define PYTHON_MAX_STRUCTURE_BYTES (16u << 20)

/* A function that came with a version. */
struct python_version_mark {
	const char *name;
	__u16 version;
};

/* Newest first; 3.11 brought Py_Version, which says it itself. */
static const struct python_version_mark python_version_marks[] = {
	{"PyModule_AddObjectRef", 0x030a},
	{"PyObject_CallNoArgs", 0x0309},
	{"PyCode_NewWithPosOnlyArgs", 0x0308},
};

/* That of a CPython up to 3.12; not 0 = not one of 3.8 to 3.12. The offsets are what offsetof says of the headers of
 * 3.8.18, 3.9.2, 3.9.18, 3.10.13, 3.11.2, 3.11.7 and 3.12.1, x86-64, with and without Py_DEBUG. Releases of one minor
 * version do not differ in them. */
static inline int python_find_layout(__u16 version, struct gpuperf_python_layout *layout)
{
	static const struct gpuperf_python_layout python_38 = {
		.version = 0x0308,
		.form = GPUPERF_PYTHON_FRAME_OBJECTS,
		.instruction_unit_bytes = 1,
		.runtime_interpreters_head = 32,
		.interpreter_next = 0,
		.interpreter_threads_head = 8,
		.thread_next = 8,
		.thread_id = 176,
		.thread_frame = 24,
		.frame_previous = 24,
		.frame_code = 32,
		.frame_instruction = 104,
		.code_first_line = 40,
		.code_filename = 104,
		.code_name = 112,
		.code_lines = 120,
		.text_length = 16,
		.text_state = 32,
		.text_ascii = 48,
		.text_compact = 72,
		.bytes_length = 16,
		.bytes_data = 32,
	};
	static const struct gpuperf_python_layout python_311 = {
		.version = 0x030b,
		.form = GPUPERF_PYTHON_CFRAMES,
		.instruction_is_pointer = 1,
		.runtime_interpreters_head = 40,
		.interpreter_next = 0,
		.interpreter_threads_head = 16,
		.thread_next = 8,
		.thread_id = 152,
		.thread_frame = 56,
		.cframe_current_frame = 8,
		.cframe_previous = 16,
		.frame_previous = 48,
		.frame_code = 32,
		.frame_instruction = 56,
		.frame_owner = 68,
		.code_instructions = 184,
		.code_first_line = 72,
		.code_filename = 112,
		.code_name = 120,
		.code_qualified_name = 128,
		.code_lines = 136,
		.text_length = 16,
		.text_state = 32,
		.text_ascii = 48,
		.text_compact = 72,
		.bytes_length = 16,
		.bytes_data = 32,
	};

	if (version < PYTHON_OLDEST || version >= PYTHON_FIRST_SELF_DESCRIBING)
		return -1;
	*layout = version < 0x030b ? python_38 : python_311;
	layout->version = version;
	/* What a version changed of the one before it. */
	if (version == 0x030a) {
		layout->instruction_unit_bytes = 2;
		layout->frame_instruction = 96;
	}
	if (version == 0x030c) {
		layout->first_c_owner = 3;
		layout->interpreter_threads_head = 72;
		layout->thread_id = 136;
		layout->cframe_current_frame = 0;
		layout->cframe_previous = 8;
		layout->frame_previous = 8;
		layout->frame_code = 0;
		layout->frame_owner = 70;
		layout->code_instructions = 192;
		layout->code_first_line = 68;
		layout->text_ascii = 40;
		layout->text_compact = 56;
	}
	return 0;
}

enum python_table_result {
	PYTHON_TABLE_OK = 0,
	PYTHON_TABLE_NONE = 1,          /* the runtime does not begin with one */
	PYTHON_TABLE_IMPLAUSIBLE = 2,
	PYTHON_TABLE_NEWER = 3,         /* a version whose frames are not known */
	PYTHON_TABLE_FREE_THREADED = 4, /* a build whose frames are not known */
	PYTHON_TABLE_OFFSET = 5,        /* one beyond its structure */
	PYTHON_TABLE_TEXT = 6           /* an implausible size of a string */
};

/* One offset of the table: which word, and which one is the size of its structure, in 3.13, 3.14, 3.15. */
struct python_table_row {
	__u16 field;              /* offset in struct gpuperf_python_layout */
	__u8 size_bytes;          /* of what stands at the offset */
	__u8 words[3];
	__u8 structure_words[3];
};

#define PYTHON_ROW(field, size, ...) {offsetof(struct gpuperf_python_layout, field), size, __VA_ARGS__}

/* Made with offsetof from the headers of 3.13.5, 3.14.8 and 3.15.0. */
static const struct python_table_row python_table_rows[] = {
	PYTHON_ROW(runtime_interpreters_head, 8, {5, 5, 5}, {3, 3, 3}),
	PYTHON_ROW(interpreter_next, 8, {8, 8, 8}, {6, 6, 6}),
	PYTHON_ROW(interpreter_threads_head, 8, {9, 9, 9}, {6, 6, 6}),
	PYTHON_ROW(thread_next, 8, {21, 24, 24}, {19, 22, 22}),
	PYTHON_ROW(thread_frame, 8, {23, 26, 26}, {19, 22, 22}),
	PYTHON_ROW(thread_id, 8, {24, 27, 30}, {19, 22, 22}),
	PYTHON_ROW(frame_previous, 8, {29, 32, 40}, {28, 31, 39}),
	PYTHON_ROW(frame_code, 8, {30, 33, 41}, {28, 31, 39}),
	PYTHON_ROW(frame_instruction, 8, {31, 34, 42}, {28, 31, 39}),
	PYTHON_ROW(frame_owner, 1, {33, 36, 44}, {28, 31, 39}),
	PYTHON_ROW(code_filename, 8, {35, 40, 48}, {34, 39, 47}),
	PYTHON_ROW(code_name, 8, {36, 41, 49}, {34, 39, 47}),
	PYTHON_ROW(code_qualified_name, 8, {37, 42, 50}, {34, 39, 47}),
	PYTHON_ROW(code_lines, 8, {38, 43, 51}, {34, 39, 47}),
	PYTHON_ROW(code_first_line, 4, {39, 44, 52}, {34, 39, 47}),
	PYTHON_ROW(code_instructions, 1, {43, 48, 56}, {34, 39, 47}),
	PYTHON_ROW(bytes_length, 8, {65, 75, 87}, {64, 74, 86}),
	PYTHON_ROW(bytes_data, 1, {66, 76, 88}, {64, 74, 86}),
	PYTHON_ROW(text_state, 4, {68, 78, 90}, {67, 77, 89}),
	PYTHON_ROW(text_length, 8, {69, 79, 91}, {67, 77, 89}),
	PYTHON_ROW(text_ascii, 8, {70, 80, 92}, {67, 77, 89}),
};

/* PyUnicodeObject ends with one pointer, to the characters of a string that is not compact; the others have theirs in
 * its place. */
static const __u8 python_text_size_words[] = {67, 77, 89};
#define PYTHON_TEXT_POINTER_BYTES 8

static inline enum python_table_result python_check_table(const __u64 *table)
{
	const __u64 version_hex = table[PYTHON_VERSION_WORD];
	const __u64 version = version_hex >> 16;
	const __u64 free_threaded = table[PYTHON_FREE_THREADED_WORD];

	if (table[0] != PYTHON_TABLE_COOKIE)
		return PYTHON_TABLE_NONE;
	if (version_hex > 0xffffffff || version < PYTHON_FIRST_SELF_DESCRIBING || free_threaded > 1)
		return PYTHON_TABLE_IMPLAUSIBLE;
	if (version > PYTHON_NEWEST)
		return PYTHON_TABLE_NEWER;
	/* From 3.14 on each thread runs a copy of the instructions of its own: a frame's place in them says nothing
	 * without knowing which. */
	if (free_threaded && version > PYTHON_FIRST_SELF_DESCRIBING)
		return PYTHON_TABLE_FREE_THREADED;
	return PYTHON_TABLE_OK;
}

/* The layout that a table of PYTHON_TABLE_WORDS describes, every offset checked to lie within its structure.
 * PYTHON_TABLE_OFFSET: `word` is the implausible one. */
static inline enum python_table_result python_decode_table(
	const __u64 *table, struct gpuperf_python_layout *layout, __u32 *word)
{
	static const struct gpuperf_python_layout begun = {
		.form = GPUPERF_PYTHON_CURRENT_FRAME, .first_c_owner = 3, .instruction_is_pointer = 1};
	const enum python_table_result result = python_check_table(table);
	const __u16 version = (__u16)(table[PYTHON_VERSION_WORD] >> 16);
	const struct python_table_row *row;
	__u64 offset, structure_bytes;
	__u32 column, i;
	__u16 value;

	if (result != PYTHON_TABLE_OK)
		return result;
	column = (__u32)version - PYTHON_FIRST_SELF_DESCRIBING;
	*layout = begun;
	layout->version = version;
	/* The code in a frame is a _PyStackRef since 3.14, with flags in two bits. */
	layout->code_tag_mask = version > PYTHON_FIRST_SELF_DESCRIBING ? 3 : 0;
	layout->is_free_threaded = (__u8)table[PYTHON_FREE_THREADED_WORD];
	for (i = 0; i < sizeof(python_table_rows) / sizeof(python_table_rows[0]); ++i) {
		row = &python_table_rows[i];
		*word = row->words[column];
		offset = table[*word];
		structure_bytes = table[row->structure_words[column]];
		value = (__u16)offset;
		if (structure_bytes > PYTHON_MAX_STRUCTURE_BYTES || structure_bytes < row->size_bytes ||
		    offset > structure_bytes - row->size_bytes || value != offset)
			return PYTHON_TABLE_OFFSET;
		__builtin_memcpy((char *)layout + row->field, &value, sizeof(value));
	}
	layout->text_compact = (__u16)(table[python_text_size_words[column]] - PYTHON_TEXT_POINTER_BYTES);
	if (layout->text_compact <= layout->text_ascii || layout->text_compact > layout->text_ascii + 64)
		return PYTHON_TABLE_TEXT;
	return PYTHON_TABLE_OK;
}
