#!/usr/bin/env python3
"""A fixed piece of GPU work in PyTorch: eager decoding by a small transformer, one token at a time.

The same kernels run every time: fixed seed, fixed shapes, no graphs, no autotuning. With --profile
the kernels are counted by torch.profiler, else they just run, with files to keep step with a watcher.

  --tokens N           tokens decoded in the measured part (default 96: about 20,000 kernels)
  --profile SPAN       window: count the kernels of the measured part; whole: of the process
  --ready-file F       written (with the pid) after the warm-up, before the measured part
  --go-file F          the measured part waits for it
  --done-file F        written after the measured part
  --end-file F         the process ends once it exists

Prints one JSON object: pid, tokens, seconds, and with --profile kernels, memcpys, memsets, names.
"""

import argparse
import collections
import contextlib
import json
import os
import tempfile
import time

import torch

from torch_steps import add_step_files, reach, wait_for

LAYERS = 10
WIDTH = 1024
HEADS = 16
VOCABULARY = 8192
WARM_UP_TOKENS = 4


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = torch.nn.RMSNorm(WIDTH)
        self.norm2 = torch.nn.RMSNorm(WIDTH)
        self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.out = torch.nn.Linear(WIDTH, WIDTH)
        self.up = torch.nn.Linear(WIDTH, 4 * WIDTH)
        self.down = torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, keys, values, position):
        q, k, v = self.qkv(self.norm1(x)).view(3, HEADS, 1, WIDTH // HEADS)
        keys[:, position] = k[:, 0]
        values[:, position] = v[:, 0]
        scores = (q @ keys[:, :position + 1].transpose(1, 2)) / (WIDTH // HEADS) ** 0.5
        mixed = torch.softmax(scores.float(), dim=-1).to(v.dtype) @ values[:, :position + 1]
        x = x + self.out(mixed.reshape(1, WIDTH))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))


class Decoder:
    def __init__(self, positions):
        torch.manual_seed(1)
        options = {"device": "cuda", "dtype": torch.bfloat16}
        self.embedding = torch.nn.Embedding(VOCABULARY, WIDTH).to(**options)
        self.blocks = [Block().to(**options) for _ in range(LAYERS)]
        self.head = torch.nn.Linear(WIDTH, VOCABULARY, bias=False).to(**options)
        shape = (LAYERS, HEADS, positions, WIDTH // HEADS)
        self.keys = torch.zeros(shape, **options)
        self.values = torch.zeros(shape, **options)
        self.token = torch.zeros(1, dtype=torch.long, device="cuda")

    @torch.no_grad()
    def decode(self, tokens):
        for position in range(tokens):
            x = self.embedding(self.token)
            for layer, block in enumerate(self.blocks):
                x = block(x, self.keys[layer], self.values[layer], position)
            self.token = self.head(x).argmax(dim=-1)
        torch.cuda.synchronize()


def count_events(profile):
    """Kernels, copies and sets of a finished torch.profiler profile, from its own trace."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        profile.export_chrome_trace(path)
        with open(path, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
    categories = collections.Counter(event.get("cat") for event in events)
    names = collections.Counter(e["name"] for e in events if e.get("cat") == "kernel")
    return {"kernels": categories["kernel"], "memcpys": categories["gpu_memcpy"],
            "memsets": categories["gpu_memset"], "names": dict(names.most_common(20))}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--profile", choices=["window", "whole"])
    add_step_files(parser, "ready", "go", "done", "end")
    options = parser.parse_args()

    def profiled(span):
        if options.profile != span:
            return contextlib.nullcontext()
        return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])

    with profiled("whole") as whole:
        decoder = Decoder(max(options.tokens, WARM_UP_TOKENS))
        # Once over the same positions, so that every shape of the measured part has been seen:
        # libraries load kernels and choose algorithms on first use.
        decoder.decode(WARM_UP_TOKENS)
        decoder.decode(options.tokens)
        reach(options.ready_file, str(os.getpid()))
        wait_for(options.go_file)
        with profiled("window") as window:
            start = time.monotonic()
            decoder.decode(options.tokens)
            seconds = time.monotonic() - start
        reach(options.done_file, "done")

    result = {"pid": os.getpid(), "tokens": options.tokens, "seconds": round(seconds, 4)}
    if options.profile:
        result |= count_events(whole or window)
    print(json.dumps(result), flush=True)
    wait_for(options.end_file)


if __name__ == "__main__":
    main()
