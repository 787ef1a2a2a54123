// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
/*
 * Takes the current thread's native and CPython stack at an event. Native frames are walked with rules that the daemon
 * made from .eh_frame, one lookup by address for each (docs/decisions/0010). Where no rule is known yet, the rest of
 * the stack is sent as it is: the daemon walks it, and adds the rules.
 *
 * Every walk reads the whole stack. The thread's last walk saves lookups and hashing for frames found again; it never
 * replaces reading the memory.
 */
#include "bpf/stack.bpf.h"

#include "bpf/repeat.bpf.h"

#include "bpf/stack_memory.bpf.h"

#include "bpf/stack_rules.bpf.h"

#include "bpf/unwind.h"

#include "bpf/python_frames.h"

#include "bpf/hook_notes.h"

#include "bpf/stack_copy.bpf.h"

#define MAX_PYTHON_THREADS 4096 /* examined when searching for a thread */
#define PYTHON_SEARCH_INTERVAL_NS 1000000000ull
#define FRAMES_AT_ONCE 16

SEC(".rodata.walk") const volatile __u32 walks_anew = 0;
SEC(".rodata.rules") const volatile __u32 rules_anew = 0;

static __always_inline struct gpuperf_unwind_rule *find_rule(const struct gpuperf_walk *walk,
							     const struct unwind_frame *frame)
{
	struct gpuperf_unwind_key key = {
		.pc = frame->pc,
		.space = walk->space,
		.is_exact = frame->is_exact,
	};

	return bpf_map_lookup_elem(&unwind_rules, &key);
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

/* The address right below `sp` that a return probe has replaced with its own; 0 = none. */
__attribute__((noinline)) __u64 find_replaced(__u64 sp)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct replaced_search search = { .sp = sp - 8 };

	if (!task->utask)
		return 0;
	search.instance = task->utask->return_instances;
	bpf_loop(GPUPERF_REPLACED_RETURNS, look_at_replaced, &search, 0);
	return search.address;
}

/* If pc is the address that return probes put in place, as met before, restores the one it replaced. */
static __always_inline void restore_return(const struct gpuperf_walk *walk, struct unwind_frame *frame)
{
	__u64 replaced;

	if (frame->pc != walk->trampoline)
		return;
	replaced = find_replaced(frame->sp);
	if (replaced)
		frame->pc = replaced;
}

/* Moves on to `frame`, which may be one of the last walk's. */
static __always_inline void go_to(struct gpuperf_walk *walk, const struct unwind_frame *frame)
{
	walk->frame = *frame;
	pass_old(walk, frame);
}

struct frame_move {
	struct gpuperf_walk *walk;
	__u32 from;
	__u32 to;
	__u32 end;
};

static __attribute__((noinline)) long move_frame(__u32 index, struct frame_move *move)
{
	if (move->from + index > move->end)
		return 1;
	*frame_at(move->walk, move->to + index) = *frame_at(move->walk, move->from + index);
	return 0;
}

/* The frames outside the one met last have changed: those met join the new ones. A separate function for the
 * verifier. */
__attribute__((noinline)) int move_same(struct gpuperf_walk *walk)
{
	struct frame_move move = { .walk = walk };

	if (!walk)
		return 0;
	move.from = walk->first_same;
	move.to = walk->new_count;
	move.end = walk->old;
	if (move.from != move.to)
		repeat(GPUPERF_STACK_FRAMES, move_frame, &move);
	walk->new_count = move.to + move.end + 1 - move.from;
	walk->first_same = GPUPERF_STACK_FRAMES;
	walk->old = move.end + 1;
	return 0;
}

/* Walks a frame that the last walk did not have; 1 ends the walk. */
static __always_inline int walk_new_frame(struct gpuperf_walk *walk)
{
	struct unwind_frame frame = walk->frame;
	struct gpuperf_walk_frame *known;
	struct gpuperf_unwind_rule *rule;
	__u32 index = walk->new_count;
	int end;

	if (index >= GPUPERF_STACK_FRAMES) {
		walk->end = GPUPERF_STACK_CUT;
		return 1;
	}
	rule = find_rule(walk, &frame);
	if (!rule && !frame.is_exact) {
		__u64 replaced = find_replaced(frame.sp);

		if (replaced) {
			walk->trampoline = frame.pc;
			frame.pc = replaced;
			rule = find_rule(walk, &frame);
		}
	}
	known = frame_at(walk, index);
	known->pc = frame.pc;
	known->sp = frame.sp;
	known->rule = (struct gpuperf_unwind_rule){ .kind = GPUPERF_UNWIND_UNKNOWN, .bp_at = frame.is_exact };
	if (rule && !frame.is_exact) {
		known->rule = *rule;
		add_known(walk, frame.pc, *(__u64 *)rule);
	}
	walk->new_count = index + 1;
	walk->bp = frame.bp;
	if (walk->old <= index)
		walk->old = GPUPERF_STACK_FRAMES; /* no room for both */
	if (!rule) {
		walk->end = GPUPERF_STACK_UNKNOWN;
		return 1;
	}
	end = unwind_step(walk, rule, &frame);
	if (end != UNWIND_GOES_ON) {
		walk->end = end;
		return 1;
	}
	restore_return(walk, &frame);
	go_to(walk, &frame);
	return 0;
}

/* Walks a frame that the last walk also had; 1 ends the walk. */
static __always_inline int walk_same_frame(struct gpuperf_walk *walk)
{
	struct unwind_frame frame = walk->frame;
	const __u32 old = walk->old;
	int end;

	walk->bp = frame.bp;
	end = unwind_step(walk, &frame_at(walk, old)->rule, &frame);
	if (end == UNWIND_GOES_ON) {
		restore_return(walk, &frame);
		if (old + 1 < GPUPERF_STACK_FRAMES && is_same(frame_at(walk, old + 1), &frame)) {
			walk->old = old + 1;
			walk->frame = frame;
			return 0;
		}
	} else if (old == GPUPERF_STACK_FRAMES - 1) {
		walk->end = end;
		return 1;
	}
	move_same(walk);
	if (end != UNWIND_GOES_ON) {
		walk->end = end;
		return 1;
	}
	go_to(walk, &frame);
	return 0;
}

/* Whether `old` still leads to the next of the last walk's frames; only for the most common rules, by sp or bp. */
static __always_inline _Bool leads_on(struct gpuperf_walk *walk, const struct gpuperf_walk_frame *old,
				      const struct gpuperf_walk_frame *next, __u64 *bp)
{
	__u64 cfa = (old->rule.kind == GPUPERF_UNWIND_SP ? old->sp : *bp) + (__s64)old->rule.cfa_offset_bytes;
	__u64 address = cfa - 8, offset = address & (GPUPERF_WALK_PAGE_BYTES - 1);

	if (old->rule.kind > GPUPERF_UNWIND_BP || old->rule.bp_at != GPUPERF_UNWIND_BP_AT_CFA || cfa != next->sp ||
	    cfa <= old->sp || next->rule.kind == GPUPERF_UNWIND_UNKNOWN)
		return 0;
	if (address - offset != walk->page_address && load_page(walk, address))
		return 0;
	barrier_var(offset);
	if (offset > GPUPERF_WALK_PAGE_BYTES - 8 || *(__u64 *)(walk->page + offset) != next->pc)
		return 0;
	if (!old->rule.bp_offset_bytes)
		return 1;
	offset += 8 + (__s64)old->rule.bp_offset_bytes;
	barrier_var(offset);
	if (offset > GPUPERF_WALK_PAGE_BYTES - 8)
		return 0; /* on another page */
	*bp = *(__u64 *)(walk->page + offset);
	return 1;
}

/* Like walk_same_frame(), for as many unchanged frames as follow. Returns how many. A separate function for the
 * verifier. */
__attribute__((noinline)) __u32 walk_like_before(struct gpuperf_walk *walk)
{
	__u32 old, count = 0;
	__u64 bp;

	if (!walk)
		return 0;
	bp = walk->frame.bp;
	old = walk->old;
	for (; count < FRAMES_AT_ONCE; count++) {
		if (old >= GPUPERF_STACK_FRAMES - 1 || !leads_on(walk, frame_at(walk, old), frame_at(walk, old + 1), &bp))
			break;
		old++;
	}
	walk->old = old;
	walk->frame.pc = frame_at(walk, old)->pc;
	walk->frame.sp = frame_at(walk, old)->sp;
	walk->frame.bp = bp;
	return count;
}

struct walk_context {
	struct gpuperf_walk *walk;
};

/* Walks one or more frames; 1 ends the walk. */
static long walk_frame(__u32 index, struct walk_context *context)
{
	struct gpuperf_walk *walk = context->walk;

	if (walk->first_same >= GPUPERF_STACK_FRAMES) {
		if (!walks_anew && walk_known(walk) == KNOWN_AT_ONCE)
			return 0;
		if (walk->first_same >= GPUPERF_STACK_FRAMES)
			return walk_new_frame(walk);
		return 0;
	}
	return walk_like_before(walk) < FRAMES_AT_ONCE && walk_same_frame(walk);
}

struct frame_join {
	struct gpuperf_walk *walk;
	__u64 hash;
	__u32 from;
	__u32 to;
};

/* Moves a new frame in front of those with that hash, which then includes it. */
static __attribute__((noinline)) long join_frame(__u32 index, struct frame_join *join)
{
	struct gpuperf_walk_frame *frame;
	__u64 hash;

	if (!join->from || !join->to)
		return 1;
	frame = frame_at(join->walk, --join->to);
	*frame = *frame_at(join->walk, --join->from);
	hash = mix(join->hash, frame->pc);
	if (frame->rule.kind == GPUPERF_UNWIND_UNKNOWN && frame->rule.bp_at)
		hash = mix(hash, 1);
	frame->hash = hash;
	join->hash = hash;
	return 0;
}

/* Puts the new frames in front of those that stay. A separate function for the verifier. */
__attribute__((noinline)) int join_frames(struct gpuperf_walk *walk)
{
	struct frame_join join = { .walk = walk };

	if (!walk)
		return 0;
	join.from = walk->new_count;
	join.to = walk->first_same;
	join.hash = join.to < GPUPERF_STACK_FRAMES ? frame_at(walk, join.to)->hash : walk->space;
	repeat(GPUPERF_STACK_FRAMES, join_frame, &join);
	walk->start = join.to;
	walk->hash = join.hash;
	return 0;
}

static __always_inline void walk_native(struct gpuperf_walk *walk, __u64 pc, __u64 sp, __u64 bp)
{
	struct unwind_frame frame = { .pc = pc, .sp = sp, .bp = bp };
	struct walk_context context = { .walk = walk };

	walk->new_count = 0;
	walk->old = walk->start;
	walk->first_same = GPUPERF_STACK_FRAMES;
	if (walk->space && bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_loop)) {
		restore_return(walk, &frame);
		go_to(walk, &frame);
		bpf_loop(GPUPERF_STACK_FRAMES + 1, walk_frame, &context, 0);
	} else {
		*frame_at(walk, 0) = (struct gpuperf_walk_frame){ .pc = pc, .sp = sp };
		walk->bp = bp;
		walk->end = GPUPERF_STACK_UNKNOWN;
		walk->new_count = 1;
	}
	join_frames(walk);
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
	enum python_step step = python_step_search(walk, context->layout, context->thread_pointer,
						   &context->search);
	__u32 count = walk->python_thread_count;

	if (step == PYTHON_STEP_NEXT)
		return 0;
	barrier_var(count);
	if (step != PYTHON_STEP_FOUND || count >= GPUPERF_PYTHON_STATES)
		return 1;
	walk->python_threads[count] = context->search.thread;
	walk->python_thread_count = count + 1;
	return python_read(walk, context->search.thread + context->layout->thread_next,
			   &context->search.thread, sizeof(context->search.thread)) != 0;
}

/* Finds the thread's states unless done recently: the interpreters it uses rarely change. */
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
	if (!python_begin_search(walk, context->layout, space->python_runtime, &context->search))
		bpf_loop(MAX_PYTHON_THREADS, look_at_python_thread, context, 0);
}

static long walk_python_frame(__u32 index, struct python_context *context)
{
	struct gpuperf_walk *walk = context->walk;
	__u32 count = walk->python_count;
	struct gpuperf_python_frame frame;
	enum python_step step;

	frame.entry_sp = 0;
	step = python_step_walk(walk, context->layout, &context->frames, &frame);
	if (step == PYTHON_STEP_NEXT)
		return 0;
	if (step == PYTHON_STEP_END)
		return 1;
	barrier_var(count);
	if (step != PYTHON_STEP_FOUND || count >= GPUPERF_PYTHON_FRAMES) {
		walk->python_is_cut = 1;
		return 1;
	}
	walk->python[count] = frame;
	walk->python_count = count + 1;
	/* The end of an evaluation determines between which native frames it belongs. */
	walk->hash = mix(mix(walk->hash, frame.code ^ (frame.entry_sp ? 1ull << 63 : 0)),
			 (__u64)frame.first_line << 32 | frame.instruction_bytes);
	return 0;
}

/* Walks the frames of one interpreter that the thread uses. */
static long walk_python_thread(__u32 index, struct python_context *context)
{
	const struct gpuperf_python_layout *layout = context->layout;
	struct gpuperf_walk *walk = context->walk;
	__u64 thread, id = 0;

	barrier_var(index);
	if (index >= GPUPERF_PYTHON_STATES || index >= walk->python_thread_count)
		return 1;
	thread = walk->python_threads[index];
	if (python_read(walk, thread + layout->thread_id, &id, sizeof(id)) || id != context->thread_pointer) {
		walk->python_space = 0; /* its memory was reused */
		return 0;
	}
	if (python_begin_walk(walk, layout, thread, &context->frames)) {
		walk->python_is_cut = 1;
		return 0;
	}
	walk->is_python_near = layout->form != GPUPERF_PYTHON_FRAME_OBJECTS;
	/* The interpreter's own frames between them count as steps. */
	bpf_loop(3 * GPUPERF_PYTHON_FRAMES, walk_python_frame, context, 0);
	walk->is_python_near = 0;
	return 0;
}

/* Walks the current thread's Python frames, in all interpreters it uses. */
static __always_inline void walk_python(struct gpuperf_walk *walk, const struct gpuperf_address_space *space,
					struct task_struct *task)
{
	struct python_context context = { .walk = walk, .thread_pointer = task->thread.fsbase };

	if (!space->python_runtime || walk->space != space->space)
		return;
	context.layout = &space->python;
	find_python_threads(&context, space);
	bpf_loop(GPUPERF_PYTHON_STATES, walk_python_thread, &context, 0);
}

/* Begins a walk. Returns what is known of the process; NULL = nothing. */
static __always_inline struct gpuperf_address_space *begin(struct gpuperf_walk *walk, struct task_struct *task)
{
	__u64 id = bpf_get_current_pid_tgid();
	__u32 pid = id >> 32;
	struct gpuperf_address_space *space = bpf_map_lookup_elem(&address_spaces, &pid);
	struct mm_struct *mm = task->mm;
	__u32 *changes = bpf_map_lookup_elem(&code_changes, &pid);
	const __u32 last_space = walk->space;

	walk->process_start_boot_ns = task->group_leader->start_boottime;
	walk->pid = pid;
	walk->tid = (__u32)id;
	walk->code_changes = changes ? *changes : 0;
	walk->space = 0;
	if (space && mm && mm->start_stack == space->start_stack && mm->exec_vm == space->code_pages &&
	    walk->code_changes == space->code_changes)
		walk->space = space->space;
	walk->python_count = 0;
	walk->python_is_cut = 0;
	walk->end = GPUPERF_STACK_CUT;
	if (walk->space != last_space || walks_anew) { /* then other rules apply */
		walk->start = GPUPERF_STACK_FRAMES;
		walk->trampoline = 0;
	}
	forget_memory(walk);
	return space;
}

/* Walks into `walk` and sends the result. A separate function for the verifier: the memory may be from two maps. */
__attribute__((noinline)) __u64 walk_stack(struct gpuperf_walk *walk, __u64 pc, __u64 sp, __u64 bp)
{
	struct task_struct *task = bpf_get_current_task_btf();
	const struct gpuperf_address_space *space;
	__u64 id;

	if (!walk)
		return 0;
	space = begin(walk, task);
	walk_native(walk, pc, sp, bp);
	if (space && bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_loop))
		walk_python(walk, space, task);
	id = mix(walk->hash, (__u64)walk->end << 8 | walk->python_is_cut);
	if (walk->end == GPUPERF_STACK_UNKNOWN) {
		/* With the frames the daemon adds, it equals no other. */
		walk->stack_id = mix(id, bpf_ktime_get_ns()) | 1;
		if (send_copy(walk))
			return walk->stack_id;
		id = mix(id, walk->process_start_boot_ns); /* a process has no space before anything is known of it */
	}
	id |= 1;
	walk->stack_id = id;
	if (!bpf_map_lookup_elem(&sent_stacks, &id) && !send_stack(walk))
		return 0;
	return id;
}

__u64 take_stack(__u64 pc, __u64 sp, __u64 bp)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct gpuperf_walk *walk = bpf_task_storage_get(&walks, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	__u64 id;

	if (!walk)
		walk = get_of_thread(&walks_by_thread, &empty_walk, task->pid);
	if (!walk || walk->busy) {
		emit_loss(GPUPERF_LOSS_STACK_STATE);
		return 0;
	}
	walk->busy = 1;
	id = walk_stack(walk, pc, sp, bp);
	walk->busy = 0;
	return id;
}

__u64 take_noted_stack(__u64 address)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct gpuperf_noted_stack noted;
	__u64 id;

	if (bpf_probe_read_user(&noted, sizeof(noted), (const void *)address))
		return 0;
	id = noted_stack_id(task, noted.stack_id);
	if (!bpf_map_lookup_elem(&sent_stacks, &id) && !send_noted_stack(&noted, id))
		return 0;
	return id;
}

/* A forked process has its parent's mappings: its stacks are walked with the same rules until it changes them, even
 * if it ends before the daemon looks at it. */
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

/* On the function that the dynamic loader calls, for debuggers, before and after it maps or unmaps libraries:
 * between two stacks one library may have replaced another. */
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

char LICENSE[] SEC("license") = "Dual BSD/GPL";
