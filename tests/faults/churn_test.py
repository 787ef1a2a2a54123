#!/usr/bin/env python3
"""Hours of a busy host in minutes: programs come, call, launch and go, beside captures, reloads, readers and scrapes. Counts are
exact at the end, and neither memory, descriptors nor threads grow.

usage: churn_test.py [--minutes N]     default 3; 60 with GPUPERF_LONG_TESTS (tests/run.sh --long)
"""

import argparse
import contextlib
import json
import math
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import unittest
import urllib.request

from gpuperf_system import COUNT_LIBRARY, LONG, Daemon, finish_workload, get_calls, require_root, start_workload, wait_until
from injector_workload import Workload, require_fakes

arguments = argparse.Namespace(minutes=60.0 if LONG else 3.0)
FUNCTIONS = ("count_fast", "count_status", "count_nested")
CALLS = 200
LAUNCHES = 20
PROGRAMS = 3  # of each kind, at a time
# What is kept of processes that are gone follows their rate: it is to be the same all the time.
TURN_SECONDS = 0.8
CAPTURE_EVERY, RELOAD_EVERY = 20, 7  # turns
SAMPLES = 40
# What may be more at the end than in the middle: allocators keep some, and a capture or a reload may be under way.
LIMITS = {"anonymous memory, KiB": 2048, "descriptors": 10, "threads": 3}
CONNECTIONS = 20  # a turn, to the API and to the metrics
VERBOSE = "GPUPERF_VERBOSE" in os.environ


def make_config(turn):
    """Each reload changes a threshold."""
    return {"custom_sym": {name: name for name in FUNCTIONS}, "libraries": COUNT_LIBRARY,
            # Caches that hold minutes or gigabytes fill in the first half.
            "stats": {"keep_exited_seconds": 5, "max_exited_processes": 100},
            "trace": {"recorder_seconds": 5, "recorder_mib": 8, "max_capture_seconds": 5, "store_mib": 4},
            # Of slow calls thousands are kept in memory: none here.
            "slow": {"default_threshold_ms": 50_000 + turn % 2}}


def rises(values):
    """Whether they rise with time, to one in a hundred (Kendall's test)."""
    count = len(values)
    score = sum((later > earlier) - (later < earlier) for i, earlier in enumerate(values) for later in values[i + 1:])
    return score / math.sqrt(count * (count - 1) * (2 * count + 5) / 18) > 2.33


def read_private_kib(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon"))


def count_entries(pid, kind):
    return len(os.listdir(f"/proc/{pid}/{kind}"))


class ChurnTest(unittest.TestCase):
    def setUp(self):
        require_root()
        require_fakes()
        self.expected = dict.fromkeys(FUNCTIONS, 0)
        self.launched = self.programs = self.captures = self.reloads = 0

    def attach(self):
        """The calls of whoever maps the library first may come before its probes."""
        first = start_workload("count_calls", "--calls", 0, "--wait-for-file", self.daemon.path / "go")
        self.daemon.wait_attached(*FUNCTIONS)
        (self.daemon.path / "go").touch()
        finish_workload(first)

    def run_callers(self):
        callers = [start_workload("count_calls", "--calls", CALLS) for _ in range(PROGRAMS)]
        for caller in callers:
            (truth,) = finish_workload(caller)
            for name, calls in get_calls(truth).items():
                if name in self.expected:
                    self.expected[name] += calls
        self.programs += len(callers)

    def run_injected(self):
        with contextlib.ExitStack() as stack:
            programs = [stack.enter_context(Workload(self.daemon.path / "run/ingest.sock")) for _ in range(PROGRAMS)]
            for line in ("init", f"launch {LAUNCHES} 1", "sync"):
                for program in programs:
                    program.post(line)
                for program in programs:
                    program.answer()
            for program in programs:
                self.assertEqual((program.end(), program.noise()), (0, ""))
        self.launched += PROGRAMS * LAUNCHES
        self.programs += PROGRAMS

    def capture(self):
        row = self.daemon.query("trace", "start")
        self.run_injected()
        self.daemon.ctl("trace", "stop", row["id"])
        self.captures += 1

    def reload(self, turn):
        settings = json.loads(self.daemon.config.read_text(encoding="utf-8"))
        settings["slow"] |= make_config(turn)["slow"]
        self.daemon.config.write_text(json.dumps(settings), encoding="utf-8")
        self.daemon.process.send_signal(signal.SIGHUP)
        self.reloads += 1

    def read(self):
        """A scrape, two lists, and a watcher that goes away."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.daemon.port}/metrics", timeout=60) as page:
            page.read()
        for words in (("functions",), ("sessions",), ("kernels",)):
            self.daemon.query(*words)
        watcher = subprocess.Popen(self.daemon.ctl_words("slow", "watch"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.05)
        watcher.kill()
        watcher.wait()
        for _ in range(CONNECTIONS):
            with socket.socket(socket.AF_UNIX) as api, socket.create_connection(("127.0.0.1", self.daemon.port)):
                api.connect(str(self.daemon.socket))

    def turn(self, number):
        begin = time.monotonic()
        self.run_callers()
        self.run_injected()
        if number % RELOAD_EVERY == 1:
            self.reload(number)
        if number % CAPTURE_EVERY == 1:
            self.capture()
        self.read()
        time.sleep(max(0, TURN_SECONDS - (time.monotonic() - begin)))

    def count_calls(self):
        rows = self.daemon.query("functions")
        return {row["function"]: int(row["calls"]) for row in rows if row["function"] in self.expected}

    def count_kernels(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.daemon.port}/metrics", timeout=60) as page:
            text = page.read().decode()
        return sum(float(value) for value in re.findall(r"^gpuperf_kernel_duration_seconds_count\{.*\} (\S+)$", text, re.M))

    def measure(self):
        pid = self.daemon.process.pid
        return {"anonymous memory, KiB": read_private_kib(pid), "descriptors": count_entries(pid, "fd"),
                "threads": count_entries(pid, "task")}

    def test_nothing_grows(self):
        with Daemon(make_config(0)) as self.daemon:
            self.attach()
            begin, number, samples = time.monotonic(), 0, []
            while (elapsed := time.monotonic() - begin) < arguments.minutes * 60:
                self.turn(number)
                number += 1
                if elapsed > (len(samples) + 1) * arguments.minutes * 60 / SAMPLES:
                    samples.append(self.measure())
                    if VERBOSE:
                        parts = {row["part"]: int(row["bytes"]) >> 10 for row in self.daemon.query("status")["memory"]}
                        print(f"{elapsed:.0f} s", self.programs, samples[-1], parts, file=sys.stderr)
            with contextlib.suppress(AssertionError):  # said below
                wait_until("everything is counted",
                           lambda: (self.count_calls(), self.count_kernels()) == (self.expected, self.launched), 10)
            self.assertEqual((self.count_calls(), self.count_kernels()), (self.expected, self.launched), self.daemon.drops())
            if VERBOSE:
                print(self.daemon.drops(), [b for b in self.daemon.query("status")["bounds"] if int(b["used"])], file=sys.stderr)
        second_half = samples[len(samples) // 2:]
        for what, limit in LIMITS.items():
            values = [sample[what] for sample in second_half]
            print(f"{what}: {samples[0][what]} at first, {values[0]} in the middle, {values[-1]} at the end")
            with self.subTest(what):
                self.assertFalse(rises(values) and values[-1] - values[0] > limit, values)
        print(f"{arguments.minutes:g} min: {self.programs} programs, {sum(self.expected.values())} calls and {self.launched} kernels, all "
              f"counted; {self.captures} captures, {self.reloads} reloads, {number} scrapes and watchers")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=arguments.minutes)
    arguments, others = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *others], verbosity=2)
