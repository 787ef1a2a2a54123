// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
/*
 * Takes the stack of the current thread, native and of CPython, at the moment of an event. Native frames are
 * walked by rules that the daemon made from .eh_frame, one look-up by address for each (docs/decisions/0010).
 * Where no rule is known yet, the rest of the stack is sent as it is: the daemon walks it, and adds the rules.
 */
#include "bpf/stack.bpf.h"

static __always_inline int unwind_read(void *memory, __u64 address, void *to, __u32 size_bytes)
{
	return bpf_probe_read_user(to, size_bytes, (const void *)address) != 0;
}
#include "bpf/unwind.h"

static __always_inline int python_read(void *memory, __u64 address, void *to, __u32 size_bytes)
{
	return unwind_read(memory, address, to, size_bytes);
}
#include "bpf/python_frames.h"

#define PAGE_BYTES 4096
#define MAX_PYTHON_THREADS 4096 /* looked at when a thread is looked for */
#define PYTHON_SEARCH_INTERVAL_NS 1000000000ull
#define COPY_INTERVAL_NS 500000ull /* a copy takes up to 10 us, and the daemon some 100 to walk it */
#define COPY_BURST 50              /* the ring holds 59 */

static __u64 copies_paid_ns; /* every copy so far moved it on by the interval */

struct walk_context {
	struct gpuperf_walk *walk;
	struct unwind_frame frame;
	__u32 space;
};

static __always_inline void mix(struct gpuperf_walk *walk, __u64 word)
{
	__u64 hash = (walk->hash ^ word) * 0x9e3779b97f4a7c15ull;

	walk->hash = hash ^ hash >> 29;
}

static __always_inline void add_frame(struct gpuperf_walk *walk, const struct unwind_frame *frame)
{
	struct gpuperf_stack *stack = &walk->stack;
	__u32 index = stack->frame_count;

	barrier_var(index);
	if (index >= GPUPERF_STACK_FRAMES)
		return;
	stack->frames[index].pc = frame->pc;
	stack->frames[index].sp = frame->sp;
	if (frame->is_exact)
		stack->exact_frames[index / 64 & (GPUPERF_STACK_FRAMES / 64 - 1)] |= 1ull << (index & 63);
	stack->bp = frame->bp;
	stack->frame_count = index + 1;
	mix(walk, frame->pc);
}

static __always_inline struct gpuperf_unwind_rule *find_rule(const struct walk_context *context)
{
	struct gpuperf_unwind_key key = {
		.pc = context->frame.pc,
		.space = context->space,
		.is_exact = context->frame.is_exact,
	};

	return bpf_map_lookup_elem(&unwind_rules, &key);
}

/* The rule by which the frame at that place was walked last, if it was the same one; NULL = another. */
static __always_inline struct gpuperf_unwind_rule *find_last_rule(const struct walk_context *context, __u32 index)
{
	struct gpuperf_walk *walk = context->walk;

	barrier_var(index);
	if (index >= GPUPERF_STACK_FRAMES || index >= walk->rule_count || context->frame.is_exact ||
	    walk->stack.frames[index].pc != context->frame.pc ||
	    walk->rules[index].kind == GPUPERF_UNWIND_UNKNOWN)
		return NULL;
	return &walk->rules[index];
}

static __always_inline void keep_rule(const struct walk_context *context, __u32 index,
				      const struct gpuperf_unwind_rule *rule)
{
	struct gpuperf_walk *walk = context->walk;

	barrier_var(index);
	if (index >= GPUPERF_STACK_FRAMES)
		return;
	if (rule && !context->frame.is_exact)
		walk->rules[index] = *rule;
	else
		walk->rules[index].kind = GPUPERF_UNWIND_UNKNOWN;
	if (walk->rule_count <= index)
		walk->rule_count = index + 1;
}

struct replaced_search {
	struct return_instance *instance;
	__u64 sp;
	__u64 address; /* 0 = not found */
};

static long look_at_replaced(__u32 index, struct replaced_search *search)
{
	struct return_instance *instance = search->instance;

	if (!instance)
		return 1;
	if (BPF_CORE_READ(instance, stack) == search->sp) {
		search->address = BPF_CORE_READ(instance, orig_ret_vaddr);
		return 1;
	}
	search->instance = BPF_CORE_READ(instance, next);
	return 0;
}

/* The address that a return probe has replaced by its own right below `sp`; 0 = none. */
static __attribute__((noinline)) __u64 find_replaced(__u64 sp)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct replaced_search search = { .sp = sp - 8 };

	if (!task->utask)
		return 0;
	search.instance = task->utask->return_instances;
	bpf_loop(GPUPERF_REPLACED_RETURNS, look_at_replaced, &search, 0);
	return search.address;
}

/* One frame; 1 ends the walk. */
static long walk_frame(__u32 index, struct walk_context *context)
{
	struct gpuperf_walk *walk = context->walk;
	struct gpuperf_unwind_rule *rule = find_last_rule(context, index);
	int end;

	if (!rule) {
		rule = find_rule(context);
		if (!rule && !context->frame.is_exact) {
			__u64 replaced = find_replaced(context->frame.sp);

			if (replaced) {
				context->frame.pc = replaced;
				rule = find_rule(context);
			}
		}
		keep_rule(context, index, rule);
	}
	if (index >= GPUPERF_STACK_FRAMES) {
		walk->stack.end = GPUPERF_STACK_CUT;
		return 1;
	}
	add_frame(walk, &context->frame);
	if (!rule) {
		walk->stack.end = GPUPERF_STACK_UNKNOWN;
		return 1;
	}
	end = unwind_step(NULL, rule, &context->frame);
	if (end != UNWIND_GOES_ON) {
		walk->stack.end = end;
		return 1;
	}
	return 0;
}

static __always_inline void walk_native(struct gpuperf_walk *walk, __u64 pc, __u64 sp, __u64 bp)
{
	struct walk_context context = {
		.walk = walk,
		.frame = { .pc = pc, .sp = sp, .bp = bp },
		.space = walk->stack.space,
	};

	if (context.space && bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_loop)) {
		bpf_loop(GPUPERF_STACK_FRAMES + 1, walk_frame, &context, 0);
	} else {
		add_frame(walk, &context.frame);
		walk->stack.end = GPUPERF_STACK_UNKNOWN;
	}
}

struct python_context {
	struct gpuperf_walk *walk;
	const struct gpuperf_python_layout *layout;
	__u64 thread_pointer;
	union {
		struct python_search search;
		struct python_walk frames;
	};
};

static long look_at_python_thread(__u32 index, struct python_context *context)
{
	struct gpuperf_walk *walk = context->walk;
	enum python_step step = python_step_search(NULL, context->layout, context->thread_pointer,
						   &context->search);
	__u32 count = walk->python_thread_count;

	if (step == PYTHON_STEP_NEXT)
		return 0;
	barrier_var(count);
	if (step != PYTHON_STEP_FOUND || count >= GPUPERF_PYTHON_STATES)
		return 1;
	walk->python_threads[count] = context->search.thread;
	walk->python_thread_count = count + 1;
	return python_read(NULL, context->search.thread + context->layout->thread_next,
			   &context->search.thread, sizeof(context->search.thread)) != 0;
}

/* Finds the thread's states where that was not done lately: which interpreters it uses changes seldom. */
static __always_inline void find_python_threads(struct python_context *context,
						const struct gpuperf_address_space *space)
{
	struct gpuperf_walk *walk = context->walk;
	__u64 now_ns = bpf_ktime_get_ns();

	if (walk->python_space == space->space && now_ns - walk->python_search_ns < PYTHON_SEARCH_INTERVAL_NS)
		return;
	walk->python_space = space->space;
	walk->python_search_ns = now_ns;
	walk->python_thread_count = 0;
	if (!python_begin_search(NULL, context->layout, space->python_runtime, &context->search))
		bpf_loop(MAX_PYTHON_THREADS, look_at_python_thread, context, 0);
}

static long walk_python_frame(__u32 index, struct python_context *context)
{
	struct gpuperf_stack *stack = &context->walk->stack;
	__u32 count = stack->python_count;
	struct gpuperf_python_frame frame;
	enum python_step step;

	frame.entry_sp = 0;
	step = python_step_walk(NULL, context->layout, &context->frames, &frame);
	if (step == PYTHON_STEP_NEXT)
		return 0;
	if (step == PYTHON_STEP_END)
		return 1;
	barrier_var(count);
	if (step != PYTHON_STEP_FOUND || count >= GPUPERF_PYTHON_FRAMES) {
		stack->python_is_cut = 1;
		return 1;
	}
	stack->python[count] = frame;
	stack->python_count = count + 1;
	mix(context->walk, frame.code);
	mix(context->walk, (__u64)frame.first_line << 32 | frame.instruction_bytes);
	return 0;
}

/* Frames of Python of the current thread, of all interpreters that it uses. A function of its own for the
 * verifier. */
static __attribute__((noinline)) int walk_python(struct gpuperf_walk *walk)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 pid = task->tgid;
	struct gpuperf_address_space *space = bpf_map_lookup_elem(&address_spaces, &pid);
	struct python_context context = { .walk = walk, .thread_pointer = task->thread.fsbase };
	__u64 id = 0;

	if (!walk || !space || !space->python_runtime || walk->stack.space != space->space)
		return 0;
	context.layout = &space->python;
	find_python_threads(&context, space);
	for (__u32 i = 0; i < GPUPERF_PYTHON_STATES; i++) {
		__u64 thread = walk->python_threads[i];

		if (i >= walk->python_thread_count)
			break;
		if (python_read(NULL, thread + space->python.thread_id, &id, sizeof(id)) ||
		    id != context.thread_pointer) {
			walk->python_space = 0; /* its memory is used for something else now */
			continue;
		}
		/* The interpreter's own frames between them count as steps. */
		if (python_begin_walk(NULL, context.layout, thread, &context.frames))
			walk->stack.python_is_cut = 1;
		else
			bpf_loop(3 * GPUPERF_PYTHON_FRAMES, walk_python_frame, &context, 0);
	}
	return 0;
}

/* Copies from an address on, page by page up to `end`; pages that were never touched are left out. A function of
 * its own for the verifier. */
static __attribute__((noinline)) int copy_memory(struct gpuperf_stack_copy *record, __u64 address, __u64 end)
{
	__u64 done_bytes = PAGE_BYTES - (address & (PAGE_BYTES - 1));
	__u32 present = 1;

	if (!record)
		return 0;
	barrier_var(done_bytes);
	if (done_bytes > PAGE_BYTES || !done_bytes)
		return 0; /* cannot be */
	if (bpf_probe_read_user(record->copy, done_bytes, (const void *)address))
		present = 0;
	for (__u32 page = 1; page < GPUPERF_STACK_COPY_BYTES / PAGE_BYTES; page++) {
		barrier_var(done_bytes);
		if (done_bytes > GPUPERF_STACK_COPY_BYTES - PAGE_BYTES || address + done_bytes >= end)
			break;
		if (!bpf_probe_read_user(record->copy + done_bytes, PAGE_BYTES,
					 (const void *)(address + done_bytes)))
			present |= 1u << page;
		done_bytes += PAGE_BYTES;
	}
	record->copy_bytes = done_bytes;
	record->present_pages = present;
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

/* Where the memory that holds the stack ends; a thread without a mapping of its own, or whose mappings are
 * being changed right now, gets what fits into a record. */
static __always_inline __u64 find_memory_end(struct task_struct *task, __u64 address)
{
	struct memory_end end = { .address = 0 };

	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_find_vma))
		bpf_find_vma(task, address, note_memory_end, &end, 0);
	return end.address ? end.address : address + GPUPERF_STACK_COPY_BYTES;
}

/* One part of a copy; NULL = no room. */
static __always_inline struct gpuperf_stack_copy *fill_copy(const struct gpuperf_walk *walk, __u32 part,
							    __u64 address, __u64 end)
{
	struct gpuperf_stack_copy *record = bpf_ringbuf_reserve(&stack_copy_ring, sizeof(*record), 0);

	if (!record)
		return NULL;
	bpf_probe_read_kernel(&record->stack, sizeof(record->stack), &walk->stack);
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

/* Sends further parts from `address` on; the number of the next one. */
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

/* Words of a struct ucontext's uc_stack, by which it is found on a signal stack; UNWIND_CONTEXT_*. */
#define CONTEXT_STACK_BASE 16
#define CONTEXT_STACK_SIZE 32
#define CONTEXT_SEARCH_WORDS 2048 /* the kernel puts it below some KiB of floating-point registers */

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

/* Where the thread's stack goes on that a handler on a signal stack has interrupted; 0 = it is on none. */
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
	    unwind_read(NULL, search.context + UNWIND_CONTEXT_SP, &interrupted, sizeof(interrupted)))
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
	copies_paid_ns = paid_ns + COPY_INTERVAL_NS; /* racy on purpose: two at once harm nobody */
	return 1;
}

/* Sends the stack with the memory its walk would go on in; 0 = not possible now. The first part is handed over
 * last: the reader, who cannot pass it, then finds all. */
static __attribute__((noinline)) int send_copy(struct gpuperf_walk *walk)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct gpuperf_stack_copy *first;
	__u64 now_ns = bpf_ktime_get_ns();
	__u64 address, next, interrupted;
	__u32 last, part = 1;

	if (!walk)
		return 0;
	last = walk->stack.frame_count - 1;
	if (last >= GPUPERF_STACK_FRAMES)
		return 0;
	address = walk->stack.frames[last].sp;
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

static __always_inline void send_stack(struct gpuperf_walk *walk)
{
	struct gpuperf_stack *stack = &walk->stack;
	__u64 python_bytes = stack->python_count * sizeof(struct gpuperf_python_frame);
	__u64 id = stack->stack_id;
	__u32 sent = 1;

	barrier_var(python_bytes);
	if (python_bytes > sizeof(stack->python))
		return; /* cannot be */
	stack->kind = GPUPERF_RECORD_STACK;
	stack->length_bytes = __builtin_offsetof(struct gpuperf_stack, python) + python_bytes;
	if (bpf_ringbuf_output(&stack_ring, stack, __builtin_offsetof(struct gpuperf_stack, python) + python_bytes,
			       emit_wake_flags(bpf_ktime_get_ns()))) {
		emit_loss(GPUPERF_LOSS_STACK_RING_FULL);
		stack->stack_id = 0;
	} else if (stack->end != GPUPERF_STACK_UNKNOWN) {
		bpf_map_update_elem(&sent_stacks, &id, &sent, BPF_ANY);
	}
}

static __always_inline void begin(struct gpuperf_walk *walk, struct task_struct *task)
{
	struct gpuperf_stack *stack = &walk->stack;
	__u64 id = bpf_get_current_pid_tgid();
	__u32 pid = id >> 32;
	struct gpuperf_address_space *space = bpf_map_lookup_elem(&address_spaces, &pid);
	struct mm_struct *mm = task->mm;
	__u32 *changes = bpf_map_lookup_elem(&code_changes, &pid);

	stack->process_start_boot_ns = task->group_leader->start_boottime;
	stack->pid = pid;
	stack->tid = (__u32)id;
	stack->code_changes = changes ? *changes : 0;
	stack->space = 0;
	if (space && mm && mm->start_stack == space->start_stack && mm->exec_vm == space->code_pages &&
	    stack->code_changes == space->code_changes)
		stack->space = space->space;
	stack->frame_count = 0;
	stack->python_count = 0;
	stack->python_is_cut = 0;
	stack->end = GPUPERF_STACK_CUT;
	__builtin_memset(stack->exact_frames, 0, sizeof(stack->exact_frames));
	walk->hash = stack->space;
	if (walk->rule_space != stack->space) {
		walk->rule_space = stack->space;
		walk->rule_count = 0;
	}
}

__u64 take_stack(__u64 pc, __u64 sp, __u64 bp)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct gpuperf_walk *walk = bpf_task_storage_get(&walks, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	__u64 id;

	if (!walk || walk->busy) {
		emit_loss(GPUPERF_LOSS_STACK_STATE);
		return 0;
	}
	walk->busy = 1;
	begin(walk, task);
	walk_native(walk, pc, sp, bp);
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_loop))
		walk_python(walk);
	mix(walk, (__u64)walk->stack.end << 8 | walk->stack.python_is_cut);
	if (walk->stack.end == GPUPERF_STACK_UNKNOWN)
		mix(walk, bpf_ktime_get_ns()); /* what is above is not known: equal to no other */
	id = walk->hash | 1;
	walk->stack.stack_id = id;
	if (walk->stack.end == GPUPERF_STACK_UNKNOWN) {
		if (!send_copy(walk))
			send_stack(walk);
	} else if (!bpf_map_lookup_elem(&sent_stacks, &id)) {
		send_stack(walk);
	}
	id = walk->stack.stack_id;
	walk->busy = 0;
	return id;
}

/* A forked process has its parent's mappings: its stacks are walked by the same rules until it changes them,
 * also when it does not live long enough to be looked at. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(inherit_address_space, struct task_struct *parent, struct task_struct *child)
{
	__u32 parent_pid = parent->tgid, child_pid = child->tgid;
	struct gpuperf_address_space *space;
	__u32 *changes;

	if (parent_pid == child_pid) /* a thread */
		return 0;
	space = bpf_map_lookup_elem(&address_spaces, &parent_pid);
	changes = bpf_map_lookup_elem(&code_changes, &parent_pid);
	if (changes)
		bpf_map_update_elem(&code_changes, &child_pid, changes, BPF_ANY);
	if (space)
		bpf_map_update_elem(&address_spaces, &child_pid, space, BPF_ANY);
	return 0;
}

/* On the function that the dynamic loader calls before and after it maps or unmaps libraries, for debuggers:
 * between two stacks one library may have taken another's place. */
SEC("uprobe")
int note_code_change(struct pt_regs *ctx)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32, first = 1;
	__u32 *changes = bpf_map_lookup_elem(&code_changes, &pid);

	if (changes)
		__sync_fetch_and_add(changes, 1);
	else
		bpf_map_update_elem(&code_changes, &pid, &first, BPF_ANY);
	return 0;
}

/* Unused: they bring the records into the BTF, where tests/abi compares them with the C++ side. */
const struct gpuperf_stack_copy *gpuperf_btf_stack_copy;
const struct gpuperf_unwind_rule *gpuperf_btf_unwind_rule;

char LICENSE[] SEC("license") = "Dual BSD/GPL";
