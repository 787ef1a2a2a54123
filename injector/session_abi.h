/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Binary contract between the injected library and the daemon. Plain C that also compiles as C++.
 *
 * One message = one packet of a SOCK_SEQPACKET Unix socket; it begins with struct gpuperf_message.
 * The injector sends HELLO first; the daemon answers WELCOME, or REFUSE and closes. After that, the
 * injector sends BATCH and STATUS, the daemon CONTROL. A batch holds records back to back, each a
 * multiple of 8 bytes long:
 *
 *   | struct gpuperf_batch | record | record | ... |
 *
 * Native byte order: both ends run on the same machine. Every struct has fixed-width fields,
 * explicit zero padding and 8-byte alignment. Append only: new fields go at the end of a struct,
 * and its length shows whether they are there. Readers use the length to skip messages and records
 * of unknown kinds, and count them. tests/abi/layouts.inc records the layout. The daemon trusts
 * nothing here: it takes the peer's identity from the kernel and checks every length, count, id,
 * enum and time on a copy.
 *
 * Times named unix_ns are CLOCK_REALTIME of the sender's machine, CUPTI's default clock. The
 * injector converts CUPTI times in another clock domain before it sends them.
 */
#pragma once

#include <linux/types.h>

#define GPUPERF_SESSION_MAGIC 0x46525047u /* "GPRF" in memory, little endian */
#define GPUPERF_SESSION_VERSION 1u
#define GPUPERF_MESSAGE_BYTES_MAX 65536u  /* one packet; well below the default socket buffer */
#define GPUPERF_NAME_BYTES_MAX 1024u      /* mangled kernel names; longer ones are cut, flagged */
#define GPUPERF_NAMES_MAX 65536u          /* per session; ids run from 1 to this */
#define GPUPERF_SHAPES_MAX 65536u
#define GPUPERF_PLACES_MAX 4096u
#define GPUPERF_CUBIN_BYTES_MAX (16u << 20) /* a longer module's image is not sent */

/* struct gpuperf_message.kind */
#define GPUPERF_MESSAGE_HELLO 1u
#define GPUPERF_MESSAGE_WELCOME 2u
#define GPUPERF_MESSAGE_CONTROL 3u
#define GPUPERF_MESSAGE_BATCH 4u
#define GPUPERF_MESSAGE_STATUS 5u
#define GPUPERF_MESSAGE_REFUSE 6u

/* struct gpuperf_session_record.kind */
#define GPUPERF_SESSION_NAME 1u
#define GPUPERF_SESSION_SHAPE 2u
#define GPUPERF_SESSION_PLACE 3u
#define GPUPERF_SESSION_GAP 4u
#define GPUPERF_SESSION_KERNEL 5u
#define GPUPERF_SESSION_MEMCPY 6u
#define GPUPERF_SESSION_MEMSET 7u
#define GPUPERF_SESSION_API 8u
#define GPUPERF_SESSION_GRAPH 9u
#define GPUPERF_SESSION_SYNC 10u
#define GPUPERF_SESSION_MEMORY 11u
#define GPUPERF_SESSION_OVERHEAD 12u
#define GPUPERF_SESSION_STALLS 13u
#define GPUPERF_SESSION_SAMPLING 14u
#define GPUPERF_SESSION_CUBIN 15u
#define GPUPERF_SESSION_KIND_COUNT 16u

/* The bit of a record kind in capability and control masks. */
#define GPUPERF_SESSION_BIT(kind) (1ull << (kind))
/* The kinds that a mask may request. STALLS, SAMPLING and CUBIN come with a burst of samples, the
 * others with these. */
#define GPUPERF_SESSION_ALL_KINDS                                                          \
	(GPUPERF_SESSION_BIT(GPUPERF_SESSION_KERNEL) | GPUPERF_SESSION_BIT(GPUPERF_SESSION_MEMCPY) | \
	 GPUPERF_SESSION_BIT(GPUPERF_SESSION_MEMSET) | GPUPERF_SESSION_BIT(GPUPERF_SESSION_API) |    \
	 GPUPERF_SESSION_BIT(GPUPERF_SESSION_GRAPH) | GPUPERF_SESSION_BIT(GPUPERF_SESSION_SYNC) |    \
	 GPUPERF_SESSION_BIT(GPUPERF_SESSION_MEMORY) | GPUPERF_SESSION_BIT(GPUPERF_SESSION_OVERHEAD))

/* In gpuperf_control.enabled_kinds: hooks, which the daemon has count, may record calls instead of
 * CUPTI. */
#define GPUPERF_SESSION_HOOKED_CALLS (1ull << 63)
/* In gpuperf_control.enabled_kinds: where graphs would be seen and CUPTI could not be ended yet, the
 * injector acts as if told to pause, until the next order without it. */
#define GPUPERF_SESSION_LATER (1ull << 62)
/* In gpuperf_control.enabled_kinds: status.hooked_calls is wanted; hooks then count calls in it even
 * while the daemon has them count nothing else. */
#define GPUPERF_SESSION_PROGRESS (1ull << 61)

/* Starts every message. Since 1. */
struct gpuperf_message {
	__u32 magic;              /* GPUPERF_SESSION_MAGIC */
	__u16 version;            /* of the sender; the receiver uses the lower of the two */
	__u16 kind;               /* GPUPERF_MESSAGE_* */
	__u32 length_bytes;       /* of the whole message, including this header */
	__u32 sequence;           /* of the sender's messages on this connection, from 0 */
};

/* Identifies the sender. Producer: injector, once, first. Consumer: session_source. Since 1.
 * The daemon takes pid and start time from the kernel and only compares these with them. */
struct gpuperf_hello {
	struct gpuperf_message header;
	__u64 capabilities;       /* GPUPERF_SESSION_BIT of every kind it can send */
	__u64 process_start_ticks; /* field 22 of /proc/self/stat: clock ticks after boot, 0 = unknown */
	__u64 mono_ns;            /* CLOCK_MONOTONIC of the sender: reveals a time namespace */
	__u64 unix_ns;            /* CLOCK_REALTIME at the same moment */
	__u32 pid;                /* getpid(): in the sender's own pid namespace */
	__u32 oldest_version;     /* oldest contract version it can speak */
	__u32 connection;         /* how many times this process has connected before */
	__u32 pad;
	char injector_version[16]; /* zero-terminated */
	char comm[16];            /* of the main thread, zero-terminated */
};

/* struct gpuperf_refuse.reason */
enum gpuperf_session_refusal {
	GPUPERF_SESSION_REFUSED_VERSION = 1,   /* no common version */
	GPUPERF_SESSION_REFUSED_FULL = 2,      /* the daemon has reached its session limit */
	GPUPERF_SESSION_REFUSED_IDENTITY = 3,  /* not the process it claims to be */
	GPUPERF_SESSION_REFUSED_CONFIG = 4     /* sessions are not wanted here */
};

/* Ends a session before it begins. Producer: daemon, in answer to HELLO. Consumer: injector, which
 * does not load CUPTI and retries after retry_ms. Since 1. */
struct gpuperf_refuse {
	struct gpuperf_message header;
	__u32 reason;             /* enum gpuperf_session_refusal */
	__u32 retry_ms;           /* minimum wait; 0 = never retry */
};

/* struct gpuperf_control.mode */
enum gpuperf_session_mode {
	GPUPERF_SESSION_RUN = 1,   /* collect enabled_kinds */
	GPUPERF_SESSION_PAUSE = 2, /* send nothing; what cannot be resumed later stays on in CUPTI */
	GPUPERF_SESSION_OFF = 3    /* nothing of ours on in CUPTI; any graphs lose graph level for good */
};

/* struct gpuperf_control.burst_flags: more expensive detail for a limited time. */
#define GPUPERF_SESSION_BURST_NODES 1u     /* the kernels inside graphs */
#define GPUPERF_SESSION_BURST_ALL_APIS 2u  /* every runtime and driver API call */
#define GPUPERF_SESSION_BURST_SAMPLES 4u   /* PC sampling: what the warps of kernels wait for */
#define GPUPERF_SESSION_BURST_MS_MAX 60000u

/* Accepts the session and controls it: as WELCOME once, in answer to HELLO, and as CONTROL at any
 * time after that. Producer: daemon. Consumer: injector. Since 1. */
struct gpuperf_control {
	struct gpuperf_message header;
	__u64 session_id;         /* never 0 */
	__u64 enabled_kinds;      /* GPUPERF_SESSION_BIT of the kinds wanted */
	__u32 mode;               /* enum gpuperf_session_mode */
	__u32 sample_every;       /* keep one launch in this many; at least 1 = all */
	__u32 flush_interval_ms;  /* longest time that a complete record may wait to be sent */
	__u32 batch_bytes_max;    /* longest BATCH message, at most GPUPERF_MESSAGE_BYTES_MAX */
	__u32 burst_flags;        /* GPUPERF_SESSION_BURST_*; 0 = end the current burst */
	__u32 burst_ms;           /* from receipt; the injector ends it by itself */
	__u32 heartbeat_ms;       /* longest time between STATUS messages */
	__u32 abandon_ms;         /* a daemon that has taken nothing for this long counts as dead */
};

/* struct gpuperf_status.state */
enum gpuperf_session_state {
	GPUPERF_SESSION_STATE_WAITING = 1,    /* CUDA is not up yet, or recording begins anew */
	GPUPERF_SESSION_STATE_COLLECTING = 2,
	GPUPERF_SESSION_STATE_PAUSED = 3,
	GPUPERF_SESSION_STATE_YIELDED = 4,    /* CUPTI was yielded to another client */
	GPUPERF_SESSION_STATE_OFF = 5,
	GPUPERF_SESSION_STATE_FAILED = 6      /* CUPTI cannot be used in this process; detail says why */
};

/* struct gpuperf_status.cause, struct gpuperf_session_gap.cause */
enum gpuperf_session_cause {
	GPUPERF_SESSION_CAUSE_NONE = 0,
	GPUPERF_SESSION_CAUSE_CONTROL = 1,          /* the daemon ordered it */
	GPUPERF_SESSION_CAUSE_OTHER_CLIENT = 2,     /* another CUPTI client; detail names its library */
	GPUPERF_SESSION_CAUSE_NSIGHT = 3,           /* an Nsight tool or debugger is in the process */
	GPUPERF_SESSION_CAUSE_NO_CUPTI = 4,         /* no libcupti found */
	GPUPERF_SESSION_CAUSE_CUPTI_VERSION = 5,    /* does not match the CUDA runtime, or is too old */
	GPUPERF_SESSION_CAUSE_CUPTI_ERROR = 6,      /* a CUPTI call failed; detail says which */
	GPUPERF_SESSION_CAUSE_DAEMON_GONE = 7,      /* the daemon went away or took nothing */
	GPUPERF_SESSION_CAUSE_DEVICE_BUFFERS = 8,   /* times stopped being valid: device buffers ran out */
	GPUPERF_SESSION_CAUSE_BURST = 9,            /* collection was reconfigured for a burst */
	GPUPERF_SESSION_CAUSE_GRAPHS_UNSEEN = 10,   /* kernels would come by node: see LEVEL_GRAPHS */
	GPUPERF_SESSION_CAUSE_COUNT = 11
};

/* struct gpuperf_status.level: what is collected now. */
#define GPUPERF_SESSION_LEVEL_KERNELS 1u   /* kernels launched one by one */
#define GPUPERF_SESSION_LEVEL_GRAPHS 2u    /* one record per graph launch; set even before any graph
                                            * exists. CUPTI's kind must be on before the first
                                            * graph is created: else it crashes */
#define GPUPERF_SESSION_LEVEL_NODES 4u     /* kernels inside graphs */
#define GPUPERF_SESSION_LEVEL_APIS 8u      /* launch-class API calls */
#define GPUPERF_SESSION_LEVEL_ALL_APIS 16u
#define GPUPERF_SESSION_LEVEL_COPIES 32u   /* copies and memsets */
#define GPUPERF_SESSION_LEVEL_SYNCS 64u
#define GPUPERF_SESSION_LEVEL_MEMORY 128u
#define GPUPERF_SESSION_LEVEL_HOOKED 256u  /* calls and waits are recorded by hooks */
#define GPUPERF_SESSION_LEVEL_CUPTI 512u   /* launches pay for CUPTI, whatever is recorded */
#define GPUPERF_SESSION_LEVEL_SAMPLES 1024u /* PC sampling is on */

/* struct gpuperf_status.losses: what was lost, and where. In records unless stated otherwise. */
enum gpuperf_session_loss {
	GPUPERF_SESSION_LOSS_CUPTI_BUFFER = 0,  /* CUPTI had no buffer for a record and said so */
	GPUPERF_SESSION_LOSS_DEVICE_BUFFER = 1, /* a record without times: device buffers were full */
	GPUPERF_SESSION_LOSS_REVERSED = 2,      /* the end is before the start */
	GPUPERF_SESSION_LOSS_QUEUE_FULL = 3,    /* the daemon did not read: our own queue was full */
	GPUPERF_SESSION_LOSS_NO_DAEMON = 4,     /* collected while no daemon was connected */
	GPUPERF_SESSION_LOSS_TABLE_FULL = 5,    /* no id left for its name, shape or place, or no room to
	                                         * look for the image of its module */
	GPUPERF_SESSION_LOSS_SAMPLED = 6,       /* skipped by sample_every: intended, not lost */
	GPUPERF_SESSION_LOSS_UNKNOWN_RECORD = 7, /* CUPTI sent an unknown kind */
	GPUPERF_SESSION_LOSS_POOL_EMPTY = 8,    /* buffers requested while none was free */
	GPUPERF_SESSION_LOSS_INCOMPLETE = 9,    /* work that still ran when collection was stopped, and
	                                         * calls whose work was not known then */
	GPUPERF_SESSION_LOSS_COUNT = 10
};

/* Status of the session, at least every heartbeat_ms. All counts are since the process began.
 * Producer: injector. Consumer: session_source. Since 1. */
struct gpuperf_status {
	struct gpuperf_message header;
	__u64 enabled_kinds;      /* GPUPERF_SESSION_BIT of the kinds collected now */
	__u64 mono_ns;            /* CLOCK_MONOTONIC of the sender */
	__u64 unix_ns;            /* CLOCK_REALTIME at the same moment */
	__u64 records_sent;       /* without dictionary entries; in batches before this message */
	__u64 losses[GPUPERF_SESSION_LOSS_COUNT]; /* by enum gpuperf_session_loss */
	__u64 cupti_overhead_ns;  /* from CUPTI's own overhead records */
	__u64 injector_cpu_ns;    /* CPU time of the injector's thread */
	__u64 clock_error_ns;     /* maximum error of CUPTI times vs. CLOCK_REALTIME; 0 = not known yet */
	__u64 yields;             /* how often CUPTI was yielded to another client */
	__u32 state;              /* enum gpuperf_session_state */
	__u32 cause;              /* of a state that is not COLLECTING: enum gpuperf_session_cause */
	__u32 level;              /* GPUPERF_SESSION_LEVEL_* */
	__u32 sample_every;       /* in force */
	__u32 cupti_version;      /* cuptiGetVersion(); 0 = CUPTI not loaded */
	__u32 driver_version;     /* cuDriverGetVersion(): 1000 x major + 10 x minor; 0 = unknown */
	__u32 clock_foreign;      /* 1 = CUPTI uses another clock; times are converted */
	__u32 buffer_mib;         /* host memory held for CUPTI's buffers */
	char detail[96];          /* zero-terminated. For the cause: a library, a call, a reason; for
	                           * PAUSED and OFF: what became of CUPTI in the process */
	__u64 hooked_calls;       /* calls through launch hooks since the process began, whether or not
	                           * they were counted otherwise; 0 = not asked for, see PROGRESS */
	__u64 timed_hooks;        /* calls whose launch hook was timed, picked at random */
	__u64 timed_hooks_ns;     /* what the hooks took in these, without the driver */
};

/* Records of one session, in the order they were decoded. Producer: injector. Consumer:
 * session_source. Since 1. */
struct gpuperf_batch {
	struct gpuperf_message header;
	__u32 record_count;
	__u32 records_bytes;      /* after this struct */
	__u64 sent_unix_ns;       /* CLOCK_REALTIME when the batch was made */
};

/* Starts every record of a batch. Since 1. */
struct gpuperf_session_record {
	__u16 kind;               /* GPUPERF_SESSION_* */
	__u16 length_bytes;       /* of the whole record, a multiple of 8 */
	__u32 id;                 /* meaning by kind, below */
};

/* A name, sent once, before the first record that uses it. id = name id, from 1 up without gaps,
 * valid for the life of the connection. Source: CUPTI's record, as linked (mangled). Since 1. */
struct gpuperf_session_name {
	struct gpuperf_session_record record;
	__u16 text_bytes;         /* bytes after this struct; not terminated, zero-padded to 8 */
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

/* A stream and its location, before the first record that uses it. id = place id. Since 1. */
struct gpuperf_session_place {
	struct gpuperf_session_record record;
	__u32 device;             /* CUDA ordinal in this process */
	__u32 context;            /* CUPTI context id */
	__u32 stream;             /* CUPTI stream id; UINT32_MAX = none, or unknown */
	__u32 pad;
	__u8 device_uuid[16];     /* same in every process; of the MIG instance where there is one;
	                           * zero = unknown */
	/* Limits of one multiprocessor (SM) of the device; 0 = unknown. From cuDeviceGetAttribute. */
	__u32 sm_count;
	__u32 threads_per_sm;
	__u32 blocks_per_sm;
	__u32 registers_per_sm;
	__u32 shared_memory_per_sm_bytes;
	__u32 shared_memory_reserved_bytes; /* of each block, by the driver */
};

/* A period in which nothing, or less, was collected; sent when it is over. id = enum
 * gpuperf_session_cause. Since 1. */
struct gpuperf_session_gap {
	struct gpuperf_session_record record;
	__u64 start_unix_ns;
	__u64 duration_ns;
};

/* struct gpuperf_session_kernel.flags */
#define GPUPERF_KERNEL_FROM_GRAPH 1u       /* part of a graph launch; graph and node are set */
#define GPUPERF_KERNEL_DEVICE_LAUNCHED 2u  /* launched by another kernel */
#define GPUPERF_KERNEL_COOPERATIVE 4u

/* One kernel that ran. id = CUPTI correlation id of the call that launched it; wraps. CUPTI
 * interpolates GPU times. Since 1. */
struct gpuperf_session_kernel {
	struct gpuperf_session_record record;
	__u64 start_unix_ns;
	__u64 duration_ns;
	__u32 name_id;
	__u32 shape_id;
	__u32 place_id;
	__u32 graph_id;           /* 0 = not from a graph */
	__u32 node_id;            /* low half of CUPTI's graphNodeId: the node within its graph */
	__u32 flags;              /* GPUPERF_KERNEL_* */
};

/* struct gpuperf_session_memcpy.direction: values of CUpti_ActivityMemcpyKind, fixed here. */
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
#define GPUPERF_MEMCPY_COUNT 11u

/* Memory kinds: CUpti_ActivityMemoryKind, fixed here. */
#define GPUPERF_MEMORY_UNKNOWN 0u
#define GPUPERF_MEMORY_PAGEABLE 1u
#define GPUPERF_MEMORY_PINNED 2u
#define GPUPERF_MEMORY_DEVICE 3u
#define GPUPERF_MEMORY_ARRAY 4u
#define GPUPERF_MEMORY_MANAGED 5u
#define GPUPERF_MEMORY_DEVICE_STATIC 6u
#define GPUPERF_MEMORY_MANAGED_STATIC 7u
#define GPUPERF_MEMORY_COUNT 8u

/* struct gpuperf_session_memcpy.flags, struct gpuperf_session_memset.flags */
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

/* One memset that ran. id and times as for kernels. Since 1. */
struct gpuperf_session_memset {
	struct gpuperf_session_record record;
	__u64 start_unix_ns;
	__u64 duration_ns;
	__u64 set_bytes;
	__u32 place_id;
	__u8 memory;              /* GPUPERF_MEMORY_* */
	__u8 flags;               /* GPUPERF_MEMCPY_ASYNC */
	__u16 pad;
	__u32 graph_id;           /* 0 = not from a graph */
	__u32 node_id;
};

/* struct gpuperf_session_api.domain */
#define GPUPERF_API_RUNTIME 1u
#define GPUPERF_API_DRIVER 2u

/* struct gpuperf_session_api.flags */
#define GPUPERF_API_HOOKED 1u  /* seen by a hook, not by CUPTI: starts when the hook entered the
                                * driver, which is when it notified the daemon's BPF programs;
                                * sent once its work is known */
#define GPUPERF_API_NO_WORK 2u /* hooked; it failed or only waited: no work has its id */

/* One CUDA API call, as the CPU saw it. id = CUPTI correlation id, same as that of its work.
 * Since 1. */
struct gpuperf_session_api {
	struct gpuperf_session_record record;
	__u64 start_unix_ns;
	__u64 duration_ns;
	__u32 tid;                /* gettid() of the caller: in the sender's own pid namespace */
	__u32 callback_id;        /* CUpti_runtime_api_trace_cbid or CUpti_driver_api_trace_cbid */
	__u32 return_value;       /* cudaError_t or CUresult */
	__u16 domain;             /* GPUPERF_API_RUNTIME, GPUPERF_API_DRIVER */
	__u16 flags;              /* GPUPERF_API_HOOKED, GPUPERF_API_NO_WORK */
};

/* One launch of a whole graph, as the GPU ran it. id and times as for kernels. Since 1. */
struct gpuperf_session_graph {
	struct gpuperf_session_record record;
	__u64 start_unix_ns;
	__u64 duration_ns;
	__u32 graph_id;
	__u32 place_id;
};

/* struct gpuperf_session_sync.type: CUpti_ActivitySynchronizationType, fixed here. */
#define GPUPERF_SYNC_UNKNOWN 0u
#define GPUPERF_SYNC_EVENT 1u         /* a thread waits for an event */
#define GPUPERF_SYNC_STREAM_EVENT 2u  /* a stream waits for an event */
#define GPUPERF_SYNC_STREAM 3u        /* a thread waits for a stream */
#define GPUPERF_SYNC_CONTEXT 4u       /* a thread waits for a whole context */
#define GPUPERF_SYNC_COUNT 5u

/* One wait for the GPU. id as for kernels. Since 1. */
struct gpuperf_session_sync {
	struct gpuperf_session_record record;
	__u64 start_unix_ns;
	__u64 duration_ns;
	__u32 type;               /* GPUPERF_SYNC_* */
	__u32 place_id;
};

/* struct gpuperf_session_memory.operation: CUpti_ActivityMemoryOperationType, fixed here. */
#define GPUPERF_MEMORY_ALLOCATE 1u
#define GPUPERF_MEMORY_RELEASE 2u

/* One allocation or release. id as for kernels. Since 1. */
struct gpuperf_session_memory {
	struct gpuperf_session_record record;
	__u64 unix_ns;
	__u64 address;
	__u64 size_bytes;         /* of a release: as CUPTI reports it, 0 = unknown */
	__u32 place_id;
	__u16 operation;          /* GPUPERF_MEMORY_ALLOCATE, GPUPERF_MEMORY_RELEASE */
	__u8 memory;              /* GPUPERF_MEMORY_* */
	__u8 from_pool;           /* 1 = from a memory pool, whose own size does not change */
};

/* struct gpuperf_session_overhead.type. 1 to 8 are CUPTI's and no longer sent: switching its records
 * of overhead off crashes programs (docs/decisions/0012-cupti.md). */
#define GPUPERF_OVERHEAD_UNKNOWN 0u
#define GPUPERF_OVERHEAD_DRIVER_COMPILER 1u
#define GPUPERF_OVERHEAD_BUFFER_FLUSH 2u
#define GPUPERF_OVERHEAD_INSTRUMENTATION 3u
#define GPUPERF_OVERHEAD_RESOURCE 4u
#define GPUPERF_OVERHEAD_MODULE_LOADING 5u      /* the program's own: the driver loads lazily */
#define GPUPERF_OVERHEAD_FUNCTION_LOADING 6u    /* likewise */
#define GPUPERF_OVERHEAD_COMMAND_BUFFER_FULL 7u /* likewise: launches wait for room */
#define GPUPERF_OVERHEAD_ACTIVITY_BUFFER 8u
#define GPUPERF_OVERHEAD_WINDOW 9u          /* ours: launches held as collection began or ended */
#define GPUPERF_OVERHEAD_COUNT 10u

/* Time lost to CUPTI or to the driver's own housekeeping. id = gettid() where it happened,
 * 0 = unknown. Since 1. */
struct gpuperf_session_overhead {
	struct gpuperf_session_record record;
	__u64 start_unix_ns;
	__u64 duration_ns;
	__u32 type;               /* GPUPERF_OVERHEAD_* */
	__u32 pad;
};

/* Why a warp did not issue its next instruction, or that it did (selected): X(name in CUPTI's
 * metric smsp__pcsamp_warps_issue_stalled_NAME). */
#define GPUPERF_STALLS(X)  \
	X(other)           \
	X(barrier)         \
	X(branch_resolving) \
	X(dispatch_stall)  \
	X(drain)           \
	X(imc_miss)        \
	X(lg_throttle)     \
	X(long_scoreboard) \
	X(math_pipe_throttle) \
	X(membar)          \
	X(mio_throttle)    \
	X(misc)            \
	X(no_instructions) \
	X(not_selected)    \
	X(selected)        \
	X(short_scoreboard) \
	X(sleeping)        \
	X(tex_throttle)    \
	X(wait)            \
	X(warpgroup_arrive)

/* struct gpuperf_session_stall.stall. Append only. */
enum gpuperf_stall {
#define GPUPERF_STALL_ID(name) GPUPERF_STALL_##name,
	GPUPERF_STALLS(GPUPERF_STALL_ID)
#undef GPUPERF_STALL_ID
	GPUPERF_STALL_COUNT
};

/* In what state warps were found at one instruction of a kernel. Follows struct
 * gpuperf_session_stalls. */
struct gpuperf_session_stall {
	__u32 stall;              /* enum gpuperf_stall */
	__u32 samples;
	__u32 idle_samples;       /* of those: while no warp of the scheduler issued an instruction */
	__u32 pad;
};

/* Samples of one instruction since the last such record. id = name id of the kernel. Source:
 * cuptiPCSamplingGetData. Since 1. */
struct gpuperf_session_stalls {
	struct gpuperf_session_record record;
	__u64 cubin_crc;          /* CUPTI's CRC of the module that the kernel is from */
	__u32 pc_offset_bytes;    /* of the instruction, from the kernel's beginning */
	__u32 count;              /* of struct gpuperf_session_stall that follow; at most
	                           * GPUPERF_STALL_COUNT */
};

/* struct gpuperf_session_sampling.flags */
#define GPUPERF_SAMPLING_BUFFER_FULL 1u /* the hardware's buffer was full: samples are missing */

/* A time in which a device was sampled, sent after its samples. id = place id of the device. Since
 * 1. */
struct gpuperf_session_sampling {
	struct gpuperf_session_record record;
	__u64 start_unix_ns;
	__u64 duration_ns;
	__u64 samples;            /* all, those of the two next lines included */
	__u64 dropped_samples;    /* by the hardware */
	__u64 other_samples;      /* of kernels that CUPTI does not tell: its own and the driver's */
	__u32 period;             /* each SM sampled every 2^this cycles; 5 to 31 */
	__u32 flags;              /* GPUPERF_SAMPLING_* */
};

/* struct gpuperf_session_cubin.record.id: whether the image comes, or why not. Append only. */
enum gpuperf_cubin_state {
	GPUPERF_CUBIN_FOUND = 0,
	GPUPERF_CUBIN_UNSEEN = 1,      /* no module was loaded from an image with this CRC while we looked */
	GPUPERF_CUBIN_COMPRESSED = 2,  /* likewise, but images were loaded that are compressed */
	GPUPERF_CUBIN_TOO_LARGE = 3,   /* likewise, but some are beyond GPUPERF_CUBIN_BYTES_MAX */
	GPUPERF_CUBIN_STATE_COUNT = 4
};

/* A piece of the image (an ELF file) of a module that samples name, after the samples that name it.
 * Pieces of one image come in order and without a gap; only then the next image begins. Nothing is
 * sent twice in a connection. Counts as an entry of a dictionary. id = enum gpuperf_cubin_state;
 * without an image, size and piece are empty. Source: the address given to cuModuleLoadData and the
 * like, read when the samples came. Since 1. */
struct gpuperf_session_cubin {
	struct gpuperf_session_record record;
	__u64 cubin_crc;          /* cuptiGetCubinCrc of it. CUPTI looks at some 30 bytes only: two images
	                           * may have the same */
	__u32 size_bytes;         /* of the image; at most GPUPERF_CUBIN_BYTES_MAX */
	__u32 offset_bytes;       /* of this piece */
	__u32 piece_bytes;        /* after this struct, zero-padded to 8 */
	__u32 pad;
};
