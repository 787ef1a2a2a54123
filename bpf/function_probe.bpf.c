// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
/*
 * Entry and end of any configured function. Totals are kept here; only a slow call leaves the kernel.
 * The attach cookie says which function, and which link the hit came through (bpf/records.h).
 *
 * Built three times, because the session kfuncs take no argument up to kernel 6.19 and the context from
 * 7.0 on: GPUPERF_SESSION 0 = without sessions (multi and perf), 1 = no argument, 2 = context.
 */
#include "bpf/call_state.bpf.h"
#include "bpf/plan.bpf.h"
#include "bpf/stack.bpf.h"
#include "bpf/trace.bpf.h"

#if GPUPERF_SESSION == 1
extern _Bool bpf_session_is_return(void) __ksym;
extern __u64 *bpf_session_cookie(void) __ksym;
#define session_is_return(ctx) bpf_session_is_return()
#define session_cookie(ctx) bpf_session_cookie()
#elif GPUPERF_SESSION == 2
extern _Bool bpf_session_is_return(void *ctx) __ksym;
extern __u64 *bpf_session_cookie(void *ctx) __ksym;
#define session_is_return(ctx) bpf_session_is_return(ctx)
#define session_cookie(ctx) bpf_session_cookie(ctx)
#endif

/* How a call's end is seen. */
enum pairing {
	PAIRING_SESSION, /* return half of the same link, with a cookie per call */
	PAIRING_RETURN,  /* a return probe of its own */
	PAIRING_EXITS,   /* probes on the function's own returns and tail jumps */
};

/* The session cookie: start time << 1 | whether the call has a frame. */
#define COOKIE_FRAMED 1ull
#define COOKIE_WITHOUT_CONDITION ((1ull << GPUPERF_COOKIE_CONDITION_SHIFT) - 1)
#define SKIP_RETURN 1 /* a session then asks for no return; others ignore it */

static __always_inline __u32 graph_call_of(const struct gpuperf_function *function)
{
	return function->flags >> GPUPERF_FN_GRAPH_SHIFT & GPUPERF_FN_GRAPH_MASK;
}

static __always_inline __u64 lane_word(__u64 cookie)
{
	__u32 lane = cookie_lane(cookie);
	__u64 *word = bpf_map_lookup_elem(&lanes, &lane);

	return word ? *word : 0;
}

static __always_inline _Bool lane_counts(__u64 word, __u64 cookie)
{
	return (__u8)word == (__u8)(cookie >> GPUPERF_COOKIE_GENERATION_SHIFT);
}

static __always_inline __u64 next_generation(__u64 cookie)
{
	__u64 next = GPUPERF_NEXT_GENERATION((__u8)(cookie >> GPUPERF_COOKIE_GENERATION_SHIFT));

	return (cookie & ~(0xffull << GPUPERF_COOKIE_GENERATION_SHIFT)) |
	       next << GPUPERF_COOKIE_GENERATION_SHIFT;
}

/* Whether this link counts the hit. The kernel runs the programs of a hit newest link first; the word
 * may change in between, so the older one goes by what the newer one saw. Without that, some calls at
 * the moment of a change would be counted twice or not at all. */
static __always_inline _Bool hit_counts(__u64 cookie, struct task_struct *task)
{
	__u64 word = lane_word(cookie);
	struct gpuperf_thread *thread;

	if (word & GPUPERF_LANE_CHANGING) {
		thread = bpf_task_storage_get(&threads, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (!thread)
			return lane_counts(word, cookie);
		if (thread->newer_cookie == next_generation(cookie))
			word = thread->newer_word;
		thread->newer_cookie = cookie;
		thread->newer_word = word;
	}
	return lane_counts(word, cookie);
}

#define WORST_RETRIES 4 /* each lost race means another thread's call joined them */

/* Whether a slow call is among the longest GPUPERF_WORST of the cell, which it then joins. Races are
 * decided in its favour. Global, so that the verifier looks at it once and not on every path to it. */
__attribute__((noinline)) int note_worst(__u32 cell_index, __u64 duration_ns)
{
	struct gpuperf_cell *cell = bpf_map_lookup_elem(&cells, &cell_index);

	if (!cell)
		return 0;
	for (int attempt = 0; attempt < WORST_RETRIES; attempt++) {
		__u64 shortest_ns = ~0ull;
		__u64 *place = NULL;

		for (__u32 i = 0; i < GPUPERF_WORST; i++) {
			__u64 seen_ns = *(volatile __u64 *)&cell->worst_ns[i];

			if (seen_ns < shortest_ns) {
				shortest_ns = seen_ns;
				place = &cell->worst_ns[i];
			}
		}
		if (!place || duration_ns <= shortest_ns)
			return 0;
		if (__sync_val_compare_and_swap(place, shortest_ns, duration_ns) == shortest_ns)
			return 1;
	}
	return 1;
}

struct ended_call {
	const struct gpuperf_function *function;
	struct gpuperf_frame *frame; /* NULL: only the times are known */
	struct gpuperf_thread *thread;
	__u32 function_id;
	enum pairing pairing;
	_Bool has_return_value; /* in rax */
	__u64 start_ns;
	__u64 duration_ns;
	__u64 threshold_ns; /* the one it passed; 0 = it was not slow */
	__u8 adaptive;
};

/* The stack from the caller on. A return probe runs in it; at an exit the return address is on top. */
static __always_inline __u64 take_callers_stack(struct pt_regs *ctx, enum pairing pairing)
{
	if (pairing == PAIRING_EXITS)
		return take_entry_stack(ctx);
	return take_stack(PT_REGS_IP(ctx), PT_REGS_SP(ctx), PT_REGS_FP(ctx));
}

static __always_inline void emit_slow_call(struct pt_regs *ctx, struct task_struct *task,
					   const struct ended_call *call, __u32 cell_index)
{
	const struct gpuperf_function *function = call->function;
	__u64 id = bpf_get_current_pid_tgid();
	_Bool worst = note_worst(cell_index, call->duration_ns);
	struct gpuperf_slow_call *record;

	/* In a burst the rest of the ring is for the worst. */
	if (!worst && bpf_ringbuf_query(&slow_ring, BPF_RB_AVAIL_DATA) > GPUPERF_SLOW_RING_BYTES / 2) {
		emit_loss(GPUPERF_LOSS_SLOW_THINNED);
		return;
	}
	record = bpf_ringbuf_reserve(&slow_ring, sizeof(*record), 0);
	if (!record) {
		emit_loss(GPUPERF_LOSS_SLOW_RING_FULL);
		return;
	}
	__builtin_memset(record, 0, __builtin_offsetof(struct gpuperf_slow_call, outer));
	clear_call_state(record);
	record->header.kind = GPUPERF_RECORD_SLOW_CALL;
	record->header.length_bytes = sizeof(*record);
	record->start_mono_ns = call->start_ns;
	record->duration_ns = call->duration_ns;
	record->threshold_ns = call->threshold_ns;
	record->adaptive = call->adaptive;
	record->worst = worst;
	record->process_start_boot_ns = task->group_leader->start_boottime;
	record->pid = id >> 32;
	record->tid = (__u32)id;
	record->function_id = call->function_id;
	if (call->frame) {
		record->has_values = 1;
		record->values_unread = call->frame->values_unread;
		__builtin_memcpy(record->values, call->frame->values, sizeof(record->values));
		if (function->flags & GPUPERF_FN_PLAN)
			plan_read_blobs(call->function_id, call->frame, record);
		if (call->thread && (function->flags & GPUPERF_FN_SPLIT))
			keep_call_state(record, call->thread, call->frame, call->thread->depth, task);
	}
	if (call->has_return_value) {
		record->has_return_value = 1;
		record->return_value = PT_REGS_RC(ctx);
	}
	bpf_get_current_comm(record->comm, sizeof(record->comm)); /* zeroes it on failure */
	if (function->flags & GPUPERF_FN_STACK)
		record->stack_id = take_callers_stack(ctx, call->pairing);
	bpf_ringbuf_submit(record, emit_wake_flags(call->start_ns + call->duration_ns));
}

static __always_inline int enter(struct pt_regs *ctx, __u64 *session, enum pairing pairing)
{
	__u64 cookie = bpf_get_attach_cookie(ctx);
	__u32 function_id = cookie_function(cookie);
	struct task_struct *task = bpf_get_current_task_btf();
	struct gpuperf_thread *thread;
	const struct gpuperf_function *function;
	struct gpuperf_frame *frame = NULL;
	struct gpuperf_cell *cell;
	__u32 cell_index;
	__u64 now_ns;

	if (!hit_counts(cookie, task))
		return SKIP_RETURN;
	thread = bpf_task_storage_get(&threads, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (thread) {
		call_stack_drop_stale(thread, PT_REGS_SP(ctx), cookie);
		if (call_stack_forwards(thread, cookie)) {
			if (pairing == PAIRING_RETURN) /* so that its return is known */
				call_stack_push(thread, PT_REGS_SP(ctx), cookie, GPUPERF_NO_CELL);
			return SKIP_RETURN;
		}
	}
	cell_index = cells_find_cached(function_id, task, thread);
	cell = bpf_map_lookup_elem(&cells, &cell_index);
	function = bpf_map_lookup_elem(&functions, &function_id);
	if (!cell || !function)
		return SKIP_RETURN; /* cannot be: both arrays hold every index handed out */
	__sync_fetch_and_add(&cell->calls, 1);
	if (function->flags & GPUPERF_FN_LAUNCH)
		trace_launch(ctx, task, thread, function_id, graph_call_of(function));
	if (thread)
		frame = call_stack_push(thread, PT_REGS_SP(ctx), cookie, cell_index);
	if (frame && (function->flags & GPUPERF_FN_PLAN)) {
		plan_keep(ctx, function_id, frame);
	} else if (frame) {
		frame->values_unread = 0;
		plan_keep_registers(ctx, frame->values);
	} else {
		emit_loss(thread ? GPUPERF_LOSS_CALL_DEPTH : GPUPERF_LOSS_THREAD_STATE);
		if (pairing != PAIRING_SESSION)
			__sync_fetch_and_add(&cell->untimed, 1);
	}
	if (frame) {
		frame->bp = PT_REGS_FP(ctx);
		frame->minor_faults = task->min_flt;
		frame->major_faults = task->maj_flt;
	}
	now_ns = bpf_ktime_get_ns(); /* last, so that our own work is not part of the call */
	if (frame)
		frame->start_ns = now_ns;
	if (thread && !thread->created_ns)
		thread->created_ns = now_ns;
	if (session)
		*session = now_ns << 1 | (frame ? COOKIE_FRAMED : 0);
	return 0;
}

static __always_inline _Bool condition_holds(__u64 flags, __u32 code)
{
	_Bool carry = flags & 1, parity = flags & 4, zero = flags & 0x40, sign = flags & 0x80;
	_Bool overflow = flags & 0x800;
	_Bool holds = 0;

	switch (code >> 1) {
	case 0: holds = overflow; break;
	case 1: holds = carry; break;
	case 2: holds = zero; break;
	case 3: holds = carry || zero; break;
	case 4: holds = sign; break;
	case 5: holds = parity; break;
	case 6: holds = sign != overflow; break;
	case 7: holds = zero || sign != overflow; break;
	}
	return holds != (code & 1); /* odd codes are the negated ones */
}

/* Launches have their own records. */
static __always_inline void trace_call(struct pt_regs *ctx, struct task_struct *task,
				       const struct ended_call *call)
{
	const struct gpuperf_trace_order *order = find_trace_order(task);
	struct gpuperf_traced_call *record;
	__u64 id = bpf_get_current_pid_tgid();

	if (!order || !(order->flags & GPUPERF_TRACE_CALLS) || call->duration_ns < order->min_call_ns ||
	    call->function->flags & GPUPERF_FN_LAUNCH)
		return;
	record = bpf_ringbuf_reserve(&trace_ring, sizeof(*record), 0);
	if (!record) {
		emit_loss(GPUPERF_LOSS_TRACE_RING_FULL);
		return;
	}
	record->header.kind = GPUPERF_RECORD_CALL;
	record->header.length_bytes = sizeof(*record);
	record->start_mono_ns = call->start_ns;
	record->duration_ns = call->duration_ns;
	record->off_cpu_ns = call->frame ? off_cpu_of(call->frame) : 0;
	record->stack_id = 0;
	record->process_start_boot_ns = task->group_leader->start_boottime;
	record->pid = id >> 32;
	record->tid = (__u32)id;
	record->function_id = call->function_id;
	record->depth = call->thread ? call->thread->depth : 0;
	if (call->duration_ns >= order->long_call_ns)
		record->stack_id = take_callers_stack(ctx, call->pairing);
	bpf_ringbuf_submit(record, emit_wake_flags(call->start_ns + call->duration_ns));
}

/* Statuses, bytes, shapes, names, the slow test. */
static __always_inline void add_ended_call(struct pt_regs *ctx, struct task_struct *task,
					   __u32 cell_index, struct gpuperf_cell *cell,
					   struct ended_call *call, __u64 self_ns)
{
	const struct gpuperf_function *function = call->function;
	_Bool has_status = call->has_return_value && function->flags & GPUPERF_FN_STATUS;
	__s32 status = has_status ? (__s32)PT_REGS_RC(ctx) : 0;

	call->threshold_ns = find_passed_threshold(function, call->duration_ns, &call->adaptive);
	if (status && status != function->benign_status[0] && status != function->benign_status[1])
		cells_count_error(cell, status);
	if (!status && call->frame && (function->flags & GPUPERF_FN_PLAN))
		plan_add(call->function_id, call->frame, cell, task, call->duration_ns);
	if (call->threshold_ns)
		__sync_fetch_and_add(&cell->slow_calls, 1);
	cells_add_completed(cell, call->duration_ns, self_ns);
	if (call->threshold_ns)
		emit_slow_call(ctx, task, call, cell_index);
}

static __always_inline int leave(struct pt_regs *ctx, const __u64 *session, enum pairing pairing)
{
	__u64 now_ns = bpf_ktime_get_ns(); /* first: our own work is not part of the call */
	__u64 cookie = bpf_get_attach_cookie(ctx);
	__u32 condition = cookie >> GPUPERF_COOKIE_CONDITION_SHIFT;
	struct task_struct *task = bpf_get_current_task_btf();
	struct gpuperf_thread *thread = bpf_task_storage_get(&threads, task, NULL, 0);
	/* The kernel has popped the return address already: entry saw it 8 bytes lower. */
	__u64 sp = PT_REGS_SP(ctx) - (pairing == PAIRING_EXITS ? 0 : 8);
	struct ended_call call = {
		.function_id = cookie_function(cookie),
		.pairing = pairing,
		.has_return_value = pairing != PAIRING_EXITS || condition == GPUPERF_CONDITION_RETURN,
		.start_ns = session ? *session >> 1 : 0,
	};
	__u64 self_ns;
	struct gpuperf_frame *frame = NULL;
	struct gpuperf_ghost *ghost = NULL;
	struct gpuperf_cell *cell;
	__u32 cell_index;

	cookie &= COOKIE_WITHOUT_CONDITION; /* as at entry */
	if (thread && thread->off_cpu.since_ns)
		mend_missed_return(thread, task);
	if (thread) {
		frame = call_stack_pop(thread, sp, cookie, call.start_ns);
		if (!frame && pairing != PAIRING_SESSION)
			ghost = call_stack_find_ghost(thread, sp, cookie);
	}
	if (frame) {
		if (frame->cell == GPUPERF_NO_CELL)
			return 0;
		call.start_ns = frame->start_ns;
		cell_index = frame->cell;
	} else if (ghost) {
		call.start_ns = ghost->start_ns;
		cell_index = ghost->cell;
		ghost->sp = 0;
	} else if (pairing == PAIRING_EXITS) {
		return 0; /* a shared tail, a jump within the function: not the end of a call of ours */
	} else {
		__u64 word = lane_word(cookie);

		/* No cookie, or the child of a fork inside the call, which has no state of the entry. */
		if (!call.start_ns ||
		    ((*session & COOKIE_FRAMED) && (!thread || call.start_ns < thread->created_ns))) {
			/* Of two links at once, one sees the returns that the other counts. */
			if (lane_counts(word, cookie) && !(word & GPUPERF_LANE_CHANGING))
				emit_loss(GPUPERF_LOSS_UNPAIRED_RETURN);
			return 0;
		}
		cell_index = cells_find(call.function_id, task);
	}
	cell = bpf_map_lookup_elem(&cells, &cell_index);
	call.function = bpf_map_lookup_elem(&functions, &call.function_id);
	if (!cell || !call.function)
		return 0; /* cannot be: both arrays hold every id handed out */
	if (ghost || (!frame && session && (*session & COOKIE_FRAMED)))
		__sync_fetch_and_add(&cell->abandoned, -1); /* given up for lost too early */
	call.frame = frame;
	call.thread = thread;
	call.duration_ns = now_ns - call.start_ns;
	self_ns = call.duration_ns;
	if (frame) /* the calibrated part of child_ns may be more than it was */
		self_ns -= frame->child_ns < self_ns ? frame->child_ns : self_ns;
	if (frame)
		call_stack_charge_parent(thread, call.function_id, call.duration_ns,
					 call.function->outside_ns);
	add_ended_call(ctx, task, cell_index, cell, &call, self_ns);
	trace_call(ctx, task, &call);
	if (frame && call.has_return_value && graph_call_of(call.function))
		trace_graph(graph_call_of(call.function), (__u32)PT_REGS_RC(ctx), call.start_ns,
			    frame->values[0], frame->values[1]);
	return 0;
}

/* Entry-only functions: counted, never timed. */
SEC("uprobe")
int probe_count(struct pt_regs *ctx)
{
	__u64 cookie = bpf_get_attach_cookie(ctx);
	struct task_struct *task = bpf_get_current_task_btf();
	const struct gpuperf_function *function;
	__u32 function_id, cell_index;
	struct gpuperf_cell *cell;

	if (!hit_counts(cookie, task))
		return 0;
	function_id = cookie_function(cookie);
	function = bpf_map_lookup_elem(&functions, &function_id);
	if (function && function->flags & GPUPERF_FN_LAUNCH)
		trace_launch(ctx, task, bpf_task_storage_get(&threads, task, NULL, 0), function_id,
			     graph_call_of(function));
	cell_index = cells_find(function_id, task);
	cell = bpf_map_lookup_elem(&cells, &cell_index);
	if (cell) {
		__sync_fetch_and_add(&cell->untimed, 1); /* before calls: in flight is never negative */
		__sync_fetch_and_add(&cell->calls, 1);
	}
	return 0;
}

/* Functions an exception may pass: timed from here to one of their own exits. */
SEC("uprobe")
int probe_entry_to_exit(struct pt_regs *ctx)
{
	return enter(ctx, NULL, PAIRING_EXITS);
}

SEC("uprobe")
int probe_exit(struct pt_regs *ctx)
{
	__u32 condition = bpf_get_attach_cookie(ctx) >> GPUPERF_COOKIE_CONDITION_SHIFT;

	if (condition && condition < GPUPERF_CONDITION_RETURN && !condition_holds(ctx->eflags, condition - 1))
		return 0;
	return leave(ctx, NULL, PAIRING_EXITS);
}

#if GPUPERF_SESSION
SEC("uprobe")
int probe_session(struct pt_regs *ctx)
{
	__u64 *session = session_cookie(ctx);

	return session_is_return(ctx) ? leave(ctx, session, PAIRING_SESSION)
				      : enter(ctx, session, PAIRING_SESSION);
}
#else
SEC("uprobe")
int probe_entry(struct pt_regs *ctx)
{
	return enter(ctx, NULL, PAIRING_RETURN);
}

SEC("uprobe")
int probe_return(struct pt_regs *ctx)
{
	return leave(ctx, NULL, PAIRING_RETURN);
}
#endif

char LICENSE[] SEC("license") = "Dual BSD/GPL";
