"""gpuperfctl memory on a real GPU: live bytes beside what the driver says is free and what NVML says is used, a leak on one of
twenty paths, PyTorch's training, which leaks nothing, and an allocation that fails.

GPUPERF_TRAINING_SECONDS: how long the training lasts; 60 without it, 300 for the long form."""

import json
import os
import subprocess
import sys
import time

from trace_rig import save, start_tracer

MIB = 1 << 20
LEAKING = 13
TRAINING_SECONDS = int(os.environ.get("GPUPERF_TRAINING_SECONDS", "60"))

# The driver alone: what is allocated here is all there is.
PATHS = r"""
import ctypes, queue, sys, threading, time
cuda = ctypes.CDLL("libcuda.so.1")
u64, byref = ctypes.c_uint64, ctypes.byref
def check(status):
    if status: raise RuntimeError(f"the driver answers {status}")
context = ctypes.c_void_p()
check(cuda.cuInit(0))
check(cuda.cuDevicePrimaryCtxRetain(byref(context), 0))
check(cuda.cuCtxSetCurrent(context))
live = {"device": 0, "async": 0, "managed": 0, "pinned": 0}
lock = threading.Lock()
def allocate(kind, size):
    place = u64()
    if kind == "device": check(cuda.cuMemAlloc_v2(byref(place), u64(size)))
    if kind == "async": check(cuda.cuMemAllocAsync(byref(place), u64(size), None))
    if kind == "managed": check(cuda.cuMemAllocManaged(byref(place), u64(size), 1))
    if kind == "pinned": check(cuda.cuMemHostAlloc(byref(place), u64(size), 0))
    with lock: live[kind] += size
    return kind, place, size
def release(piece):
    kind, place, size = piece
    check(cuda.cuMemFreeHost(place) if kind == "pinned" else
          cuda.cuMemFreeAsync(place, None) if kind == "async" else cuda.cuMemFree_v2(place))
    with lock: live[kind] -= size
KINDS = ["device", "async", "managed", "pinned"]
for number in range(20):
    exec(f"def path_{number}(): return allocate(KINDS[{number} % 4], (1 + {number}) * 65536)")
paths = [globals()[f"path_{number}"] for number in range(20)]
held = queue.Queue()
def work(thread, leaking, end):
    check(cuda.cuCtxSetCurrent(context))
    turn = thread
    while time.monotonic() < end:
        turn += 7
        if turn % 20 != leaking: held.put(paths[turn % 20]())
        if thread == 0 and leaking >= 0 and turn % 140 == 0: paths[leaking]()
        if held.qsize() > 64: release(held.get())
        time.sleep(0.01)
def run(leaking, seconds):
    end = time.monotonic() + seconds
    threads = [threading.Thread(target=work, args=(thread, leaking, end)) for thread in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
def free():
    free, total = u64(), u64()
    check(cuda.cuMemGetInfo_v2(byref(free), byref(total)))
    return free.value
large = []
print("ready", flush=True)
for line in sys.stdin:
    word, *numbers = line.split()
    if word == "run": run(*map(int, numbers))
    if word == "large": large += [allocate("device", int(numbers[1])) for _ in range(int(numbers[0]))]
    print(*live.values(), free(), flush=True)
"""

TRAINING = r"""
import sys, time, torch
model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(8)]).cuda()
optimizer = torch.optim.Adam(model.parameters())
def step():
    x = torch.randn(256, 1024, pin_memory=True).to("cuda", non_blocking=True)
    loss = model(x).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    return loss
kept = []
def keep_forever(): kept.append(torch.empty(4 << 20, dtype=torch.uint8, device="cuda"))
print("ready", flush=True)
for line in sys.stdin:
    word, seconds = line.split()
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end:
        step()
        if word == "leak": keep_forever(); time.sleep(0.05)
    if word == "fail":
        try: torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError: pass
    torch.cuda.synchronize()
    print(torch.cuda.memory_reserved(), flush=True)
"""


class Program:
    def __init__(self, text):
        self.process = subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        if self.process.stdout.readline().strip() != "ready":
            raise RuntimeError("the program did not begin")

    def begin(self, *words):
        print(*words, file=self.process.stdin, flush=True)

    def answer(self):
        return list(map(int, self.process.stdout.readline().split()))

    def tell(self, *words):
        self.begin(*words)
        return self.answer()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def find(tracer, pid, *flags):
    rows = [row for row in tracer.query("memory", "--pid", pid, *flags) if row["pid"] == pid]
    return rows[0] if rows else None


def get_live(row):
    return {use["kind"]: use["live_bytes"] for use in row["kinds"]}


def has_frame(site, name):
    return any(name in frame["symbol"] for frame in site["stack"])


def settle(tracer, pid):
    """Once calls have been drained, and NVML has been read."""
    time.sleep(4)
    return find(tracer, pid)


def check_exact(report, tracer, program):
    truth = dict(zip(("device", "async", "managed", "pinned"), program.tell("run", -1, 8)))
    row = settle(tracer, program.pid)
    report.check("live bytes of 8 threads on 20 paths are exact", get_live(row) == truth, f"{get_live(row)}, truth {truth}")
    report.check("nothing was missed", not row["gaps"], f"{row['gaps']}")
    free_before = program.tell("large", 0, 0)[-1]
    before = settle(tracer, program.pid)
    free_after = program.tell("large", 100, 8 * MIB)[-1]
    after = settle(tracer, program.pid)
    grown = after["live_bytes"] - before["live_bytes"]
    report.check("100 pieces of 8 MiB are what the driver has less", grown == free_before - free_after == 800 * MIB,
                 f"live {grown}, free {free_before - free_after}")
    used = after["used_bytes"] - before["used_bytes"]
    report.check("and what NVML reports more, within 2 MiB", abs(used - grown) <= 2 * MIB, f"{used} of {grown}")
    return {"truth": truth, "live": get_live(row), "free_delta": free_before - free_after, "nvml_delta": used,
            "rest_bytes": after["rest_bytes"], "least_rest_bytes": after["least_rest_bytes"]}


def check_leak(report, tracer, program):
    program.begin("run", LEAKING, 70)
    begin, row = time.monotonic(), None
    while row is None and time.monotonic() - begin < 65:
        time.sleep(1)
        row = find(tracer, program.pid, "--leaks")
    seconds = time.monotonic() - begin
    sites = row["sites"] if row else []
    report.check("the leak is named within a minute, and nothing else",
                 len(sites) == 1 and has_frame(sites[0], f"path_{LEAKING}") and seconds < 60, f"{seconds:.0f} s, {len(sites)} stacks")
    report.say(tracer.ctl("memory", "--leaks").stdout)
    program.answer()
    return {"seconds": seconds, "growth": [site["growth"] for site in sites]}


def check_training(report, tracer, program):
    leaks, end = [], time.monotonic() + TRAINING_SECONDS
    program.begin("train", TRAINING_SECONDS)
    while time.monotonic() < end:
        time.sleep(2)
        row = find(tracer, program.pid, "--leaks")
        leaks += row["sites"] if row else []
    reserved = program.answer()[0]
    row = settle(tracer, program.pid)
    report.check(f"training for {TRAINING_SECONDS} s shows no leak", not leaks, f"{len(leaks)} leaks")
    other = get_live(row)["device"] - reserved
    report.check("live bytes are what PyTorch has reserved, and at most 64 MiB of libraries", 0 <= other <= 64 * MIB,
                 f"live {get_live(row)}, reserved {reserved}")
    program.tell("leak", 50)
    growing = [site for site in find(tracer, program.pid, "--stacks")["sites"] if site["growth"]]
    report.check("a list that keeps tensors shows as growth", any(has_frame(site, "keep_forever") for site in growing),
                 f"{len(growing)} stacks grow")
    return {"reserved": reserved, "live": get_live(row), "used_bytes": row["used_bytes"], "rest_bytes": row["rest_bytes"]}


def check_failure(report, tracer, program):
    program.tell("fail", 0)
    time.sleep(4)
    incidents = [row for row in tracer.query("memory", "--ooms") if row["pid"] == program.pid]
    report.check("an allocation that fails is an incident with its holder",
                 bool(incidents) and incidents[0]["asked_bytes"] >= 1 << 42 and incidents[0]["holders"][0]["pid"] == program.pid,
                 json.dumps(incidents[:1])[:400])
    report.say(tracer.ctl("memory", "--ooms").stdout)


def check_memory(report, rig):
    figures = {}
    with start_tracer(rig, budget_percent=None) as tracer:
        with Program(PATHS) as program:
            tracer.wait_for_probes()
            figures["exact"] = check_exact(report, tracer, program)
            figures["leak"] = check_leak(report, tracer, program)
        with Program(TRAINING) as program:
            figures["training"] = check_training(report, tracer, program)
            check_failure(report, tracer, program)
            report.say(tracer.ctl("memory", "show", program.pid).stdout[:4000])
        report.say(tracer.ctl("memory").stdout)
    save(rig, "trace_memory", figures)
