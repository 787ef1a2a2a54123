/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Where the time of calls in flight goes while their thread is off the CPU, and what a slow call's record
 * says of it. A thread off the CPU pushes and pops no frames, so the hooks need no lock.
 */
#pragma once

#include "bpf/call_stack.bpf.h"

#define GPUPERF_NOTED_WAIT_NS 50000ull      /* shorter waits are added up and not described */
#define GPUPERF_WAKER_STACK_WAIT_NS 1000000ull /* a walk of a stack takes some microseconds */
#define GPUPERF_MODE_TYPE 0170000
#define GPUPERF_PF_KTHREAD 0x00200000

struct qstr {
	const unsigned char *name;
} __attribute__((preserve_access_index));

struct dentry {
	struct qstr d_name;
} __attribute__((preserve_access_index));

struct path {
	struct dentry *dentry;
} __attribute__((preserve_access_index));

struct inode {
	unsigned short i_mode;
} __attribute__((preserve_access_index));

struct file {
	struct path f_path;
	struct inode *f_inode;
} __attribute__((preserve_access_index));

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
} __attribute__((preserve_access_index));

struct files_struct {
	struct fdtable *fdt;
} __attribute__((preserve_access_index));

/* x86-64 system call numbers (asm/unistd_64.h). */
enum {
	SYSCALL_READ = 0, SYSCALL_WRITE = 1, SYSCALL_POLL = 7, SYSCALL_IOCTL = 16, SYSCALL_PREAD64 = 17,
	SYSCALL_PWRITE64 = 18, SYSCALL_READV = 19, SYSCALL_WRITEV = 20, SYSCALL_SELECT = 23,
	SYSCALL_MSYNC = 26, SYSCALL_NANOSLEEP = 35, SYSCALL_SENDFILE = 40, SYSCALL_CONNECT = 42,
	SYSCALL_ACCEPT = 43, SYSCALL_SENDTO = 44, SYSCALL_RECVFROM = 45, SYSCALL_SENDMSG = 46,
	SYSCALL_RECVMSG = 47, SYSCALL_EXIT = 60, SYSCALL_FSYNC = 74, SYSCALL_FDATASYNC = 75,
	SYSCALL_FUTEX = 202, SYSCALL_IO_GETEVENTS = 208, SYSCALL_CLOCK_NANOSLEEP = 230,
	SYSCALL_EXIT_GROUP = 231, SYSCALL_EPOLL_WAIT = 232, SYSCALL_PSELECT6 = 270, SYSCALL_PPOLL = 271,
	SYSCALL_SPLICE = 275, SYSCALL_EPOLL_PWAIT = 281, SYSCALL_ACCEPT4 = 288, SYSCALL_PREADV = 295,
	SYSCALL_PWRITEV = 296, SYSCALL_RECVMMSG = 299, SYSCALL_SENDMMSG = 307,
	SYSCALL_IO_URING_ENTER = 426, SYSCALL_EPOLL_PWAIT2 = 441, SYSCALL_FUTEX_WAITV = 449,
	SYSCALL_FUTEX_WAKE = 454, SYSCALL_FUTEX_WAIT = 455,
};

static __always_inline __s32 syscall_of(struct task_struct *task)
{
	const struct pt_regs *regs = (const void *)bpf_task_pt_regs(task);

	/* -1 in every exception and interrupt (the entry code stores it). */
	return (__s32)regs->orig_rax;
}

/* A task's state while it is inside of probed calls; NULL else. Most tasks never made a probed call: for
 * them this is one load. */
static __always_inline struct gpuperf_thread *thread_in_call(struct task_struct *task)
{
	struct gpuperf_thread *thread;

	if (!task->bpf_storage)
		return NULL;
	thread = bpf_task_storage_get(&threads, task, NULL, 0);
	return thread && thread->depth ? thread : NULL;
}

/* The file a system call works on, by its first argument; poll names it in memory, which only the thread
 * itself can read. */
static __always_inline __s32 find_waited_fd(struct task_struct *current_task, __s32 syscall)
{
	const struct pt_regs *regs = (const void *)bpf_task_pt_regs(current_task);
	__s32 fd = -1;

	switch (syscall) {
	case SYSCALL_POLL:
	case SYSCALL_PPOLL:
		/* struct pollfd begins with it; the first one stands for all */
		if (bpf_probe_read_user(&fd, sizeof(fd), (const void *)regs->rdi))
			fd = -1;
		return fd;
	case SYSCALL_READ: case SYSCALL_WRITE: case SYSCALL_IOCTL: case SYSCALL_PREAD64:
	case SYSCALL_PWRITE64: case SYSCALL_READV: case SYSCALL_WRITEV: case SYSCALL_CONNECT:
	case SYSCALL_ACCEPT: case SYSCALL_ACCEPT4: case SYSCALL_SENDTO: case SYSCALL_RECVFROM:
	case SYSCALL_SENDMSG: case SYSCALL_RECVMSG: case SYSCALL_FSYNC: case SYSCALL_FDATASYNC:
	case SYSCALL_PREADV: case SYSCALL_PWRITEV: case SYSCALL_RECVMMSG: case SYSCALL_SENDMMSG:
	case SYSCALL_SPLICE:
		return (__s32)regs->rdi;
	}
	return -1;
}

static __always_inline struct file *find_file(struct task_struct *task, __s32 fd)
{
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file **files, *file = NULL;

	if (fd < 0 || !table || (__u32)fd >= BPF_CORE_READ(table, max_fds))
		return NULL;
	files = BPF_CORE_READ(table, fd);
	if (bpf_probe_read_kernel(&file, sizeof(file), files + fd))
		return NULL;
	return file;
}

static __always_inline _Bool is_gpu_file(struct file *file)
{
	char name[6] = "";

	/* /dev/nvidia0, nvidiactl, nvidia-uvm, nvidia-caps/... */
	bpf_probe_read_kernel(name, sizeof(name), BPF_CORE_READ(file, f_path.dentry, d_name.name));
	return name[0] == 'n' && name[1] == 'v' && name[2] == 'i' && name[3] == 'd' && name[4] == 'i' &&
	       name[5] == 'a';
}

static __always_inline __u32 find_wait_kind(struct task_struct *task, __s32 syscall, __s32 fd)
{
	struct file *file;

	switch (syscall) {
	case -1:
		return GPUPERF_WAIT_FAULT;
	case SYSCALL_FUTEX: case SYSCALL_FUTEX_WAIT: case SYSCALL_FUTEX_WAITV:
		return GPUPERF_WAIT_FUTEX;
	case SYSCALL_NANOSLEEP: case SYSCALL_CLOCK_NANOSLEEP:
		return GPUPERF_WAIT_SLEEP;
	case SYSCALL_SELECT: case SYSCALL_PSELECT6: case SYSCALL_EPOLL_WAIT: case SYSCALL_EPOLL_PWAIT:
	case SYSCALL_EPOLL_PWAIT2:
		return GPUPERF_WAIT_POLL;
	case SYSCALL_POLL: case SYSCALL_PPOLL: case SYSCALL_IOCTL: case SYSCALL_READ:
		file = find_file(task, fd);
		if (file && is_gpu_file(file))
			return GPUPERF_WAIT_GPU;
		if (syscall == SYSCALL_READ)
			return GPUPERF_WAIT_IO;
		return syscall == SYSCALL_IOCTL ? GPUPERF_WAIT_OTHER : GPUPERF_WAIT_POLL;
	case SYSCALL_IO_GETEVENTS: case SYSCALL_IO_URING_ENTER: case SYSCALL_SENDFILE:
	case SYSCALL_MSYNC:
		return GPUPERF_WAIT_IO;
	}
	return fd >= 0 ? GPUPERF_WAIT_IO : GPUPERF_WAIT_OTHER; /* the rest of those with a file */
}

/* All of a wait but its times. The task sleeps, or is about to go on. */
static __always_inline void describe_wait(struct task_struct *task, const struct gpuperf_off_cpu *off,
					  __u32 kind, struct gpuperf_wait *wait)
{
	struct file *file = find_file(task, off->fd);

	__builtin_memset(wait, 0, sizeof(*wait));
	wait->syscall = off->syscall;
	wait->kind = kind;
	wait->waker_tid = off->waker_tid;
	wait->waker_pid = off->waker_pid;
	wait->waker_is_kernel = off->waker_is_kernel;
	wait->waker_start_boot_ns = off->waker_start_boot_ns;
	__builtin_memcpy(wait->waker_comm, off->waker_comm, sizeof(wait->waker_comm));
	wait->waker_stack_id = off->waker_stack_id;
	if (file) {
		wait->file_mode = BPF_CORE_READ(file, f_inode, i_mode);
		bpf_probe_read_kernel_str(wait->file_name, sizeof(wait->file_name),
					  BPF_CORE_READ(file, f_path.dentry, d_name.name));
	}
	/* A failed walk leaves what was zeroed. */
	bpf_get_task_stack(task, wait->kernel_stack, sizeof(wait->kernel_stack), 0);
}

static __always_inline struct gpuperf_time_split *split_of(struct gpuperf_frame *frame)
{
	if (!frame->has_split) {
		__builtin_memset(&frame->split, 0, sizeof(frame->split));
		frame->has_split = 1;
	}
	return &frame->split;
}

struct cfs_rq {
	__u64 throttled_clock_self_time;
} __attribute__((preserve_access_index));

struct cfs_bandwidth {
	__u64 throttled_time;
} __attribute__((preserve_access_index));

struct task_group {
	struct task_group *parent;
	struct cfs_bandwidth cfs_bandwidth;
} __attribute__((preserve_access_index));

#define GROUP_LEVELS 4 /* a container's quota lies on its cgroup, or on the pod's above it */

/* Nanoseconds for which the CPU's part of the task's cgroup, by its own quota or one above, has been
 * denied the CPU so far. Linux 6.6 and later. */
static __always_inline __u64 read_queue_throttle_ns(struct task_struct *task)
{
	struct cfs_rq *queue = task->se.cfs_rq;

	if (!bpf_core_field_exists(queue->throttled_clock_self_time))
		return 0;
	return queue->throttled_clock_self_time;
}

/* The same over all CPUs, of the cgroup and those above it: each CPU adds its own, so this is only an
 * upper bound. */
static __always_inline __u64 read_group_throttle_ns(struct task_struct *task)
{
	struct task_group *group = task->sched_task_group;
	__u64 sum_ns = 0;

	if (!bpf_core_field_exists(group->cfs_bandwidth))
		return 0;
	for (int i = 0; i < GROUP_LEVELS && group; i++) {
		sum_ns += group->cfs_bandwidth.throttled_time;
		group = group->parent;
	}
	return sum_ns;
}

/* Of GPUPERF_WAITS, an unused one first. */
static __always_inline struct gpuperf_wait *shortest_wait(struct gpuperf_wait *waits)
{
	__u64 least_ns = waits[0].duration_ns;
	__u32 place = 0;

	for (__u32 i = 1; i < GPUPERF_WAITS; i++) {
		if (waits[i].duration_ns < least_ns) {
			least_ns = waits[i].duration_ns;
			place = i;
		}
	}
	barrier_var(place);
	return &waits[place < GPUPERF_WAITS ? place : 0];
}

/* Keeps the wait when it is among the longest of the calls in flight. */
static __always_inline void note_wait(struct gpuperf_thread *thread, struct task_struct *task, __u32 kind,
				      __u64 blocked_ns)
{
	__u64 oldest_call_ns = thread->frames[0].start_ns;
	struct gpuperf_wait *wait;

	for (__u32 i = 0; i < GPUPERF_WAITS; i++) {
		wait = &thread->waits[i];
		if (wait->start_mono_ns < oldest_call_ns)
			wait->duration_ns = 0; /* of an earlier call */
	}
	wait = shortest_wait(thread->waits);
	if (blocked_ns <= wait->duration_ns)
		return;
	describe_wait(task, &thread->off_cpu, kind, wait);
	wait->duration_ns = blocked_ns;
	wait->start_mono_ns = thread->off_cpu.since_ns;
}

static __always_inline void return_to_cpu(struct gpuperf_thread *thread, struct task_struct *task,
					  __u64 now_ns, _Bool describe)
{
	struct gpuperf_off_cpu *off = &thread->off_cpu;
	__u64 since_ns = off->since_ns;
	__u64 woken_ns = !off->blocked ? since_ns : off->wake_ns ? off->wake_ns : now_ns;
	__u64 blocked_ns, runnable_ns;
	__u32 depth = thread->depth;
	_Bool migrated = off->cpu != bpf_get_smp_processor_id();
	_Bool same_queue = !migrated && bpf_core_field_exists(task->se.cfs_rq->throttled_clock_self_time);
	__u64 throttled_ns = same_queue ? read_queue_throttle_ns(task) - off->queue_throttle_ns
					: read_group_throttle_ns(task) - off->group_throttle_ns;
	__u32 kind;

	if (!since_ns)
		return; /* its first call began meanwhile */
	/* The clock may step back a little between two readings, around its own update and from CPU to CPU. */
	if (now_ns < since_ns)
		now_ns = since_ns;
	if (woken_ns < since_ns)
		woken_ns = since_ns;
	if (woken_ns > now_ns)
		woken_ns = now_ns;
	blocked_ns = woken_ns - since_ns;
	runnable_ns = now_ns - woken_ns;
	kind = off->blocked ? find_wait_kind(task, off->syscall, off->fd) : 0;
	barrier_var(kind);
	if (kind >= GPUPERF_WAIT_KINDS)
		return; /* cannot be */
	if (throttled_ns > runnable_ns)
		throttled_ns = runnable_ns;
	for (__u32 i = 0; i < GPUPERF_CALL_DEPTH && i < depth; i++) {
		struct gpuperf_frame *frame = call_stack_at(thread, i);
		struct gpuperf_time_split *split;

		if (!frame->start_ns || frame->start_ns > since_ns)
			continue;
		split = split_of(frame);
		split->waits_ns[kind] += blocked_ns;
		split->throttled_ns += throttled_ns;
		split->runnable_ns += runnable_ns - throttled_ns;
		split->preemptions += !off->blocked;
		split->migrations += migrated;
	}
	if (describe && off->blocked && blocked_ns >= GPUPERF_NOTED_WAIT_NS)
		note_wait(thread, task, kind, blocked_ns);
	off->since_ns = 0;
}

/* One in some thousand switches to a thread was seen to pass the hooks by. The wait is then added when the
 * thread is next heard of, not described: by the scheduler's own accounts, which say when it came back to the
 * CPU (when it was last accounted for, less what it ran since) and how long it waited for one before. They are
 * kept by each CPU's clock: for a thread that moved they say nothing, and the time counts as running. */
static __attribute__((noinline)) int mend_missed_return(struct gpuperf_thread *thread,
							struct task_struct *task)
{
	struct gpuperf_off_cpu *off = &thread->off_cpu;
	__u64 ran_ns = task->se.sum_exec_runtime - off->exec_sum_ns;
	__u64 away_ns = task->se.exec_start - off->exec_start_ns - ran_ns;
	__u64 waited_ns = task->sched_info.run_delay - off->run_delay_ns;

	if (off->cpu == bpf_get_smp_processor_id() && away_ns < bpf_ktime_get_ns() - off->since_ns) {
		off->wake_ns = off->since_ns + (waited_ns < away_ns ? away_ns - waited_ns : 0);
		return_to_cpu(thread, task, off->since_ns + away_ns, 0);
	}
	off->since_ns = 0;
	return 0;
}

/* The smaller of the thresholds in force that the duration passes; 0 = it is not slow. */
static __always_inline __u64 find_passed_threshold(const struct gpuperf_function *function,
						   __u64 duration_ns, __u8 *adaptive)
{
	__u64 absolute_ns = function->slow_threshold_ns, adaptive_ns = function->adaptive_threshold_ns;

	*adaptive = 0;
	if (absolute_ns && duration_ns >= absolute_ns)
		return absolute_ns;
	if (!adaptive_ns || duration_ns < adaptive_ns)
		return 0;
	*adaptive = 1;
	return adaptive_ns;
}

/* All of a record from `outer` on. */
static __always_inline void clear_call_state(struct gpuperf_slow_call *record)
{
	__builtin_memset(&record->outer, 0, __builtin_offsetof(struct gpuperf_slow_call, waits) -
						    __builtin_offsetof(struct gpuperf_slow_call, outer));
	for (__u32 i = 0; i < GPUPERF_WAITS; i++) {
		struct gpuperf_wait *wait = &record->waits[i];

		barrier_var(wait); /* one by one: the compiler expands no memset over 1,024 bytes */
		__builtin_memset(wait, 0, sizeof(*wait));
	}
}

/* What the thread's state says of the call in `frame`, which stood at `index`. */
static __always_inline void keep_call_state(struct gpuperf_slow_call *record,
					    struct gpuperf_thread *thread, struct gpuperf_frame *frame,
					    __u32 index, struct task_struct *task)
{
	for (__u32 i = 0; i < GPUPERF_CALL_DEPTH && i < index; i++) {
		struct gpuperf_frame *outer = call_stack_at(thread, i);
		__u32 place = record->outer_count;

		if (outer->cell == GPUPERF_NO_CELL)
			continue;
		barrier_var(place);
		if (place >= GPUPERF_CALL_DEPTH)
			break;
		record->outer[place] = cookie_function(outer->cookie);
		record->outer_count = place + 1;
	}
	record->has_split = 1;
	if (frame->has_split)
		__builtin_memcpy(&record->split, &frame->split, sizeof(record->split));
	record->split.minor_faults = (__u32)task->min_flt - frame->minor_faults;
	record->split.major_faults = (__u32)task->maj_flt - frame->major_faults;
	for (__u32 i = 0; i < GPUPERF_CHILDREN; i++) {
		if (i < frame->child_count)
			record->children[i] = frame->children[i];
	}
	for (__u32 i = 0; i < GPUPERF_WAITS; i++) {
		if (thread->waits[i].start_mono_ns >= frame->start_ns)
			__builtin_memcpy(&record->waits[i], &thread->waits[i], sizeof(record->waits[i]));
	}
}
