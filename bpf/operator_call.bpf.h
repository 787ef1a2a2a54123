/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* Operators of llama.cpp and others on ggml's CPU backend: which ones run, and which experts their tokens go to. */
#pragma once

#include "bpf/emit.bpf.h"

struct operator_entry {
	__u64 params; /* struct ggml_compute_params: begins with the thread's number and how many there are */
	__u64 tensor;
	__u32 function_id;
	__u32 layout; /* 1 + index of the tensor's layout; 0 = not known, then nothing is read */
};

/* At the entry of a GPUPERF_FN_OPERATOR function. */
int report_operator(const struct operator_entry *entry);
