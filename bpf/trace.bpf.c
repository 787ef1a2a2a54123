// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
/* Launches and calls as records: see trace.bpf.h. */
#include "bpf/trace.bpf.h"
#include "bpf/turn.bpf.h"

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

/* Whether this launch carries a stack. Where stacks are paced, the interval varies, so that no loop of the program
 * synchronizes with it. */
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

/* Where the thread remembers that a site was sent. */
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

/* Whether a site was sent recently, by this thread or another. */
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

/* Mixes one of the calls around a launch into the id of its site. */
__attribute__((noinline)) __u64 mix_call(const struct gpuperf_frame *frame, __u64 hash)
{
	const struct gpuperf_plan *plan;
	__u32 function_id;

	if (!frame)
		return hash;
	function_id = cookie_function(frame->cookie);
	hash = mix(hash, function_id);
	plan = bpf_map_lookup_elem(&plans, &function_id);
	if (!plan || !plan->shape_dimensions || frame->values_unread)
		return hash;
	for (__u32 i = 0; i < 4; i++)
		hash = mix(hash, frame->values[i]);
	return hash;
}

/* Adds one of the calls around a launch to its site, the outermost at 0. The innermost with a shape sets the shape. */
__attribute__((noinline)) int add_call_to_site(struct gpuperf_site *site, const struct gpuperf_frame *frame, __u32 at)
{
	const struct gpuperf_plan *plan;
	__u32 function_id;
	_Bool swap;

	if (!site || !frame || at >= GPUPERF_CALL_DEPTH)
		return 0;
	function_id = cookie_function(frame->cookie);
	site->functions[at] = function_id;
	plan = bpf_map_lookup_elem(&plans, &function_id);
	if (!plan || !plan->shape_dimensions || frame->values_unread)
		return 0;
	swap = plan->shape_swap && plan_value(frame, plan->shape_swap);
	site->shape_at = at;
	site->shape[0] = frame->values[swap ? 2 : 0];
	site->shape[1] = frame->values[1];
	site->shape[2] = frame->values[swap ? 0 : 2];
	site->shape[3] = plan->shape_dimensions > 3 ? frame->values[3] : 1;
	return 0;
}

/* Sends a site with the thread's outermost `count` calls in flight, unless sent recently. 0 = lost. */
__attribute__((noinline)) __u64 send_site(struct gpuperf_thread *thread, __u64 site_id, __u64 stack_id, __u32 count)
{
	__u64 now_ns = bpf_ktime_get_ns();
	struct gpuperf_site *site;

	if (was_site_sent(thread, site_id, now_ns))
		return site_id;
	site = bpf_ringbuf_reserve(&trace_ring, sizeof(*site), 0);
	if (!site) {
		emit_loss(GPUPERF_LOSS_TRACE_RING_FULL);
		return 0;
	}
	__builtin_memset(site, 0, sizeof(*site));
	site->header.kind = GPUPERF_RECORD_SITE;
	site->header.length_bytes = sizeof(*site);
	site->site_id = site_id;
	site->stack_id = stack_id;
	site->function_count = count;
	for (__u32 i = 0; i < GPUPERF_CALL_DEPTH && i < count && thread; i++)
		add_call_to_site(site, call_stack_at(thread, i), i);
	bpf_ringbuf_submit(site, BPF_RB_NO_WAKEUP);
	bpf_map_update_elem(&sent_sites, &site_id, &now_ns, BPF_ANY);
	note_sent_site(thread, site_id, now_ns);
	return site_id;
}

/* The site of a launch within the thread's calls in flight, not including the launch itself. */
__attribute__((noinline)) __u64 take_site(struct gpuperf_thread *thread, __u64 stack_id)
{
	__u64 hash = mix(stack_id, 1);
	__u32 count = 0;

	if (thread) {
		count = thread->depth;
		if (count > GPUPERF_CALL_DEPTH)
			count = GPUPERF_CALL_DEPTH;
		for (__u32 i = 0; i < GPUPERF_CALL_DEPTH && i < count; i++)
			hash = mix_call(call_stack_at(thread, i), hash);
	}
	return send_site(thread, hash | 1, stack_id, count);
}

__u64 trace_plain_site(struct gpuperf_thread *thread, __u64 stack_id)
{
	return send_site(thread, plain_site_of(stack_id), stack_id, 0);
}

/* Whether the thread is already in a launch: what a launch function calls of its kind is not another launch. */
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

/* Captures being followed, in all processes: while there are none, no launch looks for its own. A process that dies
 * in one leaves its count behind, which only costs lookups. */
static __u32 open_captures;

/* Whether a launch of the process may become a node of a graph. This includes other threads, such as autograd's. */
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

/* With concurrent captures in one process, the end of one that is not followed may be counted for another: then
 * launches are missing, and the daemon does not treat the graph as known. */
static __always_inline void end_capture(__u32 pid)
{
	struct gpuperf_capturing *capture = bpf_map_lookup_elem(&capturing, &pid);

	if (!capture || !capture->open)
		return;
	__sync_fetch_and_add(&capture->open, -1);
	__sync_fetch_and_add(&open_captures, -1);
}

int trace_graph(__u32 call, __u32 failed, __u64 start_ns, struct gpuperf_thread *thread, __u32 depth)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 first, second, handle, source = 0, mono_ns = bpf_ktime_get_ns();
	struct gpuperf_graph *record;
	_Bool followed = 0;
	__u32 pid = task->tgid;

	if (!thread)
		return 0;
	first = call_stack_at(thread, depth)->values[0];
	second = call_stack_at(thread, depth)->values[1];
	handle = first;
	if (call == GPUPERF_GRAPH_CAPTURE_ENDED) {
		end_capture(pid);
		source = first;
		if (failed || bpf_probe_read_user(&handle, sizeof(handle), (void *)second))
			handle = 0;
		turn_end_capture(thread, handle);
	} else if (failed || call == GPUPERF_GRAPH_LAUNCHED) {
		return 0;
	} else if (call == GPUPERF_GRAPH_CAPTURE_BEGAN) {
		followed = begin_capture(pid);
		turn_begin_capture(thread);
	} else if (call == GPUPERF_GRAPH_INSTANTIATED) {
		source = second;
		if (bpf_probe_read_user(&handle, sizeof(handle), (void *)first))
			return 0;
		turn_instantiate(handle, source);
	} else if (call == GPUPERF_GRAPH_UPDATED) {
		source = second;
		turn_instantiate(handle, source);
	} else {
		mono_ns = start_ns; /* after the return the handle may be another graph's */
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

int trace_launch(struct gpuperf_thread *thread, __u32 function_id, __u64 exec, const struct caller *caller)
{
	struct task_struct *task = bpf_get_current_task_btf();
	const struct gpuperf_trace_order *order = find_trace_order(task);
	__u64 stack_id = 0, site_id;
	struct gpuperf_launch *record;
	_Bool captured;

	if (!order || !caller || is_in_launch(thread))
		return 0;
	captured = is_captured(task);
	if (!captured && !(order->flags & GPUPERF_TRACE_LAUNCHES))
		return 0;
	if (captured || takes_stack(order, thread))
		stack_id = take_callers_stack(caller);
	site_id = take_site(thread, stack_id);
	record = bpf_ringbuf_reserve(&trace_ring, sizeof(*record), 0);
	if (!record) {
		emit_loss(GPUPERF_LOSS_TRACE_RING_FULL);
		return 0;
	}
	record->header.kind = GPUPERF_RECORD_LAUNCH;
	record->header.length_bytes = sizeof(*record);
	record->site_id = site_id;
	record->process_start_boot_ns = task->group_leader->start_boottime;
	record->pid = task->tgid;
	record->tid = task->pid;
	record->function_id = function_id;
	record->is_captured = captured;
	record->exec = exec;
	record->mono_ns = bpf_ktime_get_ns();
	bpf_ringbuf_submit(record, emit_wake_flags(record->mono_ns));
	return 0;
}

int wants_launches(void)
{
	const struct gpuperf_trace_order *order = find_trace_order(bpf_get_current_task_btf());

	return order && order->flags & GPUPERF_TRACE_LAUNCHES;
}

__u64 stack_interval_ns(void)
{
	const struct gpuperf_trace_order *order = find_trace_order(bpf_get_current_task_btf());

	return order && order->flags & GPUPERF_TRACE_STACKS ? order->stack_interval_ns : 0;
}

int wants_each_stack(void)
{
	const struct gpuperf_trace_order *order = find_trace_order(bpf_get_current_task_btf());

	return order && order->flags & GPUPERF_TRACE_STACKS && order->stack_interval_ns < GPUPERF_PACED_STACK_NS;
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

int trace_call(const struct ended_call *call, struct gpuperf_thread *thread)
{
	struct task_struct *task = bpf_get_current_task_btf();
	const struct gpuperf_trace_order *order = find_trace_order(task);
	const struct gpuperf_frame *frame;
	struct gpuperf_traced_call *record;

	if (!call || !order || !(order->flags & GPUPERF_TRACE_CALLS) || call->duration_ns < order->min_call_ns)
		return 0;
	record = bpf_ringbuf_reserve(&trace_ring, sizeof(*record), 0);
	if (!record) {
		emit_loss(GPUPERF_LOSS_TRACE_RING_FULL);
		return 0;
	}
	record->header.kind = GPUPERF_RECORD_CALL;
	record->header.length_bytes = sizeof(*record);
	record->start_mono_ns = call->start_ns;
	record->duration_ns = call->duration_ns;
	frame = get_frame(call, thread);
	record->off_cpu_ns = frame ? off_cpu_of(frame) : 0;
	record->stack_id = 0;
	record->process_start_boot_ns = task->group_leader->start_boottime;
	record->pid = task->tgid;
	record->tid = task->pid;
	record->function_id = call->function_id;
	record->depth = call->depth;
	if (call->duration_ns >= order->long_call_ns)
		record->stack_id = take_callers_stack(&call->caller);
	bpf_ringbuf_submit(record, emit_wake_flags(call->start_ns + call->duration_ns));
	return 0;
}

int traces_threads(void)
{
	const struct gpuperf_trace_order *order = find_trace_order(bpf_get_current_task_btf());

	return order && order->flags & GPUPERF_TRACE_THREADS;
}

int trace_tick(__u32 kind, __u64 now_ns)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct gpuperf_thread_time *record = reserve_thread_time(task, kind, now_ns, take_user_stack(task));

	if (!record)
		return 0;
	record->is_tick = 1;
	bpf_ringbuf_submit(record, emit_wake_flags(now_ns));
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
