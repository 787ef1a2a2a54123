// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
/* Sums of hook counts: see hooked_counts.bpf.h. */
#include "bpf/hooked_counts.bpf.h"
#include "bpf/repeat.bpf.h"

#define BUCKET_PAIRS (GPUPERF_BUCKETS / 2)
#define HIGH_BUCKET 0xffffffff00000000ull

/* Two buckets as one word: most are zero. */
static __always_inline __u64 *bucket_pair(const struct gpuperf_entry_counts *counts, __u32 pair)
{
	barrier_var(pair);
	return (__u64 *)counts->buckets + (pair < BUCKET_PAIRS ? pair : 0);
}

static __always_inline __u64 add_pairs(__u64 a, __u64 b)
{
	return (__u32)(a + b) | ((a & HIGH_BUCKET) + (b & HIGH_BUCKET));
}

__attribute__((noinline)) int add_hooked_error(struct gpuperf_entry_counts *sum, __u64 status_tag, __u64 count)
{
	if (!sum)
		return 0;
	for (__u32 i = 0; i < GPUPERF_ERROR_SLOTS; i++) {
		if (!sum->errors[i].status_tag)
			sum->errors[i].status_tag = status_tag;
		if (sum->errors[i].status_tag == status_tag) {
			sum->errors[i].count += count;
			return 0;
		}
	}
	sum->other_errors += count;
	return 0;
}

struct bucket_sum {
	struct gpuperf_entry_counts *sum;
	const struct gpuperf_entry_counts *counts;
	struct gpuperf_cell *cell;
	__u64 ended;
};

static __attribute__((noinline)) long add_bucket_pair(__u32 index, struct bucket_sum *sums)
{
	__u64 pair = *bucket_pair(sums->counts, index);

	if (pair)
		*bucket_pair(sums->sum, index) = add_pairs(*bucket_pair(sums->sum, index), pair);
	return 0;
}

__attribute__((noinline)) int add_hooked_counts(struct gpuperf_entry_counts *sum,
						const struct gpuperf_entry_counts *counts)
{
	struct bucket_sum sums = { .sum = sum, .counts = counts };

	if (!sum || !counts)
		return 0;
	sum->calls += counts->calls;
	sum->abandoned += counts->abandoned;
	sum->self_ns += counts->self_ns;
	sum->total_ns += counts->total_ns;
	sum->other_errors += counts->other_errors;
	if (counts->inverted_min_ns > sum->inverted_min_ns)
		sum->inverted_min_ns = counts->inverted_min_ns;
	if (counts->max_ns > sum->max_ns)
		sum->max_ns = counts->max_ns;
	for (__u32 i = 0; i < GPUPERF_ERROR_SLOTS; i++) {
		if (counts->errors[i].count)
			add_hooked_error(sum, counts->errors[i].status_tag, counts->errors[i].count);
	}
	repeat(BUCKET_PAIRS, add_bucket_pair, &sums);
	return 0;
}

static __attribute__((noinline)) long negate_bucket_pair(__u32 index, struct bucket_sum *sums)
{
	__u64 *pair = bucket_pair(sums->sum, index);

	if (*pair)
		*pair = add_pairs(~*pair, 1ull << 32 | 1);
	return 0;
}

/* Negates everything that is added up. Errors keep their slots. */
__attribute__((noinline)) int negate_hooked_counts(struct gpuperf_entry_counts *sum)
{
	struct bucket_sum sums = { .sum = sum };

	if (!sum)
		return 0;
	sum->calls = -sum->calls;
	sum->abandoned = -sum->abandoned;
	sum->self_ns = -sum->self_ns;
	sum->total_ns = -sum->total_ns;
	sum->other_errors = -sum->other_errors;
	for (__u32 i = 0; i < GPUPERF_ERROR_SLOTS; i++)
		sum->errors[i].count = -sum->errors[i].count;
	repeat(BUCKET_PAIRS, negate_bucket_pair, &sums);
	return 0;
}

static __attribute__((noinline)) long count_bucket_pair(__u32 index, struct bucket_sum *sums)
{
	__u64 pair = *bucket_pair(sums->counts, index);

	sums->ended += (__u32)pair + (pair >> 32);
	return 0;
}

/* Calls in flight; correct whatever has wrapped. */
__attribute__((noinline)) __u32 count_hooked_in_flight(const struct gpuperf_entry_counts *counts)
{
	struct bucket_sum sums = { .counts = counts };

	if (!counts)
		return 0;
	repeat(BUCKET_PAIRS, count_bucket_pair, &sums);
	return counts->calls - counts->abandoned - sums.ended;
}

int hooked_counts_begin(struct gpuperf_counts_room *room, __u64 address, __u64 sequence)
{
	const struct gpuperf_noted_counts *noted = (const void *)address;
	const struct gpuperf_counts_room *empty;
	_Bool is_known[2];
	__u64 sequences[2];
	__u32 key = 0, which;

	if (!room)
		return -1;
	room->base_in_flight = 0;
	if (!address) {
		empty = bpf_map_lookup_elem(&empty_counts_room, &key);
		return !empty || bpf_probe_read_kernel(&room->sum, sizeof(room->sum), &empty->sum);
	}
	if (bpf_probe_read_user(sequences, sizeof(sequences), noted->sequence))
		return -1;
	is_known[0] = sequences[0] <= sequence;
	is_known[1] = sequences[1] <= sequence;
	if (is_known[0] == is_known[1]) /* the newer; if notes were missed, the older is closer */
		which = is_known[0] ? sequences[1] > sequences[0] : sequences[1] < sequences[0];
	else
		which = is_known[1];
	if (bpf_probe_read_user(&room->sum, sizeof(room->sum), &noted->counts[which]))
		return -1;
	room->base_in_flight = count_hooked_in_flight(&room->sum);
	return negate_hooked_counts(&room->sum);
}

int hooked_counts_read(struct gpuperf_counts_room *room, __u64 address)
{
	if (!room || bpf_probe_read_user(&room->read, sizeof(room->read), (const void *)address))
		return -1;
	return add_hooked_counts(&room->sum, &room->read);
}

static __attribute__((noinline)) long take_bucket_pair(__u32 index, struct bucket_sum *sums)
{
	__u64 pair = *bucket_pair(sums->counts, index);
	__u32 first = 2 * index;

	barrier_var(first);
	if (!pair || first >= GPUPERF_BUCKETS - 1)
		return 0;
	__sync_fetch_and_add(&sums->cell->buckets[first], (__u32)pair);
	__sync_fetch_and_add(&sums->cell->buckets[first + 1], pair >> 32);
	return 0;
}

/* A separate function for the verifier. */
__attribute__((noinline)) int take_hooked_buckets(struct gpuperf_cell *cell, const struct gpuperf_entry_counts *sum)
{
	struct bucket_sum sums = { .cell = cell, .counts = sum };

	if (!cell || !sum)
		return 0;
	repeat(BUCKET_PAIRS, take_bucket_pair, &sums);
	return 0;
}

__attribute__((noinline)) int take_hooked_errors(struct gpuperf_cell *cell, const struct gpuperf_entry_counts *sum,
						 __u32 function_id)
{
	const struct gpuperf_function *function = bpf_map_lookup_elem(&functions, &function_id);

	if (!cell || !sum || !function || !(function->flags & GPUPERF_FN_STATUS))
		return 0;
	for (__u32 i = 0; i < GPUPERF_ERROR_SLOTS; i++) {
		__s32 status = (__s32)sum->errors[i].status_tag;

		if (sum->errors[i].count && is_error(function, status))
			cells_count_errors(cell, status, sum->errors[i].count);
	}
	if (sum->other_errors)
		__sync_fetch_and_add(&cell->other_errors, sum->other_errors);
	return 0;
}

/* Writes in the order that lets the daemon read a cell at any time: calls first, total_ns last. */
int hooked_counts_take(struct gpuperf_counts_room *room, __u32 entry, __u32 is_last)
{
	__u32 function_id = 0, cell_index;
	struct gpuperf_cell *cell;
	__s32 in_flight;

	if (!room || !hooked_call_function(entry, &function_id))
		return 0;
	cell_index = cells_find(function_id);
	cell = bpf_map_lookup_elem(&cells, &cell_index);
	if (!cell)
		return 0;
	if (is_last) {
		in_flight = room->base_in_flight + count_hooked_in_flight(&room->sum);
		if (in_flight > 0)
			room->sum.abandoned += in_flight;
	}
	__sync_fetch_and_add(&cell->calls, room->sum.calls);
	__sync_fetch_and_add(&cell->hooked, room->sum.calls);
	if (room->sum.abandoned)
		__sync_fetch_and_add(&cell->abandoned, room->sum.abandoned);
	take_hooked_errors(cell, &room->sum, function_id);
	take_hooked_buckets(cell, &room->sum);
	cells_add_times(cell, room->sum.max_ns, room->sum.inverted_min_ns, room->sum.self_ns, room->sum.total_ns);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
