// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
/*
 * Takes the notes of launch hooks: see hook_notes.h. They are a process's claims about itself: they reach only its own
 * cells and records, and their times are checked against the clock.
 */
#include "bpf/call_state.bpf.h"
#include "bpf/hooked_process.bpf.h"
#include "bpf/own_stack.bpf.h"
#include "bpf/repeat.bpf.h"
#include "bpf/slow_record.bpf.h"
#include "bpf/trace.bpf.h"

#define NS_PER_SECOND 1000000000ull
#define LAUNCHES_HEAD_BYTES __builtin_offsetof(struct gpuperf_noted_launches, sites)

static __always_inline struct gpuperf_thread *make_thread(void)
{
	return bpf_task_storage_get(&threads, bpf_get_current_task_btf(), NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

/* One read takes `pc`, `sp` and `bp`. */
GPUPERF_ASSERT(__builtin_offsetof(struct gpuperf_noted_call, bp) - __builtin_offsetof(struct gpuperf_noted_call, pc) ==
	       __builtin_offsetof(struct caller, bp));

/* Pops the frame that the ended call got while in flight. Returns 1 + its index, where it stays until the thread's
 * next call. 0 = not followed: nested in another call, or the thread's account was not noted yet. */
__attribute__((noinline)) __u32 take_followed_frame(struct gpuperf_thread *thread, __u64 noted_address)
{
	const struct gpuperf_hooked_thread *said;
	__u64 address;
	__u32 place;

	if (!thread)
		return 0;
	said = (const void *)thread->hooked.address;
	place = thread->hooked.place;
	if (!said || !place || bpf_probe_read_user(&address, sizeof(address), &said->call_address) ||
	    noted_address != address)
		return 0;
	if (thread->off_cpu.since_ns)
		mend_missed_return(thread);
	call_stack_cut(thread, place - 1);
	return place;
}

/* The same with a frame made now, which has no time split. */
__attribute__((noinline)) __u32 make_ended_frame(struct gpuperf_thread *thread, const struct ended_call *call,
						 __u64 address)
{
	__u32 place;

	if (!thread || !call)
		return 0;
	call_stack_drop_stale(thread, call->caller.sp - 8, call->function_id);
	place = hooked_call_push(thread, address, call->start_ns);
	if (place)
		thread->depth = place - 1;
	return place;
}

/* Does what leave() does for a call, except for its times, which reach the totals separately. 1 = it was slow:
 * `call` is filled, except for its frame. */
__attribute__((noinline)) int end_noted_call(__u64 address, struct ended_call *call, __u32 *call_cell)
{
	const struct gpuperf_function *function;
	struct gpuperf_noted_call noted;
	struct gpuperf_cell *cell;
	__u64 now_ns = bpf_ktime_get_ns();
	__u32 cell_index, function_id;

	if (!call || !call_cell || bpf_probe_read_user(&noted, sizeof(noted), (const void *)address))
		return 0;
	function = hooked_call_function(noted.entry, &function_id);
	if (!function || noted.duration_ns > now_ns)
		return 0;
	call->threshold_ns = find_passed_threshold(function, noted.duration_ns, &call->adaptive);
	if (!call->threshold_ns)
		return 0;
	cell_index = cells_find(function_id);
	cell = bpf_map_lookup_elem(&cells, &cell_index);
	if (!cell)
		return 0;
	__sync_fetch_and_add(&cell->slow_calls, 1);
	call->function_id = function_id;
	call->flags = function->flags;
	call->duration_ns = noted.duration_ns;
	call->start_ns = now_ns - noted.duration_ns;
	if (noted.start_mono_ns < call->start_ns)
		call->start_ns = noted.start_mono_ns;
	call->has_return_value = 1;
	call->return_value = noted.return_value;
	call->caller.pc = noted.pc;
	call->caller.sp = noted.sp;
	call->caller.bp = noted.bp;
	*call_cell = cell_index;
	return 1;
}

/* Gives a slow call its frame, and adds it to the children of the call around it. `place`: from
 * take_followed_frame(); 0 = not followed. A separate function for the verifier. */
__attribute__((noinline)) int frame_ended_call(struct gpuperf_thread *thread, struct ended_call *call, __u64 address,
					       __u32 place)
{
	__u32 parent;

	if (!thread || !call)
		return 0;
	call->is_followed = !!place;
	if (place) /* the start it was reported with while in flight */
		call->start_ns = call_stack_at(thread, place - 1)->start_ns;
	else
		place = make_ended_frame(thread, call, address);
	call->is_framed = !!place;
	call->depth = thread->depth;
	parent = thread->depth - 1;
	if (parent < GPUPERF_CALL_DEPTH) /* its time is charged with that of all hooked calls */
		call_stack_add_child(call_stack_at(thread, parent), call->function_id, call->duration_ns);
	return 0;
}

/* Inlined, like the next one: the verifier's call depth is used up. */
static __always_inline int take_noted_slow_call(__u64 address)
{
	struct gpuperf_thread *thread = make_thread();
	struct ended_call call = {};
	__u32 cell_index = 0, place;

	hooked_call_look_now(thread);
	place = take_followed_frame(thread, address);
	if (!end_noted_call(address, &call, &cell_index))
		return 0;
	frame_ended_call(thread, &call, address, place);
	emit_slow_call(&call, thread, cell_index);
	return 0;
}

static __always_inline int take_noted_launch(__u64 address)
{
	const struct gpuperf_noted_call *noted = (const void *)address;
	const struct gpuperf_function *function;
	struct gpuperf_thread *thread;
	struct caller caller;
	__u32 entry, function_id;
	__u64 first;

	if (bpf_probe_read_user(&entry, sizeof(entry), &noted->entry) ||
	    bpf_probe_read_user(&caller, sizeof(caller), &noted->pc) ||
	    bpf_probe_read_user(&first, sizeof(first), &noted->arguments[0]))
		return 0;
	function = hooked_call_function(entry, &function_id);
	if (!function || !(function->flags & GPUPERF_FN_LAUNCH))
		return 0;
	thread = make_thread();
	if (thread)
		hooked_call_look_now(thread);
	if (thread)
		call_stack_drop_stale(thread, caller.sp - 8, function_id);
	trace_launch(thread, function_id, exec_of(function, first), &caller);
	return 0;
}

static __always_inline struct noted_thread_key key_of(__u64 address)
{
	struct noted_thread_key key = {.address = address, .tgid = bpf_get_current_pid_tgid() >> 32};

	return key;
}

/* Whether a stack that a thread walked is due. Allows a second's worth at once: the thread paces them, and they may
 * be noted late. */
static __always_inline _Bool is_stack_due(struct noted_thread *noted)
{
	__u64 interval_ns = stack_interval_ns(), now_ns = bpf_ktime_get_ns(), next_ns = noted->next_stack_ns;

	if (!interval_ns || next_ns > now_ns)
		return 0;
	if (now_ns > NS_PER_SECOND && next_ns < now_ns - NS_PER_SECOND)
		next_ns = now_ns - NS_PER_SECOND;
	noted->next_stack_ns = next_ns + interval_ns;
	return 1;
}

/* Sets the id of one of a record's sites. `known`: how many were sent before. The stacks of the others are taken,
 * for each launch or when due. A separate function for the verifier. */
__attribute__((noinline)) int keep_noted_site(struct gpuperf_launches *record, __u32 at, struct noted_thread *noted,
					      __u32 known, __u32 wants_each)
{
	struct gpuperf_launch_site *site;
	__u64 address;

	if (!record || !noted || at >= GPUPERF_LAUNCH_SITES)
		return 0;
	site = &record->sites[at];
	address = site->stack_address;
	site->stack_address = 0;
	if (at < known || (wants_each && !address)) {
		site->id = plain_site_of(noted_stack_id(bpf_get_current_task_btf(), site->id));
		return 0;
	}
	site->id = 0;
	if (address && (wants_each || is_stack_due(noted)))
		site->id = trace_plain_site(make_thread(), take_noted_stack(address));
	return 0;
}

struct noted_functions {
	struct gpuperf_launches *record;
	__u32 last_entry;
	__u32 last_function;
};

static __attribute__((noinline)) long keep_noted_function(__u32 index, struct noted_functions *noted)
{
	struct gpuperf_launches *record = noted->record;
	__u32 entry;

	barrier_var(index);
	if (index >= GPUPERF_LAUNCHES || index >= record->count)
		return 1;
	entry = record->launches[index].entry;
	if (entry != noted->last_entry) {
		const struct gpuperf_function *function = hooked_call_function(entry, &noted->last_function);

		if (!function || !(function->flags & GPUPERF_FN_LAUNCH))
			noted->last_function = GPUPERF_NO_FUNCTION;
		noted->last_entry = entry;
	}
	record->function_id[index] = noted->last_function;
	return 0;
}

/* Fills in the functions of the launches, mostly the same one. A separate function for the verifier. */
__attribute__((noinline)) int keep_noted_functions(struct gpuperf_launches *record)
{
	struct noted_functions noted = {
		.record = record,
		.last_entry = GPUPERF_HOOK_COUNT,
		.last_function = GPUPERF_NO_FUNCTION,
	};

	if (!record)
		return 0;
	repeat(GPUPERF_LAUNCHES, keep_noted_function, &noted);
	return 0;
}

int take_noted_launches(__u64 address)
{
	const struct gpuperf_noted_launches *from = (const void *)address;
	struct task_struct *task = bpf_get_current_task_btf();
	__u8 head[LAUNCHES_HEAD_BYTES] __attribute__((aligned(8)));
	const struct gpuperf_noted_launches *noted = (const void *)head;
	struct gpuperf_launches *record;
	struct noted_thread_key key;
	struct noted_thread *thread;
	__u32 first = 0, known_sites = 0, wants_each;

	if (!wants_launches() || bpf_probe_read_user(head, sizeof(head), from))
		return 0;
	key = key_of(noted->thread_address);
	thread = bpf_map_lookup_elem(&noted_threads, &key);
	if (!thread) {
		emit_loss(GPUPERF_LOSS_THREAD_STATE);
		return 0;
	}
	if (noted->number < thread->taken_number) /* it ended just before it forgot them */
		return 0;
	if (noted->number == thread->taken_number) {
		first = thread->taken_count;
		known_sites = thread->taken_sites;
	}
	if (noted->count <= first)
		return 0;
	record = bpf_ringbuf_reserve(&trace_ring, sizeof(*record), 0);
	if (!record) {
		emit_loss(GPUPERF_LOSS_TRACE_RING_FULL);
		return 0;
	}
	__builtin_memset(record->function_id, 0, sizeof(record->function_id));
	if (bpf_probe_read_user(record->sites, sizeof(record->sites), from->sites) ||
	    bpf_probe_read_user(record->launches, sizeof(record->launches), from->launches)) {
		bpf_ringbuf_discard(record, 0);
		return 0;
	}
	record->header.kind = GPUPERF_RECORD_LAUNCHES;
	record->header.length_bytes = sizeof(*record);
	record->base_mono_ns = noted->base_mono_ns;
	record->process_start_boot_ns = task->group_leader->start_boottime;
	record->pid = task->tgid;
	record->tid = thread->tid;
	record->count = noted->count;
	record->site_count = noted->site_count;
	record->first = first;
	wants_each = wants_each_stack();
	record->pad = 0;
	for (__u32 i = 0; i < GPUPERF_LAUNCH_SITES && i < record->site_count; i++)
		keep_noted_site(record, i, thread, known_sites, wants_each);
	keep_noted_functions(record);
	thread->taken_number = noted->number;
	thread->taken_count = noted->count;
	thread->taken_sites = noted->site_count;
	bpf_ringbuf_submit(record, emit_wake_flags(bpf_ktime_get_ns()));
	return 0;
}

static __always_inline void keep_thread_id(__u64 address)
{
	struct noted_thread new_thread = {.tid = (__u32)bpf_get_current_pid_tgid()};
	struct noted_thread_key key = key_of(address);
	const struct noted_thread *known = bpf_map_lookup_elem(&noted_threads, &key);

	if (!known || known->tid != new_thread.tid) /* on failure its launches are counted as lost */
		bpf_map_update_elem(&noted_threads, &key, &new_thread, BPF_ANY);
}

static __always_inline void forget_hooked_call(struct gpuperf_thread *thread)
{
	if (thread->hooked.place)
		call_stack_cut(thread, thread->hooked.place - 1);
	thread->hooked.start_ns = 0;
}

/* From here on, the thread's calls in flight account for its hooked calls, which are followed. */
__attribute__((noinline)) int take_noted_thread(__u64 address)
{
	struct gpuperf_thread *thread = make_thread();
	struct gpuperf_noted_thread noted;
	__u64 hooked_ns;

	if (!thread || bpf_probe_read_user(&noted, sizeof(noted), (const void *)address))
		return 0;
	if (noted.hooked_address != thread->hooked.address)
		forget_hooked_call(thread);
	thread->hooked.address = noted.hooked_address;
	if (!noted.hooked_address)
		return 0;
	keep_thread_id(noted.hooked_address);
	hooked_process_note(noted.process_address, noted.entry);
	hooked_ns = call_stack_read_hooked_ns(thread);
	for (__u32 i = 0; i < GPUPERF_CALL_DEPTH && i < thread->depth; i++)
		call_stack_at(thread, i)->hooked_ns = hooked_ns;
	return 0;
}

SEC("uprobe")
int take_note(struct pt_regs *ctx)
{
	__u64 address = PT_REGS_PARM1(ctx);

	keep_own_stack(ctx);
	switch (bpf_get_attach_cookie(ctx)) {
	case GPUPERF_NOTE_CALLS: return hooked_process_take(address);
	case GPUPERF_NOTE_SLOW: return take_noted_slow_call(address);
	case GPUPERF_NOTE_LAUNCH: return take_noted_launch(address);
	case GPUPERF_NOTE_THREAD: return take_noted_thread(address);
	case GPUPERF_NOTE_LAUNCHES: return take_noted_launches(address);
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
