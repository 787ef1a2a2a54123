/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* For the programs on uprobes: which stack they run on. */
#pragma once

#include "bpf/maps.bpf.h"

/* From Linux 6.13 on the kernel gives programs with more than some words on their stack a memory for it per CPU. Those
 * on uprobes can be preempted, and another thread's run on that CPU then writes over it: kernels that preempt crash
 * (https://github.com/open-telemetry/opentelemetry-ebpf-instrumentation/issues/3056). A program with a tail call, also
 * one that is never reached, keeps the thread's own stack. */
static const volatile __u32 never = 0;

static __always_inline void keep_own_stack(struct pt_regs *ctx)
{
	if (never)
		bpf_tail_call(ctx, NULL, 0);
}
