#!/usr/bin/env python3
"""What the overhead budget lets a process lose, measured from outside, beside what gpuperf says of it. Observation is
switched off and on within one process (gpuperfctl overhead stand-down, release), so that nothing else differs.

usage: GPUPERF_BUILD=build tests/bench/budget_cost.py published [ROUNDS]    loads without a budget: loss beside estimate
       GPUPERF_BUILD=build tests/bench/budget_cost.py first [ROUNDS]        the first 10 s of a loop that only calls
       GPUPERF_BUILD=build tests/bench/budget_cost.py square [MINUTES]      10 s busy, 10 s idle
root
"""

import contextlib
import datetime
import json
import pathlib
import shutil
import statistics
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
from gpuperf_system import WORKLOADS, Daemon, finish_workload, start_workload, wait_until  # noqa: E402

FOLDER = tempfile.TemporaryDirectory(prefix="gpuperf-bench-")
PROGRAM = f"{FOLDER.name}/busy_loop"
PHASE_SECONDS = 2
SETTLE_SECONDS = 0.5  # until a demand is in force, and until the published share is of after it


def make_config(budget_percent, may_throw):
    return {"custom_sym": {"busy_tight": {"symbol": "busy_tight", "may_throw": may_throw},
                           "busy_rare": {"symbol": "busy_rare", "may_throw": False}},
            "libraries": {"custom_sym": [PROGRAM]}, "slow": {"default_threshold_ms": 0},
            "overhead": {"budget_percent": budget_percent}}


@contextlib.contextmanager
def run_load(daemon, seconds, *options):
    """The process; `truth` of it once it has ended."""
    go = daemon.path / "go"
    process = start_workload(PROGRAM, "--seconds", seconds, *options, "--wait-for-file", go)
    daemon.wait_attached("busy_tight", "busy_rare")
    wait_until("the probes' costs are known", lambda: all(row["cost_ns"] for row in daemon.query("probes")))
    go.touch()
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def rate(truth, begin_s, end_s):
    """Calls a slice between two times of CLOCK_MONOTONIC."""
    start_s, slice_s = truth["start_mono_ns"] / 1e9, truth["slice_ms"] / 1e3
    within = [calls for number, calls in enumerate(truth["tight_per_slice"])
              if start_s + number * slice_s >= begin_s and start_s + (number + 1) * slice_s <= end_s]
    return statistics.mean(within)


def read_share(daemon, pid):
    return next((row["overhead_ratio"] for row in daemon.query("processes") if row["pid"] == pid), 0)


def measure_published(apart_us, may_throw, rounds):
    """(loss, its spread, published) of the load."""
    with Daemon(make_config(0, may_throw)) as daemon:
        seconds = int(2 * rounds * (PHASE_SECONDS + SETTLE_SECONDS + 1.5)) + 5
        with run_load(daemon, seconds, "--apart-us", apart_us) as process:
            phases, published = [], []
            for number in range(2 * rounds):
                is_on = number % 2 == 0
                daemon.ctl("overhead", *(["release"] if is_on else ["stand-down", "--for", "1h"]))
                time.sleep(SETTLE_SECONDS)
                begin_s = time.monotonic()
                while time.monotonic() < begin_s + PHASE_SECONDS:
                    time.sleep(0.25)
                    if is_on and time.monotonic() > begin_s + 1:  # the share is of the last second
                        published.append(read_share(daemon, process.pid))
                phases.append((is_on, begin_s, time.monotonic()))
            (truth,) = finish_workload(process)
    rates = [rate(truth, begin_s, end_s) for _, begin_s, end_s in phases]
    losses = [1 - on / off for on, off in zip(rates[::2], rates[1::2])]
    return statistics.median(losses), (min(losses), max(losses)), statistics.mean(published)


def run_published(rounds):
    print("| other work between calls, µs | probe | lost, measured | spread | published | difference, points |")
    print("|---|---|---|---|---|---|")
    for may_throw in (False, True):
        for apart_us in (30, 100, 400, 2000):
            loss, (low, high), said = measure_published(apart_us, may_throw, rounds)
            print(f"| {apart_us:,} | {'exits' if may_throw else 'return'} | {loss:.2%} | {low:.2%} to {high:.2%} | {said:.2%} "
                  f"| {100 * (said - loss):+.2f} |", flush=True)


def run_first(rounds):
    print("| run | suspended after | slowed for | of the first second | of the first 10 s |\n|---|---|---|---|---|")
    for number in range(rounds):
        with Daemon(make_config(1, False)) as daemon, run_load(daemon, 12) as process:
            (truth,) = finish_workload(process)
            (line,) = [line for line in daemon.log().splitlines() if "suspended by the overhead budget" in line]
        suspended_s = datetime.datetime.fromisoformat(line.split()[0]).timestamp() - time.time() + time.monotonic()
        slices = truth["tight_per_slice"]
        free = statistics.median(slices)
        # Slices with the probe stand out: it makes a call a hundred times as long.
        lost = [max(1 - calls / free, 0) if calls < 0.7 * free else 0 for calls in slices]
        print(f"| {number + 1} | {1e3 * suspended_s - truth['start_mono_ns'] / 1e6:.0f} ms | {sum(lost) * truth['slice_ms']:.0f} ms "
              f"| {sum(lost[:10]) / 10:.1%} | {sum(lost[:100]) / 100:.2%} |", flush=True)


def run_square(minutes):
    levels = []
    with Daemon(make_config(1, True)) as daemon:  # stepped: over the budget
        with run_load(daemon, minutes * 60 + 20, "--apart-us", 400, "--busy-seconds", 10) as process:
            daemon.ctl("overhead", "stand-down", "--for", "1h")
            begin_s = time.monotonic()
            time.sleep(11)
            daemon.ctl("overhead", "release")
            is_over = threading.Event()

            def watch():
                while not is_over.wait(0.25):
                    out = [row["function"] for row in daemon.query("status").get("suspensions", [])]
                    if not levels or levels[-1][1] != out:
                        levels.append((time.monotonic(), out))
            watcher = threading.Thread(target=watch)
            watcher.start()
            (truth,) = finish_workload(process)
            is_over.set()
            watcher.join()
            row = daemon.functions("--pid", truth["pid"])["busy_tight"]
            rare = daemon.functions("--pid", truth["pid"])["busy_rare"]
    start_s = truth["start_mono_ns"] / 1e9
    free = rate(truth, max(begin_s + SETTLE_SECONDS, start_s), start_s + 10)
    losses = [1 - rate(truth, start_s + at, start_s + at + 10) / free for at in range(20, minutes * 60 + 20, 20)]
    made = truth["calls"]["busy_tight"]["calls"]
    print(json.dumps({
        "busy_periods": len(losses), "loss_median": round(statistics.median(losses), 4),
        "loss_worst": round(max(losses), 4), "loss_least": round(min(losses), 4),
        "level_changes": [(round(at_s - start_s, 1), out) for at_s, out in levels],
        "calls_made": made, "calls_counted": row["calls"], "missed": row.get("missed"),
        "rare": {"made": truth["calls"]["busy_rare"]["calls"], "counted": rare["calls"]}}, indent=1))


def main():
    what, *number = sys.argv[1:]
    shutil.copy(WORKLOADS / "busy_loop", FOLDER.name)
    {"published": run_published, "first": run_first, "square": run_square}[what](
        int(number[0]) if number else {"published": 8, "first": 5, "square": 10}[what])


if __name__ == "__main__":
    main()
