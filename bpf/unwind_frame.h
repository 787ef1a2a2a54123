/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
#pragma once

#ifndef __BPF__
#include <linux/types.h>
#endif

/* The function whose frame a walk looks at. */
struct unwind_frame {
	__u64 pc;
	__u64 sp;
	__u64 bp;
	__u32 is_exact;           /* stopped at pc by a signal; else pc is where it goes on after a call */
};
