"""gpuperfctl why on a real GPU: PyTorch loops whose idle time has one planted cause, which must be its first line, with its
share of the time that the loop measured."""

import json
import pathlib
import subprocess
import sys
import time

from session_rig import Worker
from trace_rig import save, start_tracer, work_command

# Cause -> words of which the first line has one. The planted part is `planted()` of each loop.
CAUSES = {
    "tokenizer": ("tokenize",),
    "loader": ("load_batch", "sleep"),
    "lock": ("wait_for_lock", "lock", "futex"),
    "gil": ("GIL", "take_gil", "pthread_cond_timedwait", "without the GIL"),
    "pageable": ("Memcpy", "copy", "to_host"),
    "bound": ("GPU", "kernel", "gemm", "nvjet"),
    "replanning": ("cudnn",),
    "faults": ("page faults",),
    "item": ("item", "Synchronize", "Memcpy", "launch"),
    "quota": ("CPU quota",),
}
# The loop cannot time these alone: what it does in them is something else, too.
UNTIMED = ("gil", "bound", "faults", "item", "quota")
QUOTA_GROUP = pathlib.Path("/sys/fs/cgroup/gpuperf-test-quota")
QUOTA_US, PERIOD_US = 30_000, 100_000
SECONDS = 5
TOLERANCE = 0.05

PROGRAM = r"""
import sys, threading, time
import torch
cause = sys.argv[1]
small = torch.randn(64, 64, device="cuda")
big = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
large = torch.randn(1 << 26, device="cuda")
lock, stopping = threading.Lock(), threading.Event()
planted_ns = 0
def tokenize():
    end = time.perf_counter() + 0.02
    total = 0
    while time.perf_counter() < end:
        for i in range(1000): total += i * i
    return total
def load_batch(): time.sleep(0.02)
def hold_lock():
    while not stopping.is_set():
        with lock: time.sleep(0.02)
        time.sleep(0.001)
def wait_for_lock():
    with lock: pass
def burn():
    while not stopping.is_set(): sum(i * i for i in range(1000))
host = torch.empty(1 << 26)
def to_host(): host.copy_(large)
from torch.nn.attention import SDPBackend, sdpa_kernel
query = torch.randn(1, 16, 1, 64, device="cuda", dtype=torch.bfloat16)
size = 0
def attend_to_another_length():
    global size
    size += 1
    past = torch.empty(1, 16, size, 64, device="cuda", dtype=torch.bfloat16)
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION): torch.nn.functional.scaled_dot_product_attention(query, past, past)
def touch_new_memory():
    torch.empty(1 << 25).fill_(1)
def ask_for_items():
    for _ in range(20): small.sum().item()
torch.set_num_threads(1)
planted = {"replanning": attend_to_another_length, "faults": touch_new_memory, "item": ask_for_items, "quota": tokenize, "tokenizer": tokenize, "loader": load_batch, "lock": wait_for_lock, "gil": lambda: None, "pageable": to_host,
           "bound": lambda: None}[cause]
others = {"lock": [hold_lock], "gil": [burn, burn]}.get(cause, [])
threads = [threading.Thread(target=other, daemon=True) for other in others]
[thread.start() for thread in threads]
def step():
    global planted_ns
    begin = time.perf_counter_ns()
    planted()
    planted_ns += time.perf_counter_ns() - begin
    if cause == "bound":
        for _ in range(8): big @ big
        torch.cuda.synchronize()
    else:
        y = small
        for _ in range(20): y = y * 1.0001
        torch.cuda.synchronize()
def work():
    while not stopping.is_set(): step()
for _ in range(3): step()
print("ready", flush=True)
def answer():
    for line in sys.stdin:
        print(planted_ns, time.perf_counter_ns(), flush=True)
    stopping.set()
reader = threading.Thread(target=answer, daemon=True)
reader.start()
work()
"""


class Loop:
    def __init__(self, rig, tracer, cause):
        self.process = subprocess.Popen([sys.executable, "-c", PROGRAM, cause], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env=rig.environment(tracer.socket))
        self.pid = self.process.pid
        if self.process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"the loop {cause} did not begin")
        if cause == "quota":
            QUOTA_GROUP.mkdir(exist_ok=True)
            (QUOTA_GROUP / "cpu.max").write_text(f"{QUOTA_US} {PERIOD_US}", encoding="ascii")
            (QUOTA_GROUP / "cgroup.procs").write_text(str(self.pid), encoding="ascii")

    def read(self):
        self.process.stdin.write("tell\n")
        self.process.stdin.flush()
        return tuple(map(int, self.process.stdout.readline().split()))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        if QUOTA_GROUP.exists():
            QUOTA_GROUP.rmdir()


def explain(report, rig, tracer, cause):
    with Loop(rig, tracer, cause) as loop:
        if tracer.wait(loop.pid, lambda found: True) is None:  # it may wait to collect: why has it begin
            raise RuntimeError("there is no session")
        time.sleep(6)  # probes are attached, rules of frames are read, and records have begun where launches are few
        before = tracer.sessions(loop.pid)[0]
        report.say(f"   before: {before['state']}, {before['detail']!r}")
        tracer.ctl("why", "--pid", loop.pid, "--for", "2s")
        before = loop.read()
        answer = tracer.query("why", "--pid", loop.pid, "--for", f"{SECONDS}s")
        after = loop.read()
        planted = (after[0] - before[0]) / (after[1] - before[1])
        number = max(tracer.captures())
        report.say(tracer.ctl("why", "--capture", number, "--pid", loop.pid).stdout)
    process = answer["processes"][0]
    return {"verdict": process["verdict"], "planted_share": planted, "wall_ns": process["wall_ns"],
            "parts": process["parts"], "findings": process["findings"][:4]}


def check_why(report, rig):
    figures = {}
    with start_tracer(rig, budget_percent=None) as tracer:
        tracer.wait_for_probes()
        for cause, words in CAUSES.items():
            try:
                found = figures[cause] = explain(report, rig, tracer, cause)
            except (RuntimeError, OSError, IndexError, KeyError, json.JSONDecodeError) as error:
                report.check(f"{cause}: it is explained", False, repr(error))
                continue
            first = found["findings"][0]
            share = first["time_ns"] / found["wall_ns"]
            report.check(f"{cause}: the first line is the planted cause",
                         any(word in json.dumps(first) for word in words), f"{found['verdict']}: {first['text']} {share:.3f}")
            report.check(f"{cause}: parts add up to the wall time",
                         sum(part["time_ns"] for part in found["parts"]) == found["wall_ns"], "")
            if cause not in UNTIMED:
                report.check(f"{cause}: its time is the loop's within 5 %", abs(share / found["planted_share"] - 1) <= TOLERANCE,
                             f"{share:.4f} of the time, the loop measured {found['planted_share']:.4f}")
    save(rig, "trace_why", figures)


def check_why_workloads(report, rig):
    """What it says of the programs of bench.sh, for somebody who knows them to read."""
    with start_tracer(rig, budget_percent=None) as tracer:
        tracer.wait_for_probes()
        for part in ("eager", "graph", "train", "compiled"):
            worker = Worker(rig, work_command(part), tracer.socket, pinned=False)
            worker.read(180)
            worker.give(f"each {part} 10 1")
            time.sleep(3)
            number = tracer.start_capture(worker.process.pid)
            time.sleep(SECONDS)
            tracer.stop_capture(number)
            worker.read(180)
            text = tracer.ctl("why", "--capture", number, "--pid", worker.process.pid).stdout
            worker.finish(60)
            report.say(f"### {part}\n{text}")
            report.check(f"{part}: it is explained", "GPU" in text and "1. " in text, "")
