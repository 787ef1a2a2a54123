#!/usr/bin/env python3
"""PyTorch work that goes through cuBLAS, cuBLASLt, cuDNN and NCCL: one table shows them all.

usage: torch_libraries.py [--rounds N] [--ready-file F] [--go-file F] [--end-file F]

Libraries are loaded and used once before the ready file is written. Prints one JSON object: pid,
rounds, and how many all-reduces were asked for after the go file came.
"""

import argparse
import json
import os

import torch
import torch.distributed as distributed

from torch_steps import add_step_files, reach, start_one_rank, wait_for


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=100)
    add_step_files(parser, "ready", "go", "end")
    options = parser.parse_args()

    torch.manual_seed(1)
    start_one_rank()
    single = torch.randn(512, 512, device="cuda")
    half = torch.randn(8, 256, 256, device="cuda", dtype=torch.bfloat16)
    linear = torch.nn.Linear(512, 512).to("cuda", torch.bfloat16)
    images = torch.randn(8, 16, 64, 64, device="cuda")
    convolution = torch.nn.Conv2d(16, 32, 3, padding=1).to("cuda")
    reduces = 0

    def run_round():
        nonlocal reduces
        with torch.no_grad():
            torch.mm(single, single)                       # cublasSgemm
            torch.bmm(half, half)                          # cublasGemmStridedBatchedEx
            linear(half.reshape(-1, 512))                  # cublasLtMatmul: bias in its epilogue
            convolution(images)                            # cuDNN
            distributed.all_reduce(single)                 # NCCL
            single.mul_(1e-3)
        reduces += 1

    run_round()
    torch.cuda.synchronize()
    reach(options.ready_file, str(os.getpid()))
    wait_for(options.go_file)
    before = reduces
    for _ in range(options.rounds):
        run_round()
    torch.cuda.synchronize()
    print(json.dumps({"pid": os.getpid(), "rounds": options.rounds,
                      "all_reduces_after_go": reduces - before}), flush=True)
    wait_for(options.end_file)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
