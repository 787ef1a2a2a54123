#!/usr/bin/env python3
"""What the daemon does without: threads by the thousand, no descriptors left, reloads by the hundred, no CPU, another tool at its
functions, another clock. Each time counts stay exact, others are served, and all of it passes without a restart."""

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import time
import unittest
import urllib.error
import urllib.request

from gpuperf_system import (COUNT_LIBRARY, LONG, WORKLOADS, Daemon, bpf_objects, finish_workload, get_calls, require_root,
                            start_workload, wait_until)
from injector_workload import Workload, require_fakes
from session_peer import Peer, status

THREADS = 12_000 if LONG else 2_000
RELOADS = 1_000 if LONG else 100
CONFIG = {"custom_sym": {"count_fast": "count_fast", "count_nested": "count_nested"}, "libraries": COUNT_LIBRARY}
STOP_S = 3.0
OFFSET_S = 100_000


def setUpModule():
    require_root()


def list_descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def call_and_check(test, daemon, calls, **options):
    """Calls of a process of its own, counted to the call."""
    go = daemon.path / f"go{time.monotonic_ns()}"
    process = start_workload("count_calls", "--calls", calls, "--wait-for-file", go, **options)
    daemon.wait_attached("count_fast")
    go.touch()
    (truth,) = finish_workload(process)
    expected = {name: count for name, count in get_calls(truth).items() if name in CONFIG["custom_sym"]}
    rows = daemon.wait_for_counts(process.pid, expected)
    test.assertEqual({name: row["calls"] for name, row in rows.items()}, expected)
    return rows


class ThreadsTest(unittest.TestCase):
    def test_threads_killed_inside_calls_lose_none_and_leave_nothing(self):
        config = {"custom_sym": CONFIG["custom_sym"] | {"park_inner": "park_inner"},
                  "libraries": {"custom_sym": [*COUNT_LIBRARY["custom_sym"], str(WORKLOADS / "parked_calls")]}}
        with Daemon(config) as daemon:
            until_killed = ("--release-file", daemon.path / "never")
            warm = start_workload("parked_calls", "--threads", 1, *until_killed)  # what maps the file is probed from here on
            daemon.wait_attached("park_inner")
            process = start_workload("parked_calls", "--threads", THREADS, *until_killed)
            for each in (warm, process):
                self.addCleanup(each.wait)
                self.addCleanup(each.stdout.close)
                self.addCleanup(each.kill)
            self.assertEqual(json.loads(process.stdout.readline())["parked"], THREADS)

            def count_in_flight():
                return int(daemon.functions("--pid", process.pid).get("park_inner", {}).get("in_flight", 0))
            wait_until(f"{THREADS} calls in flight", lambda: count_in_flight() == THREADS, 20)
            process.kill()
            process.wait()

            wait_until("none is in flight", lambda: count_in_flight() == 0, 20)
            call_and_check(self, daemon, 500)
            self.assertLessEqual(set(daemon.drops()), {"rate_limited", "in_flight_full"})  # log lines; stacks


class DescriptorsTest(unittest.TestCase):
    def test_without_descriptors_those_who_are_connected_are_served_and_others_once_there_are_some(self):
        with Daemon(CONFIG) as daemon, Peer(daemon.path / "run/ingest.sock") as before:
            call_and_check(self, daemon, 1_000)
            self.assertIsInstance(before.greet(), dict)
            pid = daemon.process.pid
            limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            self.addCleanup(lambda: daemon.process.poll() is None and resource.prlimit(pid, resource.RLIMIT_NOFILE, limits))
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (list_descriptors(pid), limits[1]))
            refused = []
            for _ in range(8):
                with contextlib.closing(socket.socket()) as client:
                    client.settimeout(2)
                    try:
                        client.connect(("127.0.0.1", daemon.port))
                        client.sendall(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")
                        refused.append(not client.recv(1))
                    except OSError:
                        refused.append(True)
            self.assertIn(True, refused)
            self.assertIsNone(daemon.process.poll())
            before.send(status())

            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)

            def is_served():
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{daemon.port}/readyz", timeout=5) as answer:
                        return answer.status == 200
                except (OSError, urllib.error.URLError):
                    return False
            wait_until("it serves again", is_served, 10)
            call_and_check(self, daemon, 1_000)
            with Peer(daemon.path / "run/ingest.sock") as after:
                self.assertIsInstance(after.greet(), dict)
            (row,) = [row for row in daemon.query("sessions") if row["pid"] == os.getpid() and row["state"] == "collecting"]
            self.assertTrue(row, "the session from before")


class ReloadTest(unittest.TestCase):
    def test_reloads_by_the_hundred_leak_nothing_and_disturb_no_count(self):
        with Daemon(CONFIG) as daemon:
            call_and_check(self, daemon, 1_000)
            go = daemon.path / "go"
            process = start_workload("count_calls", "--calls", 200_000, "--threads", 2, "--wait-for-file", go)
            go.touch()
            settled = list_descriptors(daemon.process.pid)
            objects = len(bpf_objects())
            others = {"count_status": "count_status"}
            for number in range(RELOADS):
                functions = CONFIG["custom_sym"] | (others if number % 2 == 0 else {})
                written = daemon.path / "new.json"
                written.write_text(json.dumps(daemon.settings | {"custom_sym": functions}), encoding="utf-8")
                written.rename(daemon.config)
                daemon.process.send_signal(signal.SIGHUP)
                time.sleep(0.002)
            daemon.config.write_text(json.dumps(daemon.settings), encoding="utf-8")
            daemon.ctl("config", "reload")

            wait_until("the last configuration is in force", lambda: {row["function"] for row in daemon.query("probes")} ==
                       set(CONFIG["custom_sym"]), 20)
            (truth,) = finish_workload(process)
            expected = get_calls(truth)["count_fast"]
            wait_until("every call counted", lambda: daemon.functions("--pid", process.pid)["count_fast"]["calls"] == expected, 20)
            wait_until("no descriptor more than before", lambda: list_descriptors(daemon.process.pid) <= settled, 10)
            wait_until("no BPF object more than before", lambda: len(bpf_objects()) <= objects, 10)


class StoppedTest(unittest.TestCase):
    def test_a_daemon_that_stands_still_holds_up_no_workload_and_loses_no_count(self):
        require_fakes()
        with Daemon(CONFIG) as daemon:
            call_and_check(self, daemon, 1_000)
            with Workload(daemon.path / "run/ingest.sock") as program:
                program.do("init")
                program.do("launch 100 1")
                go = daemon.path / "go"
                process = start_workload("count_calls", "--calls", 200_000, "--wait-for-file", go)
                daemon.process.send_signal(signal.SIGSTOP)
                try:
                    begin = time.monotonic()
                    go.touch()
                    (truth,) = finish_workload(process)
                    while time.monotonic() - begin < STOP_S:
                        program.do("launch 1000 2")  # an answer within 20 s, or it fails
                finally:
                    daemon.process.send_signal(signal.SIGCONT)

                expected = get_calls(truth)["count_fast"]
                wait_until("every call counted", lambda: daemon.functions("--pid", process.pid).get("count_fast", {}).get("calls")
                           == expected, 20)
                self.assertEqual((program.end(), program.noise()), (0, ""))


class OtherToolTest(unittest.TestCase):
    def test_two_tools_at_the_same_functions_each_count_every_call(self):
        with Daemon(CONFIG) as one, Daemon(CONFIG) as other:
            for daemon in (one, other):
                call_and_check(self, daemon, 2_000)
            one.stop()
            call_and_check(self, other, 2_000)


class ClockTest(unittest.TestCase):
    def test_calls_of_a_process_with_another_monotonic_clock_take_as_long_as_they_do(self):
        prefix = ("unshare", "--time", "--fork", "--monotonic", str(OFFSET_S), "--boottime", str(OFFSET_S))
        if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no time namespace can be made here")
        config = {"custom_sym": {"slow_sleep": {"symbol": "slow_sleep", "slow_threshold_ms": 5}},
                  "libraries": {"custom_sym": [str(WORKLOADS / "slow_calls")]}}
        with Daemon(config) as daemon:
            command = [*prefix, WORKLOADS / "slow_calls", "--requests", "200", "--duration-ms", "20"]
            begin_unix_ns = time.time_ns()
            with subprocess.Popen(command, stdout=subprocess.DEVNULL):
                calls = wait_until("slow calls", lambda: daemon.query("slow", "list"), 20)
            for call in calls:
                self.assertGreater(int(call["duration_ns"]), 19_000_000)
                self.assertLess(int(call["duration_ns"]), 5_000_000_000)
                self.assertGreater(int(call["start_unix_ns"]), begin_unix_ns)
                self.assertLess(int(call["start_unix_ns"]), time.time_ns())


if __name__ == "__main__":
    unittest.main(verbosity=2)
