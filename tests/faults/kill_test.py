#!/usr/bin/env python3
"""A daemon that is killed and restarted again and again under load: what it acknowledged is there afterwards, nothing of it is
left behind, and no workload notices.

usage: kill_test.py [--kills N] [--restarts N]     default 12 and 4; 1,000 and 200 with GPUPERF_LONG_TESTS (tests/run.sh --long)
"""

import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
import unittest

from gpuperf_system import (GPUPERFCTL, LONG, WORKLOADS, Daemon, bpf_objects, finish_workload, require_root, start_workload,
                            wait_until)
from injector_workload import Workload, require_fakes

CAPTURE_EVERY = 8  # rounds
RESTART_LIMIT_S = 5
FUNCTIONS = ("cause_sleep", "count_fast")
CONFIG = {"custom_sym": {"cause_sleep": {"symbol": "cause_sleep", "may_throw": False}, "count_fast": "count_fast"},
          "libraries": {"custom_sym": [str(WORKLOADS / "known_causes"), str(WORKLOADS / "libcount_target.so")]},
          "slow": {"default_threshold_ms": 0.5}, "storage": {"max_mib": 64}}
arguments = argparse.Namespace(kills=1_000 if LONG else 12, restarts=200 if LONG else 4)


def setUpModule():
    require_root()
    require_fakes()


def list_workers():
    """Processes that a daemon started."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/comm"):
        try:
            if path.read_text(encoding="utf-8").startswith("gpuperf-"):
                found.append(path.parent.name)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return set(found)


class KillTest(unittest.TestCase):
    def setUp(self):
        self.seed = int(os.environ.get("GPUPERF_SEED", random.randrange(1 << 30)))
        print(f"GPUPERF_SEED={self.seed}")
        self.choose = random.Random(self.seed)
        self.others = bpf_objects(), list_workers()
        self.daemon = Daemon(CONFIG)
        self.addCleanup(self.daemon.folder.cleanup)
        self.addCleanup(self.daemon.stop)
        self.daemon.start()
        self.told = 0
        self.captures = set()

    def run_load(self):
        """Slow calls, fast calls and a process with the injected library, all of which outlive every daemon."""
        go = self.daemon.path / "go"
        self.sleeper = subprocess.Popen([WORKLOADS / "known_causes", "--cause", "sleep", "--runs", "100000000", "--ms", "1",
                                         "--wait-for-file", go], stdout=subprocess.DEVNULL)
        self.caller = start_workload("count_calls", "--threads", 2, "--calls", 40_000_000, "--wait-for-file", go)
        for process in (self.sleeper, self.caller):
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
        self.daemon.wait_attached(*FUNCTIONS)
        self.injected = Workload(self.daemon.path / "run/ingest.sock").__enter__()
        self.addCleanup(lambda: self.injected.__exit__(None, None, None))
        self.injected.do("init")
        self.injected.do("steady 2")
        go.touch()

    def watch(self):
        """A watcher of slow calls and the file it writes them to."""
        output = self.daemon.path / "told"
        with open(output, "wb") as file:
            return output, subprocess.Popen([GPUPERFCTL, "--address", f"unix:{self.daemon.socket}", "slow", "watch", "-o", "json"],
                                            stdout=file, stderr=subprocess.DEVNULL)

    def capture(self):
        row = self.daemon.query("trace", "start", "--pid", self.sleeper.pid)
        time.sleep(0.3)
        self.daemon.ctl("trace", "stop", row["id"])

        def is_stored():
            state = self.daemon.query("trace", "show", row["id"])["capture"]["state"]
            self.assertNotEqual(state, "failed")
            return state == "stored"
        wait_until("the capture is stored", is_stored, 30)
        self.captures.add(row["id"])

    def end_daemon(self, how):
        begin_s = time.monotonic()
        code = self.daemon.stop(how)
        self.assertEqual(code, 0 if how == signal.SIGTERM else -how)
        if how == signal.SIGTERM:
            self.assertLess(time.monotonic() - begin_s, RESTART_LIMIT_S * (1 if LONG else 5))

    def check_round(self, how, begin_s, output):
        told = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
        self.assertNotIn("store", [problem["subject"] for problem in self.daemon.query("status")["problems"]])
        kept = {call["id"] for call in self.daemon.query("slow", "list", "--since", f"{time.monotonic() - begin_s + 5:.0f}s",
                                                         "--limit", 100_000)}
        self.assertTrue(all(call["stored"] for call in told))
        missing = [call["id"] for call in told if call["id"] not in kept]
        self.assertEqual(missing, [], f"{how.name}, seed {self.seed}: {len(told)} were told")
        self.told += len(told)
        self.assertLessEqual(self.captures, {row["id"] for row in self.daemon.query("trace", "list")})
        for process in (self.sleeper, self.injected.process):
            self.assertIsNone(process.poll())

    def test_what_was_acknowledged_outlives_the_daemon_and_nothing_else_does(self):
        self.run_load()
        rounds = [signal.SIGKILL] * arguments.kills + [signal.SIGTERM] * arguments.restarts
        self.choose.shuffle(rounds)
        for number, how in enumerate(rounds):
            begin_s = time.monotonic()
            output, watcher = self.watch()
            if number % 4 != 0:  # some are killed while they have told nothing yet
                wait_until("a call is told", lambda output=output: output.stat().st_size, 20)
            if number % CAPTURE_EVERY == 1:
                self.capture()
            time.sleep(self.choose.uniform(0, 0.4))
            self.end_daemon(how)
            watcher.wait()
            self.daemon.start()
            self.check_round(how, begin_s, output)
            if number % 20 == 19:
                self.injected.do("forget")  # what the fakes remember of each launch
                print(f"{number + 1} of {len(rounds)} rounds, {self.told} slow calls told", flush=True)
        self.assertGreater(self.told, len(rounds), "too little was told to prove anything")
        for capture in self.captures:
            self.daemon.ctl("trace", "fetch", capture, "--format", "raw", "--file", self.daemon.path / "fetched")
        self.check_workloads()
        self.check_nothing_left()
        print(f"{arguments.kills} kills and {arguments.restarts} restarts: {self.told} slow calls and {len(self.captures)} captures "
              "acknowledged, none lost")

    def check_workloads(self):
        """They went on, and nothing of ours was said in them."""
        def has_session():
            rows = self.daemon.query("sessions", "--pid", self.injected.process.pid)
            return any(row["state"] == "collecting" for row in rows)
        wait_until("the injected process is back", has_session, 20)
        self.injected.do("halt")
        self.assertEqual((self.injected.end(), self.injected.noise()), (0, ""))
        self.assertIsNone(self.sleeper.poll())
        if self.caller.poll() is None:
            self.caller.kill()
        else:
            finish_workload(self.caller)

    def check_nothing_left(self):
        objects, workers = self.others
        self.end_daemon(signal.SIGTERM)
        wait_until("nothing of ours in the kernel", lambda: bpf_objects() <= objects, 5)
        wait_until("no worker is left", lambda: list_workers() <= workers, 5)
        self.assertEqual([path.name for path in (self.daemon.path / "run").rglob("*") if not path.is_dir()], [])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=arguments.kills)
    parser.add_argument("--restarts", type=int, default=arguments.restarts)
    arguments, others = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *others], verbosity=2)
