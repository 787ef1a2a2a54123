/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Sums of what hooks counted (struct gpuperf_entry_counts), and how they reach a cell. A sum may begin with what was taken
 * already, negated: then it is what is new. Functions of their own for the verifier; a NULL that cannot be is for it, too.
 */
#pragma once

#include "bpf/hooked_call.bpf.h"

/* Room for sums, of the current thread until it gives it back. NULL = no memory. */
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

/* Begins the sum of an entry with what was noted of it up to a sequence, negated: see struct gpuperf_noted_counts, which
 * lies at `address` in the process; 0 = nothing was. Not 0 = it cannot be read. */
int hooked_counts_begin(struct gpuperf_counts_room *room, __u64 address, __u64 sequence);

/* Adds the counts that lie at `address`. Not 0 = they cannot be read. */
int hooked_counts_read(struct gpuperf_counts_room *room, __u64 address);

/* Adds the sum to the entry's cell of the current process. `is_last`: its calls in flight will never return. */
int hooked_counts_take(struct gpuperf_counts_room *room, __u32 entry, __u32 is_last);
