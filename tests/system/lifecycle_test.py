#!/usr/bin/env python3
"""Starting, stopping and failing: what the daemon says, and what it leaves behind."""

import json
import signal
import socket
import subprocess
import time
import unittest
import urllib.error
import urllib.request

from gpuperf_system import (COUNT_LIBRARY, GPUPERFD, SOURCE, Daemon, bpf_objects, finish_workload,
                            require_root, run_ctl, start_workload, wait_until)

CONFIG = {"custom_sym": {"count_fast": "count_fast"},
          "libraries": COUNT_LIBRARY}


def setUpModule():
    require_root()


def calls_per_second(threads=1, calls=200_000):
    (process,) = finish_workload(
        start_workload("count_calls", "--threads", threads, "--calls", calls))
    return process["calls"]["count_fast"]["calls"] / process["elapsed_ns"] * 1e9


class StopTest(unittest.TestCase):
    def check_nothing_left(self, how, code):
        others = bpf_objects()
        bare = calls_per_second()
        with Daemon(CONFIG) as daemon:
            daemon.wait_attached("count_fast")
            self.assertNotEqual(bpf_objects() - others, set())
            gate = daemon.path / "gate"
            workload = start_workload("count_calls", "--calls", 3_000_000, "--threads", 2,
                                      "--wait-for-file", gate)
            gate.touch()
            wait_until("calls are counted", lambda: daemon.functions().get("count_fast"))
            started = time.monotonic()
            self.assertEqual(daemon.stop(how), code)
            self.assertLess(time.monotonic() - started, 5)
            wait_until("nothing of ours in the kernel", lambda: bpf_objects() <= others, 5)
            finish_workload(workload)  # exits 0: unharmed
            # Unprobed calls take nanoseconds, probed ones microseconds: a probe left behind would make
            # this tens of times slower. The best of some short runs, on a machine that is shared.
            after = max(calls_per_second() for _ in range(5))
            self.assertGreater(after, bare / 4)
            daemon.log_path.write_text("")
            daemon.start()  # the same directory, socket and port
            daemon.wait_attached("count_fast")
            self.assertEqual(daemon.stop(), 0)
            self.assertEqual(sorted(p.name for p in daemon.path.rglob("*") if not p.is_dir()),
                             ["config.json", "gate", "log", "slow_calls.db"])

    def test_sigterm_leaves_nothing(self):
        self.check_nothing_left(signal.SIGTERM, 0)

    def test_sigkill_leaves_nothing_that_hinders_the_next_start(self):
        self.check_nothing_left(signal.SIGKILL, -signal.SIGKILL)

    def test_sigint_stops_too(self):
        with Daemon(CONFIG) as daemon:
            self.assertEqual(daemon.stop(signal.SIGINT), 0)


class FailureTest(unittest.TestCase):
    def run_second(self, daemon, config_changes=None, runtime_dir=None):
        config = {**json.loads(daemon.config.read_text()), **(config_changes or {})}
        path = daemon.path / "second.json"
        path.write_text(json.dumps(config))
        return subprocess.run([GPUPERFD, "--config", path, "--runtime-dir",
                               runtime_dir or daemon.path / "run"],
                              capture_output=True, text=True, timeout=30, check=False)

    def test_a_second_daemon_says_who_holds_the_lock(self):
        with Daemon(CONFIG) as daemon:
            second = self.run_second(daemon)

            self.assertEqual(second.returncode, 1)
            self.assertIn(f"pid {daemon.process.pid} holds {daemon.path}/run/gpuperfd.lock",
                          second.stderr)
            self.assertEqual(daemon.query("status")["pid"], daemon.process.pid)

    def test_a_socket_in_use_is_named_and_left_alone(self):
        with Daemon(CONFIG) as daemon:
            second = self.run_second(daemon, {"metrics": {"listen": ""}}, daemon.path / "other")

            self.assertEqual(second.returncode, 1)
            self.assertIn(str(daemon.socket), second.stderr)
            self.assertIn("use", second.stderr)
            self.assertEqual(daemon.query("status")["pid"], daemon.process.pid)

    def test_a_port_in_use_is_named(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            others = bpf_objects()
            daemon = Daemon({**CONFIG, "metrics": {"listen": f"127.0.0.1:{port}"}})
            self.addCleanup(daemon.folder.cleanup)
            result = subprocess.run(daemon.command, capture_output=True, text=True, timeout=30,
                                    check=False)

        self.assertEqual(result.returncode, 1)
        self.assertIn(f"127.0.0.1:{port}", result.stderr)
        wait_until("nothing of ours in the kernel", lambda: bpf_objects() <= others, 5)

    def check_degraded(self, prefix, *words):
        with Daemon(CONFIG, prefix=prefix) as daemon:
            status = daemon.query("status")
            text = " ".join(f"{p['message']} {p['hint']}" for p in status["problems"])

            self.assertEqual(status["mechanism"], "none")
            self.assertIn("ready without probes", [line for line in daemon.log().splitlines() if "gpuperfd ready" in line][-1])
            for word in words:
                self.assertIn(word, text)
                self.assertIn(word, daemon.log())
            self.assertEqual([row["state"] for row in daemon.query("probes")], ["failed"])
            with self.assertRaises(urllib.error.HTTPError) as ready:
                urllib.request.urlopen(f"http://127.0.0.1:{daemon.port}/readyz", timeout=5)
            self.assertEqual(ready.exception.code, 503)
            self.assertEqual(daemon.stop(), 0)

    def test_without_privilege_it_serves_and_says_what_is_missing(self):
        self.check_degraded(("setpriv", "--bounding-set", "-all", "--inh-caps", "-all", "--"),
                            "not permitted", "CAP_BPF", "CAP_PERFMON")

    def test_without_btf_it_serves_and_says_what_is_missing(self):
        hide = "mount -t tmpfs none /sys/kernel/btf && exec \"$@\""
        self.check_degraded(("unshare", "--mount", "sh", "-c", hide, "sh"), "BTF",
                            "CONFIG_DEBUG_INFO_BTF")

    def test_unknown_symbols_and_libraries_are_told_apart(self):
        config = {"custom_sym": {"count_fast": "count_fast", "absent": "no_such_function"},
                  "nccl_func_sym": {"ncclAllReduce": "ncclAllReduce"},
                  "libraries": {**CONFIG["libraries"],
                                "nccl_func_sym": ["libno_such_library.so*"]}}
        with Daemon(config) as daemon:
            daemon.wait_attached("count_fast")
            probes = {row["function"]: row for row in daemon.query("probes")}

            self.assertEqual(probes["absent"]["state"], "symbol_missing")
            self.assertIn("libcount_target.so", probes["absent"]["reason"])
            self.assertEqual(probes["ncclAllReduce"]["state"], "waiting")
            self.assertEqual(daemon.query("status")["probes"],
                             {"attached": 1, "entry_only": 0, "waiting": 1, "symbol_missing": 1,
                              "failed": 0, "disabled": 0, "suspended": 0, "alias": 0})


class ConfigurationTest(unittest.TestCase):
    def check(self, path):
        return subprocess.run([GPUPERFD, "--check", "--config", path], capture_output=True, text=True,
                              timeout=30, check=False)

    def test_broken_configurations_end_with_two_and_every_error(self):
        files = sorted((SOURCE / "tests/unit/config/bad").glob("*.json"))
        self.assertGreaterEqual(len(files), 20)
        for path in files:
            with self.subTest(path.name):
                result = self.check(path)
                self.assertEqual(result.returncode, 2, result)
                self.assertEqual(result.stdout, "")
                self.assertIn(str(path), result.stderr)

    def test_the_shipped_configuration_is_valid(self):
        result = self.check(SOURCE / "deploy/config.json")
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_a_missing_file_is_named(self):
        result = self.check("/no/such/config.json")
        self.assertEqual(result.returncode, 2)
        self.assertIn("/no/such/config.json", result.stderr)


class UnreachableTest(unittest.TestCase):
    def test_ctl_says_that_no_daemon_answers(self):
        result = run_ctl("--address", "unix:/no/such/api.sock", "status", check=False)
        self.assertEqual(result.returncode, 3)
        self.assertIn("/no/such/api.sock", result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
