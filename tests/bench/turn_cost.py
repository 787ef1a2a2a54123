#!/usr/bin/env python3
"""What learning of steps costs a turn of a loop: a copy to the device, one to the host and a wait for it, all three probed, with the
roles from which steps are learned and without, in turn. Prints the time of the three calls both ways and the difference: medians over
rounds, and the middle half. Run as root on a built tree:

    PYTHONPATH=tests/system:tests/workloads:tests/bench GPUPERF_BUILD=build python3 tests/bench/turn_cost.py [ROUNDS]
"""

import statistics
import sys
import time

import served_steps
from gpuperf_system import WORKLOADS, Daemon, require_root
from operator_cost import compare, describe

TURNS = 1000
APART_S = 0.0003  # turns that are nearer are not all told
SETTLE_S = 0.5
ROLES = {"cudaMemcpyAsync": "result_copy", "cudaEventSynchronize": "result_wait"}
WAYS = ("without", "learned")


def make_config(way):
    return {"cuda_func_sym": {name: {"symbol": name} | ({"role": role} if way == "learned" else {}) for name, role in ROLES.items()}}


def measure(engine):
    """Median time of a turn's three calls, in seconds."""
    times = []
    for _ in range(TURNS):
        begin = time.perf_counter()
        engine.copy(8, served_steps.TO_DEVICE)
        engine.copy(8, served_steps.TO_HOST)
        engine.runtime.cudaEventSynchronize(engine.event)
        times.append(time.perf_counter() - begin)
        time.sleep(APART_S)
    return statistics.median(times)


def main():
    require_root()
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    engine = served_steps.Engine(WORKLOADS / "standin")
    with Daemon(make_config("learned")) as daemon:
        daemon.wait_attached(*ROLES, seconds=60)
        seconds = compare(daemon, WAYS, make_config, SETTLE_S, rounds, lambda: measure(engine))
        print(f"{daemon.query('steps')[0]['steps']} steps learned")
    for way, values in seconds.items():
        print(f"a turn {way}: {describe([1e6 * value for value in values], 'us')}")
    more_us = [1e6 * (learned - without) for learned, without in zip(seconds["learned"], seconds["without"])]
    print(f"a turn: {describe(more_us, 'us more')}")


if __name__ == "__main__":
    main()
