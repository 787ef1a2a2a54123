// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
/*
 * Entry and return of any configured function. The attach cookie is the function id. Totals are kept
 * here; only a slow call leaves the kernel.
 *
 * Built three times, because the session kfuncs take no argument up to kernel 6.19 and the context from
 * 7.0 on: GPUPERF_SESSION 0 = without sessions (multi and perf), 1 = no argument, 2 = context.
 */
#include "bpf/call_stack.bpf.h"

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

/* The session cookie: start time << 1 | whether the call has a frame. */
#define COOKIE_FRAMED 1ull

static __always_inline void emit_slow_call(struct pt_regs *ctx, struct task_struct *task,
					   const struct gpuperf_function *function, __u32 function_id,
					   const struct gpuperf_frame *frame, __u64 start_ns,
					   __u64 duration_ns)
{
	struct gpuperf_slow_call *record = bpf_ringbuf_reserve(&slow_ring, sizeof(*record), 0);
	__u64 id = bpf_get_current_pid_tgid();

	if (!record) {
		emit_loss(GPUPERF_LOSS_SLOW_RING_FULL);
		return;
	}
	__builtin_memset(record, 0, __builtin_offsetof(struct gpuperf_slow_call, user_stack));
	record->header.kind = GPUPERF_RECORD_SLOW_CALL;
	record->header.length_bytes = sizeof(*record);
	record->start_mono_ns = start_ns;
	record->duration_ns = duration_ns;
	record->threshold_ns = function->slow_threshold_ns;
	record->process_start_boot_ns = task->group_leader->start_boottime;
	record->pid = id >> 32;
	record->tid = (__u32)id;
	record->function_id = function_id;
	if (frame) {
		record->has_arguments = 1;
		__builtin_memcpy(record->arguments, frame->arguments, sizeof(record->arguments));
	}
	record->return_value = PT_REGS_RC(ctx);
	bpf_get_current_comm(record->comm, sizeof(record->comm)); /* zeroes it on failure */
	if (function->flags & GPUPERF_FN_STACK)
		record->stack_bytes = bpf_get_stack(ctx, record->user_stack,
						    sizeof(record->user_stack), BPF_F_USER_STACK);
	bpf_ringbuf_submit(record, emit_wake_flags(start_ns + duration_ns));
}

static __always_inline int enter(struct pt_regs *ctx, __u64 *cookie)
{
	__u32 function_id = (__u32)bpf_get_attach_cookie(ctx);
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 cell_index = cells_find(function_id, task);
	struct gpuperf_cell *cell = bpf_map_lookup_elem(&cells, &cell_index);
	struct gpuperf_thread *thread =
		bpf_task_storage_get(&threads, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct gpuperf_frame *frame = NULL;
	__u64 now_ns;

	if (!cell)
		return 0; /* cannot be: every index handed out is in the array */
	__sync_fetch_and_add(&cell->calls, 1);
	if (thread) {
		__u64 sp = PT_REGS_SP(ctx);

		call_stack_drop_stale(thread, sp, function_id);
		frame = call_stack_push(thread, sp);
	}
	if (frame) {
		frame->function_id = function_id;
		frame->cell = cell_index;
		frame->arguments[0] = PT_REGS_PARM1(ctx);
		frame->arguments[1] = PT_REGS_PARM2(ctx);
		frame->arguments[2] = PT_REGS_PARM3(ctx);
		frame->arguments[3] = PT_REGS_PARM4(ctx);
		frame->arguments[4] = PT_REGS_PARM5(ctx);
		frame->arguments[5] = ctx->r9; /* PARM6 of libbpf 1.1 is missing */
	} else {
		emit_loss(thread ? GPUPERF_LOSS_CALL_DEPTH : GPUPERF_LOSS_THREAD_STATE);
		if (!cookie)
			__sync_fetch_and_add(&cell->untimed, 1);
	}
	now_ns = bpf_ktime_get_ns(); /* last, so that our own work is not part of the call */
	if (frame)
		frame->start_ns = now_ns;
	if (thread && !thread->created_ns)
		thread->created_ns = now_ns;
	if (cookie)
		*cookie = now_ns << 1 | (frame ? COOKIE_FRAMED : 0);
	return 0;
}

static __always_inline int leave(struct pt_regs *ctx, const __u64 *cookie)
{
	__u64 now_ns = bpf_ktime_get_ns(); /* first, for the same reason */
	__u32 function_id = (__u32)bpf_get_attach_cookie(ctx);
	struct task_struct *task = bpf_get_current_task_btf();
	struct gpuperf_thread *thread = bpf_task_storage_get(&threads, task, NULL, 0);
	const struct gpuperf_function *function = bpf_map_lookup_elem(&functions, &function_id);
	__u64 start_ns = cookie ? *cookie >> 1 : 0;
	__u64 duration_ns, self_ns;
	struct gpuperf_frame *frame = NULL;
	struct gpuperf_cell *cell;
	__u32 cell_index;
	_Bool slow;

	/* The kernel has popped the return address already: entry saw it 8 bytes lower. */
	if (thread)
		frame = call_stack_pop(thread, PT_REGS_SP(ctx) - 8, function_id, start_ns);
	if (frame) {
		start_ns = frame->start_ns;
		cell_index = frame->cell;
	} else {
		/* No cookie, or the child of a fork inside the call, which has no state of the entry. */
		if (!start_ns || ((*cookie & COOKIE_FRAMED) && (!thread || start_ns < thread->created_ns))) {
			emit_loss(GPUPERF_LOSS_UNPAIRED_RETURN);
			return 0;
		}
		cell_index = cells_find(function_id, task);
	}
	cell = bpf_map_lookup_elem(&cells, &cell_index);
	if (!cell || !function)
		return 0; /* cannot be: both arrays hold every id handed out */
	if (!frame && (*cookie & COOKIE_FRAMED))
		__sync_fetch_and_add(&cell->abandoned, -1); /* given up for lost too early */
	duration_ns = now_ns - start_ns;
	self_ns = duration_ns;
	if (frame && frame->child_ns < duration_ns)
		self_ns = duration_ns - frame->child_ns;
	if (frame)
		call_stack_charge_parent(thread, duration_ns);
	if (function->flags & GPUPERF_FN_STATUS) {
		__s32 status = (__s32)PT_REGS_RC(ctx);

		if (status && status != function->benign_status[0] &&
		    status != function->benign_status[1])
			cells_count_error(cell, status);
	}
	slow = function->slow_threshold_ns && duration_ns >= function->slow_threshold_ns;
	if (slow)
		__sync_fetch_and_add(&cell->slow_calls, 1);
	cells_add_completed(cell, duration_ns, self_ns);
	if (slow)
		emit_slow_call(ctx, task, function, function_id, frame, start_ns, duration_ns);
	return 0;
}

/* Entry-only functions: counted, never timed. */
SEC("uprobe")
int probe_count(struct pt_regs *ctx)
{
	__u32 cell_index = cells_find((__u32)bpf_get_attach_cookie(ctx), bpf_get_current_task_btf());
	struct gpuperf_cell *cell = bpf_map_lookup_elem(&cells, &cell_index);

	if (cell) {
		__sync_fetch_and_add(&cell->untimed, 1); /* before calls: in flight is never negative */
		__sync_fetch_and_add(&cell->calls, 1);
	}
	return 0;
}

#if GPUPERF_SESSION
SEC("uprobe")
int probe_session(struct pt_regs *ctx)
{
	__u64 *cookie = session_cookie(ctx);

	return session_is_return(ctx) ? leave(ctx, cookie) : enter(ctx, cookie);
}
#else
SEC("uprobe")
int probe_entry(struct pt_regs *ctx)
{
	return enter(ctx, NULL);
}

SEC("uprobe")
int probe_return(struct pt_regs *ctx)
{
	return leave(ctx, NULL);
}
#endif

char LICENSE[] SEC("license") = "Dual BSD/GPL";
