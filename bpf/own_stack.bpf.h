/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* For uprobe programs: which stack they run on. */
#pragma once

#include "bpf/maps.bpf.h"

/* Since Linux 6.13 the kernel gives programs with more than a few words of stack a private one per CPU. Uprobe
 * programs can be preempted, and another thread's program on that CPU then overwrites it: preemptible kernels crash
 * (https://github.com/open-telemetry/opentelemetry-ebpf-instrumentation/issues/3056). A program with a tail call,
 * even one that is never reached, keeps the thread's own stack. */
static const volatile __u32 never = 0;

static __always_inline void keep_own_stack(struct pt_regs *ctx)
{
	if (never)
		bpf_tail_call(ctx, NULL, 0);
}
