#!/usr/bin/env python3
"""What a stack at every launch costs a Python program, on a fake driver: time per launch, of ways switched by turns within
one process. Run as root on a built tree:

    PYTHONPATH=tests/system GPUPERF_BUILD=build python3 tests/bench/launch_stack_cost.py [ROUNDS]
"""

import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

from gpuperf_system import Daemon, wait_until
from injector_workload import FAKES, INJECTOR

LAUNCHES = 20_000
SITES = 20  # of 10 stacks each, some 25 frames of Python and 90 native ones deep
PROGRAM = f"""
import ctypes, functools, json, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
runtime = ctypes.CDLL("libfake_runtime.so")
assert cuda.cuInit(0) == 0
kernel = ctypes.c_void_p(0x1000)
launch = functools.partial(runtime.fake_runtime_launch, 1, kernel, 0)

def descend(depth, site):
    if depth == 0:
        exec(sites[site], scope)
    elif depth % 2:
        descend(depth - 1, site)
    else:
        list(map(functools.partial(descend, depth - 1), [site]))

scope = {{"launch": launch, "rounds": {LAUNCHES // SITES // 10}}}
body = "for _ in range(rounds): " + "launch(); " * 10
sites = [compile("\\n" * i + body, f"site{{i}}.py", "exec") for i in range({SITES})]
print("ready", flush=True)
for line in sys.stdin:
    begin = time.process_time_ns()
    for site in range({SITES}):
        descend(20, site)
    print((time.process_time_ns() - begin) / {LAUNCHES}, flush=True)
"""


class Program:
    def __init__(self, folder):
        for library in (FAKES / "libcuda.so.1", FAKES / "libfake_runtime.so", INJECTOR):
            shutil.copy(library, folder)
        (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
        self.process = subprocess.Popen(
            ["/usr/bin/python3", folder / "program.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={"LD_LIBRARY_PATH": str(folder), "GPUPERF_SOCKET": str(folder / "none"),
                 "CUDA_INJECTION64_PATH": str(folder / INJECTOR.name)})
        assert self.process.stdout.readline() == "ready\n"

    def measure_ns(self):
        """CPU time of the program per launch."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


def hooked_calls(daemon, pid):
    return daemon.functions("--pid", pid).get("cuLaunchKernel", {}).get("calls_hooked", 0)


def measure(daemon, program, use_hooks, has_stacks):
    daemon.settings["overhead"]["launch_hooks"] = use_hooks
    daemon.config.write_text(json.dumps(daemon.settings), encoding="utf-8")
    daemon.ctl("config", "reload")
    before = hooked_calls(daemon, program.process.pid)

    def is_switched():
        program.measure_ns()
        now = hooked_calls(daemon, program.process.pid)
        changed, state["before"] = now > state["before"], now
        return changed == use_hooks
    state = {"before": before}
    wait_until("the way is switched", is_switched)
    capture = daemon.query("trace", "start", "--pid", program.process.pid)["id"] if has_stacks else None
    program.measure_ns()  # learns
    cost_ns = program.measure_ns()
    if capture is not None:
        daemon.ctl("trace", "stop", capture)
        wait_until("the capture", lambda: [row for row in daemon.query("trace", "list")
                                           if row["id"] == capture and row["state"] in ("stored", "failed")], 60)
    return cost_ns


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    ways = {"hooks, statistics": (True, False), "hooks, a stack at every launch": (True, True),
            "probes, statistics": (False, False), "probes, a stack at every launch": (False, True)}
    with tempfile.TemporaryDirectory(prefix="gpuperf-hooks-") as name:
        folder = pathlib.Path(name)
        program = Program(folder)
        costs = {"no daemon": [program.measure_ns() for _ in range(rounds)]} | {way: [] for way in ways}
        with Daemon({"cuda_func_sym": {"cuLaunchKernel": {"symbol": "cuLaunchKernel", "may_throw": False}},
                     "libraries": {"cuda_func_sym": [f"{folder}/libcuda.so.1"]}, "trace": {"recorder": False},
                     "overhead": {"budget_percent": 0, "launch_hooks": True}}) as daemon:
            daemon.wait_attached("cuLaunchKernel")
            for _ in range(rounds):
                for way, arguments in ways.items():
                    costs[way].append(measure(daemon, program, *arguments))
        program.process.communicate()
    for way, values in costs.items():
        print(f"{way:34} {statistics.median(values):7.0f} ns a launch ({min(values):.0f} to {max(values):.0f})")


if __name__ == "__main__":
    main()
