/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* Loops of which the verifier follows one pass. */
#pragma once

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <linux/bpf.h>

/* Calls step(index, context) with index 0, 1, ... until it returns nonzero, `count` times at most. Of a plain loop the
 * verifier follows every pass, in each program that has it: most of what loading takes. Before Linux 5.17 there is
 * nothing else. `step` is noinline: Linux 6.1 refuses the plain loop as the compiler arranges it otherwise. */
#define repeat(count, step, context)                                                      \
	do {                                                                               \
		if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_loop)) {           \
			bpf_loop(count, step, context, 0);                                    \
		} else {                                                                    \
			for (__u32 repeat_index = 0; repeat_index < (count); repeat_index++) {     \
				if (step(repeat_index, context))                              \
					break;                                               \
			}                                                                   \
		}                                                                           \
	} while (0)
