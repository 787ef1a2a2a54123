/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * The stack part of the binary contract (bpf/records.h includes this): how native and CPython frames are walked, and
 * what a walk sends.
 */
#pragma once

#ifndef __BPF__
#include <linux/types.h>
#endif

#define GPUPERF_STACK_FRAMES 256  /* native frames kept; deeper stacks are cut and marked */
#define GPUPERF_PYTHON_FRAMES 96  /* the same for Python */
#define GPUPERF_UNWIND_RULES 262144 /* at once, for all processes */
/* For a stack that the kernel side cannot walk to its end. Most are far smaller; the rest is cut off. */
#define GPUPERF_STACK_COPY_BYTES 65536 /* in one record */
#define GPUPERF_STACK_COPY_PARTS 4

/* How to get from the frame of a function stopped at some address to its caller's. CFA: the value of sp before the
 * call that made the frame; the return address is right below it. The System V ABI and DWARF 5, 6.4. */
enum gpuperf_unwind_kind {
	GPUPERF_UNWIND_UNKNOWN = 0,   /* cannot walk on: the rule has none of the forms below */
	GPUPERF_UNWIND_SP = 1,        /* CFA = sp + cfa_offset_bytes */
	GPUPERF_UNWIND_BP = 2,        /* CFA = bp + cfa_offset_bytes */
	GPUPERF_UNWIND_BP_MEMORY = 3, /* CFA = *(bp + cfa_offset_bytes): functions that align their stack */
	GPUPERF_UNWIND_PLT = 4,       /* CFA = sp + 8, and 8 more when (pc & 15) >= cfa_offset_bytes */
	GPUPERF_UNWIND_SIGNAL = 5,    /* sp points to a struct ucontext, which holds the registers */
	GPUPERF_UNWIND_END = 6,       /* the outermost frame: it has no caller */
	GPUPERF_UNWIND_GUESS = 7,     /* code without unwind information: CFA = bp + 16, if plausible */
	GPUPERF_UNWIND_KINDS = 8
};

/* What the location of the caller's saved bp is relative to. */
enum gpuperf_unwind_bp_at {
	GPUPERF_UNWIND_BP_AT_CFA = 0,
	GPUPERF_UNWIND_BP_AT_BP = 1   /* the bp of the frame itself: functions that align their stack */
};

/* Value of `unwind_rules`. Producer: daemon, from .eh_frame. Since 4. */
struct gpuperf_unwind_rule {
	__u8 kind;                /* GPUPERF_UNWIND_* */
	__u8 bp_at;               /* GPUPERF_UNWIND_BP_AT_* */
	__s16 bp_offset_bytes;    /* the caller's bp is saved at bp_at + this; at CFA + 0 = still in its register */
	__s32 cfa_offset_bytes;
};

/* Key of `unwind_rules`. Rules are learned one address at a time, when a walk first meets it. */
struct gpuperf_unwind_key {
	__u64 pc;
	__u32 space;              /* of struct gpuperf_address_space */
	__u32 is_exact;           /* pc is where the function was stopped; else it is a return address */
};

/* How CPython stores its frames. */
enum gpuperf_python_form {
	GPUPERF_PYTHON_NONE = 0,
	GPUPERF_PYTHON_FRAME_OBJECTS = 1, /* 3.8 to 3.10: thread.frame -> PyFrameObject, f_back */
	GPUPERF_PYTHON_CFRAMES = 2,       /* 3.11, 3.12: thread.cframe on the C stack -> current_frame */
	GPUPERF_PYTHON_CURRENT_FRAME = 3  /* 3.13 and later: thread.current_frame */
};

/* Where one build of CPython has the fields read to walk and name its frames. Offsets in bytes within the structures
 * named first. Producer: daemon. Since 4. */
struct gpuperf_python_layout {
	__u16 version;                    /* 0x030b = 3.11 */
	__u8 form;                        /* GPUPERF_PYTHON_* */
	__u8 code_tag_mask;               /* bits of a frame's code pointer that are not address (since 3.14) */
	__u8 first_c_owner;               /* CFRAMES of 3.12, CURRENT_FRAME: an `owner` from this value on marks the
					   * C frame of an evaluation, not a function; 0 = none does (3.11) */
	__u8 instruction_is_pointer;      /* else an index (f_lasti) */
	__u8 instruction_unit_bytes;      /* of that index: 1 up to 3.9, 2 in 3.10 */
	__u8 is_free_threaded;
	__u16 runtime_interpreters_head;  /* _PyRuntime: PyInterpreterState* */
	__u16 interpreter_next;           /* PyInterpreterState */
	__u16 interpreter_threads_head;   /* PyThreadState* */
	__u16 thread_next;                /* PyThreadState */
	__u16 thread_id;                  /* unsigned long, pthread_self() */
	__u16 thread_frame;               /* frame, cframe or current_frame */
	__u16 cframe_current_frame;       /* _PyCFrame */
	__u16 cframe_previous;
	__u16 frame_previous;             /* PyFrameObject f_back or _PyInterpreterFrame previous */
	__u16 frame_code;                 /* f_code, f_executable */
	__u16 frame_instruction;          /* f_lasti, prev_instr, instr_ptr */
	__u16 frame_owner;                /* 3.11: is_entry */
	__u16 code_instructions;          /* PyCodeObject: co_code_adaptive; unused with f_lasti */
	__u16 code_first_line;            /* co_firstlineno */
	__u16 code_filename;
	__u16 code_name;
	__u16 code_qualified_name;        /* 0 = has none (before 3.11) */
	__u16 code_lines;                 /* co_lnotab, co_linetable */
	__u16 text_length;                /* PyASCIIObject */
	__u16 text_state;
	__u16 text_ascii;                 /* characters of a compact ASCII string: after PyASCIIObject */
	__u16 text_compact;               /* of any other compact string: after PyCompactUnicodeObject */
	__u16 bytes_length;               /* PyVarObject ob_size */
	__u16 bytes_data;                 /* PyBytesObject ob_sval */
};

/* What a walk needs to know about one process. Key: its pid. Producer: daemon. Since 4. */
struct gpuperf_address_space {
	__u64 start_stack;        /* mm_struct.start_stack: differs after exec, or in another process; then not valid */
	__u64 code_pages;         /* mm_struct.exec_vm: the same when code was mapped or unmapped */
	__u64 python_runtime;     /* address of _PyRuntime; 0 = no Python */
	__u32 space;              /* a number never reused, new whenever code was unmapped */
	__u32 code_changes;       /* the process's count when its mappings were read: if it differs, they may be
				   * stale */
	struct gpuperf_python_layout python;
};

/* How a walk ended. */
enum gpuperf_stack_end {
	GPUPERF_STACK_COMPLETE = 0,   /* at the thread's first frame */
	GPUPERF_STACK_CUT = 1,        /* more frames than are kept */
	GPUPERF_STACK_UNKNOWN = 2,    /* at an address without a known rule (yet) */
	GPUPERF_STACK_UNREADABLE = 3, /* at memory that could not be read */
	GPUPERF_STACK_BROKEN = 4      /* at a frame of kind UNKNOWN, or whose caller's would be where none can be */
};

struct gpuperf_native_frame {
	__u64 pc;                 /* return address; of exact_frames, where it was stopped */
	__u64 sp;                 /* after the call made from it has popped its return address */
};

/* A return address that a return probe has replaced on the stack. */
struct gpuperf_replaced_return {
	__u64 sp;                 /* where it was */
	__u64 address;
};
#define GPUPERF_REPLACED_RETURNS 32

/* One Python frame, innermost first. */
struct gpuperf_python_frame {
	__u64 code;               /* PyCodeObject */
	__u64 entry_sp;           /* not 0: the outermost of one C evaluation, whose C frame contains this address */
	__u32 instruction_bytes;  /* from the first instruction on; before it, a signed number below 0 */
	__u32 first_line;         /* of the code: if it differs, the memory was reused */
};

/* One stack that was not sent before, cut off after its python_count Python frames. Producer: BPF. Consumer: drain.
 * Since 4. */
struct gpuperf_stack {
	__u32 kind;               /* GPUPERF_RECORD_STACK; as gpuperf_record */
	__u32 length_bytes;
	__u64 stack_id;           /* other records refer to it by this; never 0 */
	__u64 process_start_boot_ns;
	__u32 pid;
	__u32 tid;
	__u32 space;              /* of the rules it was walked with; 0 = none were known */
	__u16 frame_count;
	__u8 end;                 /* GPUPERF_STACK_* */
	__u8 python_is_cut;       /* more Python frames than are kept, or one that could not be read */
	__u32 python_count;
	__u32 code_changes;       /* of the process, at that moment */
	__u64 bp;                 /* of the last frame */
	__u64 exact_frames[GPUPERF_STACK_FRAMES / 64]; /* bit per frame that a signal interrupted */
	struct gpuperf_native_frame frames[GPUPERF_STACK_FRAMES]; /* the caller of the probed function first */
	struct gpuperf_python_frame python[GPUPERF_PYTHON_FRAMES];
};

/* A stack that the kernel side could not walk to its end: its last frame has no rule. Includes the memory in which
 * the walk continues; further records of the same stack_id hold more of it. Producer: BPF. Consumer: drain. Since 4. */
struct gpuperf_stack_copy {
	struct gpuperf_stack stack; /* kind GPUPERF_RECORD_STACK_COPY */
	__u64 address;            /* of the copied memory */
	__u32 part;               /* 0, 1 and so on */
	__u32 return_count;
	__u32 copy_bytes;         /* to the end of the memory, or as much as a record holds */
	__u32 present_pages;      /* bit per page or part of one; the others, never touched, could not be read */
	struct gpuperf_replaced_return returns[GPUPERF_REPLACED_RETURNS]; /* innermost first */
	__u8 copy[GPUPERF_STACK_COPY_BYTES];
};
