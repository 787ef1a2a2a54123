/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* Trace records of launches and calls. The daemon orders which are sent. The verifier checks each function of
 * trace.bpf.c once, not on every path to it. */
#pragma once

#include "bpf/ended_call.bpf.h"

/* At the entry of a launch function, before its own frame is pushed. `thread` may be NULL; `exec`: what a graph
 * launch launches, else 0. */
int trace_launch(struct gpuperf_thread *thread, __u32 function_id, __u64 exec, const struct caller *caller);

static __always_inline __u32 graph_call_of(__u32 flags)
{
	return flags >> GPUPERF_FN_GRAPH_SHIFT & GPUPERF_FN_GRAPH_MASK;
}

/* `exec` for trace_launch(); `first`: the first argument. */
static __always_inline __u64 exec_of(const struct gpuperf_function *function, __u64 first)
{
	return graph_call_of(function->flags) == GPUPERF_GRAPH_LAUNCHED ? first : 0;
}

/* Whether launches of the current process are traced. */
int wants_launches(void);

/* Approximate time between two launches with a stack on a thread of the current process; 0 = none has one. */
__u64 stack_interval_ns(void);

/* Whether hooks of the current process note each launch with its stack: enum gpuperf_launch_reports. */
int wants_each_stack(void);

static __always_inline __u64 plain_site_of(__u64 stack_id)
{
	return mix(stack_id, 1) | 1;
}

/* The site of launches with this stack and no probed call around them; 0 = it could not be sent. `thread` may be
 * NULL. */
__u64 trace_plain_site(struct gpuperf_thread *thread, __u64 stack_id);

/* After a call that was not a launch. `thread` may be NULL. */
int trace_call(const struct ended_call *call, struct gpuperf_thread *thread);

/* Whether all that threads of the current process do is traced (GPUPERF_TRACE_THREADS). */
int traces_threads(void);

/* A record with what every time of a thread has; NULL = it is lost, and counted. */
static __always_inline struct gpuperf_thread_time *reserve_thread_time(struct task_struct *task, __u32 kind,
								       __u64 start_ns, __u64 stack_id)
{
	struct gpuperf_thread_time *record = bpf_ringbuf_reserve(&trace_ring, sizeof(*record), 0);

	if (!record) {
		emit_loss(GPUPERF_LOSS_TRACE_RING_FULL);
		return NULL;
	}
	__builtin_memset(record, 0, sizeof(*record));
	record->header.kind = GPUPERF_RECORD_THREAD_TIME;
	record->header.length_bytes = sizeof(*record);
	record->start_mono_ns = start_ns;
	record->stack_id = stack_id;
	record->process_start_boot_ns = task->group_leader->start_boottime;
	record->pid = task->tgid;
	record->tid = task->pid;
	record->kind = kind;
	return record;
}

/* The current thread was found on the CPU by a tick of this kind. */
int trace_tick(__u32 kind, __u64 now_ns);

/* After a graph call whose first two arguments are in the frame that was at `depth`; `failed` = it returned an
 * error. */
int trace_graph(__u32 call, __u32 failed, __u64 start_ns, struct gpuperf_thread *thread, __u32 depth);
