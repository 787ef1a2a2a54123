#!/usr/bin/env python3
"""PyTorch work whose copies, matrix products and reductions are known to the byte.

usage: torch_truth.py [--rounds N] [--ready-file F] [--go-file F] [--end-file F]

Prints one JSON object: pid, and the truth of what was done after the go file came: bytes copied by direction,
floating-point operations by shape, bytes reduced, and calls of aten::linear that returned and that threw.
"""

import argparse
import json
import os

import torch
import torch.distributed as distributed

from torch_steps import add_step_files, reach, start_one_rank, wait_for

MIB = 1 << 20


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    add_step_files(parser, "ready", "go", "end")
    options = parser.parse_args()

    start_one_rank()
    pinned = torch.empty(3 * MIB, dtype=torch.uint8).pin_memory()
    pageable = torch.empty(5 * MIB, dtype=torch.uint8)
    device_a = torch.empty(8 * MIB, dtype=torch.uint8, device="cuda")
    device_b = torch.empty(8 * MIB, dtype=torch.uint8, device="cuda")
    # Rows, columns and inner length all differ, so that a mix-up cannot pass.
    left = torch.randn(384, 640, device="cuda", dtype=torch.bfloat16)
    right = torch.randn(640, 256, device="cuda", dtype=torch.bfloat16)
    batch_left = torch.randn(6, 96, 160, device="cuda", dtype=torch.bfloat16)
    batch_right = torch.randn(6, 160, 224, device="cuda", dtype=torch.bfloat16)
    linear = torch.nn.Linear(640, 1152).to("cuda", torch.bfloat16)  # with bias
    reduced = torch.randn(12345, device="cuda")
    wrong = torch.randn(3, 7, device="cuda", dtype=torch.bfloat16)
    threw = 0

    def run_round():
        nonlocal threw
        device_a[:3 * MIB].copy_(pinned, non_blocking=True)
        device_a[:5 * MIB].copy_(pageable)
        pinned.copy_(device_b[:3 * MIB], non_blocking=True)
        device_b.copy_(device_a)
        with torch.no_grad():
            torch.mm(left, right)
            torch.bmm(batch_left, batch_right)
            linear(left)
            try:
                linear(wrong)
            except RuntimeError:
                threw += 1
            distributed.all_reduce(reduced)

    run_round()
    torch.cuda.synchronize()
    reach(options.ready_file, str(os.getpid()))
    wait_for(options.go_file)
    threw = 0
    rounds = options.rounds
    for _ in range(rounds):
        run_round()
    torch.cuda.synchronize()
    shapes = [(384, 256, 640, 1), (96, 224, 160, 6), (384, 1152, 640, 1)]
    print(json.dumps({
        "pid": os.getpid(), "rounds": rounds,
        "bytes": {"host_to_device": rounds * 8 * MIB, "device_to_host": rounds * 3 * MIB,
                  "device_to_device": rounds * 8 * MIB},
        "shapes": shapes,
        "flops": rounds * sum(2 * m * n * k * batch for m, n, k, batch in shapes),
        "all_reduce_bytes": rounds * 12345 * 4,
        "linear_returned": rounds, "linear_threw": threw}), flush=True)
    wait_for(options.end_file)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
