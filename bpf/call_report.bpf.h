/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* Reports of single calls, whatever they took: of functions whose calls must all be known, each with its values. */
#pragma once

#include "bpf/ended_call.bpf.h"

/* After a call of a GPUPERF_FN_REPORT function. `thread` may be NULL. */
int report_call(const struct ended_call *call, struct gpuperf_thread *thread);
