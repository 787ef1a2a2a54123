/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* The maps, all of them, and the kernel types the programs read. */
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
struct signal_struct {
	struct {
		int counter;
	} live;
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

/* One probed call a thread is inside of. */
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
	__u8 has_split;    /* 0 = nothing happened yet that `split` would show: it is not even zeroed */
	__u8 child_count;
	__u8 is_hooked;    /* a launch hook's call, which its process counts by itself */
	__u8 pad[5];
	struct gpuperf_time_split split; /* its faults stay unused here */
	struct gpuperf_child children[GPUPERF_CHILDREN];
	__u64 hooked_ns;   /* of the thread, at entry; less what calls made inside were charged already */
};
#define GPUPERF_NO_CELL 0xffffffffu

#define GPUPERF_CELL_CACHE 16 /* a thread calls few functions often; a power of two */

#define GPUPERF_GHOSTS 8 /* a power of two */

#define GPUPERF_SITE_CACHE 32 /* a power of two: places in a loop of launches that take turns */

/* A site that was sent, as sent_sites has it. */
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

/* How the thread left the CPU, and who woke it. Written by the hooks of call_state.bpf.c. */
struct gpuperf_off_cpu {
	__u64 since_ns;    /* 0 = on the CPU */
	__u64 queue_throttle_ns;
	__u64 group_throttle_ns;
	/* The scheduler's own accounts of the thread when it left, by its own clock. */
	__u64 run_delay_ns;
	__u64 exec_start_ns;
	__u64 exec_sum_ns;
	__u32 cpu;
	__u32 blocked;     /* by its own doing; else it could run */
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
};

/* The outermost hooked call that the thread is inside of: see hooked_call.bpf.h. */
struct gpuperf_hooked_call {
	__u64 address;     /* of struct gpuperf_hooked_thread; 0 = none was noted */
	__u64 start_ns;    /* as the thread says; 0 = it was in none when it was looked at last */
	__u64 seen_ns;     /* when that was */
	__u32 place;       /* 1 + index of its frame; 0 = it has none */
	__u32 pad;
};

/* The probed and hooked calls a thread is inside of, outermost first. 6.7 KiB, only for threads that ever made one. */
struct gpuperf_thread {
	__u64 created_ns;  /* a call that began earlier belongs to the parent this thread was forked from */
	__u32 depth;
	__u32 next_ghost;
	/* What the newer of two links found in the lane's word at the latest hit; 0 = nothing to agree on. */
	__u64 newer_cookie;
	__u64 newer_word;
	/* cell << 32 | function id + 1: saves the look-up in cell_index, 17 of some 60 ns. A cell stays
	 * its process's until that has exited, and this memory goes with the thread. */
	__u64 cells[GPUPERF_CELL_CACHE];
	/* The last calls given up, in a circle. */
	struct gpuperf_ghost ghosts[GPUPERF_GHOSTS];
	__u64 next_stack_ns; /* no launch before carries a stack, where they are paced */
	struct gpuperf_hooked_call hooked;
	struct gpuperf_sent_site sites[GPUPERF_SITE_CACHE]; /* of its last launches: saves the look-up */
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

/* Entry of the driver (enum gpuperf_hook_entry) -> 1 + id of its function; 0 = not configured, or switched off. */
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
	__u64 taken_number;  /* of the kept launches that were taken last */
	__u64 next_stack_ns; /* when a further stack of them is due, where they are paced */
	__u32 taken_count;   /* how many of them */
	__u32 taken_sites;   /* how many of theirs */
	__u32 tid;
	__u32 pad;
};

/* Thread that noted an address. Launches may be reported by another thread of its process. Sized as `threads`
 * that launch: 4,096 of one process, and the least recently used go. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct noted_thread_key);
	__type(value, struct noted_thread);
} noted_threads GPUPERF_MAP;

struct hooked_process {
	__u64 address; /* of struct gpuperf_hooked_process */
	__u64 taken;   /* sequence of the last note of its calls that was taken */
	__u64 is_executing; /* another program: its last other thread is the end of this one */
};

/* Processes whose hooks count, until they end or execute another program: see hooked_process.bpf.c. (set): stats.max_cells. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct gpuperf_process_key);
	__type(value, struct hooked_process);
} hooked_processes GPUPERF_MAP;

/* Where counts of hooks are added up: see hooked_counts.bpf.h. */
struct gpuperf_counts_room {
	struct gpuperf_entry_counts sum;
	struct gpuperf_entry_counts read;
	struct gpuperf_hooked_process process;
	__u32 base_in_flight; /* of what the sum began with */
	__u32 reads_left;
	__u32 launches_left;
	__u32 pad;
};

/* By thread: programs may be preempted by those of another thread on their CPU. As many as do so at once. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct gpuperf_counts_room);
} counts_rooms GPUPERF_MAP;

/* What new entries are copied from: never written. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gpuperf_counts_room);
} empty_counts_room GPUPERF_MAP;

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

/* Cells nobody owns, zeroed by the daemon before it puts them here. (set): stats.max_cells. */
struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, 1);
	__type(value, __u32);
} free_cells GPUPERF_MAP;

/* What users beside root have and may have of the cells, together. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gpuperf_cell_room);
} cell_room GPUPERF_MAP;

/* User -> its cells, of users beside root; who has none leaves at the daemon's next read. More users at once share
 * the overflow cells. */
#define GPUPERF_CELL_USERS 1024
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, GPUPERF_CELL_USERS);
	__type(key, __u32);
	__type(value, __u32);
} cells_by_user GPUPERF_MAP;

/* Processes that own cells: whose exit the daemon wants to hear of. Not preallocated: there are
 * far fewer processes than cells. (set): stats.max_cells. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct gpuperf_process_key);
	__type(value, struct gpuperf_process_info);
} processes GPUPERF_MAP;

/* (cell, GEMM shape) -> calls and time. A large model has some hundred shapes a process. */
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

/* 4 MiB holds about 1,800 slow calls: 200 ms between two drains at 9,000 slow calls a second. Half of it
 * is kept for the longest of each function and process. */
#define GPUPERF_SLOW_RING_BYTES (1 << 22)
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, GPUPERF_SLOW_RING_BYTES);
} slow_ring GPUPERF_MAP;

/* What a process, and a user other than root, sent of slow calls within the window. Key: pid, or
 * GPUPERF_SHARE_OF_USER | uid. Those seen longest ago leave: they begin anew. */
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

/* Apart from the slow calls, so that a storm of those cannot hide an exit. 64 KiB: 2,000 exits. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} process_ring GPUPERF_MAP;

/* Apart likewise. 256 KiB: 870 names of kernels between two drains. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} name_ring GPUPERF_MAP;

/* Where a frame's caller is found, by the address where its function is stopped. Filled as walks meet addresses
 * (64 bytes of kernel memory each); the daemon empties it of processes that have gone. A large PyTorch program
 * has some 20,000 addresses on its stacks. */
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

/* Process -> how often its loader has changed what is mapped. Those that do so most seldom are forgotten, and
 * their mappings looked at again. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, __u32);
} code_changes GPUPERF_MAP;

/* A native frame, with what the next walk of the thread can do without if it meets the same one. */
struct gpuperf_walk_frame {
	__u64 pc;
	__u64 sp;
	/* How it led to its caller's; of kind UNKNOWN: not to be gone by again, and bp_at = a signal stopped it at pc. */
	struct gpuperf_unwind_rule rule;
	__u64 hash;               /* of this frame and those further out */
};

#define GPUPERF_WALK_PAGE_BYTES 4096
#define GPUPERF_WALK_PIECE_BYTES 192 /* what is read of a frame of Python lies closer together, in all versions */
#define GPUPERF_WALK_LINES 32        /* a power of two */

/* The first line of a code object, as one walk read it. */
struct gpuperf_walk_line {
	__u64 address;            /* where it stands */
	__u64 walk_number;        /* another walk may find another object there */
	__u32 first_line;
	__u32 pad;
};

/* A stack as a thread's last walk found it, and what a walk has read of the process's memory. 15.4 KiB, so that it
 * fits into 16 with its header; only for threads of which a stack was taken. */
struct gpuperf_walk {
	struct gpuperf_walk_frame frames[GPUPERF_STACK_FRAMES]; /* from `start` on, the outermost last */
	struct gpuperf_python_frame python[GPUPERF_PYTHON_FRAMES];
	__u64 stack_id;
	__u64 hash;
	__u64 process_start_boot_ns;
	__u64 bp;                 /* of the last frame */
	__u64 trampoline;         /* what return probes put in the place of addresses; 0 = none was met yet */
	__u32 pid;
	__u32 tid;
	__u32 space;
	__u32 code_changes;
	__u32 start;
	/* Where the walk stands; here and not on the program's stack, where the verifier would follow each value. Frames
	 * found anew stand at the front of `frames`, innermost first, until the walk is at its end; those of the last
	 * walk at the back, and those that both have stay where they are. There are never more new ones than old ones
	 * passed, or none of the old ones is left. */
	__u32 new_count;
	__u32 old;                /* the next of the last walk that may be met; GPUPERF_STACK_FRAMES = none */
	__u32 first_same;         /* from this one on up to `old` all were met; GPUPERF_STACK_FRAMES = none */
	struct unwind_frame frame;
	__u32 python_count;
	__u32 end;                /* GPUPERF_STACK_* */
	__u32 python_is_cut;
	/* This thread's PyThreadStates, one for each interpreter it uses, as found last. */
	__u64 python_threads[GPUPERF_PYTHON_STATES];
	__u32 python_thread_count;
	__u32 python_space;       /* where they were found; 0 = never looked */
	__u64 python_search_ns;   /* when */
	__u32 busy;
	__u32 pad;
	__u64 number;             /* of the walk */
	/* One page of memory, and less than that, as they are during this walk. */
	__u64 page_address;       /* GPUPERF_WALK_NOTHING = none was read */
	__u64 piece_address;
	__u32 is_python_near;     /* what is read now are frames of Python that lie side by side (since 3.11) */
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

/* From Linux 7.0 on the storage of tasks takes no more than 8 KiB: there the walks are by thread, and go when it ends. */
#define GPUPERF_WALKING_THREADS 4096

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, GPUPERF_WALKING_THREADS);
	__type(key, __u32);
	__type(value, struct gpuperf_walk);
} walks_by_thread GPUPERF_MAP;

/* What new entries are copied from: never written. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gpuperf_walk);
} empty_walk GPUPERF_MAP;

/* A rule of a return address that a walk has gone by. */
struct gpuperf_known_rule {
	__u64 pc;
	struct gpuperf_unwind_rule rule;
};

#define GPUPERF_KNOWN_RULES 1760  /* 44 ways of 40 frames that have none in common; as many as fit, see below */
#define GPUPERF_KNOWN_PLACES 2048 /* a power of two */

/* The rules by which a thread's walks went last, in the order of the walks. 31.5 KiB, so that it fits into 32 with its
 * header; only for threads of which a stack was taken. */
struct gpuperf_known_rules {
	__u32 space;              /* for which they hold */
	__u32 count;              /* so many are filled */
	__u32 next;               /* where the next one goes: over the oldest */
	__u32 at;                 /* behind the one found last: the next to be looked for, likely */
	__u16 places[GPUPERF_KNOWN_PLACES]; /* by a hash of the address: where its rule may be */
	struct gpuperf_known_rule rules[GPUPERF_KNOWN_RULES];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct gpuperf_known_rules);
} known_rules GPUPERF_MAP;

/* Likewise. */
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
	__u64 begun_ns;    /* the capture that began last */
	__u64 refilled_ns;
	__s64 launches_left;
	__u32 open;        /* captures that are followed and have not ended */
};

/* By pid. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct gpuperf_capturing);
} capturing GPUPERF_MAP;

/* Stacks that were sent: others like them are named only. The daemon keeps more. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, __u32);
} sent_stacks GPUPERF_MAP;

/* 4 MiB: 640 new stacks of full size between two drains. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} stack_ring GPUPERF_MAP;

/* 16 MiB: 238 stacks to be walked by the daemon, as many as a program that begins to launch may bring
 * before the first of them has been learned from. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 24);
} stack_copy_ring GPUPERF_MAP;

/* What is traced of processes without an order of their own. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gpuperf_trace_order);
} trace_everyone GPUPERF_MAP;

/* Process -> what is traced of it. */
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
