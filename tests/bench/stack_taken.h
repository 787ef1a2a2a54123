/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* What stack_cost's BPF programs hand to it. Plain C that also compiles as C++. */
#pragma once

#ifndef __BPF__
#include <linux/types.h>
#endif

#define BENCH_STACK_FRAMES 127 /* kernel.perf_event_max_stack, its usual value */

struct bench_taken {
  __u64 own_id;               // 0 = take_stack gave none
  __s64 frame_pointer_bytes;  // of bpf_get_stack: 8 a frame, or an error below 0
};

// A copy of the stack, for a walk in user space. As many bytes as its program copies follow.
struct bench_copy {
  __u64 pc;
  __u64 sp;
  __u64 bp;
  __u64 is_read;  // 0 = not all of it could be read, and none of it was
};
