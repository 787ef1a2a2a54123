#!/usr/bin/env python3
"""What seeing requests costs: a message of 14 bytes there and back over TCP on this host (two writes and two reads) with requests.enabled
false and true in turn, a daemon each. `others`: a process of a session without steps; `server`: one that makes steps, whose messages are
parts of responses. Prints medians over rounds, and the middle half. Run as root on a built tree:

    PYTHONPATH=tests/system:tests/workloads:tests/bench GPUPERF_BUILD=build python3 tests/bench/request_cost.py [ROUNDS]
"""

import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import llama_steps
from gpuperf_system import Daemon, require_root, wait_until
from operator_cost import describe
from steps_test import LLAMA

TURNS = 20_000
TOKEN = b"9\r\ndata: a\n\n\r\n"


def measure():
    """Nanoseconds there and back, of one connection, median of ten runs."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        server, _ = listening.accept()
    client.send(b"GET / HTTP/1.1\r\n\r\n")
    server.recv(100)
    server.send(b"HTTP/1.1 200 OK\r\n\r\n")
    client.recv(100)
    times = []
    for _ in range(10):
        begin = time.perf_counter_ns()
        for _ in range(TURNS // 10):
            server.send(TOKEN)
            client.recv(100)
            client.send(TOKEN)
            server.recv(100)
        times.append((time.perf_counter_ns() - begin) / (TURNS // 10))
    client.close()
    server.close()
    return statistics.median(times)


def measure_as_other():
    return float(subprocess.run([sys.executable, __file__, "measure"], check=True, capture_output=True, start_new_session=True).stdout)


def run_round(llama, enabled):
    config = {"shipped_functions": True, "requests": {"enabled": enabled}, "overhead": {"budget_percent": 0}}
    with Daemon(config) as daemon:
        wait_until("llama.cpp probed", lambda: "llama_decode" in {
            row["function"] for row in daemon.query("probes") if row["state"] == "attached"}, 30)
        llama.step(s0=1)
        llama.step(s0=1)
        time.sleep(1.5)  # until its session is known
        found = {"others": measure_as_other(), "server": measure()}
        rows = daemon.query("requests")
    if bool(rows) != enabled:
        raise RuntimeError(f"requests.enabled is {enabled}, and seen were {rows}")
    return found


def main():
    if sys.argv[1:] == ["measure"]:
        print(measure())
        return
    require_root()
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    with tempfile.TemporaryDirectory() as room:
        model = pathlib.Path(room) / "model.gguf"
        llama_steps.write_model(model, 0)
        llama = llama_steps.Llama(LLAMA, model, 1, False)
    values = {(who, enabled): [] for who in ("others", "server") for enabled in (False, True)}
    for index in range(rounds):
        for enabled in (False, True)[::1 if index % 2 else -1]:
            for who, value in run_round(llama, enabled).items():
                values[who, enabled].append(value)
    for who in ("others", "server"):
        more = [b - a for a, b in zip(values[who, False], values[who, True])]
        print(f"{who}: {describe(values[who, False], 'ns')} without, {describe(values[who, True], 'ns')} with; {describe(more, 'ns')} more")


if __name__ == "__main__":
    main()
