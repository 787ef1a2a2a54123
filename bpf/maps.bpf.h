/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* All maps, and the kernel types the programs read. */
#pragma once

#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <linux/types.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "bpf/hook_notes.h"
#include "bpf/records.h"
#include "bpf/unwind_frame.h"

/* Only the fields used; CO-RE finds their offsets in the running kernel's BTF. */
struct upid {
	int nr;
} __attribute__((preserve_access_index));

struct pid {
	struct upid numbers[1]; /* one for each pid namespace, that of the host first */
} __attribute__((preserve_access_index));

struct signal_struct {
	struct {
		int counter;
	} live;
	struct pid *pids[4]; /* enum pid_type */
} __attribute__((preserve_access_index));

struct kernfs_node {
	const char *name;
} __attribute__((preserve_access_index));

struct cgroup;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
} __attribute__((preserve_access_index));

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
} __attribute__((preserve_access_index));

struct css_set {
	struct cgroup *dfl_cgrp;
} __attribute__((preserve_access_index));

struct bpf_local_storage;
struct files_struct;

struct return_instance {
	unsigned long stack;
	unsigned long orig_ret_vaddr;
	struct return_instance *next;
} __attribute__((preserve_access_index));

struct uprobe_task {
	struct return_instance *return_instances;
} __attribute__((preserve_access_index));

struct mm_struct {
	unsigned long exec_vm;
	unsigned long start_stack;
} __attribute__((preserve_access_index));

struct vm_area_struct {
	unsigned long vm_end;
} __attribute__((preserve_access_index));

struct thread_struct {
	unsigned long fsbase;
} __attribute__((preserve_access_index));

struct task_group;
struct cfs_rq;

struct sched_entity {
	__u64 exec_start;
	__u64 sum_exec_runtime;
	struct cfs_rq *cfs_rq;
} __attribute__((preserve_access_index));

struct sched_info {
	unsigned long long run_delay;
} __attribute__((preserve_access_index));

struct task_struct {
	struct sched_info sched_info;
	unsigned int __state;
	unsigned int flags;
	struct sched_entity se;
	struct task_group *sched_task_group;
	struct task_struct *group_leader;
	struct css_set *cgroups;
	struct signal_struct *signal;
	struct files_struct *files;
	struct uprobe_task *utask;
	struct mm_struct *mm;
	struct thread_struct thread;
	unsigned long sas_ss_sp;
	unsigned long sas_ss_size;
	struct bpf_local_storage *bpf_storage;
	__u64 start_boottime;
	unsigned long min_flt;
	unsigned long maj_flt;
	int tgid;
	int pid;
	char comm[GPUPERF_COMM_BYTES];
} __attribute__((preserve_access_index));

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
} __attribute__((preserve_access_index));

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} __attribute__((preserve_access_index));

/* One probed or hooked call in flight on a thread. */
struct gpuperf_frame {
	__u64 sp;          /* user stack pointer at entry: tells frames of one thread apart */
	__u64 start_ns;
	__u64 child_ns;    /* inclusive time of the probed and hooked calls made inside */
	__u64 cookie;      /* function, lane and generation */
	__u32 cell;        /* GPUPERF_NO_CELL: forwarded, counted by the frame around it */
	__u32 values_unread;
	__u64 values[GPUPERF_VALUES];
	__u64 bp;          /* user frame pointer at entry */
	__u32 minor_faults; /* of the thread, at entry; the low bits are enough for a difference */
	__u32 major_faults;
	__u8 has_split;    /* 0 = nothing to show in `split` yet: it is not even zeroed */
	__u8 child_count;
	__u8 is_hooked;    /* a hooked call, which its process counts itself */
	__u8 pad[5];
	struct gpuperf_time_split split; /* its fault counts are unused here */
	struct gpuperf_child children[GPUPERF_CHILDREN];
	__u64 hooked_ns;   /* of the thread, at entry, plus what calls made inside were already charged */
};
#define GPUPERF_NO_CELL 0xffffffffu

#define GPUPERF_CELL_CACHE 16 /* a thread calls few functions often; a power of two */

#define GPUPERF_GHOSTS 8 /* a power of two */

#define GPUPERF_SITE_CACHE 32 /* a power of two: launch sites that take turns in a loop */

/* A sent site, as in sent_sites. */
struct gpuperf_sent_site {
	__u64 site_id;     /* 0 = none */
	__u64 sent_ns;
};

/* A call counted as abandoned. */
struct gpuperf_ghost {
	__u64 sp;          /* 0 = none */
	__u64 cookie;
	__u64 start_ns;
	__u32 cell;
	__u32 pad;
};

/* How the thread left the CPU, and who woke it. Written by the programs of call_state.bpf.c: for
 * threads in calls, and for all that are traced. */
struct gpuperf_off_cpu {
	__u64 since_ns;    /* 0 = on the CPU */
	__u64 queue_throttle_ns;
	__u64 group_throttle_ns;
	/* The scheduler's own accounting of the thread when it left, by the scheduler's clock. */
	__u64 run_delay_ns;
	__u64 exec_start_ns;
	__u64 exec_sum_ns;
	__u32 cpu;
	__u32 blocked;     /* voluntarily; else it was runnable */
	__s32 syscall;
	__s32 fd;          /* the file waited on; -1 = none */
	__u64 wake_ns;     /* 0 = not yet */
	__u32 waker_tid;
	__u32 waker_pid;
	__u32 waker_is_kernel;
	__u32 pad;
	__u64 waker_start_boot_ns;
	char waker_comm[GPUPERF_COMM_BYTES];
	__u64 waker_stack_id;
	__u64 stack_id;    /* of the thread itself; 0 = none was taken */
	__u32 is_traced;   /* this time is sent: GPUPERF_TRACE_THREADS */
	__u32 pad2;
};

/* The outermost hooked call in flight on the thread: see hooked_call.bpf.h. */
struct gpuperf_hooked_call {
	__u64 address;     /* of struct gpuperf_hooked_thread; 0 = none was noted */
	__u64 start_ns;    /* as the thread reports; 0 = it was in none at the last check */
	__u64 seen_ns;     /* time of the last check */
	__u32 place;       /* 1 + index of its frame; 0 = it has none */
	__u32 pad;
};

/* The turn in progress: see turn.bpf.h. */
struct gpuperf_thread_turn {
	struct gpuperf_turn now;
	__u64 reported_ns; /* when the last copy was reported */
	__u64 hooked_ns;   /* of the thread's hooked calls, after the last copy to the host */
};

/* The probed and hooked calls in flight on a thread, outermost first. 6.7 KiB, only for threads that ever made one. */
struct gpuperf_thread {
	__u64 created_ns;  /* a call that began earlier belongs to the parent this thread was forked from */
	__u64 cost_ns;     /* of its probed calls: struct gpuperf_thread_cost */
	__u32 depth;
	__u32 next_ghost;
	/* What the newer of two links found in the lane's word at the latest hit; 0 = nothing to agree on. */
	__u64 newer_cookie;
	__u64 newer_word;
	/* cell << 32 | function id + 1: saves the lookup in cell_index, 17 of about 60 ns. A process keeps its cell
	 * until it has exited, and this memory goes with the thread. */
	__u64 cells[GPUPERF_CELL_CACHE];
	/* The last abandoned calls, as a ring. */
	struct gpuperf_ghost ghosts[GPUPERF_GHOSTS];
	__u64 next_stack_ns; /* where stacks are paced, no launch before this carries one */
	__u64 thread_stack_ns; /* up to when stacks for struct gpuperf_thread_time are used up */
	struct gpuperf_hooked_call hooked;
	struct gpuperf_thread_turn turn;
	struct gpuperf_sent_site sites[GPUPERF_SITE_CACHE]; /* of its last launches: saves the lookup */
	struct gpuperf_off_cpu off_cpu;
	struct gpuperf_wait waits[GPUPERF_WAITS]; /* the longest of the calls in flight, and stale ones */
	struct gpuperf_frame frames[GPUPERF_CALL_DEPTH];
};

/* Weak, so that bpftool's linker merges the copies of the two programs' objects into one map.
 * max_entries marked (set) are set by the daemon before load. */
#define GPUPERF_MAP __weak SEC(".maps")

/* Function id -> what it is. (set): number of functions. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gpuperf_function);
} functions GPUPERF_MAP;

/* Function id -> what to keep of its arguments. (set): number of functions. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gpuperf_plan);
} plans GPUPERF_MAP;

/* Driver entry (enum gpuperf_hook_entry) -> 1 + id of its function; 0 = not configured, or switched off. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, GPUPERF_HOOK_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} hooked_functions GPUPERF_MAP;

struct noted_thread_key {
	__u64 address; /* of struct gpuperf_hooked_thread */
	__u32 tgid;
	__u32 pad;
};

struct noted_thread {
	__u64 taken_number;  /* of the kept launches taken last */
	__u64 next_stack_ns; /* where stacks are paced, when the next is due */
	__u32 taken_count;   /* how many of them were taken */
	__u32 taken_sites;   /* how many of their sites were taken */
	__u32 tid;
	__u32 pad;
};

/* Address -> the thread that noted it. Another thread of its process may report its launches. Sized for `threads`
 * that launch: 4,096 of one process; the least recently used are evicted. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct noted_thread_key);
	__type(value, struct noted_thread);
} noted_threads GPUPERF_MAP;

struct hooked_process {
	__u64 address; /* of struct gpuperf_hooked_process */
	__u64 taken;   /* sequence of its last `calls` note that was taken */
	__u64 is_executing; /* another program: this one ends with its last other thread */
};

/* Processes whose hooks count, until they end or exec: see hooked_process.bpf.c. (set): stats.max_cells. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct gpuperf_process_key);
	__type(value, struct hooked_process);
} hooked_processes GPUPERF_MAP;

/* Where hook counts are added up: see hooked_counts.bpf.h. */
struct gpuperf_counts_room {
	struct gpuperf_entry_counts sum;
	struct gpuperf_entry_counts read;
	struct gpuperf_hooked_process process;
	__u32 base_in_flight; /* of the counts the sum began with */
	__u32 reads_left;
	__u32 launches_left;
	__u32 pad;
};

/* Keyed by thread: another thread's program may preempt this one on its CPU. Sized for as many at once. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct gpuperf_counts_room);
} counts_rooms GPUPERF_MAP;

/* Template of new entries: never written. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gpuperf_counts_room);
} empty_counts_room GPUPERF_MAP;

/* Index of a tensor layout -> where its fields lie. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GPUPERF_TENSOR_LAYOUTS);
	__type(key, __u32);
	__type(value, struct gpuperf_tensor_layout);
} tensor_layouts GPUPERF_MAP;

/* Lane -> the generation whose hits count. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, GPUPERF_LANES);
	__type(key, __u32);
	__type(value, __u64);
} lanes GPUPERF_MAP;

/* Totals. The first cells, one per function, take the calls of processes that found no cell of their
 * own; the rest are handed out through free_cells. (set): functions + stats.max_cells. Shared by all
 * CPUs: per-CPU cells would need 192 times the memory on a 192-CPU host. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gpuperf_cell);
} cells GPUPERF_MAP;

/* (function, process) -> cell. (set): stats.max_cells. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct gpuperf_cell_key);
	__type(value, struct gpuperf_cell_owner);
} cell_index GPUPERF_MAP;

/* Free cells, zeroed by the daemon before it puts them here. (set): stats.max_cells. */
struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, 1);
	__type(value, __u32);
} free_cells GPUPERF_MAP;

/* Cells that all users other than root own, and may own, together. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gpuperf_cell_room);
} cell_room GPUPERF_MAP;

/* User -> its cells, for users other than root. Users without cells are removed at the daemon's next read. More
 * users at once share the overflow cells. */
#define GPUPERF_CELL_USERS 1024
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, GPUPERF_CELL_USERS);
	__type(key, __u32);
	__type(value, __u32);
} cells_by_user GPUPERF_MAP;

/* Processes that own cells: their exit is reported to the daemon. Not preallocated: there are far fewer processes
 * than cells. (set): stats.max_cells. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct gpuperf_process_key);
	__type(value, struct gpuperf_process_info);
} processes GPUPERF_MAP;

/* (cell, GEMM shape) -> calls and time. A large model has a few hundred shapes per process. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 8192);
	__type(key, struct gpuperf_shape_key);
	__type(value, struct gpuperf_shape_totals);
} shapes GPUPERF_MAP;

/* Freed by the kernel with the thread: nothing stays behind when a thread dies inside a call. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct gpuperf_thread);
} threads GPUPERF_MAP;

/* enum gpuperf_loss -> count. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, GPUPERF_LOSS_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} losses GPUPERF_MAP;

/* 4 MiB holds about 1,800 slow calls: 200 ms between two drains at 9,000 slow calls a second. Half of it is reserved
 * for the longest of each function and process. */
#define GPUPERF_SLOW_RING_BYTES (1 << 22)
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, GPUPERF_SLOW_RING_BYTES);
} slow_ring GPUPERF_MAP;

/* Slow calls that a process, and a user other than root, sent within the window. Key: pid, or GPUPERF_SHARE_OF_USER
 * | uid. The least recently used are evicted, and start again. */
#define GPUPERF_SHARE_OF_USER (1ull << 32)
struct gpuperf_slow_share {
	__u64 window_start_ns;
	__u64 records;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct gpuperf_slow_share);
} slow_shares GPUPERF_MAP;

/* Separate from slow calls, so that a flood of those cannot hide an exit. 64 KiB: 2,000 exits. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} process_ring GPUPERF_MAP;

/* Separate likewise. 256 KiB: 870 kernel names between two drains. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} name_ring GPUPERF_MAP;

/* How to find a frame's caller, by the address where its function is stopped. Filled as walks meet addresses (64
 * bytes of kernel memory each); the daemon removes those of processes that have exited. A large PyTorch program has
 * about 20,000 addresses on its stacks. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, GPUPERF_UNWIND_RULES);
	__type(key, struct gpuperf_unwind_key);
	__type(value, struct gpuperf_unwind_rule);
} unwind_rules GPUPERF_MAP;

/* Processes whose stacks can be walked here. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, struct gpuperf_address_space);
} address_spaces GPUPERF_MAP;

#define GPUPERF_PYTHON_STATES 4

/* Process -> how often its loader has changed the mappings. The least recently used are evicted, and their mappings
 * are read again. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, __u32);
} code_changes GPUPERF_MAP;

/* A native frame, with what the thread's next walk can reuse if it meets the same one. */
struct gpuperf_walk_frame {
	__u64 pc;
	__u64 sp;
	/* How it led to its caller's; kind UNKNOWN: do not reuse, and bp_at = a signal stopped it at pc. */
	struct gpuperf_unwind_rule rule;
	__u64 hash;               /* of this frame and those further out */
};

#define GPUPERF_WALK_PAGE_BYTES 4096
#define GPUPERF_WALK_PIECE_BYTES 192 /* all reads of a Python frame are closer together, in all versions */
#define GPUPERF_WALK_LINES 32        /* a power of two */

/* The first line of a code object, as one walk read it. */
struct gpuperf_walk_line {
	__u64 address;            /* where the line is */
	__u64 walk_number;        /* another walk may find another object there */
	__u32 first_line;
	__u32 pad;
};

/* The stack a thread's last walk found, and process memory that a walk has read. 15.4 KiB, so that it fits into 16
 * with its header; only for threads whose stack was taken. */
struct gpuperf_walk {
	struct gpuperf_walk_frame frames[GPUPERF_STACK_FRAMES]; /* from `start` on, the outermost last */
	struct gpuperf_python_frame python[GPUPERF_PYTHON_FRAMES];
	__u64 stack_id;
	__u64 hash;
	__u64 process_start_boot_ns;
	__u64 bp;                 /* of the last frame */
	__u64 trampoline;         /* what return probes put in place of return addresses; 0 = not met yet */
	__u32 pid;
	__u32 tid;
	__u32 space;
	__u32 code_changes;
	__u32 start;
	/* State of the walk, kept here because the verifier would track each value on the program's stack. New
	 * frames are at the front of `frames`, innermost first, until the walk ends; those of the last walk are at
	 * the back, and those that both have stay in place. There are never more new ones than old ones passed, or
	 * no old ones are left. */
	__u32 new_count;
	__u32 old;                /* next frame of the last walk that may be met; GPUPERF_STACK_FRAMES = none */
	__u32 first_same;         /* from this one up to `old` all were met; GPUPERF_STACK_FRAMES = none */
	struct unwind_frame frame;
	__u32 python_count;
	__u32 end;                /* GPUPERF_STACK_* */
	__u32 python_is_cut;
	/* This thread's PyThreadStates, one for each interpreter it uses, as last found. */
	__u64 python_threads[GPUPERF_PYTHON_STATES];
	__u32 python_thread_count;
	__u32 python_space;       /* where they were found; 0 = never looked */
	__u64 python_search_ns;   /* time of that search */
	__u32 busy;
	__u32 pad;
	__u64 number;             /* of the walk */
	/* One page of memory and one smaller piece, as they are during this walk. */
	__u64 page_address;       /* GPUPERF_WALK_NOTHING = none was read */
	__u64 piece_address;
	__u32 is_python_near;     /* now reading Python frames that are adjacent in memory (since 3.11) */
	__u32 pad2;
	__u8 page[GPUPERF_WALK_PAGE_BYTES + 8];
	__u8 piece[GPUPERF_WALK_PIECE_BYTES];
	struct gpuperf_walk_line lines[GPUPERF_WALK_LINES];
};
#define GPUPERF_WALK_NOTHING (~0ull) /* no page begins there */

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct gpuperf_walk);
} walks GPUPERF_MAP;

/* Since Linux 7.0 task storage holds at most 8 KiB: there walks are keyed by thread, and deleted when it ends. */
#define GPUPERF_WALKING_THREADS 4096

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, GPUPERF_WALKING_THREADS);
	__type(key, __u32);
	__type(value, struct gpuperf_walk);
} walks_by_thread GPUPERF_MAP;

/* Template of new entries: never written. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gpuperf_walk);
} empty_walk GPUPERF_MAP;

/* The rule of a return address that a walk has used. */
struct gpuperf_known_rule {
	__u64 pc;
	struct gpuperf_unwind_rule rule;
};

#define GPUPERF_KNOWN_RULES 1760  /* 44 paths of 40 frames with none in common; as many as fit, see below */
#define GPUPERF_KNOWN_PLACES 2048 /* a power of two */

/* The rules that a thread's last walks used, in the order of the walks. 31.5 KiB, so that it fits into 32 with its
 * header; only for threads whose stack was taken. */
struct gpuperf_known_rules {
	__u32 space;              /* for which they are valid */
	__u32 count;              /* how many are filled */
	__u32 next;               /* where the next one goes: it replaces the oldest */
	__u32 at;                 /* after the one found last: likely the next one needed */
	__u16 places[GPUPERF_KNOWN_PLACES]; /* by a hash of the address: where its rule may be */
	struct gpuperf_known_rule rules[GPUPERF_KNOWN_RULES];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct gpuperf_known_rules);
} known_rules GPUPERF_MAP;

/* Same as walks_by_thread. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, GPUPERF_WALKING_THREADS);
	__type(key, __u32);
	__type(value, struct gpuperf_known_rules);
} known_rules_by_thread GPUPERF_MAP;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gpuperf_known_rules);
} empty_known_rules GPUPERF_MAP;

/* A process that captures graphs, or did. */
struct gpuperf_capturing {
	__u64 begun_ns;    /* of the latest capture */
	__u64 refilled_ns;
	__s64 launches_left;
	__u32 open;        /* followed captures that have not ended */
};

/* Key: pid. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct gpuperf_capturing);
} capturing GPUPERF_MAP;

/* Process -> copies to the host that were reported and that no wait was reported after. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u64);
} unawaited_copies GPUPERF_MAP;

struct gpuperf_graph_key {
	__u64 handle; /* of a CUgraph or CUgraphExec */
	__u32 pid;
	__u32 pad;
};

/* The matrix products in a CUDA graph, from its capture. The least recently used are evicted. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct gpuperf_graph_key);
	__type(value, struct gpuperf_product_rows);
} graph_products GPUPERF_MAP;

/* Sessions (setsid(2)) of processes with steps: their processes serve requests. Producer: daemon. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, GPUPERF_REQUEST_SESSIONS);
	__type(key, __u32);
	__type(value, __u32);
} request_sessions GPUPERF_MAP;

/* A connection that a process of these sessions has read from. */
struct gpuperf_connection {
	__u64 process_start_boot_ns;
	__u64 read_start_mono_ns; /* first and last time since the response before */
	__u64 read_end_mono_ns;
	__u32 pid;
	__u8 is_read;             /* since the response before */
	__u8 is_answering;
	__u8 pad[2];
};

/* By the address of the kernel's socket; they leave when they are closed. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct gpuperf_connection);
} connections GPUPERF_MAP;

/* Stacks that were sent: equal ones are only referred to. The daemon keeps more. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, __u32);
} sent_stacks GPUPERF_MAP;

/* 4 MiB: 640 new full-size stacks between two drains. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} stack_ring GPUPERF_MAP;

/* 16 MiB: 238 stacks for the daemon to walk, as many as a program that starts to launch may send before the daemon
 * has learned from the first of them. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 24);
} stack_copy_ring GPUPERF_MAP;

/* What to trace of processes without an order of their own. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gpuperf_trace_order);
} trace_everyone GPUPERF_MAP;

/* Process -> what to trace of it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, struct gpuperf_trace_order);
} trace_processes GPUPERF_MAP;

/* Sites that were sent, and when. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, __u64);
} sent_sites GPUPERF_MAP;

/* 8 MiB: 160,000 launches between two drains. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 23);
} trace_ring GPUPERF_MAP;

/* 2 MiB: 13,000 calls between two drains. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 21);
} report_ring GPUPERF_MAP;
