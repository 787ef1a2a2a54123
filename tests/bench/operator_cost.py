#!/usr/bin/env python3
"""What probed operators cost a llama.cpp process: steps of a random model of some 20 ms a token, decoded one after another,
the three ways in turn, every ROUND_S seconds. Prints the ratio of a step's time to that without probes on operators: medians over rounds,
and the middle half. Run as root on a built tree:

    PYTHONPATH=tests/system:tests/workloads GPUPERF_BUILD=build python3 tests/bench/operator_cost.py [ROUNDS]

none      operators are not probed; steps are
sampled   as shipped: in windows of 50 ms
each      all the time
"""

import ctypes
import json
import pathlib
import statistics
import sys
import tempfile
import time

import llama_steps
from gpuperf_system import Daemon, require_root
from steps_test import LLAMA

# 48 layers of 1.1 million numbers: some 200 MB, read once for each token.
llama_steps.EMBEDDING, llama_steps.FEED_FORWARD, llama_steps.LAYERS, llama_steps.HEADS = 256, 1024, 48, 8
llama_steps.DECODES = 0
THREADS = 2
ROUND_S = 12  # at least two windows
SETTLE_S = 1.5
# Of the operator's probe, and the budget: without one there are no windows.
WAYS = {"none": ({"probe": False}, 1), "sampled": ({}, 1), "each": ({}, 0)}


def make_config(way):
    probe, percent = WAYS[way]
    return {"shipped_functions": True, "ggml_func_sym": {"ggml_operator": probe}, "overhead": {"budget_percent": percent}}


def measure(llama):
    """Mean time of a step, in seconds: windows are few."""
    times, end = [], time.perf_counter() + ROUND_S
    while time.perf_counter() < end:
        begin = time.perf_counter()
        llama.step(s0=1)
        times.append(time.perf_counter() - begin)
        if llama.positions[0] >= llama_steps.CONTEXT:  # the next fills the context anew
            llama.lib.llama_memory_clear(llama.lib.llama_get_memory(llama.context), True)
            llama.positions[0] = 0
    return statistics.fmean(times)


def main():
    require_root()
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    with tempfile.TemporaryDirectory() as room:
        model = pathlib.Path(room) / "model.gguf"
        llama_steps.write_model(model, 0)
        llama = llama_steps.Llama(LLAMA, model, THREADS, False)
    llama.lib.llama_get_memory.restype = ctypes.c_void_p
    llama.lib.llama_get_memory.argtypes = [ctypes.c_void_p]
    llama.lib.llama_memory_clear.argtypes = [ctypes.c_void_p, ctypes.c_bool]
    llama.lib.llama_memory_clear.restype = None
    llama.step(s0=1)
    seconds = {way: [] for way in WAYS}
    with Daemon(make_config("none")) as daemon:
        daemon.wait_attached("llama_decode", seconds=60)
        for index in range(rounds):
            order = list(WAYS) if index % 2 == 0 else list(WAYS)[::-1]
            for way in order:
                daemon.config.write_text(json.dumps(daemon.settings | make_config(way)), encoding="utf-8")
                daemon.ctl("config", "reload")
                time.sleep(SETTLE_S)
                seconds[way].append(measure(llama))
        rows = daemon.query("steps", "operators")
        calls, drops = sum(row["calls"] for row in rows), daemon.drops()
    print(f"{statistics.median(seconds['none']) * 1e3:.1f} ms a step, {calls} operators reported, dropped: {drops}")
    print("way      step / without  middle half")
    for way, values in seconds.items():
        ratios = sorted(value / base for value, base in zip(values, seconds["none"]))
        print(f"{way:8} {statistics.median(ratios):12.4f}    {ratios[len(ratios) // 4]:.4f} to {ratios[-1 - len(ratios) // 4]:.4f}")


if __name__ == "__main__":
    main()
