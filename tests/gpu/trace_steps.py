"""Steps of a PyTorch training loop: backward passes and optimizers found as the loop counts them, with its times."""

import json
import statistics
import subprocess
import sys
import time

from trace_rig import save, start_tracer

STEPS, ACCUMULATED = 60, 2  # optimizer steps, and backward passes of each
KINDS = {"adamw_foreach": "AdamW(p, foreach=True)", "adamw_fused": "AdamW(p, fused=True)", "sgd_foreach": "SGD(p, lr=0.01, foreach=True)"}
TOLERANCE = 0.05  # of medians: the loop's own times have the interpreter in them

PROGRAM = f"""
import json, sys, time
import torch
from torch import nn
net = nn.Sequential(*[nn.Linear(512, 512) for _ in range(8)]).cuda()
p = list(net.parameters())
optimizer = torch.optim.{{optimizer}}
x = torch.randn(64, 512, device="cuda")
def backward():
    loss = net(x).square().mean()
    begin = time.perf_counter_ns()
    loss.backward()
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
            report.check(f"{kind}: the median of backward passes is the loop's within 5 %",
                         abs(row["step_median_ns"] / row["backward_median_ns"] - 1) <= TOLERANCE, f"{row}")
    save(rig, "trace_steps", figures)
