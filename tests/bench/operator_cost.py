#!/usr/bin/env python3
"""What a probed operator costs a llama.cpp process: steps of a tiny random model on one thread, with operators probed all the time
and not probed, in turn, some seconds each. Prints the time of a step both ways and what that is for each operator: medians over
rounds, and the middle half. Models that compute more lose as much for each operator. Run as root on a built tree:

    PYTHONPATH=tests/system:tests/workloads GPUPERF_BUILD=build python3 tests/bench/operator_cost.py [ROUNDS]
"""

import ctypes
import json
import pathlib
import statistics
import sys
import tempfile
import time

import llama_steps
from gpuperf_system import Daemon, require_root, wait_until
from steps_test import LLAMA

STEPS = 50
ROUND_S = 0.7
SETTLE_S = 0.8
WAYS = {"without": {"probe": False}, "probed": {"sample": False}}


def make_config(way):
    return {"shipped_functions": True, "ggml_func_sym": {"ggml_operator": WAYS[way]}}


def measure(llama):
    """Median time of a step, in seconds."""
    times, end = [], time.perf_counter() + ROUND_S
    while time.perf_counter() < end:
        if llama.positions[0] >= 64:  # the cache anew: longer ones take longer
            llama.lib.llama_memory_clear(llama.lib.llama_get_memory(llama.context), True)
            llama.positions[0] = 0
        begin = time.perf_counter()
        llama.step(s0=1)
        times.append(time.perf_counter() - begin)
    llama.steps.clear()
    return statistics.median(times)


def compare(daemon, ways, make_config, settle_s, rounds, measure):
    """Way -> what `measure` gave in each round, with the ways in turn and in turned order."""
    values = {way: [] for way in ways}
    for index in range(rounds):
        for way in list(ways)[::1 if index % 2 else -1]:
            daemon.config.write_text(json.dumps(daemon.settings | make_config(way)), encoding="utf-8")
            daemon.ctl("config", "reload")
            time.sleep(settle_s)
            values[way].append(measure())
    return values


def describe(values, unit):
    values = sorted(values)
    return f"{statistics.median(values):.2f} {unit} ({values[len(values) // 4]:.2f} to {values[-1 - len(values) // 4]:.2f})"


def main():
    require_root()
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    with tempfile.TemporaryDirectory() as room:
        model = pathlib.Path(room) / "model.gguf"
        llama_steps.write_model(model, llama_steps.EXPERTS)
        llama = llama_steps.Llama(LLAMA, model, 1, False)
    llama.lib.llama_get_memory.restype = ctypes.c_void_p
    llama.lib.llama_get_memory.argtypes = [ctypes.c_void_p]
    llama.lib.llama_memory_clear.restype = None
    llama.lib.llama_memory_clear.argtypes = [ctypes.c_void_p, ctypes.c_bool]
    with Daemon(make_config("probed")) as daemon:
        daemon.wait_attached("llama_decode", "ggml_operator", seconds=60)
        for _ in range(STEPS):
            llama.step(s0=1)
        operators = wait_until("the operators", lambda: sum(
            row["calls"] for row in daemon.query("steps", "operators") if row["operation"])) // STEPS
        seconds = compare(daemon, WAYS, make_config, SETTLE_S, rounds, lambda: measure(llama))
    print(f"{operators} operators a step")
    for way, values in seconds.items():
        print(f"a step {way}: {describe([1e6 * value for value in values], 'us')}")
    more_us = [1e6 * (probed - without) / operators for probed, without in zip(seconds["probed"], seconds["without"])]
    print(f"an operator: {describe(more_us, 'us more')}")


if __name__ == "__main__":
    main()
