"""PC sampling: kernels with planted limits beside Nsight Compute, its cost to what waits for the GPU, and that it begins
and ends while threads launch and allocate. Needs a GPU that nothing else samples."""

import csv
import io
import statistics
import subprocess
import sys
import time

from trace_rig import Planted, save, start_tracer, work_command

# Kernel -> (stall reasons one of which is its first, where known; a verdict that it has).
PLANTED = {
    "chase_pointers": ({"long_scoreboard"}, "memory latency"),
    "copy_stream": ({"long_scoreboard", "lg_throttle", "drain"}, None),
    "chain_fma": ({"wait"}, "dependent instructions"),
    "fill_fma": ({"not_selected", "selected", "math_pipe_throttle"}, None),
    "wait_at_barriers": ({"barrier"}, "barriers"),
    "conflict_banks": ({"short_scoreboard", "mio_throttle"}, "shared memory or special functions"),
    # Its local memory is not in CUPTI's records: 0 bytes for an array of 384 (13.0), so no verdict can name it.
    "spill_array": ({"long_scoreboard", "lg_throttle"}, "memory latency"),
    "run_one_block": ({"wait"}, "small launch"),
}
POINTS = 0.05  # how far a share of samples may be from Nsight Compute's
SECONDS = 12
COST_ROUNDS, COST_SECONDS = 4, 3
BURSTS = 10
BOUND, BOUND_ROUNDS = ("fill_fma", "copy_stream"), 5


def sample(tracer, pid, seconds, during=lambda: None):
    """A burst of samples; the session after it."""
    tracer.do("sessions", "burst", pid, "--samples", "--for", f"{seconds}s")
    tracer.wait(pid, lambda found: "samples" in found["level"], 8)
    during()
    if tracer.wait(pid, lambda found: "samples" not in found["level"], 30) is None:
        raise RuntimeError(f"sampling did not end: {tracer.sessions(pid)[:1]}")
    return tracer.sessions(pid)[0]


def find_kernel(tracer, pid, name):
    rows = tracer.query("kernels", "--per-process", "--pid", pid, "--kernel", f"*{name}*")
    return rows[0] if rows else {}


def list_shares(kernel):
    return {stall["name"]: stall["share_ratio"] for stall in (kernel.get("stalls") or {}).get("stalls", [])}


def ask_ncu(rig, kernel):
    """Stall reason -> share of its samples, by Nsight Compute; empty where it does not run."""
    prefix = "smsp__pcsamp_warps_issue_stalled_"
    answer = subprocess.run(
        ["ncu", "--metrics", "group:smsp__pcsamp_warp_stall_reasons", "--csv", "--page", "raw", "--clock-control", "none",
         "--launch-skip", "4", "--launch-count", "8", "--kernel-name", kernel, rig.programs / "stall_kernels", "once", kernel],
        capture_output=True, text=True, check=False, timeout=60)
    lines = [line for line in answer.stdout.splitlines() if line.startswith('"')]
    rows = list(csv.DictReader(io.StringIO("\n".join(lines))))
    counts = {}
    for name, value in ((name, value) for row in rows[1:] for name, value in row.items()):  # the first has the units
        reason = name.split()[0]
        if reason.startswith(prefix) and not reason.endswith("not_issued"):
            reason = reason.removeprefix(prefix)
            counts[reason] = counts.get(reason, 0) + float((value or "0").replace(",", ""))
    total = sum(counts.values())
    return {reason: count / total for reason, count in counts.items()} if total else {}, answer.stdout[-300:] + answer.stderr[-300:]


def check_planted(report, rig, tracer):
    with Planted(rig, [rig.programs / "stall_kernels", "serve"], tracer.socket, truth=False) as program:
        program.wait_ready()
        tracer.wait_collecting(program.pid)
        program.ask("all 2")
        program.worker.give(f"all {SECONDS}")
        session = sample(tracer, program.pid, SECONDS - 4)
        program.ask_answer()
        report.say(f"   sampled {session['sampled_ns'] / 1e9:.2f} s: {session['samples']} samples, {session['dropped_samples']} "
                   f"dropped, {session['other_samples']} of other kernels, buffer full {session['sample_buffer_full']} times")
        report.say(tracer.ctl("kernels", "--stalls", "--pid", program.pid).stdout)
        report.say(tracer.ctl("kernels", "show", "*chase_pointers*", "--pid", program.pid).stdout)
        kernels = {name: find_kernel(tracer, program.pid, name) for name in PLANTED}
    figures = {}
    for name, (firsts, verdict) in PLANTED.items():
        shares = list_shares(kernels[name])
        first = next(iter(shares), None)
        report.check(f"{name}: the first stall reason is the planted one", first in firsts, f"{first} of {dict(list(shares.items())[:4])}")
        verdicts = [one["name"] for one in kernels[name].get("verdicts", [])]
        if verdict:
            report.check(f"{name}: a verdict is {verdict}", verdict in verdicts, f"{verdicts}")
        theirs, said = ask_ncu(rig, name)
        if theirs:
            worst = max(abs(theirs.get(reason, 0) - shares.get(reason, 0)) for reason in {*theirs, *shares})
            report.check(f"{name}: shares of samples within 5 points of Nsight Compute's", worst <= POINTS,
                         f"worst {100 * worst:.1f}; ncu {sorted(theirs.items(), key=lambda row: -row[1])[:3]}")
            report.check(f"{name}: Nsight Compute's first reason is the same", max(theirs, key=theirs.get) == first, "")
        else:
            report.say(f"   ncu says nothing of {name}: {said}")
        figures[name] = {"ours": shares, "ncu": theirs, "verdicts": verdicts}
    return figures


def check_bound_cost(report, rig, tracer):
    """Launches of kernels that keep the GPU busy, while it samples and while not, in turns."""
    rates = {}
    with Planted(rig, [rig.programs / "stall_kernels", "serve"], tracer.socket, truth=False) as program:
        program.wait_ready()
        tracer.wait_collecting(program.pid)
        program.ask("all 2")
        for _ in range(BOUND_ROUNDS):
            for kernel in BOUND:
                tracer.do("sessions", "burst", program.pid, "--samples", "--for", "60s")
                if tracer.wait(program.pid, lambda found: "samples" in found["level"], 8) is None:
                    raise RuntimeError(f"no samples: {tracer.sessions(program.pid)[:1]}")
                with_it = program.ask(f"{kernel} 1.5")[kernel]
                tracer.do("sessions", "run", program.pid)
                tracer.wait(program.pid, lambda found: "samples" not in found["level"], 8)
                rates.setdefault(kernel, []).append(program.ask(f"{kernel} 1.5")[kernel] / with_it)
    for kernel, ratios in rates.items():
        report.say(f"   {kernel}: time of a launch while sampled {statistics.median(ratios):.4f} of that without "
                   f"({min(ratios):.4f} to {max(ratios):.4f}, {len(ratios)} pairs)")
    return rates


def check_cost(report, rig, tracer, part):
    """Steps while it samples beside those before and after, in turns."""
    sampled, plain, whole = [], [], []
    with Planted(rig, work_command(part), tracer.socket, truth=False) as program:
        program.wait_ready()
        tracer.wait_collecting(program.pid)
        program.ask(f"each {part} 2")
        for _ in range(COST_ROUNDS):
            for is_sampled in (True, False):
                program.worker.give(f"each {part} {COST_SECONDS + 1}")
                if is_sampled:
                    sample(tracer, program.pid, COST_SECONDS - 1)
                answer = program.ask_answer()
                steps = [length for _, length in answer]
                (sampled if is_sampled else plain).append(statistics.median(steps))
                whole.append((is_sampled, statistics.mean(steps)))
        row = tracer.sessions(program.pid)[0]
        report.say(tracer.ctl("kernels", "--stalls", "--pid", program.pid, "--limit", "8").stdout)
    with_it = statistics.median(mean for is_sampled, mean in whole if is_sampled)
    without = statistics.median(mean for is_sampled, mean in whole if not is_sampled)
    ratio = statistics.median(sampled) / statistics.median(plain)
    report.say(f"   {part}: step {ratio:.4f} of one without (medians of {COST_ROUNDS} turns); with what beginning and ending hold up, "
               f"{with_it / without:.4f} in turns of {COST_SECONDS + 1} s; {row['samples']} samples, held up "
               f"{row['cupti_overhead_ns'] / 1e6 / COST_ROUNDS:.0f} ms a burst")
    report.check(f"{part}: sampling came about", row["samples"] > 0, f"{row['samples']}; {row['level']} {row['detail']!r}")
    return {"step_ratio": ratio, "whole_ratio": with_it / without, "sampled": sampled, "plain": plain,
            "held_ms": row["cupti_overhead_ns"] / 1e6 / COST_ROUNDS}


HARM = """
import sys, threading, time
import torch
stop = False
counts = [0] * 6
def turn(k):
    stream = torch.cuda.Stream()
    host = torch.empty(1 << 20)
    small = torch.randn(64, 64, device="cuda")
    with torch.cuda.stream(stream):
        while not stop:
            if k < 2: small = small * 1.0001
            elif k == 2: del_me = torch.empty(1 << 26, device="cuda"); del del_me; torch.cuda.empty_cache()
            elif k == 3: pinned = torch.empty(1 << 22, pin_memory=True); del pinned
            elif k == 4: host.copy_(torch.ones(1 << 20, device="cuda"))
            else: torch.cuda.synchronize()
            counts[k] += 1
torch.zeros(1, device="cuda")
threads = [threading.Thread(target=turn, args=(k,)) for k in range(6)]
[thread.start() for thread in threads]
print("ready", flush=True)
for line in sys.stdin:
    if line.strip() == "end": break
    print(*counts, flush=True)
stop = True
[thread.join() for thread in threads]
torch.cuda.synchronize()
print("done", flush=True)
"""


def check_harm(report, rig, tracer):
    """Six threads launch, allocate, pin, copy and wait; bursts come and go."""
    program = subprocess.Popen([sys.executable, "-c", HARM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               stderr=open(rig.results / "stalls_harm.txt", "w", encoding="utf-8"),
                               env=rig.environment(tracer.socket))
    try:
        program.stdout.readline()
        tracer.wait_collecting(program.pid)
        done, before = 0, None
        for _ in range(BURSTS):
            session = sample(tracer, program.pid, 1, lambda: time.sleep(2.5))
            program.stdin.write("count\n")
            program.stdin.flush()
            counts = list(map(int, program.stdout.readline().split()))
            if before is None or all(now > then for now, then in zip(counts, before)):
                done += 1
            before = counts
        report.say(f"   {session['samples']} samples in {session['sampled_ns'] / 1e9:.2f} s; {session['detail']!r}; rounds of each thread {counts}; "
                   f"held up {session['cupti_overhead_ns'] / 1e6:.0f} ms in all")
        report.check(f"every thread went on after each of {BURSTS} bursts", done == BURSTS, f"{done}")
        program.stdin.write("end\n")
        program.stdin.flush()
        report.check("the program ends as it should", program.stdout.readline().strip() == "done" and program.wait(30) == 0, "")
    finally:
        program.kill()


def check_stalls(report, rig):
    with start_tracer(rig) as tracer:
        figures = {"planted": check_planted(report, rig, tracer)}
        save(rig, "trace_stalls", figures)
        check_harm(report, rig, tracer)
        figures["bound"] = check_bound_cost(report, rig, tracer)
        for part in ("train", "eager", "graph"):
            figures[part] = check_cost(report, rig, tracer, part)
        save(rig, "trace_stalls", figures)

