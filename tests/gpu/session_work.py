#!/usr/bin/env python3
"""Fixed GPU work in PyTorch, whose records are known from a run of its own under torch.profiler.

usage: session_work.py WORK [--size N] [--small] [--profile] [--rates IN OUT [--profiler]]

  eager      decoding by a small transformer, one token at a time: nothing but small kernels
  train      steps of training with Adam
  pretrain   steps of a large transformer's training, which keep a GPU busy
  graph      replays of a CUDA graph of 2,000 short kernels, and of one decoded token
  streams    four streams with kernels, copies and sets of every direction, pageable and pinned
  profiles   torch.profiler nine times, plain and with schedule() and record_shapes, work in between

  --size N   how much: tokens, steps, replays, rounds
  --small    so little that a recording of it is some 100 KB
  --profile  counts by torch.profiler, over the whole process; graphs as their launches, their kernels apart
  --rates    decodes ("decode") or replays ("graph") by the lines read from the pipe IN, rates to OUT;
             with --profiler inside of torch.profiler, CUDA only

The same kernels run every time: fixed seed, fixed shapes. The last line is one JSON object.
"""

import argparse
import collections
import contextlib
import ctypes
import json
import os
import tempfile
import time
import warnings

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from torch_kernels import Decoder

GRAPH_NODES = 2_000
SIZES = {"eager": (96, 3), "train": (40, 2), "pretrain": (20, 6), "graph": (40, 4), "streams": (40, 4), "profiles": (1, 1)}
RATE_TOKENS, RATE_REPLAYS = 192, 40
DIRECTIONS = {"HtoD": "host_to_device", "DtoH": "device_to_host", "DtoD": "device_to_device",
              "PtoP": "peer_to_peer", "HtoH": "host_to_host"}


def work_eager(size, small):
    decoder = Decoder(max(size, 4))
    if not small:
        decoder.decode(4)
    decoder.decode(size)


def work_train(size, small):
    width = 256 if small else 2048
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(width, 2 * width), torch.nn.GELU(), torch.nn.LayerNorm(2 * width),
        torch.nn.Linear(2 * width, width), torch.nn.GELU(), torch.nn.Linear(width, 100)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    data = torch.randn(512, width, device="cuda")
    labels = torch.arange(512, device="cuda") % 100
    for _ in range(size):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(data), labels).backward()
        optimizer.step()
    torch.cuda.synchronize()


class Layer(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.RMSNorm(width), torch.nn.RMSNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        batch, tokens, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = torch.nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))


def work_pretrain(size, _small, layers=6, width=4096, vocabulary=32_000, shape=(4, 2048)):
    torch.manual_seed(1)
    with torch.device("cuda"):
        model = torch.nn.Sequential(torch.nn.Embedding(vocabulary, width), *(Layer(width, width // 128) for _ in range(layers)),
                                    torch.nn.Linear(width, vocabulary)).bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    for step in range(size):
        tokens = torch.arange(step, step + shape[0] * shape[1]).view(shape).remainder(vocabulary).pin_memory()
        tokens = tokens.to("cuda", non_blocking=True)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        loss.item()


def make_chain_graph(nodes):
    """A graph of so many kernels, one after the other."""
    data = torch.ones(64, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(nodes):
            data.add_(1)
    return graph


def make_decode_graph():
    """One decoded token, the fourth, as a graph."""
    decoder = Decoder(8)
    decoder.decode(4)

    @torch.no_grad()
    def step():
        x = decoder.embedding(decoder.token)
        for layer, block in enumerate(decoder.blocks):
            x = block(x, decoder.keys[layer], decoder.values[layer], 3)
        return decoder.head(x).argmax(dim=-1)

    side = torch.cuda.Stream()  # libraries make themselves ready, outside of the capture
    with torch.cuda.stream(side):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def work_graph(size, small):
    chain = make_chain_graph(200 if small else GRAPH_NODES)
    decode = None if small else make_decode_graph()
    for _ in range(size):
        chain.replay()
        if decode is not None:
            decode.replay()
    torch.cuda.synchronize()


def work_streams(size, _small):
    runtime = ctypes.CDLL(f"libcudart.so.{torch.version.cuda.split('.', maxsplit=1)[0]}")
    mib = 1 << 20
    streams = [torch.cuda.Stream() for _ in range(4)]
    pageable = torch.ones(mib, dtype=torch.uint8)
    pinned = torch.ones(3 * mib, dtype=torch.uint8).pin_memory()
    device = [torch.zeros(4 * mib, dtype=torch.uint8, device="cuda") for _ in streams]
    other = [torch.zeros(4 * mib, dtype=torch.uint8, device="cuda") for _ in streams]
    torch.cuda.synchronize()
    for _ in range(size):
        for stream, mine, beside in zip(streams, device, other):
            with torch.cuda.stream(stream):
                mine[:mib].copy_(pageable)                            # pageable to device
                mine[:3 * mib].copy_(pinned, non_blocking=True)       # pinned to device
                mine.add_(1)
                beside.copy_(mine)                                    # device to device
                pinned[:2 * mib].copy_(beside[:2 * mib], non_blocking=True)  # device to pinned
                pageable[:mib // 2].copy_(beside[:mib // 2])          # device to pageable
                if runtime.cudaMemsetAsync(ctypes.c_void_p(beside.data_ptr()), 0,
                                           ctypes.c_size_t(mib), ctypes.c_void_p(stream.cuda_stream)):
                    raise RuntimeError("cudaMemsetAsync failed")
                event = torch.cuda.Event()
                event.record(stream)
                event.synchronize()
    torch.cuda.synchronize()


def count_gpu_events(profiled):
    """Numbers of kernels, copies and sets of a finished profile."""
    counts = collections.Counter()
    for event in read_trace(profiled):
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            counts[f"{event['cat']} {event['name']}"] += 1
    return dict(sorted(counts.items()))


def work_profiles(_size, _small):
    """What each profile saw, in order."""
    data = torch.ones(64, 64, device="cuda")
    host = torch.ones(1 << 16).pin_memory()
    chain = make_chain_graph(100)
    seen = []

    def run(count):
        for _ in range(count):
            data.add_(1)
        for _ in range(5):
            host.to("cuda", non_blocking=True)
        chain.replay()
        torch.cuda.synchronize()

    run(1000)
    time.sleep(0.5)
    cases = [{"activities": [ProfilerActivity.CUDA]},
             {"activities": [ProfilerActivity.CUDA, ProfilerActivity.CPU]},
             {"activities": [ProfilerActivity.CUDA, ProfilerActivity.CPU], "record_shapes": True}]
    for options in cases:
        for _ in range(3):
            with profile(**options) as profiled:
                run(2000)
            seen.append(count_gpu_events(profiled))
    for _ in range(3):
        steps = []
        with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU],
                     schedule=schedule(wait=1, warmup=1, active=2, repeat=2),
                     on_trace_ready=lambda ready: steps.append(count_gpu_events(ready))) as profiled:
            for _ in range(8):
                run(500)
                profiled.step()
        seen.append(steps)
    for _ in range(3):  # the other client is gone for longer than it takes to be taken up again
        time.sleep(3)
        for _ in range(1000):  # no graph: those made meanwhile cannot be covered
            data.add_(1)
        torch.cuda.synchronize()
    time.sleep(0.5)
    return {"profiles": seen}


def read_trace(profiled):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        profiled.export_chrome_trace(path)
        with open(path, encoding="utf-8") as file:
            return json.load(file)["traceEvents"]


def sum_trace(events):
    """Totals of a torch.profiler trace, in the form of session_receiver.Totals."""
    tables = {name: collections.defaultdict(lambda: [0, 0])
              for name in ("kernels", "nodes", "copies", "sets")}
    calls = collections.Counter()
    of_graphs = set()
    for event in events:
        if event.get("cat") in ("cuda_runtime", "cuda_driver"):
            calls[event["name"]] += 1
            if "GraphLaunch" in event["name"]:
                of_graphs.add(event["args"].get("correlation"))
    for event in events:
        category, arguments = event.get("cat"), event.get("args", {})
        in_graph = arguments.get("correlation") in of_graphs
        amount, key = arguments.get("bytes", 0), event.get("name")
        if category == "kernel":
            table, amount = "nodes" if in_graph else "kernels", round(event["dur"] * 1000)
        elif in_graph:
            continue
        elif category == "gpu_memcpy":  # "Memcpy HtoD (Pinned -> Device)"
            table, words = "copies", key.replace("(", " ").replace(")", " ").replace("->", " ")
            _, direction, *memories = words.split()
            key = " ".join([DIRECTIONS.get(direction, direction), *map(str.lower, memories)])
        elif category == "gpu_memset":  # "Memset (Device)"
            table, key = "sets", key[key.index("(") + 1:-1].lower()
        else:
            continue
        entry = tables[table][key]
        entry[0] += 1
        entry[1] += amount
    syncs = {kind: sum(count for name, count in calls.items() if name.startswith(f"cuda{word}Synchronize"))
             for kind, word in (("event", "Event"), ("stream", "Stream"), ("context", "Device"))}
    return {**tables, "syncs": syncs,
            "graph_launches": sum(count for name, count in calls.items() if "GraphLaunch" in name)}


def serve_rates(pipe_in, pipe_out, is_profiled):
    """Does what each line asks for and answers with its rate; profiled: all but the counting is outside."""
    decoder, graph = Decoder(RATE_TOKENS), make_chain_graph(GRAPH_NODES)

    def replay(count):
        for _ in range(count):
            graph.replay()
        torch.cuda.synchronize()

    programs = {"decode": (decoder.decode, RATE_TOKENS), "graph": (replay, RATE_REPLAYS)}
    for run, count in programs.values():
        run(count)
    with open(pipe_in, encoding="utf-8") as orders, open(pipe_out, "w", encoding="utf-8") as answers:
        print("ready", file=answers, flush=True)
        for order in orders:
            run, count = programs[order.strip()]
            with profile(activities=[ProfilerActivity.CUDA]) if is_profiled else contextlib.nullcontext():
                run(count // 8)
                start = time.monotonic()
                run(count)
                seconds = time.monotonic() - start
            print(count / seconds, file=answers, flush=True)


def is_injected():
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return "libgpuperf_injector" in maps.read()


def main():
    works = {name[5:]: work for name, work in globals().items() if name.startswith("work_")}
    parser = argparse.ArgumentParser()
    parser.add_argument("work", choices=[*works, "rates"])
    parser.add_argument("--size", type=int)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--profiler", action="store_true")
    parser.add_argument("--rates", nargs=2)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    if options.work == "rates":
        serve_rates(*options.rates, options.profiler)
        return
    size = options.size or SIZES[options.work][options.small]
    start = time.monotonic()
    with profile(activities=[ProfilerActivity.CUDA]) if options.profile \
            else contextlib.nullcontext() as profiled:
        more = works[options.work](size, options.small)
        torch.cuda.synchronize()
    result = {"pid": os.getpid(), "work": options.work, "size": size,
              "seconds": round(time.monotonic() - start, 3), "injected": is_injected(), **(more or {})}
    if options.profile:
        result |= sum_trace(read_trace(profiled))
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
