/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* Launches and calls as records, for traces: which are sent is an order of the daemon. Functions of trace.bpf.c are
 * looked at by the verifier once each, not on every path to them. */
#pragma once

#include "bpf/ended_call.bpf.h"

/* At the entry of a launch function, before its own frame is pushed. `thread` may be NULL; `what`: the function's id and,
 * from bit 32 on, GPUPERF_GRAPH_*; `first`: the first argument. */
int trace_launch(struct gpuperf_thread *thread, __u64 what, __u64 sp, __u64 bp, __u64 first);

/* After a call that was no launch. `thread` may be NULL. */
int trace_call(const struct ended_call *call, struct gpuperf_thread *thread);

/* After a call that concerns a graph, whose first two arguments are in the frame that stood at `depth`; `failed` = it
 * returned an error. */
int trace_graph(__u32 call, __u32 failed, __u64 start_ns, struct gpuperf_thread *thread, __u32 depth);
