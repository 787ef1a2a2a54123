/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* Sending records, and counting what could not be sent or kept. */
#pragma once

#include "bpf/maps.bpf.h"

#define GPUPERF_WAKE_INTERVAL_NS 20000000ull /* a burst wakes the daemon at most 50 times a second */

static __u64 last_wake_ns;

static __always_inline void emit_loss(__u32 loss)
{
	__u64 *count = bpf_map_lookup_elem(&losses, &loss);

	if (count)
		__sync_fetch_and_add(count, 1);
}

/* Half of the ring is kept for calls of which each must be known. */
static __always_inline _Bool report_ring_has_room(void)
{
	return bpf_ringbuf_query(&report_ring, BPF_RB_AVAIL_DATA) < bpf_ringbuf_query(&report_ring, BPF_RB_RING_SIZE) / 2;
}

/* By default the kernel wakes a reader that keeps up on nearly every record, which costs more than the record. The
 * daemon also drains on a timer, so a record without a wake-up only waits. */
static __always_inline __u64 emit_wake_flags(__u64 now_ns)
{
	if (now_ns - last_wake_ns < GPUPERF_WAKE_INTERVAL_NS)
		return BPF_RB_NO_WAKEUP;
	last_wake_ns = now_ns; /* racy on purpose: an extra wake-up is harmless */
	return BPF_RB_FORCE_WAKEUP;
}
