/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Sends what a walk has found and, if it could not go on, the memory it would have gone on in.
 */
#pragma once

#include "bpf/repeat.bpf.h"
#include "bpf/stack_memory.bpf.h"

#define PAGE_BYTES 4096
#define COPY_INTERVAL_NS 250000ull /* a copy takes up to 10 us, and the daemon about 100 us to walk it */
#define COPY_BURST 200             /* the ring holds 238 */

static __u64 copies_paid_ns; /* every copy advances it by the interval */

struct stack_fill {
	struct gpuperf_stack *stack;
	struct gpuperf_walk *walk;
	__u32 from;
	__u32 count;
};

static __attribute__((noinline)) long fill_next_frame(__u32 to, struct stack_fill *fill)
{
	struct gpuperf_stack *stack = fill->stack;
	const struct gpuperf_walk_frame *frame;
	__u32 from = fill->from + to;

	barrier_var(to);
	barrier_var(from);
	if (to >= GPUPERF_STACK_FRAMES || from >= GPUPERF_STACK_FRAMES)
		return 1;
	frame = &fill->walk->frames[from];
	stack->frames[to].pc = frame->pc;
	stack->frames[to].sp = frame->sp;
	if (frame->rule.kind == GPUPERF_UNWIND_UNKNOWN && frame->rule.bp_at)
		stack->exact_frames[to / 64] |= 1ull << (to & 63);
	fill->count = to + 1;
	return 0;
}

/* Fills the record of the stack. A separate function for the verifier. */
__attribute__((noinline)) int fill_stack(struct gpuperf_stack *stack, struct gpuperf_walk *walk)
{
	struct stack_fill fill = { .stack = stack, .walk = walk };

	if (!stack || !walk)
		return 0;
	fill.from = walk->start;
	stack->kind = GPUPERF_RECORD_STACK;
	stack->length_bytes = __builtin_offsetof(struct gpuperf_stack, python) +
			      walk->python_count * sizeof(struct gpuperf_python_frame);
	stack->stack_id = walk->stack_id;
	stack->process_start_boot_ns = walk->process_start_boot_ns;
	stack->pid = walk->pid;
	stack->tid = walk->tid;
	stack->space = walk->space;
	stack->end = walk->end;
	stack->python_is_cut = walk->python_is_cut;
	stack->python_count = walk->python_count;
	stack->code_changes = walk->code_changes;
	stack->bp = walk->bp;
	__builtin_memset(stack->exact_frames, 0, sizeof(stack->exact_frames));
	repeat(GPUPERF_STACK_FRAMES, fill_next_frame, &fill);
	stack->frame_count = fill.count;
	bpf_probe_read_kernel(stack->python, sizeof(stack->python), walk->python);
	return 0;
}

/* Appends one page to the copy. Separate functions for the verifier, from here on. */
__attribute__((noinline)) int copy_page(struct gpuperf_stack_copy *record, __u32 page, __u64 done_bytes, __u64 address)
{
	barrier_var(done_bytes);
	if (!record || done_bytes > GPUPERF_STACK_COPY_BYTES - PAGE_BYTES)
		return 0;
	if (!bpf_probe_read_user(record->copy + done_bytes, PAGE_BYTES, (const void *)(address + done_bytes)))
		record->present_pages |= 1u << (page & 31);
	return 0;
}

/* Copies from an address on, page by page up to `end`; skips pages that were never touched. */
__attribute__((noinline)) int copy_memory(struct gpuperf_stack_copy *record, __u64 address, __u64 end)
{
	__u64 done_bytes = PAGE_BYTES - (address & (PAGE_BYTES - 1));

	if (!record)
		return 0;
	barrier_var(done_bytes);
	if (done_bytes > PAGE_BYTES || !done_bytes)
		return 0; /* cannot happen */
	if (!bpf_probe_read_user(record->copy, done_bytes, (const void *)address))
		record->present_pages = 1;
	for (__u32 page = 1; page < GPUPERF_STACK_COPY_BYTES / PAGE_BYTES; page++) {
		if (done_bytes > GPUPERF_STACK_COPY_BYTES - PAGE_BYTES || address + done_bytes >= end)
			break;
		copy_page(record, page, done_bytes, address);
		done_bytes += PAGE_BYTES;
	}
	record->copy_bytes = done_bytes;
	return 0;
}

struct memory_end {
	__u64 address;
};

static long note_memory_end(struct task_struct *task, struct vm_area_struct *area, struct memory_end *end)
{
	end->address = area->vm_end;
	return 0;
}

/* Where the memory that holds the stack ends. For a thread without a mapping of its own, or whose mappings are being
 * changed right now, as far as fits into a record. */
static __always_inline __u64 find_memory_end(struct task_struct *task, __u64 address)
{
	struct memory_end end = { .address = 0 };

	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_find_vma))
		bpf_find_vma(task, address, note_memory_end, &end, 0);
	return end.address ? end.address : address + GPUPERF_STACK_COPY_BYTES;
}

/* Fills one part of a copy; NULL = no room. */
static __always_inline struct gpuperf_stack_copy *fill_copy(struct gpuperf_walk *walk, __u32 part,
							    __u64 address, __u64 end)
{
	struct gpuperf_stack_copy *record = bpf_ringbuf_reserve(&stack_copy_ring, sizeof(*record), 0);

	if (!record)
		return NULL;
	fill_stack(&record->stack, walk);
	record->stack.kind = GPUPERF_RECORD_STACK_COPY;
	record->stack.length_bytes = sizeof(*record);
	record->address = address;
	record->part = part;
	record->return_count = 0;
	record->copy_bytes = 0;
	record->present_pages = 0;
	copy_memory(record, address, end);
	return record;
}

/* Sends further parts from `address` on. Returns the number of the next one. */
static __attribute__((noinline)) __u32 send_parts(struct gpuperf_walk *walk, __u32 part, __u64 address)
{
	__u64 end = find_memory_end(bpf_get_current_task_btf(), address);
	struct gpuperf_stack_copy *record;
	__u64 copied_bytes;

	if (!walk)
		return part;
	for (__u32 i = 0; i < GPUPERF_STACK_COPY_PARTS && part < GPUPERF_STACK_COPY_PARTS; i++) {
		if (address >= end)
			break;
		record = fill_copy(walk, part, address, end);
		if (!record)
			break;
		copied_bytes = record->copy_bytes;
		bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
		if (!copied_bytes)
			break;
		address += copied_bytes;
		part++;
	}
	return part;
}

/* Words of a struct ucontext's uc_stack, used to find it on a signal stack; UNWIND_CONTEXT_*. */
#define CONTEXT_STACK_BASE 16
#define CONTEXT_STACK_SIZE 32
#define CONTEXT_SEARCH_WORDS 2048 /* the kernel puts it below a few KiB of floating-point registers */

struct context_search {
	__u64 top;
	__u64 base;
	__u64 size_bytes;
	__u64 context; /* 0 = not found */
};

static long look_for_context(__u32 index, struct context_search *search)
{
	__u64 address = search->top - 8 * (__u64)index;
	__u64 word = 0;

	if (address < search->base)
		return 1;
	if (bpf_probe_read_user(&word, sizeof(word), (const void *)(address + CONTEXT_STACK_BASE)) ||
	    word != search->base ||
	    bpf_probe_read_user(&word, sizeof(word), (const void *)(address + CONTEXT_STACK_SIZE)) ||
	    word != search->size_bytes)
		return 0;
	search->context = address;
	return 1;
}

/* Where the stack that a handler on a signal stack interrupted goes on; 0 = not on a signal stack. */
static __attribute__((noinline)) __u64 find_interrupted_sp(__u64 sp)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct context_search search = {
		.base = task->sas_ss_sp,
		.size_bytes = task->sas_ss_size,
	};
	__u64 interrupted = 0;

	if (!search.size_bytes || sp < search.base || sp >= search.base + search.size_bytes)
		return 0;
	search.top = (search.base + search.size_bytes - CONTEXT_STACK_SIZE - 8) & ~7ull;
	bpf_loop(CONTEXT_SEARCH_WORDS, look_for_context, &search, 0);
	if (!search.context ||
	    bpf_probe_read_user(&interrupted, sizeof(interrupted), (const void *)(search.context + UNWIND_CONTEXT_SP)))
		return 0;
	return interrupted;
}

/* Whether one more copy may be made now. */
static __always_inline _Bool may_copy(__u64 now_ns)
{
	__u64 paid_ns = copies_paid_ns;

	if (paid_ns + COPY_BURST * COPY_INTERVAL_NS < now_ns)
		paid_ns = now_ns - COPY_BURST * COPY_INTERVAL_NS;
	if (paid_ns + COPY_INTERVAL_NS > now_ns)
		return 0;
	copies_paid_ns = paid_ns + COPY_INTERVAL_NS; /* racy on purpose: two at once are harmless */
	return 1;
}

/* Sends the stack with the memory its walk would go on in; 0 = not possible now. The first part is submitted last:
 * the reader cannot pass it, so it then finds all of them. */
static __attribute__((noinline)) int send_copy(struct gpuperf_walk *walk)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct gpuperf_stack_copy *first;
	__u64 now_ns = bpf_ktime_get_ns();
	__u64 address, next, interrupted;
	__u32 part = 1;

	if (!walk)
		return 0;
	address = walk->frames[GPUPERF_STACK_FRAMES - 1].sp;
	first = may_copy(now_ns) ? fill_copy(walk, 0, address, find_memory_end(task, address)) : NULL;
	if (!first) {
		emit_loss(GPUPERF_LOSS_STACK_COPY);
		return 0;
	}
	first->return_count = list_replaced_returns(task, first->returns);
	next = address + first->copy_bytes;
	if (first->copy_bytes > GPUPERF_STACK_COPY_BYTES - PAGE_BYTES)
		part = send_parts(walk, part, next);
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_loop)) {
		interrupted = find_interrupted_sp(address);
		if (interrupted)
			send_parts(walk, part, interrupted);
	}
	bpf_ringbuf_submit(first, emit_wake_flags(now_ns));
	return 1;
}

/* Copies the frames that a noted stack claims; 1 = unreadable or impossible. A separate function for the verifier. */
__attribute__((noinline)) int fill_noted_frames(struct gpuperf_stack *record, const struct gpuperf_noted_stack *noted)
{
	__u64 native_bytes, python_bytes;

	if (!record || !noted)
		return 1;
	native_bytes = noted->frame_count * sizeof(struct gpuperf_native_frame);
	python_bytes = noted->python_count * sizeof(struct gpuperf_python_frame);
	barrier_var(native_bytes);
	barrier_var(python_bytes);
	if (native_bytes > sizeof(record->frames) || python_bytes > sizeof(record->python) ||
	    noted->end > GPUPERF_STACK_BROKEN || noted->end == GPUPERF_STACK_UNKNOWN)
		return 1;
	return bpf_probe_read_user(record->frames, native_bytes, (const void *)noted->frames_address) ||
	       bpf_probe_read_user(record->python, python_bytes, (const void *)noted->python_address);
}

/* Sends a stack that the process walked; 0 = lost, or not a stack. A separate function for the verifier. */
__attribute__((noinline)) int send_noted_stack(const struct gpuperf_noted_stack *noted, __u64 id)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct gpuperf_stack *record;
	__u32 pid = task->tgid, *changes, sent = 1;

	if (!noted)
		return 0;
	record = bpf_ringbuf_reserve(&stack_ring, sizeof(*record), 0);
	if (!record) {
		emit_loss(GPUPERF_LOSS_STACK_RING_FULL);
		return 0;
	}
	if (fill_noted_frames(record, noted)) {
		bpf_ringbuf_discard(record, 0);
		return 0;
	}
	changes = bpf_map_lookup_elem(&code_changes, &pid);
	record->kind = GPUPERF_RECORD_STACK;
	record->length_bytes = __builtin_offsetof(struct gpuperf_stack, python) +
			       noted->python_count * sizeof(struct gpuperf_python_frame);
	record->stack_id = id;
	record->process_start_boot_ns = task->group_leader->start_boottime;
	record->pid = pid;
	record->tid = task->pid;
	record->space = 0;
	record->end = noted->end;
	record->python_is_cut = noted->python_is_cut;
	record->python_count = noted->python_count;
	record->code_changes = changes ? *changes : 0;
	record->bp = 0;
	record->frame_count = noted->frame_count;
	__builtin_memcpy(record->exact_frames, noted->exact_frames, sizeof(record->exact_frames));
	bpf_ringbuf_submit(record, emit_wake_flags(bpf_ktime_get_ns()));
	bpf_map_update_elem(&sent_stacks, &id, &sent, BPF_ANY);
	return 1;
}

/* Sends the stack; 0 = it was lost. */
static __attribute__((noinline)) int send_stack(struct gpuperf_walk *walk)
{
	struct gpuperf_stack *record = bpf_ringbuf_reserve(&stack_ring, sizeof(*record), 0);
	__u64 id;
	__u32 sent = 1;

	if (!record) {
		emit_loss(GPUPERF_LOSS_STACK_RING_FULL);
		return 0;
	}
	if (!walk) {
		bpf_ringbuf_discard(record, 0);
		return 0;
	}
	fill_stack(record, walk);
	bpf_ringbuf_submit(record, emit_wake_flags(bpf_ktime_get_ns()));
	id = walk->stack_id;
	bpf_map_update_elem(&sent_stacks, &id, &sent, BPF_ANY);
	return 1;
}
