// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
/* Cells: finds the one of (function, process) and adds a call to it. */
#include "bpf/cells.bpf.h"
#include "bpf/repeat.bpf.h"

#define UPDATE_RETRIES 16 /* each lost race means another CPU stored a more extreme value */
#define STATUS_TAG (1ull << 32)
#define EEXIST 17

/* One path per octave: in a separate function, the verifier does not check them on every path to here. */
__attribute__((noinline)) __u32 cells_bucket_of(__u64 duration_ns)
{
	__u64 v = duration_ns;
	__u32 octave = 0;

	if (v < (1u << GPUPERF_FIRST_OCTAVE))
		return v >> GPUPERF_BUCKET_SHIFT;
	if (v >> (GPUPERF_LAST_OCTAVE + 1))
		return GPUPERF_BUCKETS - 1;
	/* BPF has no count-leading-zeros: a ladder of six compares. */
	if (v >> 32) { octave += 32; v >>= 32; }
	if (v >> 16) { octave += 16; v >>= 16; }
	if (v >> 8) { octave += 8; v >>= 8; }
	if (v >> 4) { octave += 4; v >>= 4; }
	if (v >> 2) { octave += 2; v >>= 2; }
	if (v >> 1) octave += 1;
	v = duration_ns >> (octave - GPUPERF_SUB_BUCKET_BITS);
	return ((octave - GPUPERF_FIRST_OCTAVE + 1) << GPUPERF_SUB_BUCKET_BITS) +
	       (v & ((1u << GPUPERF_SUB_BUCKET_BITS) - 1));
}

static __always_inline void cells_raise_to(__u64 *field, __u64 value)
{
	__u64 seen = *(volatile __u64 *)field;

	for (int i = 0; i < UPDATE_RETRIES && value > seen; i++) {
		__u64 before = __sync_val_compare_and_swap(field, seen, value);

		if (before == seen)
			return;
		seen = before;
	}
}

int cells_count_errors(struct gpuperf_cell *cell, __s32 status, __u64 count)
{
	__u64 tag = STATUS_TAG | (__u32)status;

	if (!cell)
		return 0;
	for (int i = 0; i < GPUPERF_ERROR_SLOTS; i++) {
		struct gpuperf_error_count *slot = &cell->errors[i];
		__u64 seen = *(volatile __u64 *)&slot->status_tag;

		if (!seen) {
			seen = __sync_val_compare_and_swap(&slot->status_tag, 0, tag);
			if (!seen)
				seen = tag;
		}
		if (seen == tag) {
			__sync_fetch_and_add(&slot->count, count);
			return 0;
		}
	}
	__sync_fetch_and_add(&cell->other_errors, count);
	return 0;
}

/* total_ns is written last: the daemon reads it first, and finds everything else about the calls in it. */
static __always_inline void add_times(struct gpuperf_cell *cell, __u64 max_ns, __u64 inverted_min_ns, __u64 self_ns,
				      __u64 total_ns)
{
	cells_raise_to(&cell->max_ns, max_ns);
	cells_raise_to(&cell->inverted_min_ns, inverted_min_ns);
	__sync_fetch_and_add(&cell->self_ns, self_ns);
	__sync_fetch_and_add(&cell->total_ns, total_ns);
}

int cells_add_completed(struct gpuperf_cell *cell, __u64 duration_ns, __u64 self_ns)
{
	__u32 bucket = cells_bucket_of(duration_ns);

	if (!cell)
		return 0;
	if (bucket < GPUPERF_BUCKETS)
		__sync_fetch_and_add(&cell->buckets[bucket], 1);
	add_times(cell, duration_ns, ~duration_ns, self_ns, duration_ns);
	return 0;
}

int cells_add_times(struct gpuperf_cell *cell, __u64 max_ns, __u64 inverted_min_ns, __u64 self_ns, __u64 total_ns)
{
	if (cell)
		add_times(cell, max_ns, inverted_min_ns, self_ns, total_ns);
	return 0;
}

static __u64 last_alarm_ns;

int cells_alarm(struct gpuperf_cell *cell)
{
	__u64 now_ns = bpf_ktime_get_ns(), before_ns;
	struct gpuperf_record *record;

	if (!cell)
		return 0;
	before_ns = cell->alarm_ns; /* of two threads at once, one more alarm or one less is harmless */
	cell->alarm_ns = now_ns;
	if (now_ns - before_ns >= GPUPERF_ALARM_SPAN_NS || now_ns - last_alarm_ns < GPUPERF_ALARM_INTERVAL_NS)
		return 0;
	record = bpf_ringbuf_reserve(&process_ring, sizeof(*record), 0);
	if (!record)
		return 0; /* the next reading of the totals is less than a second away */
	last_alarm_ns = now_ns;
	record->kind = GPUPERF_RECORD_ALARM;
	record->length_bytes = sizeof(*record);
	bpf_ringbuf_submit(record, BPF_RB_FORCE_WAKEUP);
	return 0;
}

#define WORST_RETRIES 4 /* each lost race means another thread's call joined them */

struct worst_search {
	struct gpuperf_cell *cell;
	__u64 shortest_ns;
	__u32 place;
};

static __attribute__((noinline)) long look_at_worst(__u32 index, struct worst_search *search)
{
	__u64 seen_ns = *(volatile __u64 *)&search->cell->worst_ns[index & (GPUPERF_WORST - 1)];

	if (seen_ns < search->shortest_ns) {
		search->shortest_ns = seen_ns;
		search->place = index;
	}
	return 0;
}

/* 1 = the call replaced the shortest, 0 = it is shorter than all, -1 = another call got there first. */
__attribute__((noinline)) int cells_try_worst(struct gpuperf_cell *cell, __u64 duration_ns)
{
	struct worst_search search = { .cell = cell, .shortest_ns = ~0ull };
	__u64 shortest_ns;
	__u32 place;

	if (!cell)
		return 0;
	repeat(GPUPERF_WORST, look_at_worst, &search);
	shortest_ns = search.shortest_ns;
	if (duration_ns <= shortest_ns)
		return 0;
	place = search.place & (GPUPERF_WORST - 1);
	return __sync_val_compare_and_swap(&cell->worst_ns[place], shortest_ns, duration_ns) == shortest_ns ? 1 : -1;
}

int cells_note_worst(struct gpuperf_cell *cell, __u64 duration_ns)
{
	for (int attempt = 0; attempt < WORST_RETRIES; attempt++) {
		int taken = cells_try_worst(cell, duration_ns);

		if (taken >= 0)
			return taken;
	}
	return 1;
}

static const struct gpuperf_process_info no_process_info;

/* Keeps what /proc may no longer show when the daemon looks. The daemon may read the entry before it is filled; it
 * then reads /proc. */
static __always_inline void cells_note_process(const struct gpuperf_process_key *key,
					       struct task_struct *task)
{
	struct gpuperf_process_info *info;
	struct cgroup_subsys_state *state;

	if (bpf_map_update_elem(&processes, key, &no_process_info, BPF_NOEXIST))
		return; /* known; or no memory: the exit is then found by the sweep */
	info = bpf_map_lookup_elem(&processes, key);
	if (!info)
		return;
	state = &task->cgroups->dfl_cgrp->self;
	for (int i = 0; i < GPUPERF_CGROUP_LEVELS && state; i++) {
		bpf_probe_read_kernel_str(info->cgroup[i], GPUPERF_CGROUP_NAME_BYTES,
					  state->cgroup->kn->name);
		state = state->parent;
	}
}

#define SHARE_OF_FREE 3 /* as Shares of daemon/base/shares.h */

/* Whether a user may have one more cell: at most three times what is free, so that the next one finds some. The
 * daemon recounts every user's cells whenever it reads them: errors from races here do not last. */
static __always_inline int cells_take_share(__u32 uid)
{
	struct gpuperf_cell_room *room;
	__u32 zero = 0, used, max, *mine;

	if (!uid)
		return 1;
	room = bpf_map_lookup_elem(&cell_room, &zero);
	if (!room)
		return 0;
	max = room->max;
	used = *(volatile __u32 *)&room->used;
	if (used >= max)
		return 0;
	mine = bpf_map_lookup_elem(&cells_by_user, &uid);
	if (!mine) {
		bpf_map_update_elem(&cells_by_user, &uid, &zero, BPF_NOEXIST);
		mine = bpf_map_lookup_elem(&cells_by_user, &uid);
	}
	if (!mine || (*(volatile __u32 *)mine + 1) / SHARE_OF_FREE > max - used)
		return 0;
	__sync_fetch_and_add(mine, 1);
	__sync_fetch_and_add(&room->used, 1);
	return 1;
}

/* First call of a function in a process: takes a free cell. Two threads may race; the one whose key is refused
 * returns its cell and uses the other's. Without a free cell, or beyond the user's share, the function's overflow
 * cell takes the call, so that no call is ever lost. */
static __always_inline __u32 cells_claim(const struct gpuperf_cell_key *key,
					 struct task_struct *task, struct task_struct *leader)
{
	struct gpuperf_process_key process = {
		.process_start_boot_ns = key->process_start_boot_ns,
		.pid = key->pid,
	};
	struct gpuperf_cell_owner owner = { .uid = (__u32)bpf_get_current_uid_gid() }, *winner;
	long error;

	if (!cells_take_share(owner.uid)) {
		emit_loss(GPUPERF_LOSS_CELLS_USER_FULL);
		return key->function_id;
	}
	if (bpf_map_pop_elem(&free_cells, &owner.cell)) {
		emit_loss(GPUPERF_LOSS_CELLS_FULL);
		return key->function_id;
	}
	/* On failure comm stays empty, and the daemon falls back to /proc. */
	bpf_probe_read_kernel(owner.comm, sizeof(owner.comm), leader->comm);
	error = bpf_map_update_elem(&cell_index, key, &owner, BPF_NOEXIST);
	if (!error) {
		cells_note_process(&process, task);
		return owner.cell;
	}
	bpf_map_push_elem(&free_cells, &owner.cell, 0); /* there is room: it came from there */
	winner = bpf_map_lookup_elem(&cell_index, key);
	if (error == -EEXIST && winner)
		return winner->cell;
	emit_loss(GPUPERF_LOSS_INDEX_FULL);
	return key->function_id;
}

__u32 cells_find(__u32 function_id)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct task_struct *leader = task->group_leader;
	struct gpuperf_cell_key key = {
		.process_start_boot_ns = leader->start_boottime,
		.pid = task->tgid,
		.function_id = function_id,
	};
	struct gpuperf_cell_owner *owner = bpf_map_lookup_elem(&cell_index, &key);

	return owner ? owner->cell : cells_claim(&key, task, leader);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
