/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Binary contract between the BPF programs and the daemon. Plain C that also compiles as C++.
 *
 * Every struct: fixed-width fields, explicit padding, 8-byte aligned, zeroed before it is filled.
 * Append only; the daemon skips ring records of an unknown kind by their length and counts them.
 * tests/abi compares the BTF of the built BPF objects with the C++ layout.
 */
#pragma once

#ifdef __BPF__
/* __u32 and friends come from linux/types.h, included by the program. */
#else
#include <linux/types.h>
#endif

#define GPUPERF_ARGUMENTS 6       /* integer argument registers of the System V ABI */
#define GPUPERF_STACK_FRAMES 64   /* user frames kept per slow call: 512 bytes of a record */
#define GPUPERF_ERROR_SLOTS 6     /* distinct error codes told apart per function and process */
#define GPUPERF_CALL_DEPTH 16     /* probed calls nested on one thread that are followed */
#define GPUPERF_COMM_BYTES 16     /* TASK_COMM_LEN */

/*
 * Log-linear histogram: 16 linear buckets of 16 ns below 256 ns, then 16 per power of two up to
 * 2^42 ns (73 minutes); the last bucket also takes everything longer. A bucket is at most 1/16 of
 * its lower edge wide, so its middle is within 3.1 % of any value in it.
 */
#define GPUPERF_BUCKET_SHIFT 4    /* log2 of the linear bucket width, ns */
#define GPUPERF_SUB_BUCKET_BITS 4 /* log2 of the buckets per power of two */
#define GPUPERF_FIRST_OCTAVE 8    /* log2 of the value, ns, where the log part begins */
#define GPUPERF_LAST_OCTAVE 41
#define GPUPERF_BUCKETS 560       /* 16 + (41 - 8 + 1) * 16 */

/* struct gpuperf_function.flags */
#define GPUPERF_FN_STATUS 1u      /* the return value is a status: non-zero is an error */
#define GPUPERF_FN_STACK 2u       /* slow calls carry a user stack */

/* What one configured function is. Producer: daemon. Consumer: BPF. Index: function id. Since 1. */
struct gpuperf_function {
	__u64 slow_threshold_ns;  /* a call at least this long is slow; 0 = never */
	__u32 flags;              /* GPUPERF_FN_* */
	__s32 benign_status[2];   /* statuses that are no error, 0 = unused ("not ready") */
	__u32 pad;
};

/* One error code and how often it was returned. status_plus = (u32)code | 1 << 32; 0 = free slot. */
struct gpuperf_error_count {
	__u64 status_tag;
	__u64 count;
};

/* Totals of one function in one process, only ever growing. Producer: BPF. Consumer: daemon. Since 1.
 * Completed calls are the sum of `buckets`. */
struct gpuperf_cell {
	__u64 calls;              /* entries */
	__u64 abandoned;          /* calls that will never return: longjmp, thread or process exit */
	__u64 total_ns;           /* inclusive time of completed calls */
	__u64 self_ns;            /* total_ns without the probed calls nested inside */
	__u64 inverted_min_ns;    /* ~0 - shortest, so that zero means "none yet" and max() keeps it */
	__u64 max_ns;
	__u64 slow_calls;
	__u64 untimed;            /* entered but not paired with its return: counted, no duration */
	struct gpuperf_error_count errors[GPUPERF_ERROR_SLOTS];
	__u64 other_errors;       /* codes beyond the slots */
	__u64 pad;
	__u32 buckets[GPUPERF_BUCKETS]; /* wraps at 2^32: the daemon reads often and adds differences */
};

/* Key of the cell index. Producer: BPF. Consumer: daemon. Since 1. */
struct gpuperf_cell_key {
	__u64 process_start_boot_ns; /* task_struct.start_boottime of the thread-group leader */
	__u32 pid;                   /* thread-group id in the initial pid namespace */
	__u32 function_id;
};

/* Value of the cell index. Producer: BPF. Consumer: daemon. Since 1. */
struct gpuperf_cell_owner {
	__u32 cell;                  /* index in the cell array */
	__u32 pad;
	char comm[GPUPERF_COMM_BYTES]; /* of the thread-group leader at the first call */
};

/* Ring records begin with this. Since 1. */
struct gpuperf_record {
	__u32 kind;               /* GPUPERF_RECORD_* */
	__u32 length_bytes;       /* of the whole record, this header included */
};
#define GPUPERF_RECORD_SLOW_CALL 1u
#define GPUPERF_RECORD_PROCESS_EXIT 2u

/* One call that passed its threshold. Producer: BPF at return. Consumer: ring_source. Since 1. */
struct gpuperf_slow_call {
	struct gpuperf_record header;
	__u64 start_mono_ns;      /* bpf_ktime_get_ns() at entry */
	__u64 duration_ns;
	__u64 threshold_ns;
	__u64 process_start_boot_ns;
	__u32 pid;                /* initial pid namespace */
	__u32 tid;
	__u32 function_id;
	__u32 has_arguments;      /* 0 when the entry could not be kept (nested too deep) */
	__u64 arguments[GPUPERF_ARGUMENTS]; /* rdi rsi rdx rcx r8 r9 at entry */
	__u64 return_value;       /* rax */
	char comm[GPUPERF_COMM_BYTES];      /* of the calling thread */
	__s32 stack_bytes;        /* bytes of user_stack in use; negative: errno of the walk */
	__u32 pad;
	__u64 user_stack[GPUPERF_STACK_FRAMES]; /* return addresses, innermost first; the call's caller first */
};

/* The last thread of a process that has cells is exiting. Producer: BPF. Since 1. */
struct gpuperf_process_exit {
	struct gpuperf_record header;
	__u64 process_start_boot_ns;
	__u32 pid;
	__u32 pad;
};

/* Where and why the BPF side lost something. Index of the `losses` array. Since 1. */
enum gpuperf_loss {
	GPUPERF_LOSS_CELLS_FULL = 0,      /* no free cell: the call went to the function's overflow cell */
	GPUPERF_LOSS_INDEX_FULL = 1,      /* the cell index refused a key: likewise */
	GPUPERF_LOSS_THREAD_STATE = 2,    /* no task storage: timed without arguments and nesting, or untimed */
	GPUPERF_LOSS_CALL_DEPTH = 3,      /* nested deeper than GPUPERF_CALL_DEPTH: likewise */
	GPUPERF_LOSS_SLOW_RING_FULL = 4,  /* slow call counted, its record lost */
	GPUPERF_LOSS_PROCESS_RING_FULL = 5, /* exit record lost; found by the next sweep */
	GPUPERF_LOSS_UNPAIRED_RETURN = 6, /* a return without a known entry: ignored */
	GPUPERF_LOSS_COUNT = 7
};

#ifdef __cplusplus
#define GPUPERF_ASSERT(condition) static_assert(condition, #condition)
#else
#define GPUPERF_ASSERT(condition) _Static_assert(condition, #condition)
#endif

GPUPERF_ASSERT((GPUPERF_CALL_DEPTH & (GPUPERF_CALL_DEPTH - 1)) == 0); /* indices are masked */
GPUPERF_ASSERT(sizeof(struct gpuperf_function) == 24);
GPUPERF_ASSERT(sizeof(struct gpuperf_error_count) == 16);
GPUPERF_ASSERT(__builtin_offsetof(struct gpuperf_cell, errors) == 64);
GPUPERF_ASSERT(__builtin_offsetof(struct gpuperf_cell, other_errors) == 160);
GPUPERF_ASSERT(__builtin_offsetof(struct gpuperf_cell, buckets) == 176);
GPUPERF_ASSERT(sizeof(struct gpuperf_cell) == 176 + 4 * GPUPERF_BUCKETS);
GPUPERF_ASSERT(sizeof(struct gpuperf_cell) % 8 == 0);
GPUPERF_ASSERT(sizeof(struct gpuperf_cell_key) == 16);
GPUPERF_ASSERT(sizeof(struct gpuperf_cell_owner) == 24);
GPUPERF_ASSERT(sizeof(struct gpuperf_record) == 8);
GPUPERF_ASSERT(__builtin_offsetof(struct gpuperf_slow_call, arguments) == 56);
GPUPERF_ASSERT(__builtin_offsetof(struct gpuperf_slow_call, comm) == 112);
GPUPERF_ASSERT(__builtin_offsetof(struct gpuperf_slow_call, user_stack) == 136);
GPUPERF_ASSERT(sizeof(struct gpuperf_slow_call) == 136 + 8 * GPUPERF_STACK_FRAMES);
GPUPERF_ASSERT(sizeof(struct gpuperf_process_exit) == 24);
