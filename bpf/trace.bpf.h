/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* Launches and calls as records, for traces: which are sent is an order of the daemon. */
#pragma once

#include "bpf/plan.bpf.h"
#include "bpf/stack.bpf.h"

static __always_inline const struct gpuperf_trace_order *find_trace_order(struct task_struct *task)
{
	__u32 key = 0;
	const struct gpuperf_trace_order *everyone = bpf_map_lookup_elem(&trace_everyone, &key);
	const struct gpuperf_trace_order *own;

	if (!everyone || !everyone->scoped_count)
		return everyone;
	key = task->tgid;
	own = bpf_map_lookup_elem(&trace_processes, &key);
	return own ? own : everyone;
}

/* Whether this launch is to carry a stack. Where they are paced, the pause varies, so that no loop of the
 * program keeps step with it. */
static __always_inline _Bool takes_stack(const struct gpuperf_trace_order *order, struct gpuperf_thread *thread)
{
	__u64 interval_ns = order->stack_interval_ns, now_ns;

	if (!(order->flags & GPUPERF_TRACE_STACKS))
		return 0;
	if (!interval_ns || !thread)
		return 1;
	now_ns = bpf_ktime_get_ns();
	if (now_ns < thread->next_stack_ns)
		return 0;
	thread->next_stack_ns = now_ns + interval_ns / 2 + bpf_get_prandom_u32() % interval_ns;
	return 1;
}

/* Where the thread notes that a site was sent. */
static __always_inline struct gpuperf_sent_site *sent_site_of(struct gpuperf_thread *thread, __u64 site_id)
{
	__u32 index = site_id >> 32;

	barrier_var(index);
	return &thread->sites[index & (GPUPERF_SITE_CACHE - 1)];
}

static __always_inline void note_sent_site(struct gpuperf_thread *thread, __u64 site_id, __u64 sent_ns)
{
	struct gpuperf_sent_site *site;

	if (!thread)
		return;
	site = sent_site_of(thread, site_id);
	site->site_id = site_id;
	site->sent_ns = sent_ns;
}

/* Whether a site was sent lately, by this thread or another. */
static __always_inline _Bool was_site_sent(struct gpuperf_thread *thread, __u64 site_id, __u64 now_ns)
{
	const struct gpuperf_sent_site *site;
	__u64 *sent;

	if (thread) {
		site = sent_site_of(thread, site_id);
		if (site->site_id == site_id && now_ns - site->sent_ns < GPUPERF_SITE_RESEND_NS)
			return 1;
	}
	sent = bpf_map_lookup_elem(&sent_sites, &site_id);
	if (!sent || now_ns - *sent >= GPUPERF_SITE_RESEND_NS)
		return 0;
	note_sent_site(thread, site_id, *sent);
	return 1;
}

/* The site of a launch in the calls the thread is inside of, of which the launch itself is no part. Sends it
 * unless that was done lately. Functions of their own for the verifier from here on. */
__attribute__((noinline)) __u64 take_site(__u64 stack_id)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct gpuperf_thread *thread = bpf_task_storage_get(&threads, task, NULL, 0);
	__u64 hash = mix(stack_id, 1), now_ns = bpf_ktime_get_ns();
	struct gpuperf_site *site;
	__u32 count = 0, shape_at = 0;
	_Bool has_shape = 0;

	if (thread) {
		count = thread->depth;
		if (count > GPUPERF_CALL_DEPTH)
			count = GPUPERF_CALL_DEPTH;
	}
	for (__u32 i = 0; i < GPUPERF_CALL_DEPTH && thread; i++) {
		const struct gpuperf_frame *frame = call_stack_at(thread, i);
		__u32 function_id = cookie_function(frame->cookie);
		const struct gpuperf_plan *plan;

		if (i >= count)
			break;
		hash = mix(hash, function_id);
		plan = bpf_map_lookup_elem(&plans, &function_id);
		if (!plan || !plan->shape_dimensions || frame->values_unread)
			continue;
		for (__u32 k = 0; k < 4; k++)
			hash = mix(hash, frame->values[k]);
		has_shape = 1;
		shape_at = i;
	}
	hash |= 1;
	if (was_site_sent(thread, hash, now_ns))
		return hash;
	site = bpf_ringbuf_reserve(&trace_ring, sizeof(*site), 0);
	if (!site) {
		emit_loss(GPUPERF_LOSS_TRACE_RING_FULL);
		return 0;
	}
	__builtin_memset(site, 0, sizeof(*site));
	site->header.kind = GPUPERF_RECORD_SITE;
	site->header.length_bytes = sizeof(*site);
	site->site_id = hash;
	site->stack_id = stack_id;
	site->function_count = count;
	for (__u32 i = 0; i < GPUPERF_CALL_DEPTH && thread; i++) {
		if (i >= count)
			break;
		site->functions[i] = cookie_function(call_stack_at(thread, i)->cookie);
	}
	if (has_shape && thread) {
		const struct gpuperf_frame *frame = call_stack_at(thread, shape_at);
		__u32 function_id = cookie_function(frame->cookie);
		const struct gpuperf_plan *plan = bpf_map_lookup_elem(&plans, &function_id);

		site->shape_at = shape_at;
		if (plan) {
			_Bool swap = plan->shape_swap && plan_value(frame, plan->shape_swap);

			site->shape[0] = frame->values[swap ? 2 : 0];
			site->shape[1] = frame->values[1];
			site->shape[2] = frame->values[swap ? 0 : 2];
			site->shape[3] = plan->shape_dimensions > 3 ? frame->values[3] : 1;
		}
	}
	bpf_ringbuf_submit(site, BPF_RB_NO_WAKEUP);
	bpf_map_update_elem(&sent_sites, &hash, &now_ns, BPF_ANY);
	note_sent_site(thread, hash, now_ns);
	return hash;
}

/* Whether the thread is inside of a launch already: what a launch function calls of its kind is no other. */
static __always_inline _Bool is_in_launch(struct gpuperf_thread *thread)
{
	const struct gpuperf_function *function;
	__u32 function_id;

	if (!thread || !thread->depth || thread->depth > GPUPERF_CALL_DEPTH)
		return 0;
	function_id = cookie_function(call_stack_at(thread, thread->depth - 1)->cookie);
	function = bpf_map_lookup_elem(&functions, &function_id);
	return function && function->flags & GPUPERF_FN_LAUNCH;
}

/* Captures that are followed now, of all processes: while there are none, no launch looks for its own. A process
 * that dies in one leaves its count behind, which costs look-ups only. */
static __u32 open_captures;

/* Whether a launch of the process may become a node of a graph. Other threads' may, too: autograd's does. */
static __always_inline _Bool is_captured(struct task_struct *task)
{
	struct gpuperf_capturing *capture;
	__u32 pid = task->tgid;

	if (!open_captures)
		return 0;
	capture = bpf_map_lookup_elem(&capturing, &pid);
	if (!capture || !capture->open || bpf_ktime_get_ns() - capture->begun_ns > GPUPERF_CAPTURE_MAX_NS)
		return 0;
	__sync_fetch_and_add(&capture->launches_left, -1);
	return 1;
}

/* Whether the capture that begins is followed: all of it or nothing. */
static __always_inline _Bool begin_capture(__u32 pid)
{
	struct gpuperf_capturing first = {.launches_left = GPUPERF_CAPTURED_LAUNCHES}, *capture;
	__u64 now_ns = bpf_ktime_get_ns();
	__s64 refill;

	capture = bpf_map_lookup_elem(&capturing, &pid);
	if (!capture) {
		first.refilled_ns = now_ns;
		bpf_map_update_elem(&capturing, &pid, &first, BPF_NOEXIST);
		capture = bpf_map_lookup_elem(&capturing, &pid);
	}
	if (!capture)
		return 0;
	refill = (now_ns - capture->refilled_ns) / (1000000000ull / GPUPERF_CAPTURED_LAUNCHES_PER_SECOND);
	if (refill > 0) {
		capture->refilled_ns = now_ns;
		refill += capture->launches_left;
		capture->launches_left = refill < GPUPERF_CAPTURED_LAUNCHES ? refill : GPUPERF_CAPTURED_LAUNCHES;
	}
	if (capture->launches_left <= 0)
		return 0;
	capture->begun_ns = now_ns;
	__sync_fetch_and_add(&capture->open, 1);
	__sync_fetch_and_add(&open_captures, 1);
	return 1;
}

/* Of captures at once in one process, one that is not followed may end another's count: then launches are missing,
 * and the daemon does not take the graph for known. */
static __always_inline void end_capture(__u32 pid)
{
	struct gpuperf_capturing *capture = bpf_map_lookup_elem(&capturing, &pid);

	if (!capture || !capture->open)
		return;
	__sync_fetch_and_add(&capture->open, -1);
	__sync_fetch_and_add(&open_captures, -1);
}

/* After a call that concerns a graph, with its first two arguments; `failed` = it returned an error. A function of
 * its own for the verifier. */
__attribute__((noinline)) int trace_graph(__u32 call, __u32 failed, __u64 start_ns, __u64 first, __u64 second)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 handle = first, source = 0, mono_ns = bpf_ktime_get_ns();
	struct gpuperf_graph *record;
	_Bool followed = 0;
	__u32 pid = task->tgid;

	if (call == GPUPERF_GRAPH_CAPTURE_ENDED) {
		end_capture(pid);
		source = first;
		if (failed || bpf_probe_read_user(&handle, sizeof(handle), (void *)second))
			handle = 0;
	} else if (failed || call == GPUPERF_GRAPH_LAUNCHED) {
		return 0;
	} else if (call == GPUPERF_GRAPH_CAPTURE_BEGAN) {
		followed = begin_capture(pid);
	} else if (call == GPUPERF_GRAPH_INSTANTIATED) {
		source = second;
		if (bpf_probe_read_user(&handle, sizeof(handle), (void *)first))
			return 0;
	} else if (call == GPUPERF_GRAPH_UPDATED) {
		source = second;
	} else {
		mono_ns = start_ns; /* from the return on the handle may be another graph's */
	}
	record = bpf_ringbuf_reserve(&trace_ring, sizeof(*record), 0);
	if (!record) {
		emit_loss(GPUPERF_LOSS_TRACE_RING_FULL);
		return 0;
	}
	record->header.kind = GPUPERF_RECORD_GRAPH;
	record->header.length_bytes = sizeof(*record);
	record->mono_ns = mono_ns;
	record->process_start_boot_ns = task->group_leader->start_boottime;
	record->pid = pid;
	record->tid = task->pid;
	record->call = call;
	record->is_followed = followed;
	record->handle = handle;
	record->source = source;
	bpf_ringbuf_submit(record, emit_wake_flags(record->mono_ns));
	return 0;
}

/* At the entry of a launch function, before its own frame is pushed. */
static __always_inline void trace_launch(struct pt_regs *ctx, struct task_struct *task,
					 struct gpuperf_thread *thread, __u32 function_id, __u32 graph_call)
{
	const struct gpuperf_trace_order *order = find_trace_order(task);
	__u64 id = bpf_get_current_pid_tgid(), stack_id = 0, site_id;
	struct gpuperf_launch *record;
	_Bool captured;

	if (!order || is_in_launch(thread))
		return;
	captured = is_captured(task);
	if (!captured && !(order->flags & GPUPERF_TRACE_LAUNCHES))
		return;
	if (captured || takes_stack(order, thread))
		stack_id = take_entry_stack(ctx);
	site_id = take_site(stack_id);
	record = bpf_ringbuf_reserve(&trace_ring, sizeof(*record), 0);
	if (!record) {
		emit_loss(GPUPERF_LOSS_TRACE_RING_FULL);
		return;
	}
	record->header.kind = GPUPERF_RECORD_LAUNCH;
	record->header.length_bytes = sizeof(*record);
	record->site_id = site_id;
	record->process_start_boot_ns = task->group_leader->start_boottime;
	record->pid = id >> 32;
	record->tid = (__u32)id;
	record->function_id = function_id;
	record->is_captured = captured;
	record->exec = graph_call == GPUPERF_GRAPH_LAUNCHED ? PT_REGS_PARM1(ctx) : 0;
	record->mono_ns = bpf_ktime_get_ns();
	bpf_ringbuf_submit(record, emit_wake_flags(record->mono_ns));
}

static __always_inline __u64 off_cpu_of(const struct gpuperf_frame *frame)
{
	__u64 sum_ns;

	if (!frame->has_split)
		return 0;
	sum_ns = frame->split.runnable_ns + frame->split.throttled_ns;
	for (__u32 i = 0; i < GPUPERF_WAIT_KINDS; i++)
		sum_ns += frame->split.waits_ns[i];
	return sum_ns;
}
