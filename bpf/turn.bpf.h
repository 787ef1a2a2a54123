/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* Turns of loops that read back from the GPU what it computed, as an inference engine does with each token: what a
 * thread gave the GPU to do between two copies to the host. The daemon learns from them which turns are steps. */
#pragma once

#include "bpf/ended_call.bpf.h"

/* At the entry of a GPUPERF_FN_TURN_WORK function, once its values are kept. `graph`: the one it replays; 0 = none. */
int turn_add_work(struct gpuperf_thread *thread, const struct gpuperf_frame *frame, __u32 flags, __u64 graph);

/* Whether to report the call of a GPUPERF_FN_RESULT_COPY or GPUPERF_FN_RESULT_WAIT function. */
int turn_is_reported(const struct ended_call *call, struct gpuperf_thread *thread);

/* The turn that the copy has ended; the next one begins. */
int turn_take(struct gpuperf_turn *turn, struct gpuperf_thread *thread);

/* A capture begins on the thread. */
int turn_begin_capture(struct gpuperf_thread *thread);
/* It has ended with `graph`; 0 = it failed. */
int turn_end_capture(struct gpuperf_thread *thread, __u64 graph);
/* `exec` now holds what `graph` does. */
int turn_instantiate(__u64 exec, __u64 graph);
