#!/usr/bin/env python3
"""Four calls of a PyTorch program that are slow for a known reason, each planted once.

  --ready-file F     written (with the pid) after the warm-up
  --go-file F        the causes are planted once it exists
  --end-file F       the process ends once it exists
  --stall-library F  a library with stage_batch(milliseconds), which waits on the host

Prints one JSON object: what was planted.
"""

import argparse
import ctypes
import json
import os

import torch

from torch_steps import add_step_files, reach, wait_for


def stall_on_the_host(library):
    ctypes.CDLL(library).stage_batch(ctypes.c_ulong(50))


def copy_pageable(host):
    return host.to("cuda")


def allocate_under_pressure():
    """Leaves the GPU almost full of cached blocks, then asks for more than is free in one piece."""
    free_bytes, _ = torch.cuda.mem_get_info()
    blocks = [torch.empty(free_bytes // 64, dtype=torch.uint8, device="cuda") for _ in range(60)]
    del blocks[::2]
    large = torch.empty(free_bytes // 4, dtype=torch.uint8, device="cuda")
    bytes_asked = large.numel()
    del blocks, large
    torch.cuda.empty_cache()
    return bytes_asked


def wait_for_a_long_kernel():
    torch.cuda._sleep(400_000_000)
    torch.cuda.synchronize()


def main():
    parser = argparse.ArgumentParser()
    add_step_files(parser, "ready", "go", "end")
    parser.add_argument("--stall-library", required=True)
    options = parser.parse_args()
    host = torch.ones(1 << 30, dtype=torch.uint8)
    warm = torch.ones(1024, 1024, device="cuda")
    (warm @ warm).sum().item()
    ctypes.CDLL(options.stall_library)
    reach(options.ready_file, str(os.getpid()))
    wait_for(options.go_file)

    stall_on_the_host(options.stall_library)
    copied = copy_pageable(host)
    torch.cuda.synchronize()
    del copied
    asked = allocate_under_pressure()
    wait_for_a_long_kernel()
    print(json.dumps({"pid": os.getpid(), "copied_bytes": host.numel(), "asked_bytes": asked}),
          flush=True)
    wait_for(options.end_file)


if __name__ == "__main__":
    main()
