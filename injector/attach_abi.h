/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Binary contract between the injected library and the attach worker of the daemon: one page that both map, in a
 * process that was attached to while it ran. Plain C that also compiles as C++.
 *
 * The worker makes it (a memfd named GPUPERF_ATTACH_BLOCK_NAME), fills it in and has the process map it; the library
 * keeps it mapped for the life of the process. A later daemon finds it by its name in /proc/PID/maps. So whatever is
 * needed to connect again, to detach and to attach anew stands here, and none of these needs ptrace but the last.
 *
 * Neither side trusts it: the process can write anything at any time. The worker reads a copy and checks it
 * (daemon/attach/attach_block.h); the library reads each field once.
 *
 * Native byte order, fixed-width fields, append only.
 */
#pragma once

#include <linux/types.h>

#define GPUPERF_ATTACH_MAGIC 0x4b434c42474850ull
#define GPUPERF_ATTACH_VERSION 1u
#define GPUPERF_ATTACH_BLOCK_NAME "gpuperf-attach"
#define GPUPERF_ATTACH_BLOCK_BYTES 4096u
/* Exported by the library: what the new thread begins with, before the library is loaded; and after. */
#define GPUPERF_ATTACH_STUB "gpuperf_attach_stub"
#define GPUPERF_ATTACH_ENTRY "gpuperf_attach"

/* struct gpuperf_attach_block.state */
enum gpuperf_attach_state {
	GPUPERF_ATTACH_BEGINNING = 1, /* the worker has made it; the thread may not have begun yet */
	GPUPERF_ATTACH_ATTACHED = 2,
	GPUPERF_ATTACH_DETACHED = 3,  /* the library is idle and can be entered again */
	GPUPERF_ATTACH_FAILED = 4     /* `text` says why; the library may be loaded, and does nothing */
};

/* struct gpuperf_attach_block.flags: from the process's environment, which the library does not read then. */
#define GPUPERF_ATTACH_NO_HOOKS 1u          /* GPUPERF_LAUNCH_HOOKS=0 */

struct gpuperf_attach_block {
	__u64 magic;              /* GPUPERF_ATTACH_MAGIC */
	__u32 version;            /* GPUPERF_ATTACH_VERSION */
	__u32 state;              /* enum gpuperf_attach_state */
	__u32 flags;              /* GPUPERF_ATTACH_* */
	__u32 pid;                /* of the process, in its own pid namespace: a forked child has its parent's block */
	/* Descriptors of the process; -1 = none. */
	__s32 socket_fd;          /* the library's end of the connection */
	__s32 daemon_fd;          /* the other end, for a daemon to take (pidfd_getfd); the library closes it */
	__s32 library_fd;
	__s32 block_fd;
	__u32 offers;             /* how often the library has offered a connection since the worker gave it one */
	__u32 detach;             /* 1 = the library is to detach; written by a worker */
	__u64 library_version;    /* GNU build id of the library, its first 8 bytes */
	__u64 entry;              /* where GPUPERF_ATTACH_ENTRY is, set by the stub; 0 = not loaded yet */
	__u64 stub;               /* where the stub's pages are mapped */
	__u64 stub_bytes;
	/* Functions of the process's C library, for the stub. */
	__u64 dlopen;
	__u64 dlsym;
	__u64 dlerror;
	__u64 pthread_detach;
	__u64 pthread_self;
	__u64 syscall;
	/* What attaching took, written by the worker. */
	__u64 attached_unix_ns;
	__u64 held_ns;            /* for how long one thread was held, in all */
	/* What detaching left, written by the library. */
	__u32 kept_kib;           /* of memory, code included */
	__u32 kept_fds;
	__u32 cycles;             /* how often the library was entered */
	__u32 thread;             /* of the library, in its pid namespace; set by itself as it begins */
	char path[64];            /* for dlopen, zero-terminated */
	char entry_name[32];      /* GPUPERF_ATTACH_ENTRY */
	char text[256];           /* zero-terminated: the error; what became of CUPTI at detach */
};
