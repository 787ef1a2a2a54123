/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Reads the memory that a walk goes through. Reading a page takes little longer than reading a word (64 ns and 25) and
 * covers about 30 frames, so pages are copied and words are read from the copy. A copy is valid for one walk: meanwhile
 * the thread stands still.
 */
#pragma once

#include "bpf/emit.bpf.h"

/* For measurements: 1 = nothing is kept between walks, and each word is read separately. */
extern const volatile __u32 walks_anew;

static __always_inline void forget_memory(struct gpuperf_walk *walk)
{
	walk->page_address = GPUPERF_WALK_NOTHING;
	walk->piece_address = GPUPERF_WALK_NOTHING;
	walk->is_python_near = 0;
	walk->number++;
}

/* Copies the page that holds an address; 0 = it was read. */
__attribute__((noinline)) int load_page(struct gpuperf_walk *walk, __u64 address)
{
	if (!walk)
		return 1;
	address &= ~(GPUPERF_WALK_PAGE_BYTES - 1ull);
	walk->page_address = address;
	if (!bpf_probe_read_user(walk->page, GPUPERF_WALK_PAGE_BYTES, (const void *)address))
		return 0;
	walk->page_address = GPUPERF_WALK_NOTHING;
	return 1;
}

/* Copies 1, 4, 8 or 16 bytes that need not be aligned. */
static __always_inline void copy_word(void *to, const void *from, __u32 size_bytes)
{
	if (size_bytes == 1) {
		*(__u8 *)to = *(const __u8 *)from;
	} else if (size_bytes == 4) {
		*(__u32 *)to = *(const __u32 *)from;
	} else {
		((__u64 *)to)[0] = ((const __u64 *)from)[0];
		if (size_bytes == 16)
			((__u64 *)to)[1] = ((const __u64 *)from)[1];
	}
}

/* Reads 8 or 16 bytes of the stack, through the page. */
static __always_inline int unwind_read(void *memory, __u64 address, void *to, __u32 size_bytes)
{
	struct gpuperf_walk *walk = memory;
	__u64 offset = address & (GPUPERF_WALK_PAGE_BYTES - 1);

	if (walks_anew || offset > GPUPERF_WALK_PAGE_BYTES - size_bytes)
		return bpf_probe_read_user(to, size_bytes, (const void *)address) != 0;
	if (address - offset != walk->page_address && load_page(walk, address))
		return 1;
	barrier_var(offset);
	if (offset > GPUPERF_WALK_PAGE_BYTES - size_bytes)
		return 1; /* cannot happen */
	copy_word(to, walk->page + offset, size_bytes);
	return 0;
}

/* Whether an address is among adjacent Python frames; few of the interpreter's own frames are on the stack. */
static __always_inline _Bool is_among_frames(struct gpuperf_walk *walk, __u64 address)
{
	__u32 start = walk->start;

	barrier_var(start);
	return walk->is_python_near && (address < walk->frames[start & (GPUPERF_STACK_FRAMES - 1)].sp ||
					address > walk->frames[GPUPERF_STACK_FRAMES - 1].sp);
}

/* Copies what is around an address, within its page: all of it, or as much as a Python frame takes, which then
 * spares the page. 0 = it was read. */
__attribute__((noinline)) int load_around(struct gpuperf_walk *walk, __u64 address)
{
	__u64 page = address & ~(GPUPERF_WALK_PAGE_BYTES - 1ull);
	__u64 begin = address - GPUPERF_WALK_PIECE_BYTES / 3;

	if (!walk)
		return 1;
	if (is_among_frames(walk, address))
		return load_page(walk, address);
	if (begin < page)
		begin = page;
	if (begin > page + GPUPERF_WALK_PAGE_BYTES - GPUPERF_WALK_PIECE_BYTES)
		begin = page + GPUPERF_WALK_PAGE_BYTES - GPUPERF_WALK_PIECE_BYTES;
	walk->piece_address = begin;
	if (!bpf_probe_read_user(walk->piece, GPUPERF_WALK_PIECE_BYTES, (const void *)begin))
		return 0;
	walk->piece_address = GPUPERF_WALK_NOTHING;
	return 1;
}

/* Reads 1, 4 or 8 bytes of Python frames. */
static __always_inline int python_read(void *memory, __u64 address, void *to, __u32 size_bytes)
{
	struct gpuperf_walk *walk = memory;
	__u64 offset = address & (GPUPERF_WALK_PAGE_BYTES - 1);

	if (walks_anew || offset > GPUPERF_WALK_PAGE_BYTES - size_bytes)
		return bpf_probe_read_user(to, size_bytes, (const void *)address) != 0;
	if (address - offset != walk->page_address &&
	    (address < walk->piece_address || address + size_bytes > walk->piece_address + GPUPERF_WALK_PIECE_BYTES) &&
	    load_around(walk, address))
		return 1;
	if (address - offset == walk->page_address) {
		barrier_var(offset);
		if (offset > GPUPERF_WALK_PAGE_BYTES - size_bytes)
			return 1; /* cannot happen */
		copy_word(to, walk->page + offset, size_bytes);
		return 0;
	}
	offset = address - walk->piece_address;
	barrier_var(offset);
	if (offset > GPUPERF_WALK_PIECE_BYTES - size_bytes)
		return 1; /* cannot happen */
	copy_word(to, walk->piece + offset, size_bytes);
	return 0;
}

/* Reads the first line of a code object. Most stacks go through some of them repeatedly; one walk reads each once. */
static __always_inline int python_read_first_line(void *memory, __u64 address, __u32 *first_line)
{
	struct gpuperf_walk *walk = memory;
	__u32 index = (address >> 4 ^ address >> 9) & (GPUPERF_WALK_LINES - 1);
	struct gpuperf_walk_line *line;

	barrier_var(index);
	line = &walk->lines[index & (GPUPERF_WALK_LINES - 1)];
	if (walks_anew || line->address != address || line->walk_number != walk->number) {
		if (bpf_probe_read_user(&line->first_line, sizeof(line->first_line), (const void *)address))
			return 1;
		line->address = address;
		line->walk_number = walk->number;
	}
	*first_line = line->first_line;
	return 0;
}
