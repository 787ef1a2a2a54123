// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
/* Follows the threads that are inside of probed calls: off the CPU and why, woken by whom, on it in user
 * space or in the kernel. All other threads cost a load or two per hook. A thread off the CPU pushes and pops no
 * frames, so the hooks need no lock. */
#include "bpf/call_state.bpf.h"
#include "bpf/stack.bpf.h"

#define GPUPERF_NOTED_WAIT_NS 50000ull      /* shorter waits are added up and not described */
#define GPUPERF_WAKER_STACK_WAIT_NS 1000000ull /* a walk of a stack takes some microseconds */
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

/* The file that the current task's system call works on, by its first argument; poll names it in memory, which only
 * the thread itself can read. */
__attribute__((noinline)) __s32 find_waited_fd(__s32 syscall)
{
	const struct pt_regs *regs = (const void *)bpf_task_pt_regs(bpf_get_current_task_btf());
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

/* `is_gpu`: the file is a GPU's. */
__attribute__((noinline)) __u32 wait_kind_of(__s32 syscall, __s32 fd, __u32 is_gpu)
{
	if (is_gpu)
		return GPUPERF_WAIT_GPU;
	switch (syscall) {
	case -1:
		return GPUPERF_WAIT_FAULT;
	case SYSCALL_FUTEX: case SYSCALL_FUTEX_WAIT: case SYSCALL_FUTEX_WAITV:
		return GPUPERF_WAIT_FUTEX;
	case SYSCALL_NANOSLEEP: case SYSCALL_CLOCK_NANOSLEEP:
		return GPUPERF_WAIT_SLEEP;
	case SYSCALL_SELECT: case SYSCALL_PSELECT6: case SYSCALL_EPOLL_WAIT: case SYSCALL_EPOLL_PWAIT:
	case SYSCALL_EPOLL_PWAIT2: case SYSCALL_POLL: case SYSCALL_PPOLL:
		return GPUPERF_WAIT_POLL;
	case SYSCALL_IOCTL:
		return GPUPERF_WAIT_OTHER;
	case SYSCALL_READ: case SYSCALL_IO_GETEVENTS: case SYSCALL_IO_URING_ENTER: case SYSCALL_SENDFILE:
	case SYSCALL_MSYNC:
		return GPUPERF_WAIT_IO;
	}
	return fd >= 0 ? GPUPERF_WAIT_IO : GPUPERF_WAIT_OTHER; /* the rest of those with a file */
}

static __always_inline __u32 find_wait_kind(struct task_struct *task, __s32 syscall, __s32 fd)
{
	struct file *file = NULL;

	if (syscall == SYSCALL_POLL || syscall == SYSCALL_PPOLL || syscall == SYSCALL_IOCTL ||
	    syscall == SYSCALL_READ)
		file = find_file(task, fd);
	return wait_kind_of(syscall, fd, file && is_gpu_file(file));
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

/* A function of its own so that the verifier does not follow each place by itself. */
GPUPERF_ASSERT(GPUPERF_WAITS == 3);
__attribute__((noinline)) __u32 place_of_shortest(__u64 first_ns, __u64 second_ns, __u64 third_ns)
{
	if (first_ns <= second_ns)
		return first_ns <= third_ns ? 0 : 2;
	return second_ns <= third_ns ? 1 : 2;
}

/* Of GPUPERF_WAITS, an unused one first. */
static __always_inline struct gpuperf_wait *shortest_wait(struct gpuperf_wait *waits)
{
	__u32 place = place_of_shortest(waits[0].duration_ns, waits[1].duration_ns, waits[2].duration_ns);

	barrier_var(place);
	return &waits[place < GPUPERF_WAITS ? place : 0];
}

/* Of earlier calls. */
__attribute__((noinline)) int forget_stale_waits(struct gpuperf_thread *thread)
{
	for (__u32 i = 0; i < GPUPERF_WAITS && thread; i++) {
		if (thread->waits[i].start_mono_ns < thread->frames[0].start_ns)
			thread->waits[i].duration_ns = 0;
	}
	return 0;
}

/* Keeps the wait when it is among the longest of the calls in flight. */
static __always_inline void note_wait(struct gpuperf_thread *thread, struct task_struct *task, __u32 kind,
				      __u64 blocked_ns)
{
	struct gpuperf_wait *wait;

	forget_stale_waits(thread);
	wait = shortest_wait(thread->waits);
	if (blocked_ns <= wait->duration_ns)
		return;
	describe_wait(task, &thread->off_cpu, kind, wait);
	wait->duration_ns = blocked_ns;
	wait->start_mono_ns = thread->off_cpu.since_ns;
}

/* One stay off the CPU, and where its time goes. */
struct absence {
	__u64 since_ns;
	__u64 blocked_ns;
	__u64 runnable_ns; /* throttled or not */
	__u64 throttled_ns;
	__u32 kind;
	__u16 is_preemption;
	__u16 is_migration;
};

/* To the calls that were in flight by then. */
__attribute__((noinline)) int charge_absence(struct gpuperf_thread *thread, const struct absence *absence)
{
	__u32 kind;

	if (!thread || !absence)
		return 0;
	kind = absence->kind;
	barrier_var(kind);
	if (kind >= GPUPERF_WAIT_KINDS)
		return 0; /* cannot be */
	for (__u32 i = 0; i < GPUPERF_CALL_DEPTH && i < thread->depth; i++) {
		struct gpuperf_frame *frame = call_stack_at(thread, i);
		struct gpuperf_time_split *split;

		if (!frame->start_ns || frame->start_ns > absence->since_ns)
			continue;
		split = split_of(frame);
		split->waits_ns[kind] += absence->blocked_ns;
		split->throttled_ns += absence->throttled_ns;
		split->runnable_ns += absence->runnable_ns - absence->throttled_ns;
		split->preemptions += absence->is_preemption;
		split->migrations += absence->is_migration;
	}
	return 0;
}

static __always_inline void return_to_cpu(struct gpuperf_thread *thread, struct task_struct *task,
					  __u64 now_ns, _Bool describe)
{
	struct gpuperf_off_cpu *off = &thread->off_cpu;
	__u64 since_ns = off->since_ns;
	__u64 woken_ns = !off->blocked ? since_ns : off->wake_ns ? off->wake_ns : now_ns;
	_Bool migrated = off->cpu != bpf_get_smp_processor_id();
	_Bool same_queue = !migrated && bpf_core_field_exists(task->se.cfs_rq->throttled_clock_self_time);
	struct absence absence = {
		.since_ns = since_ns,
		.throttled_ns = same_queue ? read_queue_throttle_ns(task) - off->queue_throttle_ns
					   : read_group_throttle_ns(task) - off->group_throttle_ns,
		.is_preemption = !off->blocked,
		.is_migration = migrated,
	};

	if (!since_ns)
		return; /* its first call began meanwhile */
	/* The clock may step back a little between two readings, around its own update and from CPU to CPU. */
	if (now_ns < since_ns)
		now_ns = since_ns;
	if (woken_ns < since_ns)
		woken_ns = since_ns;
	if (woken_ns > now_ns)
		woken_ns = now_ns;
	absence.blocked_ns = woken_ns - since_ns;
	absence.runnable_ns = now_ns - woken_ns;
	if (absence.throttled_ns > absence.runnable_ns)
		absence.throttled_ns = absence.runnable_ns;
	if (off->blocked)
		absence.kind = find_wait_kind(task, off->syscall, off->fd);
	charge_absence(thread, &absence);
	if (describe && off->blocked && absence.blocked_ns >= GPUPERF_NOTED_WAIT_NS)
		note_wait(thread, task, absence.kind, absence.blocked_ns);
	off->since_ns = 0;
}

int mend_missed_return(struct gpuperf_thread *thread)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct gpuperf_off_cpu *off;
	__u64 ran_ns, away_ns, waited_ns;

	if (!thread)
		return 0;
	off = &thread->off_cpu;
	ran_ns = task->se.sum_exec_runtime - off->exec_sum_ns;
	away_ns = task->se.exec_start - off->exec_start_ns - ran_ns;
	waited_ns = task->sched_info.run_delay - off->run_delay_ns;
	if (off->cpu == bpf_get_smp_processor_id() && away_ns < bpf_ktime_get_ns() - off->since_ns) {
		off->wake_ns = off->since_ns + (waited_ns < away_ns ? away_ns - waited_ns : 0);
		return_to_cpu(thread, task, off->since_ns + away_ns, 0);
	}
	off->since_ns = 0;
	return 0;
}

int clear_slow_call(struct gpuperf_slow_call *record)
{
	if (!record)
		return 0;
	__builtin_memset(record, 0, __builtin_offsetof(struct gpuperf_slow_call, outer));
	__builtin_memset(&record->outer, 0, __builtin_offsetof(struct gpuperf_slow_call, waits) -
						    __builtin_offsetof(struct gpuperf_slow_call, outer));
	for (__u32 i = 0; i < GPUPERF_WAITS; i++) {
		struct gpuperf_wait *wait = &record->waits[i];

		barrier_var(wait); /* one by one: the compiler expands no memset over 1,024 bytes */
		__builtin_memset(wait, 0, sizeof(*wait));
	}
	return 0;
}

int keep_call_state(struct gpuperf_slow_call *record, struct gpuperf_thread *thread, __u32 index, __u64 minor_faults,
		    __u64 major_faults)
{
	struct gpuperf_frame *frame;
	__u32 count;

	if (!record || !thread)
		return 0;
	frame = call_stack_at(thread, index);
	for (__u32 i = 0; i < GPUPERF_CALL_DEPTH && i < index; i++) {
		const struct gpuperf_frame *outer = call_stack_at(thread, i);

		if (outer->cell == GPUPERF_NO_CELL)
			continue;
		count = record->outer_count;
		barrier_var(count);
		if (count >= GPUPERF_CALL_DEPTH)
			break;
		record->outer[count] = cookie_function(outer->cookie);
		record->outer_count = count + 1;
	}
	record->has_split = 1;
	if (frame->has_split)
		__builtin_memcpy(&record->split, &frame->split, sizeof(record->split));
	record->split.minor_faults = (__u32)minor_faults - frame->minor_faults;
	record->split.major_faults = (__u32)major_faults - frame->major_faults;
	for (__u32 i = 0; i < GPUPERF_CHILDREN; i++) {
		if (i < frame->child_count)
			record->children[i] = frame->children[i];
	}
	for (__u32 i = 0; i < GPUPERF_WAITS; i++) {
		if (thread->waits[i].start_mono_ns >= frame->start_ns)
			__builtin_memcpy(&record->waits[i], &thread->waits[i], sizeof(record->waits[i]));
	}
	return 0;
}

static __always_inline void leave_cpu(struct gpuperf_thread *thread, struct task_struct *task,
				      _Bool blocked, __u64 now_ns)
{
	struct gpuperf_off_cpu *off = &thread->off_cpu;

	if (off->since_ns)
		mend_missed_return(thread);
	off->cpu = bpf_get_smp_processor_id();
	off->blocked = blocked;
	off->wake_ns = 0;
	off->waker_tid = 0;
	off->waker_pid = 0;
	off->waker_is_kernel = 0;
	off->waker_stack_id = 0;
	if (blocked) {
		off->syscall = syscall_of(task);
		off->fd = find_waited_fd(off->syscall);
	}
	off->queue_throttle_ns = read_queue_throttle_ns(task);
	off->group_throttle_ns = read_group_throttle_ns(task);
	off->run_delay_ns = task->sched_info.run_delay;
	off->exec_start_ns = task->se.exec_start; /* now, by the scheduler's clock */
	off->exec_sum_ns = task->se.sum_exec_runtime;
	off->since_ns = now_ns;
}

/* What follows a hook's first test stands in a function of its own: the hook itself then saves no
 * registers, which is half of what it costs all other threads. */
static __attribute__((noinline)) int switch_threads(struct task_struct *prev, struct task_struct *next,
						    _Bool preempt)
{
	struct gpuperf_thread *leaving = thread_in_call(prev);
	struct gpuperf_thread *coming = thread_in_call(next);

	if (leaving)
		leave_cpu(leaving, prev, !preempt && prev->__state, bpf_ktime_get_ns());
	if (coming)
		return_to_cpu(coming, next, bpf_ktime_get_ns(), 1);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(follow_switch, _Bool preempt, struct task_struct *prev, struct task_struct *next)
{
	if (prev->bpf_storage || next->bpf_storage)
		switch_threads(prev, next, preempt);
	return 0;
}

/* A wake-up from a timer or another interrupt runs on whatever thread was there: only one that is in a
 * system call that wakes counts as the waker. */
static __always_inline _Bool wakes(struct task_struct *waker, __s32 waits_in)
{
	__s32 syscall;

	if (!waker->pid || waits_in == SYSCALL_NANOSLEEP || waits_in == SYSCALL_CLOCK_NANOSLEEP)
		return 0;
	if (waker->flags & GPUPERF_PF_KTHREAD)
		return waits_in != SYSCALL_FUTEX;
	syscall = syscall_of(waker);
	if (waits_in == SYSCALL_FUTEX || waits_in == SYSCALL_FUTEX_WAIT || waits_in == SYSCALL_FUTEX_WAITV)
		return syscall == SYSCALL_FUTEX || syscall == SYSCALL_FUTEX_WAKE ||
		       syscall == SYSCALL_EXIT || syscall == SYSCALL_EXIT_GROUP;
	return syscall >= 0;
}

static __attribute__((noinline)) int wake_thread(struct task_struct *task)
{
	struct gpuperf_thread *thread = thread_in_call(task);
	struct task_struct *waker;
	struct gpuperf_off_cpu *off;
	__u64 now_ns;

	if (!thread)
		return 0;
	off = &thread->off_cpu;
	if (!off->since_ns || !off->blocked || off->wake_ns)
		return 0;
	now_ns = bpf_ktime_get_ns();
	waker = bpf_get_current_task_btf();
	if (wakes(waker, off->syscall)) {
		off->waker_tid = waker->pid;
		off->waker_pid = waker->tgid;
		off->waker_is_kernel = !!(waker->flags & GPUPERF_PF_KTHREAD);
		off->waker_start_boot_ns = waker->group_leader->start_boottime;
		bpf_probe_read_kernel(off->waker_comm, sizeof(off->waker_comm), waker->comm);
		if (now_ns - off->since_ns >= GPUPERF_WAKER_STACK_WAIT_NS && !off->waker_is_kernel) {
			const struct pt_regs *regs = (const void *)bpf_task_pt_regs(waker);

			off->waker_stack_id = take_stack(regs->rip, regs->rsp, regs->rbp);
		}
	}
	off->wake_ns = now_ns;
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(follow_waking, struct task_struct *task)
{
	if (task->bpf_storage)
		wake_thread(task);
	return 0;
}

/* Absent where the kernel hides its symbols: then faults count as user space. */
extern const void asm_exc_page_fault __ksym __weak;
#define FAULT_ENTRY_BYTES 64 /* the entry stub of an exception is shorter */

struct tick_scratch {
	__u64 stack[48];
};

/* A kernel stack to look at; a tick interrupts no tick. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tick_scratch);
} tick_scratches GPUPERF_MAP;

/* In user space and in a page fault alike no system call is under way: there the outermost frame of the
 * kernel stack is the exception's entry. */
static __always_inline __u32 find_tick_kind(void *ctx, struct task_struct *task)
{
	struct tick_scratch *scratch;
	__u64 fault_entry = (__u64)&asm_exc_page_fault;
	__u32 key = 0;
	long length;
	__u64 last;

	if (syscall_of(task) != -1)
		return GPUPERF_TICK_SYSCALL;
	scratch = bpf_map_lookup_elem(&tick_scratches, &key);
	if (!scratch || !fault_entry)
		return GPUPERF_TICK_USER;
	length = bpf_get_stack(ctx, scratch->stack, sizeof(scratch->stack), 0);
	if (length < (long)sizeof(__u64))
		return GPUPERF_TICK_USER;
	last = ((__u64)length >> 3) - 1;
	barrier_var(last);
	if (last >= sizeof(scratch->stack) / sizeof(__u64))
		return GPUPERF_TICK_USER;
	if (last == sizeof(scratch->stack) / sizeof(__u64) - 1)
		return GPUPERF_TICK_FAULT; /* too deep for anything else */
	last = scratch->stack[last];
	return last >= fault_entry && last < fault_entry + FAULT_ENTRY_BYTES ? GPUPERF_TICK_FAULT
									     : GPUPERF_TICK_USER;
}

SEC("tp_btf/local_timer_entry")
int BPF_PROG(follow_tick)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct gpuperf_thread *thread = thread_in_call(task);
	__u32 depth, kind;

	if (!thread)
		return 0;
	kind = find_tick_kind(ctx, task);
	barrier_var(kind);
	if (kind >= GPUPERF_TICK_KINDS)
		return 0; /* cannot be */
	depth = thread->depth;
	for (__u32 i = 0; i < GPUPERF_CALL_DEPTH && i < depth; i++) {
		struct gpuperf_frame *frame = call_stack_at(thread, i);

		if (frame->start_ns)
			split_of(frame)->ticks[kind]++;
	}
	return 0;
}

/* What one task writes must fit the 32 KiB buffer of the kernel's iterators. Calls nested deeper are told of
 * when they return. */
#define SLOW_PER_THREAD 12
GPUPERF_ASSERT(SLOW_PER_THREAD * sizeof(struct gpuperf_slow_in_flight) < 32768);

/* Where records are put together: the daemon has one reader. */
struct slow_in_flight_scratch {
	struct gpuperf_slow_in_flight record;
	/* Of the thread that is looked at. */
	__u64 now_ns;
	__u64 minor_faults;
	__u64 major_faults;
	__u64 blocked_ns; /* so far, in `wait` */
	__u64 runnable_ns;
	struct gpuperf_wait wait;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct slow_in_flight_scratch);
} slow_in_flight_scratches GPUPERF_MAP;

/* What all calls of a thread have in common. */
static __always_inline void look_at_thread(struct slow_in_flight_scratch *scratch, const struct gpuperf_thread *thread,
					   struct task_struct *task)
{
	struct gpuperf_slow_in_flight *record = &scratch->record;
	const struct gpuperf_off_cpu *off = &thread->off_cpu;
	__u64 since_ns = off->since_ns, wake_ns = off->wake_ns, now_ns = scratch->now_ns;

	__builtin_memset(&record->entry_sp, 0,
			 sizeof(*record) - __builtin_offsetof(struct gpuperf_slow_in_flight, entry_sp));
	record->thread_pointer = task->thread.fsbase;
	record->return_count = list_replaced_returns(task, record->returns);
	scratch->minor_faults = task->min_flt;
	scratch->major_faults = task->maj_flt;
	scratch->blocked_ns = 0;
	scratch->runnable_ns = 0;
	record->state = GPUPERF_THREAD_RUNNING;
	if (!since_ns || since_ns > now_ns)
		return;
	if (off->blocked && !wake_ns) {
		record->state = GPUPERF_THREAD_BLOCKED;
		scratch->blocked_ns = now_ns - since_ns;
		describe_wait(task, off, find_wait_kind(task, off->syscall, off->fd), &scratch->wait);
		scratch->wait.start_mono_ns = since_ns;
		scratch->wait.duration_ns = scratch->blocked_ns;
	} else {
		record->state = GPUPERF_THREAD_RUNNABLE;
		if (now_ns > wake_ns)
			scratch->runnable_ns = now_ns - (off->blocked ? wake_ns : since_ns);
	}
}

/* Adds what the thread is in now; its wait takes the place of the shortest. */
static __always_inline void add_present_state(const struct slow_in_flight_scratch *scratch,
					      struct gpuperf_slow_call *call)
{
	__u32 kind = scratch->wait.kind;

	call->split.runnable_ns += scratch->runnable_ns;
	if (!scratch->blocked_ns)
		return;
	barrier_var(kind);
	if (kind < GPUPERF_WAIT_KINDS)
		call->split.waits_ns[kind] += scratch->blocked_ns;
	*shortest_wait(call->waits) = scratch->wait;
}

/* The threshold that a call in flight has passed; 0 = it is not slow. `start_ns`: as read once, for the thread runs on
 * and the frame may become another call's. */
static __always_inline __u64 find_threshold_in_flight(const struct gpuperf_frame *frame, __u64 start_ns, __u64 now_ns,
						      __u8 *adaptive)
{
	__u32 function_id = cookie_function(frame->cookie);
	const struct gpuperf_function *function = bpf_map_lookup_elem(&functions, &function_id);

	if (!function || frame->cell == GPUPERF_NO_CELL || !start_ns || start_ns >= now_ns)
		return 0;
	return find_passed_threshold(function, now_ns - start_ns, adaptive);
}

/* Whether one of the first SLOW_PER_THREAD calls is slow: few threads have one, and to look closer is dear. A function
 * of its own for the verifier, like the next one. */
__attribute__((noinline)) int has_slow_in_flight(struct gpuperf_thread *thread, __u64 now_ns)
{
	__u8 adaptive;

	for (__u32 i = 0; i < SLOW_PER_THREAD && thread && i < thread->depth; i++) {
		const struct gpuperf_frame *frame = call_stack_at(thread, i);
		__u64 start_ns = *(volatile __u64 *)&frame->start_ns;

		if (find_threshold_in_flight(frame, start_ns, now_ns, &adaptive))
			return 1;
	}
	return 0;
}

/* Fills the record of one call but for the task's own names; 0 = it is not slow. */
__attribute__((noinline)) int keep_slow_in_flight(struct slow_in_flight_scratch *scratch, struct gpuperf_thread *thread,
						  __u32 index)
{
	struct gpuperf_frame *frame;
	struct gpuperf_slow_call *call;
	__u64 start_ns, threshold_ns;
	__u8 adaptive = 0;

	if (!scratch || !thread)
		return 0;
	frame = call_stack_at(thread, index);
	start_ns = *(volatile __u64 *)&frame->start_ns;
	threshold_ns = find_threshold_in_flight(frame, start_ns, scratch->now_ns, &adaptive);
	if (!threshold_ns)
		return 0;
	call = &scratch->record.call;
	clear_slow_call(call);
	call->header.kind = GPUPERF_RECORD_SLOW_IN_FLIGHT;
	call->header.length_bytes = sizeof(scratch->record);
	call->start_mono_ns = start_ns;
	call->duration_ns = scratch->now_ns - start_ns;
	call->threshold_ns = threshold_ns;
	call->adaptive = adaptive;
	call->function_id = cookie_function(frame->cookie);
	call->has_values = 1;
	call->values_unread = frame->values_unread;
	__builtin_memcpy(call->values, frame->values, sizeof(call->values));
	keep_call_state(call, thread, index, scratch->minor_faults, scratch->major_faults);
	add_present_state(scratch, call);
	scratch->record.entry_sp = frame->sp;
	scratch->record.entry_bp = frame->bp;
	return 1;
}

/* The calls in flight that have passed their thresholds. The thread runs on while it is looked at: what
 * is read of one that is on the CPU may be of two moments. */
SEC("iter/task")
int list_slow_in_flight(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct slow_in_flight_scratch *scratch;
	struct gpuperf_thread *thread;
	__u32 depth, key = 0;

	if (!task)
		return 0;
	thread = thread_in_call(task);
	scratch = bpf_map_lookup_elem(&slow_in_flight_scratches, &key);
	if (!thread || !scratch)
		return 0;
	scratch->now_ns = bpf_ktime_get_ns();
	if (!has_slow_in_flight(thread, scratch->now_ns))
		return 0;
	look_at_thread(scratch, thread, task);
	depth = thread->depth;
	for (__u32 i = 0; i < SLOW_PER_THREAD && i < depth; i++) {
		struct gpuperf_slow_call *call = &scratch->record.call;

		if (!keep_slow_in_flight(scratch, thread, i))
			continue;
		call->process_start_boot_ns = task->group_leader->start_boottime;
		call->pid = task->tgid;
		call->tid = task->pid;
		bpf_probe_read_kernel(call->comm, sizeof(call->comm), task->comm);
		bpf_seq_write(ctx->meta->seq, &scratch->record, sizeof(scratch->record)); /* full: the kernel asks again */
	}
	return 0;
}

/* Unused: it brings the record into the BTF, where tests/abi compares it with the C++ side. */
const struct gpuperf_slow_in_flight *gpuperf_btf_slow_in_flight;

char LICENSE[] SEC("license") = "Dual BSD/GPL";
