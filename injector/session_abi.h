/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Binary contract between the injected library and the daemon. Plain C that also compiles as C++.
 *
 * One message = one packet of a SOCK_SEQPACKET Unix socket; it begins with struct gpuperf_message.
 * The injector sends HELLO first, the daemon answers WELCOME, then BATCHes go up and CONTROLs come
 * down. A batch holds records back to back, each a multiple of 8 bytes long:
 *
 *   | gpuperf_message | gpuperf_batch fields | record | record | ... |
 *
 * Byte order is that of the machine; both ends run on it. Every struct: fixed-width fields, explicit
 * padding that is zero, 8-byte aligned. Append only: fields are added at the end of a struct and seen
 * by its length; readers skip messages and records of a kind they do not know, by their length, and
 * count them. The daemon believes nothing here: who the peer is comes from the kernel, and every
 * length and id is checked on a copy.
 */
#pragma once

#include <linux/types.h>

#define GPUPERF_SESSION_MAGIC 0x46525047u /* "GPRF" in memory, little endian */
#define GPUPERF_SESSION_VERSION 1u
#define GPUPERF_MESSAGE_BYTES_MAX 65536u  /* one packet; well under the default socket buffer */
#define GPUPERF_NAME_BYTES_MAX 1024u      /* mangled kernel names; longer ones are cut and flagged */

/* struct gpuperf_message.kind */
#define GPUPERF_MESSAGE_HELLO 1u
#define GPUPERF_MESSAGE_WELCOME 2u
#define GPUPERF_MESSAGE_CONTROL 3u
#define GPUPERF_MESSAGE_BATCH 4u

/* struct gpuperf_session_record.kind */
#define GPUPERF_SESSION_NAME 1u
#define GPUPERF_SESSION_SHAPE 2u
#define GPUPERF_SESSION_PLACE 3u
#define GPUPERF_SESSION_DROP 4u
#define GPUPERF_SESSION_KERNEL 5u
#define GPUPERF_SESSION_MEMCPY 6u

/* Bit of a record kind in capability and control masks. */
#define GPUPERF_SESSION_BIT(kind) (1ull << (kind))

/* Every message begins with this. Since 1. */
struct gpuperf_message {
	__u32 magic;              /* GPUPERF_SESSION_MAGIC */
	__u16 version;            /* of the sender; the receiver uses the smaller of both */
	__u16 kind;               /* GPUPERF_MESSAGE_* */
	__u32 length_bytes;       /* of the whole message, this header included */
	__u32 sequence;           /* counts this sender's messages from 0; a gap = messages lost */
};

/* Who the sender is. Producer: injector, once, first. Consumer: session_source. Since 1.
 * The daemon takes pid and start time from the kernel and only compares these. */
struct gpuperf_hello {
	struct gpuperf_message header;
	__u64 capabilities;       /* GPUPERF_SESSION_BIT of every kind it can send */
	__u64 process_start_ticks; /* field 22 of /proc/self/stat: clock ticks after boot, 0 = unknown */
	__u64 mono_ns;            /* CLOCK_MONOTONIC here: shows a time namespace */
	__u64 unix_ns;            /* CLOCK_REALTIME at the same moment */
	__u32 pid;                /* getpid(): in the sender's own pid namespace */
	__u32 oldest_version;     /* oldest contract version it can speak */
	__u32 cupti_version;      /* cuptiGetVersion(); 0 = CUPTI not loaded */
	__u32 driver_version;     /* cuDriverGetVersion(); 0 = unknown */
	char injector_version[16]; /* zero-terminated */
	char comm[16];            /* of the main thread, zero-terminated */
};

/* struct gpuperf_welcome.flags, struct gpuperf_control.flags */
#define GPUPERF_SESSION_FLUSH 1u  /* send what is buffered now */
#define GPUPERF_SESSION_YIELD 2u  /* leave CUPTI to another client until a CONTROL without this flag */

/* Accepts the session. Producer: daemon, once, in answer to HELLO. Consumer: injector. Since 1. */
struct gpuperf_welcome {
	struct gpuperf_message header;
	__u64 session_id;         /* never 0 */
	__u64 enabled_kinds;      /* GPUPERF_SESSION_BIT of the kinds wanted; 0 = stay silent */
	__u32 flags;              /* GPUPERF_SESSION_FLUSH, GPUPERF_SESSION_YIELD */
	__u32 sample_every;       /* keep one of so many launches; 1 = all, 0 = none */
	__u32 flush_interval_ms;  /* longest time a record may wait before it is sent */
	__u32 batch_bytes_max;    /* longest BATCH message, at most GPUPERF_MESSAGE_BYTES_MAX */
};

/* Changes a running session. Producer: daemon. Consumer: injector. Since 1. */
struct gpuperf_control {
	struct gpuperf_message header;
	__u64 enabled_kinds;      /* as in the welcome */
	__u32 flags;
	__u32 sample_every;
	__u32 flush_interval_ms;
	__u32 pad;
};

/* Records of one session, in the order they were completed. Producer: injector. Consumer:
 * session_source. Since 1. */
struct gpuperf_batch {
	struct gpuperf_message header;
	__u32 record_count;
	__u32 records_bytes;      /* after this struct */
	__u64 sent_unix_ns;       /* CLOCK_REALTIME when it was sent */
	__u64 cupti_overhead_ns;  /* since the session began, as CUPTI's own overhead records say */
};

/* Every record of a batch begins with this. Since 1. */
struct gpuperf_session_record {
	__u16 kind;               /* GPUPERF_SESSION_* */
	__u16 length_bytes;       /* of the whole record, a multiple of 8 */
	__u32 id;                 /* meaning by kind, below */
};

/* A name, before the first record that uses it. id = name id, from 1 up, for the life of the
 * session; sent once. Source: CUPTI's record, as linked (mangled). Since 1. */
struct gpuperf_session_name {
	struct gpuperf_session_record record;
	__u16 text_bytes;         /* that follow this struct; not terminated, then zeros up to 8 */
	__u16 cut;                /* 1 = the name was longer than GPUPERF_NAME_BYTES_MAX */
	__u32 pad;
};

/* A launch shape, before the first record that uses it. id = shape id, as for names. Since 1. */
struct gpuperf_session_shape {
	struct gpuperf_session_record record;
	__u32 grid[3];            /* blocks in x, y, z */
	__u32 block[3];           /* threads in x, y, z */
	__u32 cluster[3];         /* blocks in x, y, z; 0 = no cluster */
	__u32 shared_memory_bytes; /* static + dynamic */
	__u32 registers_per_thread;
	__u32 local_memory_bytes; /* per thread; above 0 shows spills */
};

/* A stream and where it is, before the first record that uses it. id = place id. Since 1. */
struct gpuperf_session_place {
	struct gpuperf_session_record record;
	__u32 device;             /* CUDA ordinal in this process */
	__u32 context;            /* CUPTI context id */
	__u32 stream;             /* CUPTI stream id */
	__u32 pad;
	__u8 device_uuid[16];     /* the same in every process; zero = unknown */
};

/* struct gpuperf_session_drop.record.id: what was lost, and where. */
enum gpuperf_session_loss {
	GPUPERF_SESSION_LOSS_CUPTI_BUFFER = 0,  /* CUPTI had no buffer for a record and said so */
	GPUPERF_SESSION_LOSS_DEVICE_BUFFER = 1, /* a record came without times: device buffers were full */
	GPUPERF_SESSION_LOSS_QUEUE_FULL = 2,    /* the injector's own queue was full */
	GPUPERF_SESSION_LOSS_SOCKET_FULL = 3,   /* the daemon did not read: a message was not sent */
	GPUPERF_SESSION_LOSS_TABLE_FULL = 4,    /* no id left for a name, shape or place */
	GPUPERF_SESSION_LOSS_YIELDED = 5,       /* CUPTI was left to another client */
	GPUPERF_SESSION_LOSS_UNKNOWN_RECORD = 6, /* CUPTI sent a kind or version that is not understood */
	GPUPERF_SESSION_LOSS_COUNT = 7
};

/* Something was lost since the last drop record of the same kind. id = gpuperf_session_loss. Since 1. */
struct gpuperf_session_drop {
	struct gpuperf_session_record record;
	__u64 count;              /* records; for YIELDED the number of gaps */
	__u64 first_unix_ns;      /* of the first and the last of them; 0 = not known */
	__u64 last_unix_ns;
};

/* struct gpuperf_session_kernel.flags */
#define GPUPERF_KERNEL_FROM_GRAPH 1u       /* part of a graph launch; graph and node are set */
#define GPUPERF_KERNEL_DEVICE_LAUNCHED 2u  /* launched by another kernel */
#define GPUPERF_KERNEL_COOPERATIVE 4u

/* One kernel that ran. id = CUPTI correlation id: that of the call that launched it; wraps. Times are
 * CUPTI's default clock, CLOCK_REALTIME, interpolated from the GPU's. Since 1. */
struct gpuperf_session_kernel {
	struct gpuperf_session_record record;
	__u64 start_unix_ns;
	__u64 duration_ns;
	__u32 name_id;
	__u32 shape_id;
	__u32 place_id;
	__u32 graph_id;           /* 0 = not from a graph */
	__u32 node_id;            /* low half of CUPTI's graphNodeId, which is the node within its graph */
	__u32 flags;              /* GPUPERF_KERNEL_* */
};

/* struct gpuperf_session_memcpy.direction: the numbers of CUpti_ActivityMemcpyKind, fixed here. */
#define GPUPERF_MEMCPY_UNKNOWN 0u
#define GPUPERF_MEMCPY_HOST_TO_DEVICE 1u
#define GPUPERF_MEMCPY_DEVICE_TO_HOST 2u
#define GPUPERF_MEMCPY_HOST_TO_ARRAY 3u
#define GPUPERF_MEMCPY_ARRAY_TO_HOST 4u
#define GPUPERF_MEMCPY_ARRAY_TO_ARRAY 5u
#define GPUPERF_MEMCPY_ARRAY_TO_DEVICE 6u
#define GPUPERF_MEMCPY_DEVICE_TO_ARRAY 7u
#define GPUPERF_MEMCPY_DEVICE_TO_DEVICE 8u
#define GPUPERF_MEMCPY_HOST_TO_HOST 9u
#define GPUPERF_MEMCPY_PEER_TO_PEER 10u

/* struct gpuperf_session_memcpy.source_memory, .target_memory: CUpti_ActivityMemoryKind, fixed here. */
#define GPUPERF_MEMORY_UNKNOWN 0u
#define GPUPERF_MEMORY_PAGEABLE 1u
#define GPUPERF_MEMORY_PINNED 2u
#define GPUPERF_MEMORY_DEVICE 3u
#define GPUPERF_MEMORY_ARRAY 4u
#define GPUPERF_MEMORY_MANAGED 5u
#define GPUPERF_MEMORY_DEVICE_STATIC 6u
#define GPUPERF_MEMORY_MANAGED_STATIC 7u

/* struct gpuperf_session_memcpy.flags */
#define GPUPERF_MEMCPY_ASYNC 1u

/* One copy that ran. id and times as for kernels. Since 1. */
struct gpuperf_session_memcpy {
	struct gpuperf_session_record record;
	__u64 start_unix_ns;
	__u64 duration_ns;
	__u64 copied_bytes;
	__u32 place_id;
	__u8 direction;           /* GPUPERF_MEMCPY_* */
	__u8 source_memory;       /* GPUPERF_MEMORY_* */
	__u8 target_memory;       /* GPUPERF_MEMORY_* */
	__u8 flags;               /* GPUPERF_MEMCPY_ASYNC */
	__u32 graph_id;           /* 0 = not from a graph */
	__u32 node_id;
};

#ifndef GPUPERF_ASSERT
#ifdef __cplusplus
#define GPUPERF_ASSERT(condition) static_assert(condition, #condition)
#else
#define GPUPERF_ASSERT(condition) _Static_assert(condition, #condition)
#endif
#endif

GPUPERF_ASSERT(sizeof(struct gpuperf_message) == 16);
GPUPERF_ASSERT(__builtin_offsetof(struct gpuperf_message, length_bytes) == 8);
GPUPERF_ASSERT(sizeof(struct gpuperf_hello) == 96);
GPUPERF_ASSERT(__builtin_offsetof(struct gpuperf_hello, pid) == 48);
GPUPERF_ASSERT(__builtin_offsetof(struct gpuperf_hello, injector_version) == 64);
GPUPERF_ASSERT(__builtin_offsetof(struct gpuperf_hello, comm) == 80);
GPUPERF_ASSERT(sizeof(struct gpuperf_welcome) == 48);
GPUPERF_ASSERT(__builtin_offsetof(struct gpuperf_welcome, flags) == 32);
GPUPERF_ASSERT(sizeof(struct gpuperf_control) == 40);
GPUPERF_ASSERT(sizeof(struct gpuperf_batch) == 40);
GPUPERF_ASSERT(__builtin_offsetof(struct gpuperf_batch, sent_unix_ns) == 24);
GPUPERF_ASSERT(sizeof(struct gpuperf_session_record) == 8);
GPUPERF_ASSERT(sizeof(struct gpuperf_session_name) == 16);
GPUPERF_ASSERT(sizeof(struct gpuperf_session_shape) == 56);
GPUPERF_ASSERT(__builtin_offsetof(struct gpuperf_session_shape, shared_memory_bytes) == 44);
GPUPERF_ASSERT(sizeof(struct gpuperf_session_place) == 40);
GPUPERF_ASSERT(__builtin_offsetof(struct gpuperf_session_place, device_uuid) == 24);
GPUPERF_ASSERT(sizeof(struct gpuperf_session_drop) == 32);
GPUPERF_ASSERT(sizeof(struct gpuperf_session_kernel) == 48);
GPUPERF_ASSERT(__builtin_offsetof(struct gpuperf_session_kernel, name_id) == 24);
GPUPERF_ASSERT(__builtin_offsetof(struct gpuperf_session_kernel, flags) == 44);
GPUPERF_ASSERT(sizeof(struct gpuperf_session_memcpy) == 48);
GPUPERF_ASSERT(__builtin_offsetof(struct gpuperf_session_memcpy, copied_bytes) == 24);
GPUPERF_ASSERT(__builtin_offsetof(struct gpuperf_session_memcpy, direction) == 36);
GPUPERF_ASSERT(__builtin_offsetof(struct gpuperf_session_memcpy, graph_id) == 40);
