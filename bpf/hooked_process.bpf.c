// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
/*
 * Processes whose hooks count. A note in progress when its process is killed may or may not be taken: each has a
 * sequence, and the final take starts from the last one taken.
 *
 * The work at a process's end is bounded, whatever the process claims, above all by LAST_READS: see decision 0025.
 */
#include "bpf/hooked_process.bpf.h"
#include "bpf/trace.bpf.h"

#define LAST_READS 16384   /* counts of (thread, entry) */
#define LAST_LAUNCHES 1024 /* notes of kept launches */

/* Only for a process with a row of its own, so there are never more of these than rows, within each user's share. */
int hooked_process_note(__u64 address, __u32 entry)
{
	const struct gpuperf_hooked_process *said = (const void *)address;
	struct gpuperf_process_key key = current_process();
	struct hooked_process *known = bpf_map_lookup_elem(&hooked_processes, &key);
	struct hooked_process found = {.address = address};
	__u32 function_id;

	if (known && known->address == address)
		return 0;
	if (!hooked_call_function(entry, &function_id) || cells_find(function_id) == function_id ||
	    bpf_probe_read_user(&found.taken, sizeof(found.taken), &said->noted))
		return 0;
	if (known) /* it did an exec that this kernel does not show us */
		*known = found;
	else
		bpf_map_update_elem(&hooked_processes, &key, &found, BPF_NOEXIST);
	return 0;
}

/* Sums the entry's counts with this sequence and, negated, those before it. Returns non-zero if there are none. */
static __always_inline int sum_noted(struct gpuperf_counts_room *room, const struct gpuperf_noted_calls *noted)
{
	const struct gpuperf_hooked_process *said = (const void *)noted->process_address;
	const struct gpuperf_noted_counts *counts;
	__u64 sequences[2];
	__u32 entry = noted->entry;

	if (entry >= GPUPERF_HOOK_COUNT || bpf_probe_read_user(&counts, sizeof(counts), &said->counts[entry]) ||
	    bpf_probe_read_user(sequences, sizeof(sequences), counts->sequence) ||
	    (sequences[0] != noted->sequence && sequences[1] != noted->sequence) || !noted->sequence)
		return -1;
	if (hooked_counts_begin(room, (__u64)counts, noted->sequence - 1))
		return -1;
	return hooked_counts_read(room, (__u64)&counts->counts[sequences[1] == noted->sequence]);
}

int hooked_process_take(__u64 address)
{
	struct gpuperf_process_key key = current_process();
	struct gpuperf_counts_room *room;
	struct gpuperf_noted_calls noted;
	struct hooked_process *known;

	if (bpf_probe_read_user(&noted, sizeof(noted), (const void *)address))
		return 0;
	hooked_process_note(noted.process_address, noted.entry);
	room = hooked_counts_borrow();
	if (!room) {
		emit_loss(GPUPERF_LOSS_HOOKED_CALLS);
		return 0;
	}
	if (!sum_noted(room, &noted))
		hooked_counts_take(room, noted.entry, 0);
	hooked_counts_give_back();
	known = bpf_map_lookup_elem(&hooked_processes, &key);
	if (known)
		known->taken = noted.sequence;
	return 0;
}

struct last_context {
	struct gpuperf_counts_room *room;
	__u32 entry;
	__u32 is_incomplete;
};

static __always_inline int read_thread(const struct gpuperf_counts_room *room, __u32 index,
				       const struct gpuperf_thread_counts **counts)
{
	const __u64 *threads = (const void *)room->process.threads;
	const struct gpuperf_hooked_thread *said;

	return bpf_probe_read_user(&said, sizeof(said), &threads[index]) ||
	       bpf_probe_read_user(counts, sizeof(*counts), &said->counts_address);
}

static long add_thread(__u32 index, struct last_context *context)
{
	struct gpuperf_counts_room *room = context->room;
	const struct gpuperf_thread_counts *thread;
	__u64 counts;

	context->is_incomplete = 1;
	if (read_thread(room, index, &thread))
		return 1;
	if (bpf_probe_read_user(&counts, sizeof(counts), &thread->entries[context->entry]))
		return 1;
	if (counts && (!room->reads_left || hooked_counts_read(room, counts)))
		return 1;
	if (counts)
		room->reads_left--;
	context->is_incomplete = 0;
	return 0;
}

/* Takes one entry's counts, or nothing unless all can be read: a partial difference would not be a number of calls. */
__attribute__((noinline)) int take_last_counts(struct gpuperf_counts_room *room, __u32 entry, __u64 taken)
{
	struct last_context context = {.room = room, .entry = entry};
	__u32 function_id;

	if (!room || entry >= GPUPERF_HOOK_COUNT || !(room->process.is_called[entry / 64] >> entry % 64 & 1) ||
	    !hooked_call_function(entry, &function_id))
		return 0;
	if (hooked_counts_begin(room, room->process.counts[entry], taken))
		context.is_incomplete = 1;
	else
		bpf_loop(room->process.thread_count, add_thread, &context, 0);
	if (context.is_incomplete)
		emit_loss(GPUPERF_LOSS_HOOKED_CALLS);
	else
		hooked_counts_take(room, entry, 1);
	return 0;
}

static long take_launches_of(__u32 index, struct last_context *context)
{
	const struct gpuperf_noted_launches *launches;
	const struct gpuperf_thread_counts *thread;
	const struct gpuperf_kept_launches *kept;
	__u64 number;
	__u32 count;

	if (read_thread(context->room, index, &thread))
		return 1;
	if (bpf_probe_read_user(&kept, sizeof(kept), &thread->launches) ||
	    bpf_probe_read_user(&number, sizeof(number), &kept->number))
		return 0;
	for (__u32 i = 1; i <= GPUPERF_KEPT_NOTES; i++) { /* the oldest first */
		launches = &kept->notes[(number + i) % GPUPERF_KEPT_NOTES];
		if (bpf_probe_read_user(&count, sizeof(count), &launches->count) || !count)
			continue;
		if (!context->room->launches_left) {
			emit_loss(GPUPERF_LOSS_TRACE_RING_FULL);
			return 1;
		}
		context->room->launches_left--;
		take_noted_launches((__u64)launches);
	}
	return 0;
}

/* Inlined: the verifier's call depth is used up. */
static __always_inline void take_last(struct gpuperf_counts_room *room, const struct hooked_process *ended)
{
	struct last_context context = {.room = room};

	if (bpf_probe_read_user(&room->process, sizeof(room->process), (const void *)ended->address)) {
		emit_loss(GPUPERF_LOSS_HOOKED_CALLS);
		return;
	}
	if (room->process.thread_count > GPUPERF_HOOKED_THREADS)
		room->process.thread_count = GPUPERF_HOOKED_THREADS;
	room->reads_left = LAST_READS;
	room->launches_left = LAST_LAUNCHES;
	for (__u32 entry = 0; entry < GPUPERF_HOOK_COUNT; entry++)
		take_last_counts(room, entry, ended->taken);
	if (wants_launches())
		bpf_loop(room->process.thread_count, take_launches_of, &context, 0);
}

int hooked_process_end(__u32 has_memory)
{
	struct gpuperf_process_key key = current_process();
	const struct hooked_process *known = bpf_map_lookup_elem(&hooked_processes, &key);
	struct gpuperf_counts_room *room;
	struct hooked_process ended;

	if (!known)
		return 0;
	ended = *known;
	if (bpf_map_delete_elem(&hooked_processes, &key))
		return 0;
	room = hooked_counts_borrow();
	if (!room || !has_memory || !bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_loop))
		emit_loss(GPUPERF_LOSS_HOOKED_CALLS);
	else
		take_last(room, &ended);
	hooked_counts_give_back();
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
