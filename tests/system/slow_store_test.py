#!/usr/bin/env python3
"""Slow calls by the thousand, and what is left of them after a burst, a kill and a full disk."""

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import tempfile
import time
import unittest
import urllib.request

from gpuperf_system import (COUNT_LIBRARY, GPUPERFCTL, LONG, WORKLOADS, Daemon, finish_workload, get_calls,
                            require_root, start_workload, wait_until)

KILLS = 200 if LONG else 8
WORST = 16


def make_config(**settings):
    return {"custom_sym": {"cause_sleep": {"symbol": "cause_sleep", "may_throw": False}},
            "libraries": {"custom_sym": [str(WORKLOADS / "known_causes")]},
            "slow": {"default_threshold_ms": 0.5, "adaptive_factor": 0}} | settings


def sleep_slowly(daemon, runs):
    """The workload running, with its function probed."""
    go = daemon.path / "go"
    process = subprocess.Popen(
        [WORKLOADS / "known_causes", "--cause", "sleep", "--runs", str(runs), "--ms", "1",
         "--wait-for-file", go], stdout=subprocess.DEVNULL)
    daemon.wait_attached("cause_sleep")
    go.touch()
    return process


@contextlib.contextmanager
def small_disk(options):
    """A disk of its own."""
    with tempfile.TemporaryDirectory(prefix="gpuperf-disk-") as folder:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder],
                                 capture_output=True, text=True, check=False)
        if mounted.returncode != 0:
            raise unittest.SkipTest(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
        try:
            yield folder
        finally:
            subprocess.run(["umount", "-l", folder], check=True)


def read_histogram(daemon, function):
    """Calls by the upper edge of their bucket in nanoseconds, cumulated, as Prometheus sees them."""
    with urllib.request.urlopen(f"http://127.0.0.1:{daemon.port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    counts = {}
    for line in text.splitlines():
        if line.startswith("gpuperf_function_duration_seconds_bucket") and \
                f'function="{function}"' in line:
            edge = re.search(r'le="([^"]+)"', line)[1]
            counts[float(edge) * 1e9] = float(line.rsplit(" ", 1)[1])
    return counts


def setUpModule():
    require_root()


class BurstTest(unittest.TestCase):
    def test_a_burst_is_counted_to_the_call_and_its_worst_calls_are_kept(self):
        rate = 5
        config = {"custom_sym": {"count_fast": {"symbol": "count_fast", "may_throw": False}},
                  "libraries": COUNT_LIBRARY,
                  "slow": {"default_threshold_ms": 0.01, "adaptive_factor": 0,
                           "log_per_second": rate, "worst_per_function": WORST},
                  "storage": {"max_mib": 32}}
        with Daemon(config) as daemon:
            go = daemon.path / "go"
            process = start_workload("count_calls", "--threads", 8, "--calls", 6500, "--spin-ns",
                                     20000, "--wait-for-file", go)
            daemon.wait_attached("count_fast")
            go.touch()
            (truth,) = finish_workload(process)
            calls = get_calls(truth)["count_fast"]
            self.assertGreater(calls, 100_000)

            (row,) = wait_until("every call counted", lambda: [
                row for row in daemon.query("functions") if row["calls"] == calls])
            self.assertEqual((row["slow_calls"], row["in_flight"]), (calls, 0))

            # Records end when those queued have been named and stored.
            def count_records():
                before = daemon.query("status")["store_bytes"]
                time.sleep(1.5)
                return daemon.query("status")["store_bytes"] == before
            wait_until("the last record", count_records, seconds=60)
            worst = daemon.query("slow", "list", "--limit", WORST)
            self.assertEqual(worst[0]["duration_ns"], row["max_ns"])
            for edge_ns, at_most in read_histogram(daemon, "count_fast").items():
                longer = calls - at_most
                kept = sum(call["duration_ns"] > edge_ns for call in worst)
                self.assertEqual(kept, min(longer, WORST), f"calls over {edge_ns} ns: {longer}")

            status = daemon.query("status")
            self.assertLess(status["resident_bytes"], 256 << 20)
            self.assertLess(status["store_bytes"], 32 << 20)
            dropped = {drop["reason"]: drop["count"] for drop in status["drops"]}
            lines = [line for line in daemon.log().splitlines() if "function=count_fast" in line]
            self.assertIn("rate_limited", dropped)
            self.assertLess(len(lines), 100)
            # The next line says how many were held back before it.
            finish_workload(start_workload("count_calls", "--threads", 1, "--calls", 1, "--spin-ns",
                                           20000))
            wait_until("the log says what it suppressed", lambda: re.search(
                r"function=count_fast .*suppressed_count=[1-9]", daemon.log()))
            print(f"{calls} slow calls: {len(lines)} log lines, dropped {dropped}, "
                  f"resident {status['resident_bytes'] >> 20} MiB")


class KillTest(unittest.TestCase):
    def test_what_a_watcher_was_told_is_there_after_a_kill(self):
        seed = int(os.environ.get("GPUPERF_SEED", random.randrange(1 << 30)))
        print(f"GPUPERF_SEED={seed}")
        choose = random.Random(seed)
        told_in_all = 0
        daemon = Daemon(make_config(storage={"max_mib": 64}))
        self.addCleanup(daemon.stop)
        daemon.start()
        process = sleep_slowly(daemon, 100_000_000)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        for kill in range(KILLS):
            begin = time.monotonic()
            output = daemon.path / "told"
            with open(output, "wb") as file:
                watcher = subprocess.Popen(
                    [GPUPERFCTL, "--address", f"unix:{daemon.socket}", "slow", "watch", "-o", "json"],
                    stdout=file, stderr=subprocess.DEVNULL)
            if kill % 4 != 0:  # some are killed while they have told nothing yet
                wait_until("a call is told", lambda: output.stat().st_size, 20)
            time.sleep(choose.uniform(0.1, 1.0))
            daemon.stop(signal.SIGKILL)
            watcher.wait()
            told = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()
                    if line.endswith("}")]
            daemon.start()
            self.assertNotIn("store", [p["subject"] for p in daemon.query("status")["problems"]])
            kept = {call["id"] for call in daemon.query(
                "slow", "list", "--since", f"{time.monotonic() - begin + 5:.0f}s", "--limit", 100_000)}
            self.assertTrue(all(call["stored"] for call in told))
            missing = [call["id"] for call in told if call["id"] not in kept]
            self.assertEqual(missing, [], f"kill {kill}, seed {seed}: {len(told)} were told")
            told_in_all += len(told)
        self.assertGreater(told_in_all, KILLS, "too little was told to prove anything")
        print(f"{KILLS} kills, {told_in_all} slow calls told, none lost")


class DiskTest(unittest.TestCase):
    def problem(self, daemon):
        found = [problem for problem in daemon.query("status")["problems"]
                 if problem["subject"] == "storage"]
        return found[0] if found else None

    def test_a_read_only_folder_leaves_the_daemon_in_memory_and_says_so(self):
        with small_disk("size=16m,ro") as folder, \
                Daemon(make_config(storage={"path": folder + "/store"})) as daemon:
            self.assertEqual(sleep_slowly(daemon, 5).wait(), 0)

            calls = wait_until("five slow calls",
                               lambda: [calls for calls in [daemon.query("slow", "list")]
                                        if len(calls) == 5])[0]
            self.assertEqual([call["stored"] for call in calls], [False] * 5)
            self.assertIn(folder, self.problem(daemon)["message"])
            self.assertIn("in memory only", self.problem(daemon)["hint"])
            self.assertIn("in memory", daemon.ctl("status").stdout)

    def test_a_full_disk_costs_nothing_but_what_was_not_stored(self):
        with small_disk("size=3m") as folder, \
                Daemon(make_config(storage={"path": folder + "/store"})) as daemon:
            process = sleep_slowly(daemon, 100_000_000)
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)

            wait_until("the full disk is said", lambda: self.problem(daemon), seconds=60)

            stored = daemon.query("slow", "list", "--sort", "start_unix_ns", "--limit", 100_000)
            self.assertIn(True, [call["stored"] for call in stored])
            wait_until("calls in memory only", lambda: not daemon.query(
                "slow", "list", "--sort", "start_unix_ns", "--limit", 1)[0]["stored"])
            self.assertIn("write_failed",
                          [drop["reason"] for drop in daemon.query("status")["drops"]])
            subprocess.run(["mount", "-o", "remount,size=64m", folder], check=True)
            wait_until("the store works again", lambda: not self.problem(daemon), seconds=30)
            wait_until("calls stored again", lambda: daemon.query(
                "slow", "list", "--sort", "start_unix_ns", "--limit", 1)[0]["stored"])

    def test_a_second_daemon_does_not_share_the_store(self):
        with Daemon(make_config()) as first:
            with Daemon(make_config(storage={"path": str(first.path / "store")})) as second:
                self.assertIsNone(self.problem(first))
                self.assertIn(str(first.process.pid), self.problem(second)["message"])
                self.assertIn("its own storage.path", self.problem(second)["message"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
