/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Binary contract between the BPF programs and the daemon. Plain C that also compiles as C++.
 *
 * Every struct: fixed-width fields, explicit padding, 8-byte aligned, zeroed before it is filled.
 * Append only; the daemon skips ring records of an unknown kind by their length and counts them.
 * tests/abi/layouts.inc records the layout that BPF C and C++ must see.
 */
#pragma once

#ifdef __BPF__
/* __u32 and friends come from linux/types.h, included by the program. */
#else
#include <linux/types.h>
#endif

#define GPUPERF_ARGUMENTS 6       /* integer argument registers of the System V ABI */
#define GPUPERF_VALUES 10         /* values kept per call: a GEMM's shape, types and transposes */
#define GPUPERF_CHAIN 4           /* offsets of a pointer chain */
#define GPUPERF_BLOBS 4           /* strings and arrays kept per slow call */
#define GPUPERF_BLOB_BYTES 64
#define GPUPERF_HANDLE_NAME_BYTES 256 /* longer kernel names are cut */
#define GPUPERF_CGROUP_LEVELS 3   /* container, pod and the level above */
#define GPUPERF_CGROUP_NAME_BYTES 128
#define GPUPERF_ERROR_SLOTS 6     /* distinct error codes kept per function and process */
#define GPUPERF_CALL_DEPTH 16     /* nested probed calls followed per thread */
#define GPUPERF_COMM_BYTES 16     /* TASK_COMM_LEN */
#define GPUPERF_WORST 16          /* longest calls of a cell whose records a burst cannot crowd out */
#define GPUPERF_CHILDREN 4        /* functions kept apart among the probed calls inside a call */
#define GPUPERF_WAITS 3           /* longest waits kept per thread and reported per slow call */
#define GPUPERF_WAIT_FRAMES 16    /* kernel frames of the waiting thread */
#define GPUPERF_FILE_NAME_BYTES 32
#define GPUPERF_TENSOR_LAYOUTS 16 /* builds of ggml with tensors of different layout, or other operations */
#define GPUPERF_TENSOR_NAME_BYTES 32 /* longer names are cut */
#define GPUPERF_ROUTED_TOKENS 64  /* of one operator whose experts are read */
#define GPUPERF_ROUTED_EXPERTS 16 /* of one token */
#define GPUPERF_REQUEST_SESSIONS 256 /* sessions of processes whose requests are seen */

#include "bpf/stack_records.h"

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

/* Calls of a process that reach alarm_mask within this time are reported, at most one process at each interval. */
#define GPUPERF_ALARM_SPAN_NS 1000000000ull
#define GPUPERF_ALARM_INTERVAL_NS 100000000ull

/* struct gpuperf_function.flags */
#define GPUPERF_FN_STATUS 1u      /* the return value is a status: non-zero is an error */
#define GPUPERF_FN_STACK 2u       /* slow calls carry a user stack */
#define GPUPERF_FN_PLAN 4u        /* values come from the function's plan; else from the argument registers */
#define GPUPERF_FN_SPLIT 8u       /* threads are followed: slow calls have a time split */
#define GPUPERF_FN_LAUNCH 16u     /* a driver entry that gives a GPU work: calls are traced as launches */
#define GPUPERF_FN_GRAPH_SHIFT 5  /* three bits: an enum gpuperf_graph_call, 0 = unrelated to graphs */
#define GPUPERF_FN_GRAPH_MASK 7u
#define GPUPERF_FN_REPORT 256u    /* every call is reported at its end: struct gpuperf_reported_call. Since 10. */
#define GPUPERF_FN_OPERATOR 512u  /* f(params, tensor) of ggml: its entry says which operator begins. Since 11. */
/* Turns of a loop that reads its results back: struct gpuperf_turn. Since 12. */
#define GPUPERF_FN_TURN_WORK 1024u   /* gives the GPU work: the first such call begins a turn */
#define GPUPERF_FN_RESULT_COPY 2048u /* with GPUPERF_FN_REPORT: copies to the host after work end a turn, only these are reported */
#define GPUPERF_FN_RESULT_WAIT 4096u /* with GPUPERF_FN_REPORT: only waits after such a copy are reported, without a stack */
#define GPUPERF_FN_MATRIX_PRODUCT 8192u /* its plan keeps m, n and k first */

/* What a driver function does to a CUDA graph. Since 5. */
enum gpuperf_graph_call {
	GPUPERF_GRAPH_NONE = 0,
	GPUPERF_GRAPH_LAUNCHED = 1,        /* (exec, ...) */
	GPUPERF_GRAPH_CAPTURE_BEGAN = 2,   /* (stream, ...) */
	GPUPERF_GRAPH_CAPTURE_ENDED = 3,   /* (stream, *graph) */
	GPUPERF_GRAPH_INSTANTIATED = 4,    /* (*exec, graph, ...) */
	GPUPERF_GRAPH_UPDATED = 5,         /* (exec, graph, ...) */
	GPUPERF_GRAPH_EXEC_DESTROYED = 6,  /* (exec) */
	GPUPERF_GRAPH_DESTROYED = 7        /* (graph) */
};

/*
 * Attach cookie of a probe. A lane is the series of links that hold the same functions of one file: to remove a
 * function, a link without it is attached with the next generation, and one store advances the lane's generation in
 * `lanes`. A hit of another generation is not counted, so exactly one of the two links counts each call.
 *   bits 0-23 function id, 24-47 lane, 48-55 generation, 56-63 condition
 * While there is more than one link, GPUPERF_LANE_CHANGING is set beside the generation in the lane's word: the
 * programs of both links then run on a hit, and must agree on which one counts it.
 * Condition of exit sites: 0 = a jump that always leaves; 1 + the condition code of a conditional jump that leaves
 * when taken (Intel SDM, "EFLAGS condition codes"); GPUPERF_CONDITION_RETURN = a return instruction, before which rax
 * holds the return value. Of entries of GPUPERF_FN_OPERATOR functions: 1 + index of the tensor layout, 0 = not known.
 */
#define GPUPERF_COOKIE_FUNCTION_BITS 24
#define GPUPERF_COOKIE_LANE_SHIFT 24
#define GPUPERF_COOKIE_LANE_BITS 24
#define GPUPERF_COOKIE_GENERATION_SHIFT 48
#define GPUPERF_COOKIE_CONDITION_SHIFT 56
#define GPUPERF_CONDITION_RETURN 17u
/* Zero means none: unused lanes hold it. */
#define GPUPERF_NEXT_GENERATION(generation) ((generation) == 255 ? 1 : (generation) + 1)
#define GPUPERF_LANE_CHANGING 0x100u
#define GPUPERF_LANES 16384       /* 4,096 files, 256 functions per lane, and room for changes */

/* Where to find a value of a call. Chain: v = argument; `loads` times: v = *(v + offset_bytes[i]), the last load
 * size_bytes wide, the earlier ones 8; then v >>= shift_bits, cut to size_bytes. A blob is at v +
 * offset_bytes[loads] (then loads < GPUPERF_CHAIN). Producer: daemon. Since 2. */
struct gpuperf_capture {
	__u8 source;              /* 0-5 argument register; from 6 on the stack arguments */
	__u8 loads;               /* 0 = the argument itself */
	__u8 shift_bits;
	__u8 size_bytes;          /* 1, 2, 4 or 8 */
	__u8 blob;                /* 0 = a value; else 1 + index of the blob it points to */
	__u8 pad[3];
	__s32 offset_bytes[GPUPERF_CHAIN];
};

/* Slots of gpuperf_cell.bytes. */
#define GPUPERF_BYTES_PLAIN 0           /* allocated, memset, sent */
#define GPUPERF_BYTES_HOST_TO_HOST 1    /* 1 + cudaMemcpyKind from here on */
#define GPUPERF_BYTES_HOST_TO_DEVICE 2
#define GPUPERF_BYTES_DEVICE_TO_HOST 3
#define GPUPERF_BYTES_DEVICE_TO_DEVICE 4
#define GPUPERF_BYTES_DEFAULT 5         /* the driver infers the direction from the addresses */
#define GPUPERF_BYTE_SLOTS 6

#define GPUPERF_TYPE_SIZES 32

/* Which of a function's arguments to keep, and what to add up when a call succeeds. Value numbers below are 1 + an
 * index into `captures`, 0 = none. Index: function id. Producer: daemon. Since 2. */
struct gpuperf_plan {
	__u8 capture_count;
	__u8 byte_factors[3];     /* bytes = product of these values x element size; none = no bytes */
	__u8 byte_type;           /* value that indexes element_bytes; 0 = element_bytes[0] */
	__u8 byte_kind;           /* value that is a cudaMemcpyKind; 0 = byte_slot */
	__u8 byte_slot;           /* GPUPERF_BYTES_* */
	__u8 shape_dimensions;    /* 0 = no GEMM; 3: values m n k come first; 4: m n k batch */
	__u8 name_handle;         /* value: address where the call stores a handle; 0 = names nothing */
	__u8 name_text;           /* value: address of the handle's name */
	__u8 shape_swap;          /* value: non-zero swaps m and k, for a layout that has them in that order */
	__u8 name_source;         /* value: the handle whose name the new one inherits, instead of name_text */
	__u8 result_at;           /* value: address where the call stores what it made, 8 bytes. Since 10. */
	__u8 pad[3];
	__u8 element_bytes[GPUPERF_TYPE_SIZES];
	struct gpuperf_capture captures[GPUPERF_VALUES];
};

/* One configured function. Producer: daemon. Consumer: BPF. Index: function id. Since 1. */
struct gpuperf_function {
	__u64 slow_threshold_ns;  /* a call at least this long is slow; 0 = never */
	__u32 flags;              /* GPUPERF_FN_* */
	__s32 benign_status[2];   /* statuses that are not errors ("not ready"), 0 = unused */
	__u32 outside_ns;         /* what probing one call costs its caller beyond the call's duration */
	__u64 adaptive_threshold_ns; /* the same, from the function's own recent calls; 0 = none. Since 3. */
	__u32 alarm_mask;         /* a process that made this many calls and one more within GPUPERF_ALARM_SPAN_NS is
				   * reported: one less than a power of two; 0 = never. Since 8. */
	__u32 call_cost_ns;       /* what a call's probes cost its thread; 0 = not known. Since 8. */
};

/* One error code and how often it was returned. status_tag = (u32)code | 1 << 32; 0 = free slot. */
struct gpuperf_error_count {
	__u64 status_tag;
	__u64 count;
};

/* Totals of one function in one process; they only grow. Producer: BPF. Consumer: daemon. Since 1. Completed calls
 * are the sum of `buckets`. */
struct gpuperf_cell {
	__u64 calls;              /* entries */
	__u64 abandoned;          /* calls that will never return: longjmp, thread or process exit */
	__u64 total_ns;           /* inclusive time of completed calls */
	__u64 self_ns;            /* total_ns less the probed calls nested inside */
	__u64 inverted_min_ns;    /* ~0 - shortest, so that zero means "none yet" and max() keeps it */
	__u64 max_ns;
	__u64 slow_calls;
	__u64 untimed;            /* entered but not paired with its return: counted, no duration */
	struct gpuperf_error_count errors[GPUPERF_ERROR_SLOTS];
	__u64 other_errors;       /* codes beyond the slots */
	__u64 flops;              /* 2 m n k batch of successful GEMMs */
	__u64 bytes[GPUPERF_BYTE_SLOTS]; /* of successful calls, by GPUPERF_BYTES_* */
	__u32 buckets[GPUPERF_BUCKETS]; /* wraps at 2^32: the daemon reads often and adds differences */
	__u64 worst_ns[GPUPERF_WORST]; /* longest slow calls of the cell, any order. Since 3. */
	__u64 hooked;             /* of `calls`: counted by launch hooks (hook_notes.h), without a trap. Since 7. */
	__u64 alarm_ns;           /* when `calls` last passed a multiple of the function's alarm_mask + 1. Since 8. */
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
	__u32 uid;                   /* whose share it counts against, in the initial user namespace. Since 6. */
	char comm[GPUPERF_COMM_BYTES]; /* of the thread-group leader at the first call */
};

/* Cells that all users other than root may own, together. Producer: daemon; BPF adds to `used` until the daemon
 * recounts. Since 6. */
struct gpuperf_cell_room {
	__u32 max;
	__u32 used;
};

/* Key of the process map. */
struct gpuperf_process_key {
	__u64 process_start_boot_ns;
	__u32 pid;
	__u32 pad;
};

/* Value of the process map: what /proc may no longer show once a short-lived process has exited. Since 2. */
struct gpuperf_process_info {
	/* Names of the cgroup and its ancestors at the first call, innermost first; cgroup v2 only, empty = above
	 * the root, or not read. */
	char cgroup[GPUPERF_CGROUP_LEVELS][GPUPERF_CGROUP_NAME_BYTES];
};

/* Key of the shape map: one GEMM shape of one cell. Producer: BPF. Consumer: daemon. Since 2. */
struct gpuperf_shape_key {
	__u32 cell;
	__u32 pad;
	__u64 dimensions[4];      /* m n k batch */
	__u16 types[4];           /* values 5-8 of the plan: types of A, B, C and of the computation */
};

struct gpuperf_shape_totals {
	__u64 calls;              /* successful ones */
	__u64 total_ns;
};

/* One call in flight. Producer: BPF iterator over tasks, as a stream of these. Since 2. */
struct gpuperf_in_flight {
	__u64 process_start_boot_ns;
	__u64 start_mono_ns;
	__u64 cookie;             /* function, lane, generation */
	__u32 pid;
	__u32 tid;
	__u32 depth;              /* 0 = outermost probed call of the thread */
	__u32 pad;
	char comm[GPUPERF_COMM_BYTES]; /* of the thread */
};

/* What probes cost one thread, since its first probed call. Producer: BPF iterator over tasks, as a stream of these.
 * Since 8. */
struct gpuperf_thread_cost {
	__u64 process_start_boot_ns;
	__u64 cost_ns;            /* only grows */
	__u32 pid;
	__u32 tid;
};

/* What a blocked thread waits for. */
enum gpuperf_wait_kind {
	GPUPERF_WAIT_OTHER = 0,
	GPUPERF_WAIT_FUTEX = 1,   /* a lock, a condition variable, a thread's end */
	GPUPERF_WAIT_IO = 2,      /* a file, pipe or socket */
	GPUPERF_WAIT_POLL = 3,    /* poll, select, epoll, but not of a GPU */
	GPUPERF_WAIT_GPU = 4,     /* ioctl, poll or read of a GPU's device file */
	GPUPERF_WAIT_SLEEP = 5,
	GPUPERF_WAIT_FAULT = 6,   /* a page: from disk, or its lock */
	GPUPERF_WAIT_KINDS = 7
};

/* What a thread on the CPU was doing when the timer ticked. */
enum gpuperf_tick {
	GPUPERF_TICK_USER = 0,
	GPUPERF_TICK_SYSCALL = 1,
	GPUPERF_TICK_FAULT = 2,
	GPUPERF_TICK_KINDS = 3
};

/* Where a call's time off the CPU went; the rest of the time the thread ran. Producer: BPF. Since 3. */
struct gpuperf_time_split {
	__u64 runnable_ns;        /* runnable, waiting for a CPU */
	__u64 throttled_ns;       /* the same, because its cgroup had used up its CPU quota */
	__u64 waits_ns[GPUPERF_WAIT_KINDS];
	__u32 ticks[GPUPERF_TICK_KINDS]; /* samples of time on the CPU */
	__u32 preemptions;        /* lost the CPU involuntarily */
	__u32 migrations;         /* resumed on another CPU */
	__u32 minor_faults;
	__u32 major_faults;
	__u32 pad;
};

/* Probed calls of one function made directly inside a call. Producer: BPF. Since 3. */
struct gpuperf_child {
	__u32 function_id;        /* GPUPERF_OTHER_CHILDREN: all further functions together */
	__u32 calls;              /* 0 = unused */
	__u64 total_ns;
};
#define GPUPERF_OTHER_CHILDREN 0xffffffffu

/* One wait. Producer: BPF. Since 3. */
struct gpuperf_wait {
	__u64 start_mono_ns;      /* 0 = unused */
	__u64 duration_ns;        /* up to the wake-up */
	__s32 syscall;            /* its number; -1 = none: a page fault */
	__u32 kind;               /* GPUPERF_WAIT_* */
	__u32 file_mode;          /* st_mode of the file waited on; 0 = none */
	__u32 waker_tid;          /* 0 = a timer, an interrupt, or not seen */
	__u32 waker_pid;
	__u32 waker_is_kernel;    /* a kernel thread */
	__u64 waker_start_boot_ns; /* of the waker's process */
	char waker_comm[GPUPERF_COMM_BYTES];
	char file_name[GPUPERF_FILE_NAME_BYTES]; /* last part of its path; empty for pipes */
	__u64 kernel_stack[GPUPERF_WAIT_FRAMES]; /* of the waiting thread, innermost first; 0 = end */
	__u64 waker_stack_id;     /* the waker's user stack; 0 = none. Since 4. */
};

/* Header of every ring record. Since 1. */
struct gpuperf_record {
	__u32 kind;               /* GPUPERF_RECORD_* */
	__u32 length_bytes;       /* of the whole record, this header included */
};

enum gpuperf_record_kind {
	GPUPERF_RECORD_SLOW_CALL = 1,
	GPUPERF_RECORD_PROCESS_EXIT = 2,
	GPUPERF_RECORD_HANDLE_NAME = 3,
	GPUPERF_RECORD_SLOW_IN_FLIGHT = 4, /* sent by the iterator, not through a ring */
	GPUPERF_RECORD_STACK = 5,
	GPUPERF_RECORD_STACK_COPY = 6,
	GPUPERF_RECORD_LAUNCH = 7,
	GPUPERF_RECORD_CALL = 8,
	GPUPERF_RECORD_SITE = 9,
	GPUPERF_RECORD_CHILD = 10,
	GPUPERF_RECORD_GRAPH = 11,
	GPUPERF_RECORD_LAUNCHES = 12,
	GPUPERF_RECORD_ALARM = 13,         /* of the header alone: a cell's calls are to be judged now. Since 8. */
	GPUPERF_RECORD_THREAD_TIME = 14,   /* Since 9. */
	GPUPERF_RECORD_REPORTED_CALL = 15, /* Since 10. */
	GPUPERF_RECORD_OPERATOR_CALL = 16, /* Since 11. */
	GPUPERF_RECORD_ROUTING = 17,       /* Since 11. */
	GPUPERF_RECORD_RESPONSE_PART = 18, /* Since 13. */
	GPUPERF_RECORD_KINDS = 19
};

/* One call that passed its threshold. Producer: BPF at return, or the iterator over calls in flight, where
 * duration_ns is the age. Consumer: drain. Since 1; from `outer` on since 3. */
struct gpuperf_slow_call {
	struct gpuperf_record header;
	__u64 start_mono_ns;      /* bpf_ktime_get_ns() at entry */
	__u64 duration_ns;
	__u64 threshold_ns;
	__u64 process_start_boot_ns;
	__u32 pid;                /* initial pid namespace */
	__u32 tid;
	__u32 function_id;
	__u8 has_values;          /* 0 when the entry could not be kept (nested too deep) */
	__u8 blob_count;          /* blobs tried */
	__u16 values_unread;      /* bit per value whose memory could not be read */
	__u8 blob_bytes[GPUPERF_BLOBS]; /* bytes read of each, at return; 0 = could not be read */
	__u32 has_return_value;   /* 0 = left by a tail call, which has none yet */
	__u64 values[GPUPERF_VALUES]; /* from the plan, at entry; without a plan rdi rsi rdx rcx r8 r9 */
	__u64 return_value;       /* rax */
	char comm[GPUPERF_COMM_BYTES];      /* of the calling thread */
	__u64 stack_id;           /* of the calling thread, from the call's caller on; 0 = none. Since 4. */
	__u8 blobs[GPUPERF_BLOBS][GPUPERF_BLOB_BYTES];
	__u32 outer[GPUPERF_CALL_DEPTH]; /* functions of the probed calls around it, outermost first */
	__u8 outer_count;
	__u8 adaptive;            /* threshold_ns is the adaptive threshold */
	__u8 has_split;           /* 0 = not known: no frame, noted by a hook, or scheduling is not followed */
	__u8 worst;               /* among the GPUPERF_WORST longest of its cell */
	__u32 pad_split;
	struct gpuperf_time_split split;
	struct gpuperf_child children[GPUPERF_CHILDREN];
	struct gpuperf_wait waits[GPUPERF_WAITS];
};

/* What a thread was found doing. */
enum gpuperf_thread_state {
	GPUPERF_THREAD_RUNNING = 0,
	GPUPERF_THREAD_RUNNABLE = 1,
	GPUPERF_THREAD_BLOCKED = 2
};

/* A call in flight past its threshold. Its current wait is among its waits. Producer: BPF iterator over tasks, as a
 * stream of these. Since 3. */
struct gpuperf_slow_in_flight {
	struct gpuperf_slow_call call;
	__u64 entry_sp;           /* user stack pointer at entry: points to the return address */
	__u64 entry_bp;           /* frame pointer at entry: the caller's, if it keeps one */
	__u64 thread_pointer;     /* fs base: pthread_self() */
	__u32 state;              /* GPUPERF_THREAD_* */
	__u32 return_count;
	struct gpuperf_replaced_return returns[GPUPERF_REPLACED_RETURNS]; /* innermost first */
};

/* A call gave a handle a name (cuModuleGetFunction). Producer: BPF at return. Since 2. */
struct gpuperf_handle_name {
	struct gpuperf_record header;
	__u64 process_start_boot_ns;
	__u32 pid;
	__u32 name_bytes;         /* with its NUL; more than fits: cut, without a NUL; 0 = that of source_handle */
	__u64 handle;
	__u64 source_handle;
	char name[GPUPERF_HANDLE_NAME_BYTES];
};

/* struct gpuperf_trace_order.flags */
#define GPUPERF_TRACE_LAUNCHES 1u /* every entry of a GPUPERF_FN_LAUNCH function sends a record */
#define GPUPERF_TRACE_STACKS 2u   /* with the stack of its caller */
#define GPUPERF_TRACE_CALLS 4u    /* the end of every other call sends a record too */
#define GPUPERF_TRACE_INHERIT 8u  /* child processes are traced like their parent */
#define GPUPERF_TRACE_THREADS 16u /* what threads do between their calls too: struct gpuperf_thread_time. Since 9. */

/* What to trace of a process. Producer: daemon. Consumer: BPF. Since 5. */
struct gpuperf_trace_order {
	__u32 flags;              /* GPUPERF_TRACE_* */
	__u32 scoped_count;       /* in the order for everyone: number of processes with orders of their own */
	__u64 stack_interval_ns;  /* approximate time between a thread's stacks; 0 = every launch has one */
	__u64 min_call_ns;        /* shorter calls send no record */
	__u64 long_call_ns;       /* calls at least this long carry their caller's stack */
};

/* Which launches are reported by processes whose hooks count them (hook_notes.h). */
enum gpuperf_launch_reports {
	GPUPERF_LAUNCHES_NONE = 0,
	GPUPERF_LAUNCHES_PACED = 1, /* all of them, few with a stack */
	GPUPERF_LAUNCHES_EACH = 2   /* each with a stack */
};
#define GPUPERF_PACED_STACK_NS 10000000ull /* one launch with a stack per thread in this time; more often: each */

/* A call to a function that gives a GPU work has begun. Producer: BPF. Consumer: drain. Since 5. */
struct gpuperf_launch {
	struct gpuperf_record header;
	__u64 mono_ns;            /* taken as late in the probe as possible, closest to the call itself */
	__u64 site_id;            /* of a struct gpuperf_site; 0 = could not be determined */
	__u64 process_start_boot_ns;
	__u32 pid;                /* initial pid namespace */
	__u32 tid;
	__u32 function_id;
	__u32 is_captured;        /* made while its process captured a graph: may have become a node of it */
	__u64 exec;               /* CUgraphExec of a graph launch; else 0 */
};

#define GPUPERF_LAUNCHES 64       /* per record */
#define GPUPERF_LAUNCH_SITES 32   /* per record */
#define GPUPERF_NO_FUNCTION 0xffffffffu

/* Where launches come from: as noted by launch hooks, and as sent to the daemon. */
struct gpuperf_launch_site {
	__u64 id;                 /* noted: stack_id; sent: site_id of a struct gpuperf_site, 0 = it was lost */
	__u64 stack_address;      /* noted: of struct gpuperf_noted_stack, 0 = noted within the last second; sent: 0 */
};

struct gpuperf_kept_launch {
	__u32 offset_ns;          /* from base_mono_ns */
	__u16 entry;              /* enum gpuperf_hook_entry */
	__u16 site;               /* 1 + index of its site; 0 = no stack was taken */
};

/* Launches that a process kept to report together; none is a graph launch. Producer: BPF, from launch hook notes
 * (hook_notes.h). Consumer: drain. Since 7. */
struct gpuperf_launches {
	struct gpuperf_record header;
	__u64 base_mono_ns;
	__u64 process_start_boot_ns;
	__u32 pid;                /* initial pid namespace */
	__u32 tid;
	__u32 count;              /* at most GPUPERF_LAUNCHES */
	__u32 site_count;         /* at most GPUPERF_LAUNCH_SITES */
	__u32 first;              /* those before it were sent already */
	__u32 pad;
	struct gpuperf_launch_site sites[GPUPERF_LAUNCH_SITES];
	struct gpuperf_kept_launch launches[GPUPERF_LAUNCHES];
	__u32 function_id[GPUPERF_LAUNCHES]; /* of `launches`; GPUPERF_NO_FUNCTION = not configured */
};

/* A call that made, changed or ended a graph has returned successfully; for the end of a capture, also one that
 * failed. A capture followed no further (see GPUPERF_CAPTURED_LAUNCHES) shows by having no launches. Producer: BPF.
 * Consumer: drain. Since 5. */
struct gpuperf_graph {
	struct gpuperf_record header;
	__u64 mono_ns;            /* at the return; if something was destroyed, at the entry */
	__u64 process_start_boot_ns;
	__u32 pid;                /* initial pid namespace */
	__u32 tid;
	__u32 call;               /* enum gpuperf_graph_call */
	__u32 is_followed;        /* at the start of a capture: its launches are sent */
	__u64 handle;             /* what was made, changed or destroyed; 0 = the capture failed */
	__u64 source;             /* graph that an exec was made or updated from; stream of a capture */
};

/* Every captured launch carries a stack, whatever the trace order: this many at once per process, and this many more
 * in each second since. Programs that capture anew at every step make more. */
#define GPUPERF_CAPTURED_LAUNCHES 200000
#define GPUPERF_CAPTURED_LAUNCHES_PER_SECOND 1000
/* A capture that takes longer was left without its end. */
#define GPUPERF_CAPTURE_MAX_NS 60000000000ull

/* A launch site: a stack and the probed calls around the launch. Sent once for many launches, and again every
 * GPUPERF_SITE_RESEND_NS. Producer: BPF. Consumer: drain. Since 5. */
struct gpuperf_site {
	struct gpuperf_record header;
	__u64 site_id;            /* never 0 */
	__u64 stack_id;           /* from the launch's caller on; 0 = none was taken */
	__u64 shape[4];           /* of the innermost call around it that is a GEMM: m n k batch; 0 = none */
	__u32 functions[GPUPERF_CALL_DEPTH]; /* of the probed calls around it, outermost first */
	__u32 function_count;
	__u32 shape_at;           /* index in `functions` of the call that has the shape */
};
#define GPUPERF_SITE_RESEND_NS 10000000000ull

/* A process traced with GPUPERF_TRACE_INHERIT has started another. Producer: BPF. Consumer: drain. Since 5. */
struct gpuperf_child_process {
	struct gpuperf_record header;
	__u64 parent_start_boot_ns;
	__u64 child_start_boot_ns;
	__u32 parent_pid;
	__u32 child_pid;
};

/* A call has returned. Producer: BPF. Consumer: drain. Since 5. */
struct gpuperf_traced_call {
	struct gpuperf_record header;
	__u64 start_mono_ns;
	__u64 duration_ns;
	__u64 off_cpu_ns;         /* the part blocked or waiting for a CPU; 0 also if threads are not followed */
	__u64 stack_id;           /* from the call's caller on, of long calls; 0 = none was taken */
	__u64 process_start_boot_ns;
	__u32 pid;
	__u32 tid;
	__u32 function_id;
	__u32 depth;              /* probed calls around it */
};

/* Shorter times off the CPU are not sent one by one. */
#define GPUPERF_THREAD_TIME_MIN_NS 10000ull
/* A thread that leaves the CPU on its own carries a stack, on average once in this time at most. */
#define GPUPERF_THREAD_STACK_INTERVAL_NS 1000000ull

/* A thread that ever made a probed call was off the CPU (first blocked, then runnable), or was found on it by a tick,
 * whether in a call or not. Producer: BPF. Consumer: drain. Since 9. */
struct gpuperf_thread_time {
	struct gpuperf_record header;
	__u64 start_mono_ns;
	__u64 blocked_ns;         /* of a tick: this and the next two are 0 */
	__u64 throttled_ns;       /* runnable, but its cgroup had used up its CPU quota */
	__u64 runnable_ns;        /* the rest of the time off the CPU */
	__u64 stack_id;           /* where it left the CPU, or was found; 0 = none was taken */
	__u64 process_start_boot_ns;
	__u32 pid;
	__u32 tid;
	__u32 kind;               /* GPUPERF_WAIT_*; of a tick GPUPERF_TICK_* */
	__u32 is_tick;
	__u32 waker_pid;          /* 0 = none: a timer, an interrupt, or not seen */
	__u32 waker_tid;
};

/* How many rows the matrix products of a turn, or of a graph, have: in a transformer most have one per token. The rows
 * are n of m, n and k, as cuBLAS is given them for row-major matrices. Since 12. */
struct gpuperf_product_rows {
	__u32 products;
	__u32 rows;               /* of more than half of the products, if any number is */
	__u32 lead;               /* at least so many have `rows`; by how many they lead over the others, at least */
	__u32 pad;
};

/* What a thread gave the GPU to do between two copies to the host. Since 12. */
struct gpuperf_turn {
	__u64 start_mono_ns;      /* of the first of its calls that was probed; 0 = hooks alone saw any */
	struct gpuperf_product_rows products; /* those of replayed graphs included, if their capture was seen */
	__u32 graphs;             /* replays */
	__u32 pad;
};

/* A call of a GPUPERF_FN_REPORT function has ended. Producer: BPF. Consumer: drain. Since 10. */
struct gpuperf_reported_call {
	struct gpuperf_record header;
	__u64 start_mono_ns;
	__u64 duration_ns;
	__u64 process_start_boot_ns;
	__u64 values[GPUPERF_VALUES]; /* as in struct gpuperf_slow_call */
	__u64 result;             /* what the call stored at the plan's result_at; 0 = nothing, it failed, or unreadable */
	__u64 return_value;       /* rax */
	__u64 stack_id;           /* from the call's caller on; 0 = none was taken */
	__u32 pid;
	__u32 tid;
	__u32 function_id;
	__u16 values_unread;
	__u8 has_values;          /* 0 when the entry could not be kept (nested too deep) */
	__u8 has_return_value;
	__u32 depth;              /* probed calls around it */
	__u32 outermost;          /* function of the outermost of them; without one, its own */
	struct gpuperf_turn turn; /* that a GPUPERF_FN_RESULT_COPY call ends; of others zero. Since 12. */
};

/* Where the fields of a struct ggml_tensor lie, in bytes from its start. Producer: daemon. Since 11. */
struct gpuperf_tensor_layout {
	__u16 dimensions_at;      /* 8 bytes each, of 4 */
	__u16 strides_at;         /* likewise */
	__u16 operation_at;       /* 4 bytes */
	__u16 sources_at;         /* addresses of the tensors it works on */
	__u16 data_at;
	__u16 name_at;
	__u16 routed_operation;   /* number of MUL_MAT_ID */
	__u16 pad;
};

/* A thread begins to work on an operator; the first thread of a pool speaks for all of it. Producer: BPF. Consumer:
 * drain. Since 11. */
struct gpuperf_operator_call {
	struct gpuperf_record header;
	__u64 start_mono_ns;
	__u64 process_start_boot_ns;
	__u64 lost;               /* operators not sent so far, of all processes: one that differs misses some before it */
	__u32 pid;
	__u32 tid;
	__u32 function_id;
	__u32 layout;             /* 1 + its index */
	__u32 operation;
	__u32 pad;
	char name[GPUPERF_TENSOR_NAME_BYTES]; /* of the tensor it makes; cut, always with a NUL */
};

/* The experts that an operator's tokens go to, before its struct gpuperf_operator_call. Producer: BPF. Consumer:
 * drain. Since 11. */
struct gpuperf_routing {
	struct gpuperf_record header;
	__u64 process_start_boot_ns;
	__u64 tokens;
	__u32 pid;
	__u32 tid;
	__u32 function_id;
	__u32 experts_per_token;  /* at most GPUPERF_ROUTED_EXPERTS */
	__u32 read_tokens;        /* the first of them, whose experts follow */
	__u32 expert_count;       /* of the layer */
	char name[GPUPERF_TENSOR_NAME_BYTES];
	__s32 experts[GPUPERF_ROUTED_TOKENS][GPUPERF_ROUTED_EXPERTS];
};

/* Of struct gpuperf_response_part. */
#define GPUPERF_RESPONSE_BEGINS 1u /* the first part */
#define GPUPERF_RESPONSE_HEAD 2u   /* headers, and no byte of the body */
#define GPUPERF_RESPONSE_ENDS 4u   /* with the chunk that says so */
#define GPUPERF_RESPONSE_CLOSED 8u /* the connection is; nothing was written */

/* A process of one of `request_sessions` writes a part of an HTTP/1 response. Producer: BPF. Consumer: drain.
 * Since 13. */
struct gpuperf_response_part {
	struct gpuperf_record header;
	__u64 mono_ns;            /* after the write */
	__u64 process_start_boot_ns;
	__u64 connection;         /* the same until it is closed; not zero */
	__u64 request_start_mono_ns; /* first and last time a byte was read since the response before; of the first part */
	__u64 request_end_mono_ns;
	__u64 bytes;
	__u32 pid;
	__u32 tid;
	__u32 session;            /* of the process, as the initial pid namespace numbers it */
	__u32 flags;              /* GPUPERF_RESPONSE_* */
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
	GPUPERF_LOSS_INDEX_FULL = 1,      /* the cell index refused a key: same effect */
	GPUPERF_LOSS_THREAD_STATE = 2,    /* no task storage: timed without arguments and nesting, or untimed */
	GPUPERF_LOSS_CALL_DEPTH = 3,      /* nested deeper than GPUPERF_CALL_DEPTH: same effect */
	GPUPERF_LOSS_SLOW_RING_FULL = 4,  /* slow call counted, its record lost */
	GPUPERF_LOSS_PROCESS_RING_FULL = 5, /* exit record lost; found by the next sweep */
	GPUPERF_LOSS_UNPAIRED_RETURN = 6, /* a return without a known entry: ignored */
	GPUPERF_LOSS_SHAPES_FULL = 7,     /* GEMM counted in its cell, but not by shape */
	GPUPERF_LOSS_NAME_RING_FULL = 8,  /* a kernel's name lost: its handle is shown */
	GPUPERF_LOSS_SLOW_THINNED = 9,    /* in a burst: slow call counted, not among the worst, no record */
	GPUPERF_LOSS_STACK_RING_FULL = 10, /* a stack lost: records that refer to it have none */
	GPUPERF_LOSS_STACK_COPY = 11,     /* ring full or too many at once: the stack is sent as far as it was walked */
	GPUPERF_LOSS_STACK_STATE = 12,    /* no task storage for the walk: no stack */
	GPUPERF_LOSS_TRACE_RING_FULL = 13, /* a launch or call is not in the trace */
	GPUPERF_LOSS_CELLS_USER_FULL = 14, /* a user's share of the cells is used up: as CELLS_FULL */
	GPUPERF_LOSS_HOOKED_CALLS = 15,   /* a process's hook counts could not be read, or at its end not all of them */
	GPUPERF_LOSS_REPORT_RING_FULL = 16, /* a call is counted, but not reported */
	GPUPERF_LOSS_OPERATORS_FULL = 17, /* an operator is counted, but not sent: the ring is kept for other reports */
	GPUPERF_LOSS_OPERATOR_UNREAD = 18, /* likewise: its memory could not be read, or is not what it is taken for */
	GPUPERF_LOSS_RESPONSES_FULL = 19, /* a part of a response is not sent: the ring is kept for other reports, or there
				   * are too many connections */
	GPUPERF_LOSS_COUNT = 20
};

#ifdef __cplusplus
#define GPUPERF_ASSERT(condition) static_assert(condition, #condition)
#else
#define GPUPERF_ASSERT(condition) _Static_assert(condition, #condition)
#endif

GPUPERF_ASSERT((GPUPERF_CALL_DEPTH & (GPUPERF_CALL_DEPTH - 1)) == 0); /* indices are masked */
