/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* An ended call, for the functions that report it. */
#pragma once

#include "bpf/plan.bpf.h"
#include "bpf/stack.bpf.h"

struct ended_call {
	__u64 start_ns;
	__u64 duration_ns;
	__u64 threshold_ns;     /* the one it passed; 0 = it was not slow */
	__u64 return_value;
	struct caller caller;
	__u32 function_id;
	__u32 flags;            /* of the function */
	__u32 depth;            /* how many calls are around it; its frame stays there until the thread's next call */
	__u8 adaptive;          /* the threshold */
	__u8 has_return_value;
	__u8 is_framed;
	__u8 is_followed;       /* where its time went is known */
};

/* NULL: only the call's times are known. */
static __always_inline struct gpuperf_frame *get_frame(const struct ended_call *call, struct gpuperf_thread *thread)
{
	return thread && call->is_framed ? call_stack_at(thread, call->depth) : NULL;
}
