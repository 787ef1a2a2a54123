/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Sums of hook counts (struct gpuperf_entry_counts), and how they reach a cell. A sum may start with the counts already
 * taken, negated: it is then what is new. Separate functions for the verifier, which also needs the checks for a NULL
 * that cannot occur.
 */
#pragma once

#include "bpf/hooked_call.bpf.h"

/* Scratch space for sums, the current thread's until given back. NULL = no memory. */
static __always_inline struct gpuperf_counts_room *hooked_counts_borrow(void)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid(), key = 0;
	const struct gpuperf_counts_room *empty = bpf_map_lookup_elem(&empty_counts_room, &key);

	if (!empty || bpf_map_update_elem(&counts_rooms, &tid, empty, BPF_ANY))
		return NULL;
	return bpf_map_lookup_elem(&counts_rooms, &tid);
}

static __always_inline void hooked_counts_give_back(void)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();

	bpf_map_delete_elem(&counts_rooms, &tid);
}

/* Starts an entry's sum with its counts noted up to `sequence`, negated. `address`: of struct gpuperf_noted_counts
 * in the process; 0 = nothing was noted. Returns non-zero if it cannot be read. */
int hooked_counts_begin(struct gpuperf_counts_room *room, __u64 address, __u64 sequence);

/* Adds the counts at `address`. Returns non-zero if they cannot be read. */
int hooked_counts_read(struct gpuperf_counts_room *room, __u64 address);

/* Adds the sum to the current process's cell for the entry. `is_last`: its calls in flight will never return. */
int hooked_counts_take(struct gpuperf_counts_room *room, __u32 entry, __u32 is_last);
