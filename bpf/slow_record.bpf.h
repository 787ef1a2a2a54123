/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* What a slow call's record contains about its thread's state, whether the call has returned or is in flight. */
#pragma once

#include "bpf/ended_call.bpf.h"

/* Zeroes the whole record. */
static __always_inline void clear_slow_call(struct gpuperf_slow_call *record)
{
	__builtin_memset(record, 0, __builtin_offsetof(struct gpuperf_slow_call, outer));
	__builtin_memset(&record->outer, 0, __builtin_offsetof(struct gpuperf_slow_call, waits) -
						    __builtin_offsetof(struct gpuperf_slow_call, outer));
	for (__u32 i = 0; i < GPUPERF_WAITS; i++) {
		struct gpuperf_wait *wait = &record->waits[i];

		barrier_var(wait); /* one by one: the compiler does not expand a memset over 1,024 bytes */
		__builtin_memset(wait, 0, sizeof(*wait));
	}
}

/* Fills in the thread's state for the call that is, or last was, at `index`. The faults are the thread's total so
 * far. */
int keep_call_state(struct gpuperf_slow_call *record, struct gpuperf_thread *thread, __u32 index, __u64 minor_faults,
		    __u64 major_faults);

/* For one process, the daemon forwards half of this. In 20 ms, until it wakes, one user fills a tenth of the ring. */
#define GPUPERF_SLOW_WINDOW_NS 100000000ull
#define GPUPERF_SLOW_PER_PROCESS 200
#define GPUPERF_SLOW_PER_USER 400

static __always_inline _Bool slow_share_take(__u64 key, __u64 now_ns, __u64 most)
{
	struct gpuperf_slow_share first = {.window_start_ns = now_ns, .records = 1};
	struct gpuperf_slow_share *share = bpf_map_lookup_elem(&slow_shares, &key);

	if (!share) {
		bpf_map_update_elem(&slow_shares, &key, &first, BPF_ANY); /* no memory: it has no share to use up */
		return 1;
	}
	if (now_ns - share->window_start_ns > GPUPERF_SLOW_WINDOW_NS) { /* racy on purpose: a few more records */
		share->window_start_ns = now_ns;
		share->records = 0;
	}
	if (share->records >= most)
		return 0;
	__sync_fetch_and_add(&share->records, 1);
	return 1;
}

/* Whether this process and its user may send another record. The worst calls get twice the limit. */
static __always_inline _Bool slow_share_allows(__u32 pid, __u64 now_ns, _Bool worst)
{
	__u32 uid = (__u32)bpf_get_current_uid_gid(), times = worst ? 2 : 1;

	if (!slow_share_take(pid, now_ns, GPUPERF_SLOW_PER_PROCESS * times))
		return 0;
	return !uid || slow_share_take(GPUPERF_SHARE_OF_USER | uid, now_ns, GPUPERF_SLOW_PER_USER * times);
}

/* Sends the record of a slow call of the cell. `thread` may be NULL. */
int emit_slow_call(const struct ended_call *call, struct gpuperf_thread *thread, __u32 cell_index);

/* The smaller of the thresholds in force that the duration passes; 0 = it is not slow. */
static __always_inline __u64 find_passed_threshold(const struct gpuperf_function *function,
						   __u64 duration_ns, __u8 *adaptive)
{
	__u64 absolute_ns = function->slow_threshold_ns, adaptive_ns = function->adaptive_threshold_ns;

	*adaptive = 0;
	if (absolute_ns && duration_ns >= absolute_ns)
		return absolute_ns;
	if (!adaptive_ns || duration_ns < adaptive_ns)
		return 0;
	*adaptive = 1;
	return adaptive_ns;
}
