"""gpuperfctl why on a real GPU: PyTorch loops whose idle time has one planted cause, which must be its first line, with its
share of the time that the loop measured."""

import json
import subprocess
import sys
import time

from trace_rig import save, start_tracer

# Cause -> words of which the first line has one. The planted part is `planted()` of each loop.
CAUSES = {
    "tokenizer": ("tokenize",),
    "loader": ("load_batch", "sleep"),
    "lock": ("wait_for_lock", "lock", "futex"),
    "gil": ("GIL", "take_gil", "pthread_cond_timedwait", "without the GIL"),
    "pageable": ("Memcpy", "copy", "to_host"),
    "bound": ("GPU", "kernel", "gemm", "nvjet"),
}
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
planted = {"tokenizer": tokenize, "loader": load_batch, "lock": wait_for_lock, "gil": lambda: None, "pageable": to_host,
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

    def read(self):
        self.process.stdin.write("tell\n")
        self.process.stdin.flush()
        return tuple(map(int, self.process.stdout.readline().split()))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


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
            except (RuntimeError, IndexError, KeyError, json.JSONDecodeError) as error:
                report.check(f"{cause}: it is explained", False, repr(error))
                continue
            first = found["findings"][0]
            share = first["time_ns"] / found["wall_ns"]
            report.check(f"{cause}: the first line is the planted cause",
                         any(word in json.dumps(first) for word in words), f"{found['verdict']}: {first['text']} {share:.3f}")
            report.check(f"{cause}: parts add up to the wall time",
                         sum(part["time_ns"] for part in found["parts"]) == found["wall_ns"], "")
            if cause not in ("gil", "bound"):
                report.check(f"{cause}: its time is the loop's within 5 %", abs(share / found["planted_share"] - 1) <= TOLERANCE,
                             f"{share:.4f} of the time, the loop measured {found['planted_share']:.4f}")
    save(rig, "trace_why", figures)
