/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * The rules that a thread's recent walks used, in the order in which they met them. Stacks differ in their inner
 * frames, but these are mostly the same few paths through the same functions. Along such a path each rule is followed
 * by the next one needed, so nothing is looked up and reads are sequential; memory that the program's own work has
 * evicted from the caches is then prefetched.
 *
 * A rule of a space never changes (docs/decisions/0010), and rules of another space empty the list: what is found here
 * would be found in unwind_rules, too. Only the thread itself reads and writes its list, within a walk.
 */
#pragma once

#include "bpf/stack_memory.bpf.h"

/* For measurements: 1 = each rule is looked up in unwind_rules. */
extern const volatile __u32 rules_anew;

#define KNOWN_AT_ONCE 16
#define MAX_SKIPPED 8 /* frames of the last walk skipped at each new one */

static __always_inline struct gpuperf_walk_frame *frame_at(struct gpuperf_walk *walk, __u32 index)
{
	barrier_var(index);
	return &walk->frames[index & (GPUPERF_STACK_FRAMES - 1)];
}

static __always_inline _Bool is_same(const struct gpuperf_walk_frame *known, const struct unwind_frame *frame)
{
	return known->pc == frame->pc && known->sp == frame->sp && known->rule.kind != GPUPERF_UNWIND_UNKNOWN &&
	       !frame->is_exact;
}

/* The thread's list for the walk's space; NULL = there is none. */
static __always_inline struct gpuperf_known_rules *get_known_rules(const struct gpuperf_walk *walk)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct gpuperf_known_rules *known;

	if (rules_anew)
		return NULL;
	known = bpf_task_storage_get(&known_rules, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!known)
		known = get_of_thread(&known_rules_by_thread, &empty_known_rules, task->pid);
	if (known && known->space != walk->space) {
		known->space = walk->space;
		known->count = 0;
		known->next = 0;
		known->at = 0;
	}
	return known;
}

static __always_inline __u16 *place_of(struct gpuperf_known_rules *known, __u64 pc)
{
	__u32 index = (pc * 0x9e3779b97f4a7c15ull) >> 53;

	barrier_var(index);
	return &known->places[index & (GPUPERF_KNOWN_PLACES - 1)];
}

/* The rule of a return address; NULL = not known here. Tries the one after the last found first. */
static __always_inline const struct gpuperf_known_rule *find_known(struct gpuperf_known_rules *known, __u64 pc)
{
	__u32 at = known->at;

	barrier_var(at);
	if (at >= GPUPERF_KNOWN_RULES || at >= known->count || known->rules[at].pc != pc) {
		at = *place_of(known, pc);
		barrier_var(at);
		if (at >= GPUPERF_KNOWN_RULES || at >= known->count || known->rules[at].pc != pc)
			return NULL;
	}
	known->at = at + 1;
	return &known->rules[at];
}

/* Adds a rule after the one added last, over the oldest. A separate function for the verifier. */
__attribute__((noinline)) int add_known(struct gpuperf_walk *walk, __u64 pc, __u64 rule)
{
	struct gpuperf_known_rules *known;
	__u32 at;

	if (!walk)
		return 0;
	known = get_known_rules(walk);
	if (!known)
		return 0;
	at = known->next;
	barrier_var(at);
	if (at >= GPUPERF_KNOWN_RULES)
		at = 0;
	known->rules[at].pc = pc;
	__builtin_memcpy(&known->rules[at].rule, &rule, sizeof(rule));
	*place_of(known, pc) = at;
	known->next = at + 1;
	known->at = at + 1;
	if (known->count <= at)
		known->count = at + 1;
	return 0;
}

/* Where the caller's frame begins, for a rule by sp or bp; 0 = another kind of rule, or it leads nowhere. */
static __always_inline __u64 find_plain_cfa(const struct gpuperf_unwind_rule *rule, __u64 sp, __u64 bp)
{
	__u64 cfa = (rule->kind == GPUPERF_UNWIND_SP ? sp : bp) + (__s64)rule->cfa_offset_bytes;

	if (rule->kind > GPUPERF_UNWIND_BP || rule->bp_at != GPUPERF_UNWIND_BP_AT_CFA || cfa <= sp)
		return 0;
	return cfa;
}

/* Reads the return address and bp saved by a frame with such a rule; 1 = not both on one readable page. */
static __always_inline int read_plain(struct gpuperf_walk *walk, const struct gpuperf_unwind_rule *rule, __u64 cfa,
				      __u64 *pc, __u64 *bp)
{
	__u64 address = cfa - 8, offset = address & (GPUPERF_WALK_PAGE_BYTES - 1);

	if (address - offset != walk->page_address && load_page(walk, address))
		return 1;
	barrier_var(offset);
	if (offset > GPUPERF_WALK_PAGE_BYTES - 8)
		return 1;
	*pc = *(__u64 *)(walk->page + offset);
	if (!rule->bp_offset_bytes)
		return 0;
	offset += 8 + (__s64)rule->bp_offset_bytes;
	barrier_var(offset);
	if (offset > GPUPERF_WALK_PAGE_BYTES - 8)
		return 1;
	*bp = *(__u64 *)(walk->page + offset);
	return 0;
}

/* Skips the last walk's frames further in than `frame`, and checks whether it had that one too. */
static __always_inline void pass_old(struct gpuperf_walk *walk, const struct unwind_frame *frame)
{
	__u32 old = walk->old;

	for (__u32 i = 0; i < MAX_SKIPPED; i++) {
		if (old >= GPUPERF_STACK_FRAMES || frame_at(walk, old)->sp >= frame->sp)
			break;
		old++;
	}
	walk->old = old;
	if (old < GPUPERF_STACK_FRAMES && is_same(frame_at(walk, old), frame))
		walk->first_same = old;
}

/* Like walk_new_frame(), for a frame with a plain rule known here; 0 = not such a frame. A separate function for the
 * verifier. */
__attribute__((noinline)) int walk_known_frame(struct gpuperf_walk *walk, struct gpuperf_known_rules *known)
{
	const struct gpuperf_known_rule *found;
	struct gpuperf_walk_frame *new;
	struct unwind_frame frame = {};
	__u64 cfa, sp;
	__u32 index;

	if (!walk || !known)
		return 0;
	sp = walk->frame.sp;
	index = walk->new_count;
	frame.bp = walk->frame.bp;
	found = find_known(known, walk->frame.pc);
	if (!found || index >= GPUPERF_STACK_FRAMES)
		return 0;
	cfa = find_plain_cfa(&found->rule, sp, frame.bp);
	if (!cfa || read_plain(walk, &found->rule, cfa, &frame.pc, &frame.bp) || !frame.pc ||
	    frame.pc == walk->trampoline)
		return 0;
	frame.sp = cfa;
	new = frame_at(walk, index);
	new->pc = walk->frame.pc;
	new->sp = sp;
	new->rule = found->rule;
	walk->new_count = index + 1;
	if (walk->old <= index)
		walk->old = GPUPERF_STACK_FRAMES; /* no room for both */
	walk->frame = frame;
	pass_old(walk, &frame);
	return 1;
}

/* Walks as many of those as follow each other, up to one that the last walk had. Returns how many. A separate
 * function for the verifier. */
__attribute__((noinline)) __u32 walk_known(struct gpuperf_walk *walk)
{
	struct gpuperf_known_rules *known;
	__u32 count = 0;

	if (!walk || walk->frame.is_exact)
		return 0;
	known = get_known_rules(walk);
	if (!known)
		return 0;
	for (; count < KNOWN_AT_ONCE; count++) {
		if (walk->first_same < GPUPERF_STACK_FRAMES || !walk_known_frame(walk, known))
			break;
	}
	return count;
}
