// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
/* The functions of waits.bpf.h that the verifier checks once each, not on every path to them. */
#include "bpf/waits.bpf.h"

__s32 find_waited_fd(__s32 syscall)
{
	const struct pt_regs *regs = (const void *)bpf_task_pt_regs(bpf_get_current_task_btf());
	__s32 fd = -1;

	switch (syscall) {
	case SYSCALL_POLL:
	case SYSCALL_PPOLL:
		/* struct pollfd starts with the fd; the first one stands for all */
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

__u32 wait_kind_of(__s32 syscall, __s32 fd, __u32 is_gpu)
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
	return fd >= 0 ? GPUPERF_WAIT_IO : GPUPERF_WAIT_OTHER; /* the others with a file */
}

GPUPERF_ASSERT(GPUPERF_WAITS == 3);
__u32 place_of_shortest(__u64 first_ns, __u64 second_ns, __u64 third_ns)
{
	if (first_ns <= second_ns)
		return first_ns <= third_ns ? 0 : 2;
	return second_ns <= third_ns ? 1 : 2;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
