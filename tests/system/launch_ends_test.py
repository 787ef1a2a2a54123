#!/usr/bin/env python3
"""However a process ends, and however often counting changes sides, no launch that hooks counted is lost, and none is
counted twice. On the injected library itself, in programs that count their own launches."""

import json
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

from gpuperf_system import SOURCE, WORKLOADS, Daemon, require_root, wait_until
from injector_workload import FAKES, INJECTOR

sys.path.append(str(SOURCE / "tests/gpu"))
from trace_raw import read_stored  # noqa: E402  pylint: disable=wrong-import-position

CONFIG = {"cuda_func_sym": {"cuLaunchKernel": {"symbol": "cuLaunchKernel", "may_throw": False}},
          "slow": {"default_threshold_ms": 0},
          "trace": {"recorder": False}}
TRUTH = struct.Struct("4Q")  # begun, ended, failed, child
ROUNDS = 6
THREADS = 4


def setUpModule():
    require_root()
    if not (FAKES / "libfake_runtime.so").exists():
        raise unittest.SkipTest("the fake CUPTI is not built: it needs the headers of CUPTI 13")


class LaunchEndsTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        # Copies of our own: probes act on the file.
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="gpuperf-ends-")))
        for library in (FAKES / "libcuda.so.1", FAKES / "libfake_runtime.so", INJECTOR):
            shutil.copy(library, self.folder)

    def start(self, **config):
        """A daemon that has found the libraries: what is started from now on is counted from its first launch."""
        daemon = self.enterContext(Daemon(
            CONFIG | {"libraries": {"cuda_func_sym": [f"{self.folder}/libcuda.so.1"]}} | config))
        self.enterContext(self.run_workload("cuda", "wait"))
        daemon.wait_attached("cuLaunchKernel")
        wait_until("hooks that count", lambda: self.hooks_count(daemon))
        return daemon

    def run_workload(self, *words, stdout=subprocess.DEVNULL):
        return subprocess.Popen([WORKLOADS / "launch_ends", *map(str, words)], stdin=subprocess.PIPE, stdout=stdout,
                                env={"LD_LIBRARY_PATH": str(self.folder), "GPUPERF_SOCKET": str(self.folder / "none"),
                                     "CUDA_INJECTION64_PATH": str(self.folder / INJECTOR.name)})

    def hooks_count(self, daemon):
        """Whether those of a new process do."""
        _, process = self.launch("kill", 1, 1)
        time.sleep(0.3)
        return daemon.functions("--pid", process.pid).get("cuLaunchKernel", {}).get("calls_hooked") == 1

    def launch(self, way, threads, calls):
        """Truth and process of a workload that has ended, or is another program now."""
        path = self.folder / "truth"
        path.write_bytes(bytes(TRUTH.size))
        process = self.run_workload(path, way, threads, calls)
        if way.startswith("exec"):
            wait_until("the other program", lambda: b"wait" in pathlib.Path(
                f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0"))
            self.addCleanup(process.communicate)
        else:
            process.communicate(timeout=30)
        return TRUTH.unpack(path.read_bytes()), process

    def check(self, daemon, way, threads=THREADS, is_exact=True):
        for number in range(ROUNDS):
            calls = 50 + 37 * number
            (begun, ended, failed, child), process = self.launch(way, threads, calls)
            row = {}

            def find(pid=process.pid, least=begun if is_exact else ended, found=row):
                found.clear()
                found.update(daemon.functions("--pid", pid).get("cuLaunchKernel", {}))
                return found.get("calls", 0) >= least and found["in_flight"] == 0  # the end has been taken in
            try:
                wait_until("the calls", find, 5)
            except AssertionError:
                pass  # compared below
            with self.subTest(way, round=number):
                seen = {key: row.get(key) for key in ("calls", "calls_hooked", "errors", "abandoned", "in_flight")}
                if is_exact:
                    self.assertEqual(seen, {"calls": begun, "calls_hooked": begun, "errors": failed,
                                            "abandoned": begun - ended, "in_flight": 0})
                else:  # stopped anywhere: at most one call of each thread is between our count and the hook's
                    self.assertTrue(ended <= row["calls"] <= begun, (ended, row, begun))
                    self.assertTrue(row["calls"] - row["abandoned"] <= begun, row)
                    self.assertTrue(0 <= row["calls"] - row["abandoned"] - ended <= threads, (ended, row))
                    self.assertEqual((row["calls_hooked"], row["in_flight"]), (row["calls"], 0))
                if child:
                    self.assertEqual(daemon.query("functions", "--pid", child), [])
        self.assertEqual(daemon.drops().get("hooked_calls", 0), 0)

    def test_every_end_of_a_process(self):
        daemon = self.start()
        for way in ("kill", "exit", "leader", "exec", "exec_thread", "fork", "vfork", "signals"):
            self.check(daemon, way)

    def test_ends_in_the_midst_of_launches(self):
        daemon = self.start()
        for way in ("running", "exec_running"):
            self.check(daemon, way, is_exact=False)

    def test_calls_that_the_end_finds_in_flight_are_abandoned(self):
        self.check(self.start(), "hang", threads=2)

    def test_killed_at_any_time(self):
        daemon = self.start()
        path = self.folder / "truth"
        for number in range(4 * ROUNDS):
            path.write_bytes(bytes(TRUTH.size))
            process = self.run_workload(path, "running", THREADS, 1_000_000_000)
            wait_until("launches", lambda: TRUTH.unpack(path.read_bytes())[1] > 100)
            time.sleep(0.017 * number)  # at different times since the last note
            process.kill()
            process.communicate()
            begun, ended, _, _ = TRUTH.unpack(path.read_bytes())
            wait_until("the calls", lambda pid=process.pid, least=ended: any(
                row["calls"] >= least for row in daemon.query("functions", "--pid", pid)), 5)
            row = daemon.functions("--pid", process.pid)["cuLaunchKernel"]
            self.assertTrue(ended <= row["calls"] <= begun <= ended + THREADS, (ended, row["calls"], begun))
            self.assertTrue(0 <= row["calls"] - row["abandoned"] - ended <= THREADS, (ended, row))

    def test_the_recorder_has_the_last_launches(self):
        daemon = self.start(trace={"recorder": True})
        (begun, _, _, _), process = self.launch("kill", THREADS, 100)
        time.sleep(1)
        row = daemon.query("trace", "freeze")
        row = row[0] if isinstance(row, list) else row
        wait_until("the capture", lambda: [one for one in daemon.query("trace", "list")
                                           if one["id"] == row["id"] and one["state"] == "stored"], 30)
        path = daemon.path / "raw"
        daemon.ctl("trace", "fetch", row["id"], "--format", "raw", "--file", path)
        launches = [launch for launch in read_stored(path.read_bytes()).launches if launch.pid == process.pid]
        self.assertEqual(len(launches), begun)

    def test_the_next_daemon_has_what_was_launched_under_it(self):
        daemon = self.start()
        path = self.folder / "unused"
        path.write_bytes(bytes(TRUTH.size))
        calls = 100
        with self.run_workload(path, "lines", THREADS, calls, stdout=subprocess.PIPE) as process:
            def launch():
                process.stdin.write(b"\n")
                process.stdin.flush()
                self.assertEqual(process.stdout.readline(), b"ready\n")

            def find(count):
                row = daemon.functions("--pid", process.pid).get("cuLaunchKernel", {})
                return row if row.get("calls", 0) >= count else None
            self.assertEqual(process.stdout.readline(), b"ready\n")
            launch()
            wait_until("the first daemon's", lambda: find(THREADS * calls))
            daemon.stop(signal.SIGKILL)
            daemon.start()
            daemon.wait_attached("cuLaunchKernel")
            wait_until("hooks that count", lambda: self.hooks_count(daemon))
            launch()
            process.kill()
            row = wait_until("the next one's", lambda: find(THREADS * calls))
        self.assertEqual((row["calls"], row["calls_hooked"], row["errors"], row["abandoned"]),
                         (THREADS * calls, THREADS * calls, THREADS * calls // 10, 0))

    def test_counting_changes_sides_while_threads_launch(self):
        daemon = self.start()
        words = (THREADS, 40_000, 100)  # some 6 s
        with subprocess.Popen([WORKLOADS / "launcher", *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              env={"LD_LIBRARY_PATH": str(self.folder), "GPUPERF_SOCKET": str(self.folder / "none"),
                                   "CUDA_INJECTION64_PATH": str(self.folder / INJECTOR.name)}) as process:
            self.assertEqual(process.stdout.readline(), b"ready\n")
            process.stdin.write(b"\n")
            process.stdin.flush()
            for number in range(6):
                daemon.settings.setdefault("overhead", {})["launch_hooks"] = number % 2 == 1
                daemon.config.write_text(json.dumps(daemon.settings), encoding="utf-8")
                daemon.ctl("config", "reload")
                time.sleep(0.5)
            self.assertEqual(process.stdout.readline(), b"done\n")
            calls = words[0] * words[1]
            row = {}

            def find():
                row.update(daemon.functions("--pid", process.pid).get("cuLaunchKernel", {}))
                return row.get("calls") == calls and row.get("in_flight") == 0
            try:
                wait_until("all calls", find, 5)
            except AssertionError:
                pass  # compared below
            process.communicate(b"\n", timeout=30)
        self.assertEqual((row["calls"], row["errors"], row["abandoned"], row["in_flight"], row["untimed"]),
                         (calls, calls // 100, 0, 0, 0))
        self.assertTrue(0 < row["calls_hooked"] < calls, row["calls_hooked"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
