/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * What a thread off the CPU waits for: the kind and the file from its system call, everything about a wait except its
 * times, and which of a call's waits to replace. Functions that take a task are inlined: before 6.9 tasks cannot be
 * passed to other functions.
 */
#pragma once

#include "bpf/maps.bpf.h"

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

/* The file that the current task's system call works on, from its first argument; poll names it in memory that only
 * the thread itself can read. */
__s32 find_waited_fd(__s32 syscall);

/* `is_gpu`: the file is a GPU's. */
__u32 wait_kind_of(__s32 syscall, __s32 fd, __u32 is_gpu);

/* A separate function so that the verifier does not track each place individually. */
__u32 place_of_shortest(__u64 first_ns, __u64 second_ns, __u64 third_ns);

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
	struct file *file = NULL;

	if (syscall == SYSCALL_POLL || syscall == SYSCALL_PPOLL || syscall == SYSCALL_IOCTL ||
	    syscall == SYSCALL_READ)
		file = find_file(task, fd);
	return wait_kind_of(syscall, fd, file && is_gpu_file(file));
}

/* Fills in a wait, except for its times. The task sleeps, or is about to resume. */
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
	/* A failed walk leaves the zeros. */
	bpf_get_task_stack(task, wait->kernel_stack, sizeof(wait->kernel_stack), 0);
}

/* The shortest of GPUPERF_WAITS; an unused one first. */
static __always_inline struct gpuperf_wait *shortest_wait(struct gpuperf_wait *waits)
{
	__u32 place = place_of_shortest(waits[0].duration_ns, waits[1].duration_ns, waits[2].duration_ns);

	barrier_var(place);
	return &waits[place < GPUPERF_WAITS ? place : 0];
}
