/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* Reports of single calls, whatever they took: of functions whose calls must all be known, each with its values. */
#pragma once

#include "bpf/ended_call.bpf.h"

/* The stack that the report of a call carries; 0 = none. Not within report_call(): a walk needs nearly all of the
 * stack that older verifiers allow. */
__u64 take_report_stack(const struct ended_call *call);

/* After a call of a GPUPERF_FN_REPORT function. `thread` may be NULL. */
int report_call(const struct ended_call *call, struct gpuperf_thread *thread, __u64 stack_id);
