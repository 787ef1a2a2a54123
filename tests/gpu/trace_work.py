#!/usr/bin/env python3
"""GPU work in PyTorch whose call paths are planted: every launch of the measured part is made through a
Python function whose name the truth of that launch tells (launch_truth.h, loaded where LAUNCH_TRUTH names it).

usage: trace_work.py serve PARTS [options] IN OUT    by lines of the pipe IN, answers go to OUT
       trace_work.py run PARTS [options]             each part once, as much as --count says

PARTS, by commas:
  eager     decoding by a model of the shape of Qwen3-0.6B, one token at a time: about 1,770 launches a token
  triton    two kernels of Triton, compiled before
  lt        matrix products with a bias by cuBLASLt
  graph     replays of two CUDA graphs, captured before
  gpus      the first two GPUs in turns, with copies between them
  layers    four functions of one matrix product each; --slow NAME makes one of them three
  train     steps of a small model: forward, backward, optimizer
  compiled  a function by torch.compile
  ddp       train by DistributedDataParallel over NCCL; RANK, WORLD_SIZE and so on say which of the processes this is

Orders: "PART COUNT [FILE]" does it and writes the truth to FILE; the answer is one JSON object with the times
of its begin and end and what each marker means. "rate COUNT" decodes and answers with tokens per second.
"each PART SECONDS [COUNT]" does it again and again for so long and answers with the begin and the length in ns of each, or
of so many together.
"switch COUNT NOTES" decodes so many tokens with the launch hooks' NOTES on and as many with them off, in pairs,
and answers with the seconds of each.

  --small          a model of four layers
  --profiler KIND  "rate" runs inside of torch.profiler: cuda, both (and CPU) or stack (both, with_stack)
  --count N        of run (default 8)
  --device NAME    cpu: the parts eager and layers, for a look at this program where there is no GPU

The weights are random, the same every time. `run` prints one JSON object.
"""

import argparse
import contextlib
import ctypes
import gc
import json
import os
import time

import torch
from hook_switch import HookSwitch
from torch.profiler import ProfilerActivity, profile

DEVICE = "cuda"
POSITIONS = 256  # of the cache; behind them it begins anew
WARM_UP_TOKENS = 64


class Shape:
    def __init__(self, small):
        self.hidden, self.heads, self.groups, self.head = 1024, 16, 8, 128
        self.inner = 3072
        self.layers, self.vocabulary = (4, 8192) if small else (28, 151936)


class Truth:
    """The library of that name in this process; without it, nothing."""

    def __init__(self):
        path = os.environ.get("LAUNCH_TRUTH")
        self.library = None
        self.mark = lambda marker: None
        if not path:
            return
        self.library = ctypes.CDLL(path)
        self.library.truth_start.restype = ctypes.c_char_p
        self.library.truth_dump.restype = ctypes.c_long
        self.library.truth_dump.argtypes = [ctypes.c_char_p, ctypes.c_uint64]
        self.library.truth_mark.argtypes = [ctypes.c_int]
        self.library.truth_mark.restype = None
        error = self.library.truth_start(b"libcupti.so.13")
        if error:
            raise SystemExit(f"trace_work.py: launch truth: {error.decode()}")
        self.mark = self.library.truth_mark

    def dump(self, path, start_mono_ns):
        if self.library is None or not path:
            return 0
        return self.library.truth_dump(path.encode(), start_mono_ns)


def synchronize():
    if DEVICE == "cuda":
        for number in range(torch.cuda.device_count()):
            torch.cuda.synchronize(number)


def rename(function, name):
    """The same function under another name, in stacks too."""
    names = {"co_name": name}
    if hasattr(function.__code__, "co_qualname"):
        names["co_qualname"] = name
    function.__code__ = function.__code__.replace(**names)
    function.__name__ = name
    return function


class Norm(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))

    def forward(self, x):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


def turn(x, cosine, sine):
    """Rotary embedding of one position."""
    half = x.shape[-1] // 2
    return x * cosine + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sine


class Attention(torch.nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.query = torch.nn.Linear(shape.hidden, shape.heads * shape.head, bias=False)
        self.key = torch.nn.Linear(shape.hidden, shape.groups * shape.head, bias=False)
        self.value = torch.nn.Linear(shape.hidden, shape.groups * shape.head, bias=False)
        self.out = torch.nn.Linear(shape.heads * shape.head, shape.hidden, bias=False)
        self.norm, self.query_norm, self.key_norm = Norm(shape.hidden), Norm(shape.head), Norm(shape.head)
        cache = (shape.groups, POSITIONS, shape.head)
        self.register_buffer("keys", torch.zeros(cache))
        self.register_buffer("values", torch.zeros(cache))

    def forward(self, x, position, cosine, sine):
        shape = self.shape
        x = self.norm(x)
        query = turn(self.query_norm(self.query(x).view(shape.heads, 1, shape.head)), cosine, sine)
        key = turn(self.key_norm(self.key(x).view(shape.groups, 1, shape.head)), cosine, sine)
        self.keys[:, position] = key[:, 0]
        self.values[:, position] = self.value(x).view(shape.groups, shape.head)
        share = shape.heads // shape.groups
        keys = self.keys[:, :position + 1].repeat_interleave(share, dim=0)
        values = self.values[:, :position + 1].repeat_interleave(share, dim=0)
        scores = (query @ keys.transpose(1, 2)) * shape.head ** -0.5
        mixed = torch.softmax(scores.float(), dim=-1).to(values.dtype) @ values
        return self.out(mixed.reshape(1, shape.heads * shape.head))


class Mlp(torch.nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.norm = Norm(shape.hidden)
        self.gate = torch.nn.Linear(shape.hidden, shape.inner, bias=False)
        self.up = torch.nn.Linear(shape.hidden, shape.inner, bias=False)
        self.down = torch.nn.Linear(shape.inner, shape.hidden, bias=False)

    def forward(self, x):
        x = self.norm(x)
        return self.down(torch.nn.functional.silu(self.gate(x)) * self.up(x))


def make_layer(number, shape, options, mark):
    """One layer of the model: a function of the name layer_NN, its markers beside it."""
    attention, mlp = Attention(shape).to(**options), Mlp(shape).to(**options)
    name, first = f"layer_{number:02}", 3 * number + 1

    def layer(x, position, cosine, sine):
        mark(first)
        y = attention(x, position, cosine, sine)
        mark(first + 2)
        x = x + y
        mark(first + 1)
        y = mlp(x)
        mark(first + 2)
        return x + y

    markers = {first: [name, "Attention.forward"], first + 1: [name, "Mlp.forward"], first + 2: [name]}
    return rename(layer, name), markers


class Eager:
    def __init__(self, truth, options):
        torch.manual_seed(1)
        shape = Shape(options.small)
        kind = {"device": DEVICE, "dtype": torch.bfloat16}
        self.mark, self.markers, self.layers = truth.mark, {}, []
        self.embedding = torch.nn.Embedding(shape.vocabulary, shape.hidden).to(**kind)
        for number in range(shape.layers):
            layer, markers = make_layer(number, shape, kind, self.mark)
            self.layers.append(layer)
            self.markers |= markers
        self.head_marker = max(self.markers) + 1
        self.markers |= {self.head_marker: ["embed_token"], self.head_marker + 1: ["choose_token"]}
        self.norm = Norm(shape.hidden).to(**kind)
        self.head = torch.nn.Linear(shape.hidden, shape.vocabulary, bias=False).to(**kind)
        angles = torch.arange(POSITIONS)[:, None] / 1e6 ** (torch.arange(0, shape.head, 2) / shape.head)
        angles = torch.cat((angles, angles), dim=-1)
        self.cosine, self.sine = angles.cos().to(**kind), angles.sin().to(**kind)
        self.token = torch.zeros(1, dtype=torch.long, device=DEVICE)
        self.position = 0

    def embed_token(self):
        self.mark(self.head_marker)
        return self.embedding(self.token)

    def choose_token(self, x):
        self.mark(self.head_marker + 1)
        self.token = self.head(self.norm(x)).argmax(dim=-1)

    @torch.no_grad()
    def run(self, count):
        """So many tokens, from the first position on: the same work every time."""
        self.position = 0
        for _ in range(count):
            x = self.embed_token()
            cosine, sine = self.cosine[self.position], self.sine[self.position]
            for layer in self.layers:
                x = layer(x, self.position, cosine, sine)
            self.choose_token(x)
            self.position = (self.position + 1) % POSITIONS

    def warm_up(self):
        """The positions that will come: libraries load kernels by shape, on first use."""
        self.run(WARM_UP_TOKENS)


class Triton:
    markers = {501: ["launch_triton_sum"], 502: ["launch_triton_product"]}

    def __init__(self, truth, _options):
        from trace_triton import launch_product, launch_sum
        self.mark = truth.mark
        self.launch_sum, self.launch_product = launch_sum, launch_product
        self.left, self.right, self.out = (torch.ones(1 << 16, device=DEVICE) for _ in range(3))

    def launch_triton_sum(self):
        self.mark(501)
        self.launch_sum(self.left, self.right, self.out)

    def launch_triton_product(self):
        self.mark(502)
        self.launch_product(self.left, self.right, self.out)

    def run(self, count):
        for _ in range(count):
            self.launch_triton_sum()
            self.launch_triton_product()


class Lt:
    markers = {511: ["call_lt_wide"], 512: ["call_lt_narrow"]}

    def __init__(self, truth, _options):
        self.mark = truth.mark
        kind = {"device": DEVICE, "dtype": torch.bfloat16}
        with contextlib.suppress(AttributeError, RuntimeError):  # of later versions
            torch.backends.cuda.preferred_blas_library("cublaslt")
        self.data = torch.randn(512, 768, **kind)
        self.wide, self.wide_bias = torch.randn(768, 1536, **kind), torch.randn(1536, **kind)
        self.narrow, self.narrow_bias = torch.randn(768, 320, **kind), torch.randn(320, **kind)

    def call_lt_wide(self):
        self.mark(511)
        return torch.addmm(self.wide_bias, self.data, self.wide)

    def call_lt_narrow(self):
        self.mark(512)
        return torch.addmm(self.narrow_bias, self.data, self.narrow)

    def run(self, count):
        for _ in range(count):
            self.call_lt_wide()
            self.call_lt_narrow()


class Graph:
    markers = {521: ["replay_long_graph"], 522: ["replay_short_graph"]}

    def __init__(self, truth, _options):
        self.mark = truth.mark
        self.data = torch.ones(64, device=DEVICE)
        self.long, self.short = self.capture(200), self.capture(20)

    def capture(self, nodes):
        self.data.add_(1)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(nodes):
                self.data.add_(1)
        return graph

    def replay_long_graph(self):
        self.mark(521)
        self.long.replay()

    def replay_short_graph(self):
        self.mark(522)
        self.short.replay()

    def run(self, count):
        for _ in range(count):
            self.replay_long_graph()
            self.replay_short_graph()


class Gpus:
    markers = {531: ["work_on_first_gpu"], 532: ["work_on_second_gpu"]}

    def __init__(self, truth, _options):
        self.mark = truth.mark
        self.data = [torch.randn(512, 512, device=f"cuda:{number}") for number in range(2)]

    def work(self, data):
        data = torch.relu(data @ data)
        return data / data.norm()

    def work_on_first_gpu(self):
        self.mark(531)
        with torch.cuda.device(0):
            self.data[0] = self.work(self.data[0])

    def work_on_second_gpu(self):
        self.mark(532)
        with torch.cuda.device(1):
            self.data[1] = self.work(self.data[1])

    def run(self, count):
        for _ in range(count):
            self.work_on_first_gpu()
            self.work_on_second_gpu()
            self.mark(0)
            self.data[1].copy_(self.data[0])


class Layers:
    NAMES = ("embed_tokens", "mix_heads", "feed_forward", "project_out")
    markers = {541 + number: [name] for number, name in enumerate(NAMES)}

    def __init__(self, truth, options):
        if options.slow and options.slow not in self.NAMES:
            raise SystemExit(f"trace_work.py: --slow is one of {', '.join(self.NAMES)}")
        width = 2048 if DEVICE == "cuda" else 32
        kind = {"device": DEVICE, "dtype": torch.bfloat16}
        self.data = torch.randn(width, width, **kind)
        weight = torch.randn(width, width, **kind)
        self.functions = []
        for number, name in enumerate(self.NAMES):
            times = 3 if name == options.slow else 1

            def function(x, marker=541 + number, times=times):
                truth.mark(marker)
                for _ in range(times):
                    y = x @ weight
                return y

            self.functions.append(rename(function, name))

    def run(self, count):
        for _ in range(count):
            for function in self.functions:
                function(self.data)


class Train:
    markers = {}

    def __init__(self, _truth, _options):
        torch.manual_seed(1)
        self.model = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU()) for _ in range(8)))
        self.model.to(DEVICE)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.data = torch.randn(256, 512, device=DEVICE)

    def run(self, count):
        for _ in range(count):
            self.optimizer.zero_grad()
            torch.nn.functional.mse_loss(self.model(self.data), self.data).backward()
            self.optimizer.step()


class Ddp(Train):
    """Each process has to be told the same orders."""

    def __init__(self, truth, options):
        rank = int(os.environ["RANK"])
        torch.cuda.set_device(rank)
        torch.distributed.init_process_group("nccl")
        super().__init__(truth, options)
        self.model = torch.nn.parallel.DistributedDataParallel(self.model, device_ids=[rank])

    def is_over(self, end_ns):
        """All processes say the same: one that stops alone leaves the others waiting."""
        late = torch.tensor(int(time.monotonic_ns() >= end_ns), device=DEVICE)
        torch.distributed.all_reduce(late, torch.distributed.ReduceOp.MAX)
        return bool(late)


class Compiled:
    markers = {}

    def __init__(self, _truth, _options):
        self.data = torch.randn(1024, 1024, device=DEVICE)
        self.function = torch.compile(lambda x: torch.softmax(torch.relu(x * 2 + 1), dim=-1))

    @torch.no_grad()
    def run(self, count):
        for _ in range(count):
            self.function(self.data)


PARTS = {"eager": Eager, "triton": Triton, "lt": Lt, "graph": Graph, "gpus": Gpus, "layers": Layers, "train": Train,
         "compiled": Compiled, "ddp": Ddp}
PROFILERS = {"cuda": {"activities": [ProfilerActivity.CUDA]},
             "both": {"activities": [ProfilerActivity.CUDA, ProfilerActivity.CPU]},
             "stack": {"activities": [ProfilerActivity.CUDA, ProfilerActivity.CPU], "with_stack": True}}


def do_part(part, count, truth, path):
    if isinstance(part, str):
        return {"error": part}
    begin = time.monotonic_ns()
    part.run(count)
    truth.mark(0)
    synchronize()
    return {"pid": os.getpid(), "begin_mono_ns": begin, "end_mono_ns": time.monotonic_ns(), "count": count,
            "truth_calls": truth.dump(path, begin), "markers": part.markers}


def measure_rate(part, count, profiler):
    with profile(**PROFILERS[profiler]) if profiler else contextlib.nullcontext():
        part.run(max(count // 8, 1))
        synchronize()
        start = time.monotonic()
        part.run(count)
        synchronize()
        return count / (time.monotonic() - start)


def measure_each(part, seconds, count, profiler):
    """[begin on the monotonic clock, length] of each `count` together, in ns; waits for the GPU after them."""
    with profile(**PROFILERS[profiler]) if profiler else contextlib.nullcontext():
        rows, end_ns = [], time.monotonic_ns() + int(seconds * 1e9)
        is_over = getattr(part, "is_over", lambda end_ns: time.monotonic_ns() >= end_ns)
        while not rows or not is_over(end_ns):
            begin_ns = time.monotonic_ns()
            part.run(count)
            synchronize()
            rows.append([begin_ns, time.monotonic_ns() - begin_ns])
    return rows


def measure_token(part):
    """Seconds."""
    synchronize()
    start = time.monotonic()
    part.run(1)
    synchronize()
    return time.monotonic() - start


def make_parts(names, truth, options):
    """Each part, once through; in place of one that cannot be, the reason."""
    parts = {}
    for name in names:
        try:
            part = PARTS[name](truth, options)
            if options.mode == "serve":
                part.warm_up() if hasattr(part, "warm_up") else part.run(4)
            synchronize()
            parts[name] = part
        except Exception as error:  # pylint: disable=broad-except  # the others still work
            parts[name] = f"{name}: {type(error).__name__}: {error}"[:2000]
    truth.mark(0)
    return parts


def serve(parts, truth, options):
    with open(options.pipes[0], encoding="utf-8") as orders, \
            open(options.pipes[1], "w", encoding="utf-8") as answers:
        gc.freeze()  # or what is measured below makes Python search all of PyTorch's objects, 70 to 90 ms at a time
        print("ready", file=answers, flush=True)
        for order in orders:
            name, count, path = (*order.split(), "")[:3]
            if name == "rate":
                print(measure_rate(parts["eager"], int(count), options.profiler), file=answers, flush=True)
            elif name == "each":
                together = int(order.split()[3]) if len(order.split()) > 3 else 1
                print(json.dumps(measure_each(parts[count], float(path), together, options.profiler)), file=answers, flush=True)
            elif name == "switch":
                rows = HookSwitch(path.split(",")).compare(int(count), lambda: measure_token(parts["eager"]))
                print(json.dumps(rows), file=answers, flush=True)
            else:
                print(json.dumps(do_part(parts[name], int(count), truth, path)), file=answers, flush=True)


def main():
    global DEVICE  # pylint: disable=global-statement  # one for the whole program, set once
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["serve", "run"])
    parser.add_argument("parts")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--slow", default="")
    parser.add_argument("--profiler", choices=list(PROFILERS), default="")
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--truth-file", default="")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("pipes", nargs="*")
    options = parser.parse_intermixed_args()  # the pipes come last
    DEVICE = options.device
    names = options.parts.split(",")
    if unknown := [name for name in names if name not in PARTS]:
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    begin = time.monotonic_ns()
    if DEVICE == "cuda":
        torch.cuda.init()
        torch.cuda.synchronize()  # cuInit and a context: the injected library is there from here on
        time.sleep(0.5)  # what it switches on, it has
    truth = Truth()
    parts = make_parts(names, truth, options)
    if options.mode == "run":
        results = {name: do_part(part, options.count, truth, "") for name, part in parts.items()}
        time.sleep(0.5)  # what is left is flushed as usual, before the exit
        calls = truth.dump(options.truth_file, begin)
        print(json.dumps({"pid": os.getpid(), "truth_calls": calls, "parts": results}), flush=True)
        return
    serve(parts, truth, options)


if __name__ == "__main__":
    main()
