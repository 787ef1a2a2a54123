/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Contract between the launch hooks of libgpuperf_injector.so and the BPF programs. Plain C that also compiles as C++.
 *
 * The library has empty functions, each with a USDT probe (provider gpuperf_injector) and a semaphore. To pass a struct
 * in its own memory to the BPF program attached there, it calls one with the struct's address as the first argument:
 *
 *   probe    semaphore above 0 means                          called
 *   count    the hooks count; probes in libcuda see nothing   never
 *   calls    -                                                when an entry's counts have changed, every 100 ms
 *   slow     -                                                when a hooked call took GPUPERF_NOTED_SLOW_NS or longer
 *   launch   -                                                before a hooked call whose stack BPF must walk
 *   launches launches are reported, few with a stack          for kept launches, within 100 ms
 *   each     each launch is reported with its stack           never
 *   thread   -                                                before a thread's first hooked call of an entry, once a
 *                                                             second, and when the thread ends
 *
 * The kernel keeps the semaphores correct in every process, across fork, exec and the daemon's death. While `count` is
 * attached, a hook counts the call and skips the breakpoint on the driver's function; otherwise it goes through it. So
 * each call is counted exactly once, whatever is attached at the time. The others stay attached when counting ends, so
 * that earlier counts are still taken. Between notes BPF reads the thread's own account of its calls (struct
 * gpuperf_hooked_thread). When the process exits or execs, BPF reads the counts not yet noted (struct
 * gpuperf_hooked_process). BPF trusts none of this: a process can only corrupt its own rows.
 */
#pragma once

#include "bpf/records.h"

#define GPUPERF_NOTE_PROVIDER "gpuperf_injector"

/* Attach cookie of the probe that takes the note. */
enum gpuperf_note {
	GPUPERF_NOTE_CALLS = 1,
	GPUPERF_NOTE_SLOW = 2,
	GPUPERF_NOTE_LAUNCH = 3,
	GPUPERF_NOTE_THREAD = 4,
	GPUPERF_NOTE_LAUNCHES = 5,
	GPUPERF_NOTE_EACH = 6,
	GPUPERF_NOTE_COUNT = 7
};

/* X(function, arguments): the driver entries that hooks count: all that give a GPU work, in every form that any
 * driver exports. All take only integers and pointers. `arguments`: how many. Append only. */
#define GPUPERF_HOOK_ENTRIES(X) \
	X(cuLaunchKernel, 11) X(cuLaunchKernel_ptsz, 11) \
	X(cuLaunchKernelEx, 4) X(cuLaunchKernelEx_ptsz, 4) \
	X(cuLaunchCooperativeKernel, 10) X(cuLaunchCooperativeKernel_ptsz, 10) \
	X(cuGraphLaunch, 2) X(cuGraphLaunch_ptsz, 2) \
	X(cuLaunch, 1) X(cuLaunchGrid, 3) X(cuLaunchGridAsync, 4) X(cuLaunchCooperativeKernelMultiDevice, 3) \
	X(cuMemcpy, 3) X(cuMemcpy_ptds, 3) X(cuMemcpyAsync, 4) X(cuMemcpyAsync_ptsz, 4) \
	X(cuMemcpyHtoD, 3) X(cuMemcpyHtoD_v2, 3) X(cuMemcpyHtoD_v2_ptds, 3) \
	X(cuMemcpyDtoH, 3) X(cuMemcpyDtoH_v2, 3) X(cuMemcpyDtoH_v2_ptds, 3) \
	X(cuMemcpyDtoD, 3) X(cuMemcpyDtoD_v2, 3) X(cuMemcpyDtoD_v2_ptds, 3) \
	X(cuMemcpyDtoA, 4) X(cuMemcpyDtoA_v2, 4) X(cuMemcpyDtoA_v2_ptds, 4) \
	X(cuMemcpyAtoD, 4) X(cuMemcpyAtoD_v2, 4) X(cuMemcpyAtoD_v2_ptds, 4) \
	X(cuMemcpyHtoA, 4) X(cuMemcpyHtoA_v2, 4) X(cuMemcpyHtoA_v2_ptds, 4) \
	X(cuMemcpyAtoH, 4) X(cuMemcpyAtoH_v2, 4) X(cuMemcpyAtoH_v2_ptds, 4) \
	X(cuMemcpyAtoA, 5) X(cuMemcpyAtoA_v2, 5) X(cuMemcpyAtoA_v2_ptds, 5) \
	X(cuMemcpyHtoDAsync, 4) X(cuMemcpyHtoDAsync_v2, 4) X(cuMemcpyHtoDAsync_v2_ptsz, 4) \
	X(cuMemcpyDtoHAsync, 4) X(cuMemcpyDtoHAsync_v2, 4) X(cuMemcpyDtoHAsync_v2_ptsz, 4) \
	X(cuMemcpyDtoDAsync, 4) X(cuMemcpyDtoDAsync_v2, 4) X(cuMemcpyDtoDAsync_v2_ptsz, 4) \
	X(cuMemcpyHtoAAsync, 5) X(cuMemcpyHtoAAsync_v2, 5) X(cuMemcpyHtoAAsync_v2_ptsz, 5) \
	X(cuMemcpyAtoHAsync, 5) X(cuMemcpyAtoHAsync_v2, 5) X(cuMemcpyAtoHAsync_v2_ptsz, 5) \
	X(cuMemcpy2D, 1) X(cuMemcpy2D_v2, 1) X(cuMemcpy2D_v2_ptds, 1) \
	X(cuMemcpy2DUnaligned, 1) X(cuMemcpy2DUnaligned_v2, 1) X(cuMemcpy2DUnaligned_v2_ptds, 1) \
	X(cuMemcpy3D, 1) X(cuMemcpy3D_v2, 1) X(cuMemcpy3D_v2_ptds, 1) \
	X(cuMemcpy2DAsync, 2) X(cuMemcpy2DAsync_v2, 2) X(cuMemcpy2DAsync_v2_ptsz, 2) \
	X(cuMemcpy3DAsync, 2) X(cuMemcpy3DAsync_v2, 2) X(cuMemcpy3DAsync_v2_ptsz, 2) \
	X(cuMemcpyPeer, 5) X(cuMemcpyPeer_ptds, 5) X(cuMemcpyPeerAsync, 6) X(cuMemcpyPeerAsync_ptsz, 6) \
	X(cuMemcpy3DPeer, 1) X(cuMemcpy3DPeer_ptds, 1) X(cuMemcpy3DPeerAsync, 2) X(cuMemcpy3DPeerAsync_ptsz, 2) \
	X(cuMemcpyBatchAsync, 9) X(cuMemcpyBatchAsync_ptsz, 9) \
	X(cuMemcpyBatchAsync_v2, 8) X(cuMemcpyBatchAsync_v2_ptsz, 8) \
	X(cuMemcpy3DBatchAsync, 5) X(cuMemcpy3DBatchAsync_ptsz, 5) \
	X(cuMemcpy3DBatchAsync_v2, 4) X(cuMemcpy3DBatchAsync_v2_ptsz, 4) \
	X(cuMemsetD8, 3) X(cuMemsetD8_v2, 3) X(cuMemsetD8_v2_ptds, 3) \
	X(cuMemsetD16, 3) X(cuMemsetD16_v2, 3) X(cuMemsetD16_v2_ptds, 3) \
	X(cuMemsetD32, 3) X(cuMemsetD32_v2, 3) X(cuMemsetD32_v2_ptds, 3) \
	X(cuMemsetD2D8, 5) X(cuMemsetD2D8_v2, 5) X(cuMemsetD2D8_v2_ptds, 5) \
	X(cuMemsetD2D16, 5) X(cuMemsetD2D16_v2, 5) X(cuMemsetD2D16_v2_ptds, 5) \
	X(cuMemsetD2D32, 5) X(cuMemsetD2D32_v2, 5) X(cuMemsetD2D32_v2_ptds, 5) \
	X(cuMemsetD8Async, 4) X(cuMemsetD8Async_ptsz, 4) X(cuMemsetD16Async, 4) X(cuMemsetD16Async_ptsz, 4) \
	X(cuMemsetD32Async, 4) X(cuMemsetD32Async_ptsz, 4) X(cuMemsetD2D8Async, 6) X(cuMemsetD2D8Async_ptsz, 6) \
	X(cuMemsetD2D16Async, 6) X(cuMemsetD2D16Async_ptsz, 6) \
	X(cuMemsetD2D32Async, 6) X(cuMemsetD2D32Async_ptsz, 6)

/* Index of an entry: GPUPERF_HOOK_cuLaunchKernel and so on. */
enum gpuperf_hook_entry {
#define GPUPERF_HOOK_INDEX(name, arguments) GPUPERF_HOOK_##name,
	GPUPERF_HOOK_ENTRIES(GPUPERF_HOOK_INDEX)
#undef GPUPERF_HOOK_INDEX
	GPUPERF_HOOK_COUNT
};

/* Where hooks count, calls shorter than this are never slow: a lower threshold acts like this one. It keeps the trap
 * of a note to a few percent of the duration it reports. */
#define GPUPERF_NOTED_SLOW_NS 20000ull

/* One call. Noted by `launch` before it and by `slow` after it; in flight, struct gpuperf_hooked_thread points to
 * it. */
struct gpuperf_noted_call {
	__u64 start_mono_ns;      /* not set yet in `launch` */
	__u64 duration_ns;        /* `slow` only */
	__u64 pc;                 /* return address, in the caller */
	__u64 sp;                 /* at pc */
	__u64 bp;                 /* at pc */
	__u64 arguments[GPUPERF_ARGUMENTS]; /* as in registers; the rest are on the stack, from `sp` on */
	__u64 return_value;       /* `slow` only */
	__u32 entry;              /* enum gpuperf_hook_entry */
	__u32 pad;
};

#define GPUPERF_HOOKED_THREADS 4096 /* per process */

/* Counts of one entry, by one thread or by all. They only grow. Everything a call changes, except its bucket, is in
 * one cache line: a launch finds few lines cached. */
struct gpuperf_entry_counts {
	__u64 calls;              /* begun */
	__u64 abandoned;          /* calls that will never return: longjmp, exceptions */
	__u64 self_ns;            /* total_ns less the hooked calls inside */
	__u64 inverted_min_ns;    /* ~0 - shortest; 0 = none */
	__u64 max_ns;
	__u64 total_ns;           /* written last: everything else about the calls in it is already there */
	__u64 other_errors;
	__u64 pad;
	struct gpuperf_error_count errors[GPUPERF_ERROR_SLOTS]; /* status_tag as in cells, benign statuses included */
	__u32 buckets[GPUPERF_BUCKETS]; /* sum: calls that have ended */
	__u64 pad_to_line[4];
};

/* Noted counts of an entry, double-buffered: the older copy is rewritten, given its sequence, and noted. */
struct gpuperf_noted_counts {
	__u64 sequence[2];        /* of the note; 0 = none, ~0 = being written */
	struct gpuperf_entry_counts counts[2]; /* of all threads, since program start */
};

/* What the hooks of a process publish about all its threads. */
struct gpuperf_hooked_process {
	__u64 noted;              /* sequence of the last `calls` note that returned; numbered consecutively from 1 */
	__u64 threads;            /* address of thread_count addresses of struct gpuperf_hooked_thread */
	__u32 thread_count;       /* at most GPUPERF_HOOKED_THREADS */
	__u32 pad;
	__u64 counts[GPUPERF_HOOK_COUNT]; /* addresses of struct gpuperf_noted_counts; 0 = nothing noted yet */
	__u64 is_called[(GPUPERF_HOOK_COUNT + 63) / 64]; /* bit per entry that any thread has counts of */
};

/* The counts of an entry have changed. One thread per process notes this. */
struct gpuperf_noted_calls {
	__u64 process_address;    /* of struct gpuperf_hooked_process */
	__u64 sequence;           /* of the counts to add, less those noted before */
	__u32 entry;              /* enum gpuperf_hook_entry */
	__u32 pad;
};

/* A thread's counts and kept launches. */
struct gpuperf_thread_counts {
	__u64 launches;           /* address of struct gpuperf_kept_launches */
	__u64 entries[GPUPERF_HOOK_COUNT]; /* addresses of struct gpuperf_entry_counts; 0 = never called */
};

/* A thread's own account of its hooked calls. Only that thread writes it. BPF reads it on that thread, and at
 * process end. */
struct gpuperf_hooked_thread {
	__u64 total_ns;           /* of outermost calls that ended; excluded from the self time of a call around them */
	__u64 start_mono_ns;      /* of the call in flight, written after its struct; 0 = none. Cleared after `slow` */
	__u64 call_address;       /* of that call's struct gpuperf_noted_call, which has the same start. It is on the
				   * thread's stack: that memory is reused once the call was left without a return */
	__u64 counts_address;     /* of struct gpuperf_thread_counts */
};

/* Where a thread's account is: aligned, and valid until noted again. A fork's child has none until it notes its own.
 * Noted by `thread`, on that thread. */
struct gpuperf_noted_thread {
	__u64 hooked_address;     /* of struct gpuperf_hooked_thread; 0 = the thread no longer has one */
	__u64 process_address;    /* of struct gpuperf_hooked_process */
	__u32 entry;              /* of the call about to begin */
	__u32 pad;
};

/* A stack that the launching thread walked itself. It contains no probed call: where a return address is replaced,
 * the kernel side must walk. */
struct gpuperf_noted_stack {
	__u64 stack_id;           /* same for equal stacks; process-local */
	__u64 frames_address;     /* of frame_count struct gpuperf_native_frame, the caller of the launch first */
	__u64 python_address;     /* of python_count struct gpuperf_python_frame */
	__u64 exact_frames[GPUPERF_STACK_FRAMES / 64]; /* bit per frame that a signal interrupted */
	__u16 frame_count;        /* at most GPUPERF_STACK_FRAMES */
	__u16 python_count;       /* at most GPUPERF_PYTHON_FRAMES */
	__u8 end;                 /* GPUPERF_STACK_*, not GPUPERF_STACK_UNKNOWN */
	__u8 python_is_cut;
	__u16 pad;
};

/* Launches of one thread, kept to be reported together, oldest first. Noted by `launches`, on any thread of the
 * process, and again when more were kept: the earlier ones are then unchanged. */
struct gpuperf_noted_launches {
	__u64 thread_address;     /* hooked_address that the launching thread noted */
	__u64 number;             /* consecutive per thread, from 1 */
	__u64 base_mono_ns;
	__u32 count;              /* at most GPUPERF_LAUNCHES; 0 = all were taken */
	__u32 site_count;         /* at most GPUPERF_LAUNCH_SITES */
	struct gpuperf_launch_site sites[GPUPERF_LAUNCH_SITES];
	struct gpuperf_kept_launch launches[GPUPERF_LAUNCHES];
};

#define GPUPERF_KEPT_NOTES 16 /* per thread, at once */

/* A thread's kept launches: it fills one note after another, and another thread notes them. */
struct gpuperf_kept_launches {
	__u64 number;             /* of the note being filled, at index number % GPUPERF_KEPT_NOTES */
	struct gpuperf_noted_launches notes[GPUPERF_KEPT_NOTES];
};
