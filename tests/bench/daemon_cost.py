#!/usr/bin/env python3
"""What the daemon itself costs: CPU and memory, by thread and with its children, with the aims.

usage: GPUPERF_BUILD=build tests/bench/daemon_cost.py [--seconds N] [PART...]     root; needs a C compiler

steady    calls at a known rate
attach    many functions in many files; a reload with one changed line; the stop
processes a thousand of them with 200 probes each: memory, probes off and on, the stop
stall     how long a program that calls a probed function all the time is held up while its probes and those of 100 others come and go
scrape    a large one
idle      the shipped configuration with nothing to do
records   kernels of four injected processes, on a fake driver, beside probed calls
torch     PyTorch programs as they come: a first, another, one after a restart; with Debian's python3-torch: /usr/bin/python3
"""

import argparse
import contextlib
import ctypes
import datetime
import json
import mmap
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import daemon_loads  # noqa: E402
from daemon_usage import Usage, read_memory  # noqa: E402
from gpuperf_system import (WORKLOADS, Daemon, finish_workload,  # noqa: E402
                            start_workload, wait_until)

PROCESSES = 8
CALLS_PER_SECOND = 200_000
SYMBOLS = 1000
FILES = 10
SERIES = 20_000
MANY_PROCESSES = 1_000
MANY_PROBES = 200
STALL_PROCESSES = 100
STALL_CYCLES = 100
# Prints the longest time from one call to the next, in each tenth of a second: its end and that time, in ns.
CALLER = r"""
#include <stdint.h>
#include <stdio.h>
#include <time.h>
int many_1(int value);
static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ull + now.tv_nsec;
}
int main(void) {
  for (;;) {
    uint64_t last = now_ns(), end = last + 100000000, longest = 0;
    while (last < end) {
      many_1(0);
      const uint64_t now = now_ns();
      if (now - last > longest) longest = now - last;
      last = now;
    }
    printf("%llu %llu\n", (unsigned long long)last, (unsigned long long)longest);
    fflush(stdout);
  }
}
"""
ROWS = []
# What is measured here is the daemon, at whatever cost to the workloads.
NO_BUDGET = {"overhead": {"budget_percent": 0}}


def report(what, value, unit, aim=None):
    met = "" if aim is None else f"aim {aim:g}: {'met' if value <= aim else 'not met'}"
    ROWS.append((what, value, unit, aim))
    print(f"{what:<52} {value:>10.2f} {unit:<12} {met}", flush=True)


def scrape(daemon):
    """Seconds and text of one scrape."""
    started = time.monotonic()
    with urllib.request.urlopen(f"http://127.0.0.1:{daemon.port}/metrics", timeout=60) as page:
        text = page.read().decode()
    return time.monotonic() - started, text


def make_library(folder):
    """A library of SYMBOLS functions, which calls the first where it is loaded."""
    source = folder / "many.c"
    source.write_text("".join(f"int many_{i}(int value) {{ return value + {i}; }}\n"
                              for i in range(SYMBOLS))
                      + "__attribute__((constructor)) static void begin(void) { many_0(0); }\n", encoding="utf-8")
    library = folder / "libmany.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O0", "-fcf-protection=none", "-o", library, source],
                   check=True)
    return library


def measure_steady_calls(folder, seconds):
    library = folder / "libcount_target.so"
    shutil.copy(WORKLOADS / library.name, library)
    # By return probes, as CUDA's functions are: exits are stepped, and two cores would not keep up.
    config = NO_BUDGET | {"custom_sym": {"count_fast": {"symbol": "count_fast",
                                                        "may_throw": False}},
                          "libraries": {"custom_sym": [str(library)]},
                          "stats": {"interval_ms": 1000}}
    with Daemon(config) as daemon:
        go = daemon.path / "go"
        programs = [start_workload(
            "steady_calls", "--per-second", CALLS_PER_SECOND // PROCESSES, "--seconds", seconds + 2,
            "--wait-for-file", go, env=os.environ | {"LD_LIBRARY_PATH": str(folder)})
            for _ in range(PROCESSES)]
        daemon.wait_attached("count_fast")
        go.touch()
        time.sleep(1)  # settled: every process is known
        before, started = Usage(daemon.process.pid), time.monotonic()
        time.sleep(seconds)
        used, _, _ = Usage(daemon.process.pid).since(before)
        elapsed = time.monotonic() - started
        resident = read_memory(daemon.process.pid)["resident"]
        truths = [finish_workload(program)[0] for program in programs]

        rate = sum(truth["calls"]["count_fast"]["calls"] / truth["elapsed_ns"] * 1e9
                   for truth in truths)
        expected = {truth["pid"]: truth["calls"]["count_fast"]["calls"] for truth in truths}

        def read_counted():
            return {row["pid"]: row["calls"] for row in daemon.query("functions", "--per-process")}
        wait_until("every call counted", lambda: read_counted() == expected)
    report(f"calls a second over {PROCESSES} processes, all counted", rate, "calls/s")
    report("daemon, CPU at that rate", 100 * used / elapsed, "% of a core", 1)
    report(f"daemon, resident, {PROCESSES} processes", resident, "MiB", 64 + PROCESSES)


def measure_attach(folder, library):
    copies = []
    for number in range(FILES):
        copies.append(folder / f"many{number}/libmany.so")
        copies[-1].parent.mkdir()
        shutil.copy(library, copies[-1])
    config = NO_BUDGET | {"custom_sym": {f"many_{i}": f"many_{i}" for i in range(SYMBOLS)},
                          "libraries": {"custom_sym": ["libmany.so"]}}
    with Daemon(config) as daemon:
        started = time.time()
        mappings = []
        for copy in copies:
            with open(copy, "rb") as file:
                mappings.append(mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE,
                                          prot=mmap.PROT_READ | mmap.PROT_EXEC))
        wait_until("every file probed", lambda: daemon.log().count("library probed") >= FILES, 120)
        last = [line for line in daemon.log().splitlines() if "library probed" in line][-1]
        ended = datetime.datetime.fromisoformat(last.split()[0]).timestamp()
        report(f"attach {SYMBOLS} symbols x {FILES} files", ended - started, "s", 2)
        wait_until("all said to be attached", lambda: daemon.query("status")["probes"]["attached"]
                   == SYMBOLS * FILES)
        measure_reload(daemon)
        started = time.monotonic()
        daemon.stop()
        report("stop, everything detached", time.monotonic() - started, "s", 2)
        del mappings


def measure_reload(daemon):
    config = json.loads(daemon.config.read_text())
    config["custom_sym"]["many_7"] = {"symbol": "many_7", "slow_threshold_ms": 5}
    daemon.config.write_text(json.dumps(config))
    started = time.monotonic()
    result = daemon.ctl("config", "reload", check=False)
    elapsed_ms = (time.monotonic() - started) * 1000
    if result.returncode != 0:
        print(f"reload: not measured: {result.stderr.strip() or result.stdout.strip()}")
        return
    report("reload, one line changed, the client's start included", elapsed_ms, "ms", 200)


@contextlib.contextmanager
def many_processes(library, count):
    """The daemon, beside so many that have the library with the probes mapped, have called one, and sleep."""
    config = NO_BUDGET | {"custom_sym": {f"many_{i}": f"many_{i}" for i in range(MANY_PROBES)},
                          "libraries": {"custom_sym": [str(library)]}}
    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(Daemon(config))

        def start():
            program = subprocess.Popen(["sleep", "10000"], env=os.environ | {"LD_PRELOAD": str(library)})
            stack.callback(program.wait)
            stack.callback(program.kill)

        start()
        daemon.wait_attached("many_0", seconds=60)  # the first one's call came before the probes
        for _ in range(count):
            start()
        wait_until("every process is known", lambda: int(daemon.query("status")["processes"]) >= count, 60)
        time.sleep(5)
        yield daemon


def measure_many_processes(library):
    with many_processes(library, MANY_PROCESSES) as daemon:
        memory = read_memory(daemon.process.pid)
        report(f"resident, {MANY_PROCESSES} processes", memory["resident"], "MiB", 128)
        report("of it anonymous", memory["anonymous"], "MiB")
        for verb in ("disable", "enable"):
            started = time.monotonic()
            daemon.ctl("probes", verb, "many_*")
            report(f"{verb} {MANY_PROBES} probes in all of them", time.monotonic() - started, "s")
        started = time.monotonic()
        daemon.stop()
        report("stop", time.monotonic() - started, "s", 10)


def measure_stall(folder, library):
    source, caller, output = folder / "caller.c", folder / "caller", folder / "gaps"
    source.write_text(CALLER, encoding="utf-8")
    subprocess.run(["cc", "-O2", "-o", caller, source, library, f"-Wl,-rpath,{folder}"], check=True)
    with many_processes(library, STALL_PROCESSES) as daemon, open(output, "wb") as file, \
            subprocess.Popen([caller], stdout=file) as program:
        try:
            daemon.wait_attached("many_1")
            time.sleep(2)
            begin_s = time.monotonic()
            time.sleep(20)
            changes_s = time.monotonic()
            for _ in range(STALL_CYCLES):
                for verb in ("disable", "enable"):
                    daemon.ctl("probes", verb, "many_*")
            end_s = time.monotonic()
        finally:
            program.kill()
    rows = [tuple(map(int, line.split())) for line in output.read_text().splitlines() if line.count(" ") == 1]
    print(f"longest time between two calls in each tenth of a second; {MANY_PROBES} probes of {STALL_PROCESSES + 1} processes come and "
          f"go {STALL_CYCLES} times")
    for what, begin, end in (("nothing changes", begin_s, changes_s), ("probes come and go", changes_s, end_s)):
        gaps = sorted(gap for at, gap in rows if begin * 1e9 < at < end * 1e9)
        report(f"{what}: median", gaps[len(gaps) // 2] / 1e6, "ms")
        report(f"{what}: maximum", gaps[-1] / 1e6, "ms")


def measure_scrape(library):
    functions = SERIES // 31 + 1  # series of one function and process
    config = NO_BUDGET | {"custom_sym": {f"many_{i}": f"many_{i}" for i in range(functions)},
                          "libraries": {"custom_sym": [str(library)]}}
    with Daemon(config) as daemon:
        many = ctypes.CDLL(str(library))
        wait_until("probed", lambda: "library probed" in daemon.log(), 60)
        for i in range(functions):
            many[f"many_{i}"](i)

        def counted():
            return len(daemon.query("functions", "--limit", functions)) == functions
        wait_until("every function counted", counted, 30)
        times = []
        for _ in range(5):
            seconds, text = scrape(daemon)
            times.append(seconds)
        series = sum(1 for line in text.splitlines() if line and not line.startswith("#"))
        report(f"scrape of {series} series, median of 5", sorted(times)[2] * 1000, "ms", 100)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=20, help="of a steady rate")
    parser.add_argument("parts", nargs="*", metavar="PART")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpuperf-daemon-cost-") as name:
        folder = pathlib.Path(name)
        library = make_library(folder)
        parts = {"steady": lambda: measure_steady_calls(folder, arguments.seconds),
                 "attach": lambda: measure_attach(folder, library),
                 "stall": lambda: measure_stall(folder, library),
                 "processes": lambda: measure_many_processes(library),
                 "scrape": lambda: measure_scrape(library),
                 "idle": lambda: daemon_loads.measure_idle(report, arguments.seconds),
                 "records": lambda: daemon_loads.measure_records(report, arguments.seconds),
                 "torch": lambda: daemon_loads.measure_torch(report, folder)}
        unknown = set(arguments.parts) - set(parts)
        if unknown:
            parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(parts)}")
        for part in arguments.parts or parts:
            parts[part]()
    print(json.dumps({"bench": "daemon_cost", "rows": [
        {"what": what, "value": round(value, 3), "unit": unit, "aim": aim}
        for what, value, unit, aim in ROWS]}))


if __name__ == "__main__":
    main()
