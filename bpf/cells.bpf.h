/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* Cells: see cells.bpf.c. Separate functions, so that the verifier checks each once, not on every path to it. It
 * also needs the checks for a NULL that cannot occur. */
#pragma once

#include "bpf/emit.bpf.h"

/* The cell of a function's calls in the current process; the function's overflow cell if none is left. */
__u32 cells_find(__u32 function_id);
int cells_count_errors(struct gpuperf_cell *cell, __s32 status, __u64 count);
int cells_add_completed(struct gpuperf_cell *cell, __u64 duration_ns, __u64 self_ns);
/* For many calls, which are in their buckets already. */
int cells_add_times(struct gpuperf_cell *cell, __u64 max_ns, __u64 inverted_min_ns, __u64 self_ns, __u64 total_ns);
/* The cell's calls have passed a multiple of its function's alarm_mask + 1: wakes the daemon if that was fast. */
int cells_alarm(struct gpuperf_cell *cell);
/* Whether a slow call is among the cell's GPUPERF_WORST longest, which it then joins. Races resolve in its favour. */
int cells_note_worst(struct gpuperf_cell *cell, __u64 duration_ns);

static __always_inline _Bool is_error(const struct gpuperf_function *function, __s32 status)
{
	return status && status != function->benign_status[0] && status != function->benign_status[1];
}

/* One more call. Its probe may cost a process too much long before the daemon reads the totals next. */
static __always_inline void cells_count_call(struct gpuperf_cell *cell, const struct gpuperf_function *function)
{
	__u64 before = __sync_fetch_and_add(&cell->calls, 1);

	if (function->alarm_mask && !(before & function->alarm_mask))
		cells_alarm(cell);
}

/* The cell of the current process, cached by the thread, which may be NULL. */
static __always_inline __u32 cells_find_cached(__u32 function_id, struct gpuperf_thread *thread)
{
	__u64 *cached;
	__u32 cell;

	if (!thread)
		return cells_find(function_id);
	cached = &thread->cells[function_id & (GPUPERF_CELL_CACHE - 1)];
	if ((__u32)*cached == function_id + 1)
		return *cached >> 32;
	cell = cells_find(function_id);
	/* An overflow cell is not cached: the next call may find a free one. */
	if (cell != function_id)
		*cached = (__u64)cell << 32 | (function_id + 1);
	return cell;
}
