// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
/*
 * Entry and end of any configured function. Totals are kept here; only a slow call leaves the kernel.
 * The attach cookie says which function, and which link the hit came through (bpf/records.h).
 *
 * Built three times, because the session kfuncs take no argument up to kernel 6.19 and the context from
 * 7.0 on: GPUPERF_SESSION 0 = without sessions (multi and perf), 1 = no argument, 2 = context.
 */
#include "bpf/call_report.bpf.h"
#include "bpf/call_state.bpf.h"
#include "bpf/hooked_call.bpf.h"
#include "bpf/operator_call.bpf.h"
#include "bpf/own_stack.bpf.h"
#include "bpf/slow_record.bpf.h"
#include "bpf/trace.bpf.h"
#include "bpf/turn.bpf.h"

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

/* How a call's end is detected. */
enum pairing {
	PAIRING_SESSION, /* return half of the same link, with a cookie per call */
	PAIRING_RETURN,  /* a return probe of its own */
	PAIRING_EXITS,   /* probes on the function's own returns and tail jumps */
};

/* The session cookie: start time << 1 | whether the call has a frame. */
#define COOKIE_FRAMED 1ull
#define COOKIE_WITHOUT_CONDITION ((1ull << GPUPERF_COOKIE_CONDITION_SHIFT) - 1)
#define SKIP_RETURN 1 /* a session then skips the return; others ignore it */

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

/* Whether this link counts the hit. The kernel runs the programs of a hit newest link first. The word may change in
 * between, so the older one uses what the newer one saw. Otherwise some calls at the moment of a change would be
 * counted twice or not at all. */
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

/* At a function's entry. */
static __always_inline int note_launch(struct pt_regs *ctx, struct gpuperf_thread *thread,
				       const struct gpuperf_function *function, __u32 function_id)
{
	struct caller caller = {.sp = PT_REGS_SP(ctx), .bp = PT_REGS_FP(ctx)};

	return trace_launch(thread, function_id, exec_of(function, PT_REGS_PARM1(ctx)), &caller);
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
	if (thread && hooked_call_settle(thread, PT_REGS_SP(ctx), cookie)) {
		if (call_stack_forwards(thread, cookie)) {
			if (pairing == PAIRING_RETURN) /* so that its return is recognized */
				call_stack_push(thread, PT_REGS_SP(ctx), cookie, GPUPERF_NO_CELL);
			return SKIP_RETURN;
		}
	}
	cell_index = cells_find_cached(function_id, thread);
	cell = bpf_map_lookup_elem(&cells, &cell_index);
	function = bpf_map_lookup_elem(&functions, &function_id);
	if (!cell || !function)
		return SKIP_RETURN; /* cannot happen: both arrays hold every index handed out */
	cells_count_call(cell, function);
	if (thread)
		thread->cost_ns += function->call_cost_ns;
	if (function->flags & GPUPERF_FN_LAUNCH)
		note_launch(ctx, thread, function, function_id);
	if (thread)
		frame = call_stack_push(thread, PT_REGS_SP(ctx), cookie, cell_index);
	if (frame && (function->flags & GPUPERF_FN_PLAN)) {
		struct plan_registers registers = {.sp = PT_REGS_SP(ctx)};

		plan_keep_registers(ctx, registers.values);
		plan_keep(&registers, function_id, frame);
	} else if (frame) {
		frame->values_unread = 0;
		plan_keep_registers(ctx, frame->values);
	} else {
		emit_loss(thread ? GPUPERF_LOSS_CALL_DEPTH : GPUPERF_LOSS_THREAD_STATE);
		if (pairing != PAIRING_SESSION)
			__sync_fetch_and_add(&cell->untimed, 1);
	}
	if (function->flags & GPUPERF_FN_TURN_WORK)
		turn_add_work(thread, frame, function->flags, exec_of(function, PT_REGS_PARM1(ctx)));
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

/* Adds an ended call to the totals: statuses, bytes, shapes, names. Determines whether it was slow, and whether to
 * report it. A separate function for the verifier. */
__attribute__((noinline)) int add_ended_call(struct ended_call *call, struct gpuperf_thread *thread, __u32 cell_index)
{
	const struct gpuperf_function *function;
	struct gpuperf_cell *cell = bpf_map_lookup_elem(&cells, &cell_index);
	struct gpuperf_frame *frame;
	__u32 function_id;
	__u64 self_ns;
	__s32 status = 0;

	if (!call || !cell)
		return 0;
	function_id = call->function_id;
	function = bpf_map_lookup_elem(&functions, &function_id);
	if (!function)
		return 0;
	self_ns = call->duration_ns;
	frame = get_frame(call, thread);
	if (frame) {
		call_stack_charge_hooked(thread, frame, call->duration_ns);
		/* The calibrated part of child_ns may exceed the actual cost. */
		self_ns -= frame->child_ns < self_ns ? frame->child_ns : self_ns;
		call_stack_charge_parent(thread, function_id, call->duration_ns, function->outside_ns);
	}
	call->flags = function->flags;
	if (call->flags & (GPUPERF_FN_RESULT_COPY | GPUPERF_FN_RESULT_WAIT) && !turn_is_reported(call, thread))
		call->flags &= ~GPUPERF_FN_REPORT;
	call->threshold_ns = find_passed_threshold(function, call->duration_ns, &call->adaptive);
	if (call->has_return_value && function->flags & GPUPERF_FN_STATUS)
		status = (__s32)call->return_value;
	if (is_error(function, status))
		cells_count_errors(cell, status, 1);
	if (!status && frame && function->flags & GPUPERF_FN_PLAN)
		plan_add(frame, cell, call->duration_ns);
	if (call->threshold_ns)
		__sync_fetch_and_add(&cell->slow_calls, 1);
	cells_add_completed(cell, call->duration_ns, self_ns);
	return 0;
}

static __always_inline int leave(struct pt_regs *ctx, const __u64 *session, enum pairing pairing)
{
	__u64 now_ns = bpf_ktime_get_ns(); /* first: our own work is not part of the call */
	__u64 cookie = bpf_get_attach_cookie(ctx);
	__u32 condition = cookie >> GPUPERF_COOKIE_CONDITION_SHIFT;
	struct task_struct *task = bpf_get_current_task_btf();
	struct gpuperf_thread *thread = bpf_task_storage_get(&threads, task, NULL, 0);
	/* The kernel has already popped the return address: entry saw it 8 bytes lower. */
	__u64 sp = PT_REGS_SP(ctx) - (pairing == PAIRING_EXITS ? 0 : 8);
	struct ended_call call = {
		.start_ns = session ? *session >> 1 : 0,
		.caller = {
			.pc = pairing == PAIRING_EXITS ? 0 : PT_REGS_IP(ctx), /* a return probe runs in the caller */
			.sp = PT_REGS_SP(ctx),
			.bp = PT_REGS_FP(ctx),
		},
		.function_id = cookie_function(cookie),
		.is_followed = 1,
	};
	_Bool given_up = 0; /* counted as abandoned, too early */
	__u32 cell_index, frame = GPUPERF_CALL_DEPTH, ghost = GPUPERF_GHOSTS;

	if (pairing != PAIRING_EXITS || condition == GPUPERF_CONDITION_RETURN) {
		call.has_return_value = 1;
		call.return_value = PT_REGS_RC(ctx);
	}
	cookie &= COOKIE_WITHOUT_CONDITION; /* as at entry */
	if (thread && thread->off_cpu.since_ns)
		mend_missed_return(thread);
	if (thread) {
		frame = call_stack_pop(thread, sp, cookie, call.start_ns);
		if (frame >= GPUPERF_CALL_DEPTH && pairing != PAIRING_SESSION && thread->next_ghost)
			ghost = call_stack_find_ghost(thread, sp, cookie);
		call.depth = thread->depth;
	}
	if (thread && frame < GPUPERF_CALL_DEPTH) {
		const struct gpuperf_frame *popped = call_stack_at(thread, frame);

		if (popped->cell == GPUPERF_NO_CELL)
			return 0;
		call.is_framed = 1;
		call.start_ns = popped->start_ns;
		cell_index = popped->cell;
	} else if (thread && ghost < GPUPERF_GHOSTS) {
		struct gpuperf_ghost *lost = &thread->ghosts[ghost];

		given_up = 1;
		call.start_ns = lost->start_ns;
		cell_index = lost->cell;
		lost->sp = 0;
	} else if (pairing == PAIRING_EXITS) {
		return 0; /* a shared tail, or a jump within the function: not the end of one of our calls */
	} else {
		__u64 word = lane_word(cookie);

		given_up = session && *session & COOKIE_FRAMED;
		/* No cookie, or the child of a fork inside the call, which has no state from the entry. */
		if (!call.start_ns || (given_up && (!thread || call.start_ns < thread->created_ns))) {
			/* With two links at once, one sees the returns that the other counts. */
			if (lane_counts(word, cookie) && !(word & GPUPERF_LANE_CHANGING))
				emit_loss(GPUPERF_LOSS_UNPAIRED_RETURN);
			return 0;
		}
		cell_index = cells_find(call.function_id);
	}
	call.duration_ns = now_ns - call.start_ns;
	if (given_up) {
		struct gpuperf_cell *cell = bpf_map_lookup_elem(&cells, &cell_index);

		if (cell)
			__sync_fetch_and_add(&cell->abandoned, -1);
	}
	add_ended_call(&call, thread, cell_index);
	if (call.threshold_ns)
		emit_slow_call(&call, thread, cell_index);
	if (!(call.flags & GPUPERF_FN_LAUNCH)) /* launches have their own records */
		trace_call(&call, thread);
	if (call.flags & GPUPERF_FN_REPORT)
		report_call(&call, thread, take_report_stack(&call));
	if (call.is_framed && call.has_return_value && graph_call_of(call.flags))
		trace_graph(graph_call_of(call.flags), (__u32)call.return_value, call.start_ns, thread, call.depth);
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

	keep_own_stack(ctx);
	if (!hit_counts(cookie, task))
		return 0;
	function_id = cookie_function(cookie);
	function = bpf_map_lookup_elem(&functions, &function_id);
	if (function && function->flags & GPUPERF_FN_LAUNCH)
		note_launch(ctx, bpf_task_storage_get(&threads, task, NULL, 0), function, function_id);
	cell_index = cells_find(function_id);
	cell = bpf_map_lookup_elem(&cells, &cell_index);
	if (cell && function) {
		__sync_fetch_and_add(&cell->untimed, 1); /* before calls, so that in flight is never negative */
		cells_count_call(cell, function);
	}
	if (function && function->flags & GPUPERF_FN_OPERATOR) {
		struct operator_entry entry = {
			.params = PT_REGS_PARM1(ctx),
			.tensor = PT_REGS_PARM2(ctx),
			.function_id = function_id,
			.layout = cookie >> GPUPERF_COOKIE_CONDITION_SHIFT,
		};

		report_operator(&entry);
	}
	return 0;
}

/* Functions an exception may pass through: timed from here to one of their own exits. */
SEC("uprobe")
int probe_entry_to_exit(struct pt_regs *ctx)
{
	keep_own_stack(ctx);
	return enter(ctx, NULL, PAIRING_EXITS);
}

SEC("uprobe")
int probe_exit(struct pt_regs *ctx)
{
	__u32 condition = bpf_get_attach_cookie(ctx) >> GPUPERF_COOKIE_CONDITION_SHIFT;

	keep_own_stack(ctx);
	if (condition && condition < GPUPERF_CONDITION_RETURN && !condition_holds(ctx->eflags, condition - 1))
		return 0;
	return leave(ctx, NULL, PAIRING_EXITS);
}

#if GPUPERF_SESSION
SEC("uprobe")
int probe_session(struct pt_regs *ctx)
{
	__u64 *session = session_cookie(ctx);

	keep_own_stack(ctx);
	return session_is_return(ctx) ? leave(ctx, session, PAIRING_SESSION)
				      : enter(ctx, session, PAIRING_SESSION);
}
#else
SEC("uprobe")
int probe_entry(struct pt_regs *ctx)
{
	keep_own_stack(ctx);
	return enter(ctx, NULL, PAIRING_RETURN);
}

SEC("uprobe")
int probe_return(struct pt_regs *ctx)
{
	keep_own_stack(ctx);
	return leave(ctx, NULL, PAIRING_RETURN);
}
#endif

char LICENSE[] SEC("license") = "Dual BSD/GPL";
