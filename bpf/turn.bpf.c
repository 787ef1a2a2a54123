// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
/* Turns: see turn.bpf.h. */
#include "bpf/turn.bpf.h"

/* Of one thread. A turn that ends sooner after the last one is not reported, so that a loop of small copies is not
 * slowed. */
#define REPORT_INTERVAL_NS 200000ull
#define UNAWAITED_MAX 4

/* Majority vote (Boyer and Moore): `lead` is what is left of the votes for `rows` after each other one took one away. */
static __always_inline void add_products(struct gpuperf_product_rows *sum, __u32 products, __u32 rows, __u32 lead)
{
	sum->products += products;
	if (sum->rows == rows) {
		sum->lead += lead;
	} else if (sum->lead >= lead) {
		sum->lead -= lead;
	} else {
		sum->rows = rows;
		sum->lead = lead - sum->lead;
	}
}

static __always_inline struct gpuperf_graph_key make_graph_key(__u64 handle)
{
	return (struct gpuperf_graph_key){.handle = handle, .pid = bpf_get_current_pid_tgid() >> 32};
}

static __always_inline void begin_turn(struct gpuperf_thread *thread)
{
	__builtin_memset(&thread->turn.now, 0, sizeof(thread->turn.now));
}

static __always_inline _Bool copies_to_host(const struct gpuperf_frame *frame)
{
	__u32 function_id = cookie_function(frame->cookie);
	const struct gpuperf_plan *plan = bpf_map_lookup_elem(&plans, &function_id);

	if (!plan)
		return 0;
	return (plan->byte_kind ? plan_value(frame, plan->byte_kind) + GPUPERF_BYTES_HOST_TO_HOST : plan->byte_slot) ==
	       GPUPERF_BYTES_DEVICE_TO_HOST;
}

__attribute__((noinline)) int turn_add_work(struct gpuperf_thread *thread, const struct gpuperf_frame *frame, __u32 flags,
					    __u64 graph)
{
	const struct gpuperf_product_rows *products;
	struct gpuperf_graph_key key;

	if (!thread || !frame)
		return 0;
	if (flags & GPUPERF_FN_RESULT_COPY && copies_to_host(frame))
		return 0;
	if (!thread->turn.now.start_mono_ns)
		thread->turn.now.start_mono_ns = bpf_ktime_get_ns();
	if (flags & GPUPERF_FN_MATRIX_PRODUCT)
		add_products(&thread->turn.now.products, 1, frame->values[1], 1);
	if (!graph)
		return 0;
	thread->turn.now.graphs++;
	key = make_graph_key(graph);
	products = bpf_map_lookup_elem(&graph_products, &key);
	if (products)
		add_products(&thread->turn.now.products, products->products, products->rows, products->lead);
	return 0;
}

/* Of any number of threads. */
static __always_inline _Bool keeps_room(void)
{
	if (report_ring_has_room())
		return 1;
	emit_loss(GPUPERF_LOSS_REPORT_RING_FULL);
	return 0;
}

static __always_inline int is_first_wait(void)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	__u64 *unawaited = bpf_map_lookup_elem(&unawaited_copies, &pid);
	__u64 count = unawaited ? *unawaited : 0;

	/* Of two waits that end at once one may be missed. */
	return count && __sync_val_compare_and_swap(unawaited, count, count - 1) == count;
}

static __always_inline void count_copy(void)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	__u64 first = 1, *unawaited = bpf_map_lookup_elem(&unawaited_copies, &pid);

	if (!unawaited)
		bpf_map_update_elem(&unawaited_copies, &pid, &first, BPF_ANY);
	else if (*unawaited < UNAWAITED_MAX)
		__sync_fetch_and_add(unawaited, 1);
}

__attribute__((noinline)) int turn_is_reported(const struct ended_call *call, struct gpuperf_thread *thread)
{
	const struct gpuperf_frame *frame;
	__u64 end_ns;
	_Bool has_work, is_early;

	if (!call)
		return 0;
	if (call->flags & GPUPERF_FN_RESULT_WAIT)
		return is_first_wait() && keeps_room();
	frame = get_frame(call, thread);
	if (!frame || !copies_to_host(frame) || (call->has_return_value && call->return_value))
		return 0;
	/* The frame has what the hooks had counted as the copy began. */
	has_work = thread->turn.now.start_mono_ns || frame->hooked_ns != thread->turn.hooked_ns;
	thread->turn.hooked_ns = call_stack_read_hooked_ns(thread);
	end_ns = call->start_ns + call->duration_ns;
	if (!has_work)
		return 0;
	is_early = end_ns - thread->turn.reported_ns < REPORT_INTERVAL_NS;
	if (!is_early)
		thread->turn.reported_ns = end_ns;
	if (is_early || !keeps_room()) {
		begin_turn(thread);
		return 0;
	}
	count_copy();
	return 1;
}

__attribute__((noinline)) int turn_take(struct gpuperf_turn *turn, struct gpuperf_thread *thread)
{
	if (!turn || !thread)
		return 0;
	*turn = thread->turn.now;
	begin_turn(thread);
	return 0;
}

__attribute__((noinline)) int turn_begin_capture(struct gpuperf_thread *thread)
{
	if (thread)
		__builtin_memset(&thread->turn.now.products, 0, sizeof(thread->turn.now.products));
	return 0;
}

__attribute__((noinline)) int turn_end_capture(struct gpuperf_thread *thread, __u64 graph)
{
	struct gpuperf_graph_key key = make_graph_key(graph);
	struct gpuperf_product_rows products;

	if (!thread)
		return 0;
	products = thread->turn.now.products; /* before 6.2 a map takes no memory of others */
	if (graph && products.products)
		bpf_map_update_elem(&graph_products, &key, &products, BPF_ANY);
	return turn_begin_capture(thread);
}

__attribute__((noinline)) int turn_instantiate(__u64 exec, __u64 graph)
{
	struct gpuperf_graph_key from = make_graph_key(graph), to = make_graph_key(exec);
	struct gpuperf_product_rows *known = bpf_map_lookup_elem(&graph_products, &from), products;

	if (!known) {
		bpf_map_delete_elem(&graph_products, &to); /* of an earlier one with the same handle */
		return 0;
	}
	products = *known;
	bpf_map_update_elem(&graph_products, &to, &products, BPF_ANY);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
