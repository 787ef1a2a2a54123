/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Finds a thread's state in a CPython and walks its frames, one step at a time, the same for the kernel side and for
 * the daemon. Plain C that also compiles as C++. No loops in here: the caller bounds them. A step reads at most 7
 * times. Who includes it defines, before:
 *   static inline int python_read(void *memory, __u64 address, void *to, __u32 size_bytes); 0 = it was read
 *   static inline int python_read_first_line(void *memory, __u64 address, __u32 *first_line); of a code object
 */
#pragma once

#include "bpf/stack_records.h"

enum python_step {
	PYTHON_STEP_FOUND = 0,      /* the thread looked for, or a frame of a function */
	PYTHON_STEP_NEXT = 1,       /* not yet: go on */
	PYTHON_STEP_END = 2,        /* there are no more */
	PYTHON_STEP_UNREADABLE = 3
};

/* Where the search for a thread stands. */
struct python_search {
	__u64 interpreter;        /* PyInterpreterState */
	__u64 thread;             /* PyThreadState, 0 = behind the interpreter's last */
};

/* Where a walk stands. */
struct python_walk {
	__u64 frame;              /* the next one; 0 = there are no more */
	__u64 cframe;             /* 3.11: of the C evaluation that runs it */
};

static inline int python_read_word(void *memory, __u64 address, __u64 *word)
{
	return python_read(memory, address, word, sizeof(*word));
}

static inline int python_begin_search(
	void *memory, const struct gpuperf_python_layout *layout, __u64 runtime, struct python_search *search)
{
	search->thread = 0;
	if (python_read_word(memory, runtime + layout->runtime_interpreters_head, &search->interpreter))
		return -1;
	if (!search->interpreter)
		return 0; /* not started yet, or ended */
	return python_read_word(memory, search->interpreter + layout->interpreter_threads_head, &search->thread);
}

/* Looks at one thread, or goes to the next interpreter. Found: `search->thread` is the one. A thread that uses several
 * interpreters has a state in each: the first that runs anything is taken, and the newest interpreter comes first.
 * `thread_id`: pthread_self(), in musl and glibc the thread's fs base. */
static inline enum python_step python_step_search(
	void *memory, const struct gpuperf_python_layout *layout, __u64 thread_id, struct python_search *search)
{
	__u64 id = 0;
	__u64 frame = 0;

	if (!search->interpreter)
		return PYTHON_STEP_END;
	if (!search->thread) {
		if (python_read_word(memory, search->interpreter + layout->interpreter_next, &search->interpreter))
			return PYTHON_STEP_UNREADABLE;
		if (!search->interpreter)
			return PYTHON_STEP_END;
		if (python_read_word(memory, search->interpreter + layout->interpreter_threads_head, &search->thread))
			return PYTHON_STEP_UNREADABLE;
		return PYTHON_STEP_NEXT;
	}
	if (python_read_word(memory, search->thread + layout->thread_id, &id))
		return PYTHON_STEP_UNREADABLE;
	if (id == thread_id) {
		if (python_read_word(memory, search->thread + layout->thread_frame, &frame))
			return PYTHON_STEP_UNREADABLE;
		if (frame && layout->form == GPUPERF_PYTHON_CFRAMES &&
		    python_read_word(memory, frame + layout->cframe_current_frame, &frame))
			return PYTHON_STEP_UNREADABLE;
		if (frame)
			return PYTHON_STEP_FOUND;
	}
	if (python_read_word(memory, search->thread + layout->thread_next, &search->thread))
		return PYTHON_STEP_UNREADABLE;
	return PYTHON_STEP_NEXT;
}

/* `thread`: PyThreadState. */
static inline int python_begin_walk(
	void *memory, const struct gpuperf_python_layout *layout, __u64 thread, struct python_walk *walk)
{
	walk->cframe = 0;
	if (python_read_word(memory, thread + layout->thread_frame, &walk->frame))
		return -1;
	if (layout->form != GPUPERF_PYTHON_CFRAMES || !walk->frame)
		return 0;
	walk->cframe = walk->frame;
	return python_read_word(memory, walk->cframe + layout->cframe_current_frame, &walk->frame);
}

/* The code of the walk's frame and where in it the frame stands. */
static inline int python_read_position(
	void *memory, const struct gpuperf_python_layout *layout, __u64 at, struct gpuperf_python_frame *frame)
{
	__u64 instruction = 0;
	__s32 index = 0;

	if (python_read_word(memory, at + layout->frame_code, &frame->code))
		return -1;
	frame->code &= ~(__u64)layout->code_tag_mask;
	if (python_read_first_line(memory, frame->code + layout->code_first_line, &frame->first_line))
		return -1;
	if (!layout->instruction_is_pointer) {
		if (python_read(memory, at + layout->frame_instruction, &index, sizeof(index)))
			return -1;
		frame->instruction_bytes = (__u32)index * layout->instruction_unit_bytes;
		return 0;
	}
	if (python_read_word(memory, at + layout->frame_instruction, &instruction))
		return -1;
	frame->instruction_bytes = (__u32)(instruction - (frame->code + layout->code_instructions));
	return 0;
}

/* Whether C code entered the walk's frame, and where that evaluation's C frame is: `entry_sp` of struct
 * gpuperf_python_frame. `previous`: the frame that called it. */
static inline int python_read_entry(
	void *memory, const struct gpuperf_python_layout *layout, __u8 owner, __u64 previous,
	struct python_walk *walk, __u64 *entry_sp)
{
	__u8 caller = 0;

	*entry_sp = 0;
	if (layout->form == GPUPERF_PYTHON_FRAME_OBJECTS)
		return 0;
	if (!layout->first_c_owner) { /* 3.11: `owner` is is_entry */
		if (!owner)
			return 0;
		*entry_sp = walk->cframe;
		return python_read_word(memory, walk->cframe + layout->cframe_previous, &walk->cframe);
	}
	if (!previous)
		return 0;
	if (python_read(memory, previous + layout->frame_owner, &caller, sizeof(caller)))
		return -1;
	if (caller >= layout->first_c_owner)
		*entry_sp = previous;
	return 0;
}

/* One frame further out. Found: `frame` holds it; of code 0 it only says where an evaluation's C frame is. */
static inline enum python_step python_step_walk(
	void *memory, const struct gpuperf_python_layout *layout, struct python_walk *walk,
	struct gpuperf_python_frame *frame)
{
	const __u64 at = walk->frame;
	__u64 previous = 0;
	__u8 owner = 0;

	if (!at)
		return PYTHON_STEP_END;
	if (python_read_word(memory, at + layout->frame_previous, &previous))
		return PYTHON_STEP_UNREADABLE;
	if (layout->form != GPUPERF_PYTHON_FRAME_OBJECTS &&
	    python_read(memory, at + layout->frame_owner, &owner, sizeof(owner)))
		return PYTHON_STEP_UNREADABLE;
	walk->frame = previous;
	if (layout->first_c_owner && owner >= layout->first_c_owner)
		return PYTHON_STEP_NEXT;
	if (python_read_position(memory, layout, at, frame) ||
	    python_read_entry(memory, layout, owner, previous, walk, &frame->entry_sp))
		return PYTHON_STEP_UNREADABLE;
	/* The code that the interpreter itself puts around a specialised __init__ (since 3.13): Python hides it, too. */
	if (layout->first_c_owner && !frame->first_line)
		frame->code = 0;
	return frame->code || frame->entry_sp ? PYTHON_STEP_FOUND : PYTHON_STEP_NEXT;
}
