"""Steps of PyTorch loops: of training those that the loop counts, with its times; of serving loops, which say nothing of
their steps, those that are learned from what they copy to the host."""

import bisect
import json
import statistics
import subprocess
import sys
import time

from trace_rig import save, start_tracer

STEPS, ACCUMULATED = 60, 2  # optimizer steps, and backward passes of each
KINDS = {"adamw_foreach": "AdamW(p, foreach=True)", "adamw_fused": "AdamW(p, fused=True)", "sgd_foreach": "SGD(p, lr=0.01, foreach=True)"}
TOLERANCE = 0.03  # of medians: the loop's own times have some of the interpreter in them

PROGRAM = f"""
import json, sys, time
import torch
from torch import autograd, nn
net = nn.Sequential(*[nn.Linear(512, 512) for _ in range(8)]).cuda()
p = list(net.parameters())
optimizer = torch.optim.{{optimizer}}
x = torch.randn(64, 512, device="cuda")
def backward():
    loss = net(x).square().mean()
    one = torch.ones_like(loss)
    begin = time.perf_counter_ns()
    autograd.Variable._execution_engine.run_backward((loss,), (one,), False, False, (), allow_unreachable=True,
                                                     accumulate_grad=True)
    return time.perf_counter_ns() - begin
for _ in range(3):
    backward(); optimizer.step(); optimizer.zero_grad()
torch.cuda.synchronize()
print("ready", flush=True)
sys.stdin.readline()
backwards = []
for _ in range({STEPS}):
    for _ in range({ACCUMULATED}):
        backwards.append(backward())
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
print(json.dumps(backwards), flush=True)
sys.stdin.readline()
"""


# A transformer in its shapes, without attention. Decoding replays the CUDA graph of the next larger batch.
SERVED, PREFILL_EVERY = 400, 8
PLANTED, PLANTED_MS = 370, 80  # one step sleeps meanwhile, where results come by tolist
START_TOLERANCE_NS = 500_000
SERVE = f"""
import bisect, json, random, sys, threading, time
import torch
from torch import nn
mode = sys.argv[1]
width, layers, words, batches = 4096, 32, 32000, [1, 2, 4, 8, 16, 32, 64]
device = torch.device("cuda")
torch.set_default_device(device)
torch.set_default_dtype(torch.bfloat16)
torch.set_grad_enabled(False)
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)
    def forward(self, x):
        x = x + self.out(self.qkv(x)[:, :width])
        return x + self.down(nn.functional.gelu(self.up(x)))
model = nn.Sequential(nn.Embedding(words, width), *[Layer() for _ in range(layers)])
head = nn.Linear(width, words, bias=False)
def compute(ids, last=None):
    x = model(ids)
    return head(x if last is None else x[last]).argmax(-1)
compute(torch.zeros(3, dtype=torch.long, device=device))
torch.cuda.synchronize()
print("loaded", flush=True)
sys.stdin.readline()
graphs = {{}}
for batch in batches:
    ids = torch.zeros(batch, dtype=torch.long, device=device)
    for _ in range(2):
        compute(ids)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = compute(ids)
    graphs[batch] = graph, ids, made
torch.cuda.synchronize()
pinned = torch.zeros(8192, dtype=torch.long, device="cpu").pin_memory()
results = [torch.zeros(64, dtype=torch.long, device="cpu").pin_memory() for _ in range(2)]
events = [torch.cuda.Event() for _ in range(2)]
side = torch.cuda.Stream()
truth, rng = [], random.Random(1)
def replay(count):
    batch = batches[bisect.bisect_left(batches, count)]
    graph, ids, made = graphs[batch]
    ids[:count].copy_(pinned[:count], non_blocking=True)
    graph.replay()
    return made[:count]
def decode(count):
    if mode == "eager":
        compute(pinned[:count].to(device, non_blocking=True)).tolist()
    elif mode == "event":
        results[0][:count].copy_(replay(count), non_blocking=True)
        events[0].record()
        events[0].synchronize()
    else:
        made = replay(count)
        if i == {PLANTED}:
            time.sleep({PLANTED_MS / 1e3})
        made.tolist()
def prefill(count):
    length = rng.randrange(40, 120)
    ids = pinned[:count * length].to(device, non_blocking=True)
    last = torch.arange(length - 1, count * length, length, device=device)
    compute(ids, last).tolist()
    return count * length
print("ready", flush=True)
sys.stdin.readline()
before = None
for i in range({SERVED}):
    count = rng.randrange(1, 65)
    start = time.time_ns()
    if mode == "overlapped":
        made = replay(count)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            results[i % 2][:count].copy_(made, non_blocking=True)
            events[i % 2].record()
        torch.cuda.current_stream().wait_stream(side)
        if before:
            events[(i - 1) % 2].synchronize()
            truth.append(["decode", *before, time.time_ns()])
        before = count, count, start
    elif i % {PREFILL_EVERY} == {PREFILL_EVERY - 1}:
        count = 1 + count % 8
        tokens = prefill(count)
        truth.append(["prefill", count, tokens, start, time.time_ns()])
    else:
        decode(count)
        truth.append(["decode", count, count, start, time.time_ns()])
    if i % 50 == 49:
        time.sleep(0.2)
if mode == "overlapped":
    events[({SERVED} - 1) % 2].synchronize()
    truth.append(["decode", *before, time.time_ns()])
print(json.dumps(truth), flush=True)
sys.stdin.readline()
"""
# How a loop has its results, and whether the library is injected.
SERVING = [("tolist", True), ("event", True), ("overlapped", True), ("eager", True), ("tolist", False)]


def run_serving(report, rig, tracer, mode, is_injected):
    environment = rig.environment(tracer.socket)
    if not is_injected:
        environment.pop("CUDA_INJECTION64_PATH", None)
    with subprocess.Popen([sys.executable, "-c", SERVE, mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          env=environment) as loop:
        def go_on(expected):
            if loop.stdout.readline().strip() != expected:
                raise RuntimeError(f"the loop {mode} did not say {expected!r}")
            time.sleep(4)  # probes are attached
            loop.stdin.write("go\n")
            loop.stdin.flush()
        try:
            go_on("loaded")
            go_on("ready")
            truth = json.loads(loop.stdout.readline())
            time.sleep(2)
            steps = tracer.query("steps", "list", "--pid", loop.pid)
            report.say(tracer.ctl("steps", "--pid", loop.pid).stdout)
            report.say(tracer.ctl("steps", "show", steps[0]["id"]).stdout if steps else tracer.ctl("probes").stdout)
            report.say(f"   {[(row['function'], row['state']) for row in tracer.query('probes') if row['state'] == 'suspended']}")
            if mode == "tolist" and is_injected and steps:
                explain_planted(report, tracer, max(steps, key=lambda step: step["duration_ns"] * (step["phase"] == "decode")))
        finally:
            loop.kill()
    return truth, [step for step in reversed(steps) if step["start_unix_ns"] >= truth[0][3] - 2_000_000]


def explain_planted(report, tracer, step):
    """The step that slept, beside the others."""
    [process] = tracer.query("why", "--step", step["id"])["processes"]
    [told] = [row for row in process["steps"] if row["asked"]]
    first = next(iter(told["differences"]), None)
    slept_ms = first and (first["finding"]["time_ns"] - first["usual_ns"]) / 1e6
    worked_ms = sum(part["time_ns"] for part in told["longest_parts"] if part["cause"].startswith("gpu_")) / 1e6  # as it slept
    report.say(tracer.ctl("why", "--step", step["id"]).stdout)
    report.check("a step that slept is explained, to the nanosecond of its time",
                 sum(part["time_ns"] for part in told["longest_parts"]) == told["longest_ns"] == step["duration_ns"],
                 f"{told['longest_ns']} ns in {len(told['longest_parts'])} parts, {step['duration_ns']} ns long")
    report.check("and what it did more than others is first, within 5 %",
                 first is not None and first["finding"]["text"].startswith("in decode (")
                 and abs((slept_ms + worked_ms) / PLANTED_MS - 1) <= 0.05,
                 f"{slept_ms} ms of {PLANTED_MS}, {worked_ms} ms of the GPU's work: {first and first['finding']['text']}")


def compare_serving(report, name, truth, steps):
    """Each true step has one that was found, which begins and ends when it does; and none is found beside."""
    pairs, starts, taken = [], [true[3] for true in truth], set()
    for step in steps:
        at = bisect.bisect_right(starts, step["start_unix_ns"] + START_TOLERANCE_NS // 10) - 1
        if at >= 0 and at not in taken and step["start_unix_ns"] - starts[at] < START_TOLERANCE_NS:
            pairs.append((truth[at], step))
            taken.add(at)
    false = len(steps) - len(pairs)
    known = [pair for pair in pairs if pair[1]["phase"] in ("decode", "prefill")]
    errors = sorted(step["duration_ns"] / (true[4] - true[3]) - 1 for true, step in pairs) or [1]
    row = {"true": len(truth), "found": len(pairs), "false": false, "phase known": len(known),
           "phase right": sum(step["phase"] == true[0] for true, step in known),
           "sequences right": sum(step["sequences"] == true[1] for true, step in pairs),
           "tokens right": sum(step["tokens"] == true[2] for true, step in pairs),
           "tokens unknown": sum(step["tokens"] == 0 for true, step in pairs),
           "median duration, true, us": statistics.median(true[4] - true[3] for true in truth) / 1e3,
           "error of durations": [round(errors[len(errors) * percent // 100], 4) for percent in (1, 25, 50, 75, 99)],
           "examples": [[true[:3], step["phase"], step["sequences"], step["tokens"]] for true, step in pairs
                        if step["tokens"] != true[2] or step["sequences"] != true[1]][:4]}
    report.check(f"{name}: 99 % of the steps are found", row["found"] >= 0.99 * row["true"], f"{row}")
    report.check(f"{name}: one of 1,000 is none", row["false"] <= 0.001 * row["true"], f"{row['false']}")
    report.check(f"{name}: 99 % have a phase, and 99 % of these the right one",
                 row["phase known"] >= 0.99 * row["found"] and row["phase right"] >= 0.99 * row["phase known"])
    report.check(f"{name}: sequences are right, and tokens where they are known",
                 row["sequences right"] == row["tokens right"] + row["tokens unknown"] == row["found"])
    report.check(f"{name}: the median error of durations is 3 % at most", abs(row["error of durations"][2]) <= TOLERANCE)
    return row


def run_loop(report, rig, tracer, kind):
    program = PROGRAM.replace("{optimizer}", KINDS[kind])
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          env=rig.environment(tracer.socket)) as loop:
        try:
            if loop.stdout.readline().strip() != "ready":
                raise RuntimeError(f"the loop {kind} did not begin")
            time.sleep(8)  # probes are attached, and the last step of those before is no longer held

            def count(phase):
                steps = tracer.query("steps", "list", "--pid", loop.pid)
                return [step for step in steps if step["phase"] == phase]
            before = {phase: len(count(phase)) for phase in ("train", "optimizer")}
            loop.stdin.write("go\n")
            loop.stdin.flush()
            backwards = json.loads(loop.stdout.readline())
            time.sleep(7)  # the last step is held for 5 s, as nothing follows it
            found = {phase: count(phase) for phase in before}
            report.say(tracer.ctl("steps", "--pid", loop.pid).stdout)
        finally:
            loop.kill()
    return {"before": before, "train": len(found["train"]) - before["train"],
            "optimizer": len(found["optimizer"]) - before["optimizer"],
            "operators": [step["calls"] for step in found["optimizer"][:3]], "backward_median_ns": statistics.median(backwards),
            "step_median_ns": statistics.median(step["duration_ns"] for step in found["train"][:len(backwards)])}


def check_steps(report, rig):
    figures = {}
    with start_tracer(rig) as tracer:
        tracer.wait_for_probes()
        for kind in KINDS:
            try:
                row = figures[kind] = run_loop(report, rig, tracer, kind)
            except (RuntimeError, ValueError, statistics.StatisticsError) as error:
                report.check(f"{kind}: the loop ran and its steps were listed", False, repr(error))
                continue
            report.check(f"{kind}: every backward pass is a step", row["train"] == STEPS * ACCUMULATED, f"{row}")
            report.check(f"{kind}: every run of the optimizer is one step", row["optimizer"] == STEPS, f"{row}")
            report.check(f"{kind}: the median of backward passes is the loop's within 3 %",
                         abs(row["step_median_ns"] / row["backward_median_ns"] - 1) <= TOLERANCE, f"{row}")
        for mode, is_injected in SERVING:
            name = f"serving, {mode}{'' if is_injected else ', probes alone'}"
            try:
                figures[name] = compare_serving(report, name, *run_serving(report, rig, tracer, mode, is_injected))
            except (RuntimeError, ValueError, IndexError) as error:
                report.check(f"{name}: the loop ran and its steps were listed", False, repr(error))
    save(rig, "trace_steps", figures)
