// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
/*
 * What stack_cost compares: ways to take the stack of user space, each at the entry of a function. Linked with
 * stack.bpf.c, which has ours.
 */
#include "bpf/stack.bpf.h"

#include "tests/bench/stack_taken.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64[BENCH_STACK_FRAMES]);
} bench_frames SEC(".maps");

/* What a program took last. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bench_taken);
} bench_taken SEC(".maps");

/* 16 MiB: 255 of the largest copies between two drains. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 24);
} bench_copies SEC(".maps");

static __always_inline struct bench_taken *get_taken(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&bench_taken, &key);
}

/* The floor: what the probe costs without a stack. */
SEC("uprobe")
int take_nothing(struct pt_regs *ctx)
{
	return 0;
}

SEC("uprobe")
int take_frame_pointers(struct pt_regs *ctx)
{
	__u32 key = 0;
	__u64 *frames = bpf_map_lookup_elem(&bench_frames, &key);
	struct bench_taken *taken = get_taken();

	if (frames && taken)
		taken->frame_pointer_bytes = bpf_get_stack(ctx, frames, BENCH_STACK_FRAMES * sizeof(*frames),
							   BPF_F_USER_STACK);
	return 0;
}

SEC("uprobe")
int take_ours(struct pt_regs *ctx)
{
	struct bench_taken *taken = get_taken();
	__u64 id = take_entry_stack(PT_REGS_SP(ctx), PT_REGS_FP(ctx));

	if (taken)
		taken->own_id = id;
	return 0;
}

/* Every stack as if it were the first of its kind. */
SEC("uprobe")
int take_ours_new(struct pt_regs *ctx)
{
	__u64 id = take_entry_stack(PT_REGS_SP(ctx), PT_REGS_FP(ctx));

	bpf_map_delete_elem(&sent_stacks, &id);
	return 0;
}

#define TAKE_COPY(KIB)                                                                             \
	SEC("uprobe")                                                                              \
	int take_copy_##KIB(struct pt_regs *ctx)                                                   \
	{                                                                                          \
		struct bench_copy *copy =                                                          \
			bpf_ringbuf_reserve(&bench_copies, sizeof(*copy) + KIB * 1024, 0);         \
                                                                                                   \
		if (!copy)                                                                         \
			return 0;                                                                  \
		copy->pc = PT_REGS_IP(ctx);                                                        \
		copy->sp = PT_REGS_SP(ctx);                                                        \
		copy->bp = PT_REGS_FP(ctx);                                                        \
		copy->is_read = !bpf_probe_read_user(copy + 1, KIB * 1024, (void *)copy->sp);   \
		bpf_ringbuf_submit(copy, BPF_RB_NO_WAKEUP);                                        \
		return 0;                                                                          \
	}

TAKE_COPY(8)
TAKE_COPY(16)
TAKE_COPY(32)
TAKE_COPY(64)

char LICENSE[] SEC("license") = "Dual BSD/GPL";
