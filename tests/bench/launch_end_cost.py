#!/usr/bin/env python3
"""What it costs a process at its end that the daemon takes what hooks counted and had not noted. Prints threads, milliseconds
from a kill to the end without and with a daemon, and those of the BPF program in it, medians. Run as root on a built tree:

    PYTHONPATH=tests/system GPUPERF_BUILD=build python3 tests/bench/launch_end_cost.py [ROUNDS]
"""

import json
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from gpuperf_system import WORKLOADS, Daemon, require_root, wait_until
from injector_workload import FAKES, INJECTOR
from launch_ends_test import CONFIG, TRUTH

THREADS = (1, 64, 1000)
CALLS = 200
STATS = pathlib.Path("/proc/sys/kernel/bpf_stats_enabled")


def read_program_ns():
    """Run time of the program on ends of threads, if a daemon is there."""
    found = subprocess.run(["bpftool", "prog", "show", "name", "process_exit", "-j"], capture_output=True, check=False).stdout
    found = json.loads(found.strip() or "{}")
    return sum(one.get("run_time_ns", 0) for one in (found if isinstance(found, list) else [found]))


def end_once(folder, threads):
    """Milliseconds until a process with that many threads that have launched is gone, and those of the program."""
    truth = folder / "truth"
    truth.write_bytes(bytes(TRUTH.size))
    process = subprocess.Popen([WORKLOADS / "launch_ends", truth, "stay", str(threads), str(CALLS)],
                               env={"LD_LIBRARY_PATH": str(folder), "GPUPERF_SOCKET": str(folder / "none"),
                                    "CUDA_INJECTION64_PATH": str(folder / INJECTOR.name)})
    wait_until("launches", lambda: TRUTH.unpack(truth.read_bytes())[1] == threads * CALLS, 30)
    program_ns, begin = read_program_ns(), time.perf_counter()
    process.send_signal(signal.SIGKILL)
    process.wait()
    taken_ms = (time.perf_counter() - begin) * 1e3
    return taken_ms, (read_program_ns() - program_ns) / 1e6


def measure(folder, rounds):
    return {threads: [statistics.median(column) for column in zip(*(end_once(folder, threads) for _ in range(rounds)))]
            for threads in THREADS}


def main():
    require_root()
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    with tempfile.TemporaryDirectory(prefix="gpuperf-ends-") as name:
        folder = pathlib.Path(name)
        for library in (FAKES / "libcuda.so.1", FAKES / "libfake_runtime.so", INJECTOR):
            shutil.copy(library, folder)
        without = measure(folder, rounds)
        before = STATS.read_text(encoding="ascii")
        try:
            STATS.write_text("1", encoding="ascii")
            with Daemon(CONFIG | {"libraries": {"cuda_func_sym": [f"{folder}/libcuda.so.1"]}}) as daemon:
                end_once(folder, 1)
                wait_until("hooks that count", lambda: end_once(folder, 1) and any(
                    row["calls_hooked"] == CALLS for row in daemon.query("functions", "--per-process")), 30)
                with_daemon = measure(folder, rounds)
        finally:
            STATS.write_text(before, encoding="ascii")
    print("threads  without  with  program")
    for threads in THREADS:
        print(f"{threads:7} {without[threads][0]:8.2f} {with_daemon[threads][0]:5.2f} {with_daemon[threads][1]:8.3f}")


if __name__ == "__main__":
    main()
