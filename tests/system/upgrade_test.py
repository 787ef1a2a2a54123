#!/usr/bin/env python3
"""gpuperfd is replaced, as a package's upgrade does it, while sessions, captures, streams and the store are in use; what the
formats before today's hold is read."""

import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest

from gpuperf_system import COUNT_LIBRARY, GPUPERFCTL, PATIENCE, SOURCE, WORKLOADS, Daemon, require_root, start_workload, wait_until
from injector_workload import Workload, require_fakes

RECORDINGS = SOURCE / "tests/recordings"
CONFIG = {"custom_sym": {"cause_sleep": {"symbol": "cause_sleep", "may_throw": False, "slow_threshold_ms": 5},
                         "count_fast": {"symbol": "count_fast", "may_throw": False}},
          "libraries": {"custom_sym": [str(WORKLOADS / "known_causes"), *COUNT_LIBRARY["custom_sym"]]}}
UNREACHABLE = 3  # gpuperfctl's exit code
SESSION_BACK_S = 2  # after the new daemon is ready


def setUpModule():
    require_root()


class ReplacedTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.daemon = Daemon(CONFIG)
        self.addCleanup(self.daemon.folder.cleanup)
        self.addCleanup(self.daemon.stop)
        self.daemon.start()

    def start(self, *command):
        # Nobody reads what it says, and a full pipe would stop it.
        process = subprocess.Popen([WORKLOADS / command[0], *map(str, command[1:])], stdout=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def ask(self, *arguments):
        """A gpuperfctl that goes on, and the file that it writes to."""
        output = self.daemon.path / f"{arguments[0]}-{arguments[1]}"
        with open(output, "wb") as file:
            process = subprocess.Popen([GPUPERFCTL, "--address", f"unix:{self.daemon.socket}", *map(str, arguments)],
                                       stdout=file, stderr=subprocess.STDOUT)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process, output

    def replace(self):
        """Seconds without a daemon: from the signal to the old one until the new one is ready."""
        begin = time.monotonic()
        self.assertEqual(self.daemon.stop(), 0)
        self.daemon.start()
        return time.monotonic() - begin

    def wait_stored(self, capture_id):
        wait_until("the capture is stored",
                   lambda: self.daemon.query("trace", "show", capture_id)["capture"]["state"] == "stored", 30)

    def test_slow_calls_and_their_stream(self):
        workload = self.start("known_causes", "--cause", "sleep", "--runs", 1_000_000, "--ms", 20)
        self.daemon.wait_attached("cause_sleep")
        watcher, output = self.ask("slow", "watch", "--pid", workload.pid, "-o", "json")
        wait_until("calls are reported", lambda: output.read_bytes().count(b"\n") > 20, 20)

        self.replace()

        # The stream ends with a reason, and what it reported is in the store of the next daemon.
        self.assertEqual(watcher.wait(30), UNREACHABLE)
        *lines, last = output.read_text(encoding="utf-8").splitlines()
        self.assertRegex(last, r"^gpuperfctl: cannot go on watching slow calls: gpuperfd at \S+ is not reachable or has stopped .*; "
                               r"is gpuperfd running\? see: systemctl status gpuperfd$")
        told = [json.loads(line) for line in lines]
        kept = {call["id"] for call in self.daemon.query("slow", "list", "--pid", workload.pid, "--limit", 1_000_000)}
        self.assertTrue(all(call["stored"] for call in told))
        self.assertEqual([call["id"] for call in told if call["id"] not in kept], [])
        # It goes on, with ids of their own.
        again, output = self.ask("slow", "watch", "--pid", workload.pid, "-o", "json")
        wait_until("calls are reported again", lambda: output.read_bytes().count(b"\n") > 5, 30)
        again.kill()
        again.wait()
        fresh = [json.loads(line)["id"] for line in output.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
        self.assertFalse(set(fresh) & {call["id"] for call in told})

    def test_captures_done_and_running(self):
        workload = self.start("steady_calls", "--per-second", 1000, "--seconds", 600)
        self.daemon.wait_attached("count_fast")
        done = self.daemon.query("trace", "start", "--pid", workload.pid, "--duration", "1s", "--name", "done")
        self.wait_stored(done["id"])
        before = self.daemon.path / "before"
        self.daemon.ctl("trace", "fetch", done["id"], "--format", "raw", "--file", before)
        waiting, output = self.ask("trace", "start", "--pid", workload.pid, "--duration", "300s", "--name", "cut", "--wait")
        wait_until("it runs", lambda: [row for row in self.daemon.query("trace", "list") if row["state"] == "running"])

        self.replace()

        self.assertEqual(waiting.wait(30), UNREACHABLE)
        self.assertRegex(output.read_text(encoding="utf-8"), r"cannot wait for capture \d+: gpuperfd at \S+ is not reachable or has stopped")
        rows = {row["name"]: row for row in self.daemon.query("trace", "list")}
        after = self.daemon.path / "after"
        self.daemon.ctl("trace", "fetch", done["id"], "--format", "raw", "--file", after)
        self.assertEqual(before.read_bytes(), after.read_bytes())
        # What ran is lost, and said to be: nobody has to guess from its absence.
        self.assertEqual((rows["cut"]["state"], rows["cut"]["problem"], rows["cut"]["target"]["pid"]),
                         ("failed", "gpuperfd stopped while it ran, and what it held is lost; start it again", workload.pid))
        # Its number stays its own, also for the daemon after the next.
        self.daemon.ctl("trace", "delete", rows["cut"]["id"])
        self.replace()
        self.daemon.wait_attached("count_fast", seconds=30)
        fresh = self.daemon.query("trace", "start", "--pid", workload.pid, "--duration", "1s")
        self.assertGreater(fresh["id"], rows["cut"]["id"])
        self.wait_stored(fresh["id"])

    def test_counts_say_their_gap(self):
        launches = {"cuda_func_sym": {"cuLaunchKernel": {"symbol": "cuLaunchKernel", "may_throw": False}},
                    "libraries": {"cuda_func_sym": [str(WORKLOADS / "hooked/libcuda.so.1")]},
                    "overhead": {"budget_percent": 0, "launch_hooks": False}}
        self.daemon.stop()
        self.daemon.config.write_text(json.dumps(self.daemon.settings | launches), encoding="utf-8")
        self.daemon.start()
        with subprocess.Popen([WORKLOADS / "hooked_launches"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            def launch(count):
                process.stdin.write(f"launch {count} 0 0\n")
                process.stdin.flush()
                process.stdout.readline()

            def read(count):
                return self.daemon.wait_for_counts(process.pid, {"cuLaunchKernel": count})["cuLaunchKernel"]["calls"]
            self.daemon.wait_attached("cuLaunchKernel")
            launch(300)
            before = read(300)
            self.assertEqual(self.daemon.stop(), 0)
            launch(100)
            gap_ns = time.time_ns()
            self.daemon.start()
            self.daemon.wait_attached("cuLaunchKernel", seconds=30)
            launch(200)
            after = read(200)
            process.stdin.close()

        # Exact on both sides, never twice; what was called in between is in neither, and the new daemon says since when it counts.
        self.assertEqual((before, after), (300, 200))
        self.assertGreater(self.daemon.query("status")["start_unix_ns"], gap_ns)

    def test_sessions(self):
        require_fakes()
        socket = self.daemon.path / "run/ingest.sock"
        with Workload(socket) as program:
            program.do("init")
            program.do("launch 50 1")

            def find():
                return [row for row in self.daemon.query("sessions", "list", "--pid", program.process.pid) if row["state"] == "collecting"]
            (before,) = wait_until("the session collects", find, 20)
            wait_until("its records are there", lambda: find() and find()[0]["received_records"] > 0, 20)
            stopped = time.monotonic()
            self.replace()
            ready = time.monotonic()
            wait_until("the session is back", lambda: self.daemon.query("sessions", "list", "--pid", program.process.pid), 10)
            back_s = time.monotonic() - ready

            def find_new_records():
                program.do("launch 30 1")  # recording begins anew between two launches
                return [row for row in find() if row["received_records"] > 0]
            (after,) = wait_until("its new records are there", find_new_records, 20)
            self.assertEqual((program.end(), program.noise()), (0, ""))

        self.assertLess(back_s, SESSION_BACK_S * PATIENCE)
        # The time without a daemon is told.
        (gap,) = [gap for gap in after["gaps"] if gap["cause"] == "daemon_gone"]
        self.assertGreater(gap["total_ns"] / 1e9, 0.1)
        self.assertLess(gap["total_ns"] / 1e9, ready - stopped + 5)
        self.assertEqual(before["pid"], after["pid"])


class FormatsTest(unittest.TestCase):
    """Stores that earlier daemons wrote (tests/recordings). Captures: recorded_capture_test."""
    maxDiff = None

    def test_a_store_is_read_and_written_on(self):
        recordings = sorted(RECORDINGS.glob("store_*.db"))
        self.assertTrue(recordings)
        for recording in recordings:
            with self.subTest(recording.stem):
                self.read_and_write_on(recording)

    def read_and_write_on(self, recording):
        truth = json.loads(recording.with_suffix(".json").read_text(encoding="utf-8"))["calls"]
        daemon = Daemon(CONFIG | {"storage": {"retention_days": 3650}})  # it was written long ago
        self.addCleanup(daemon.folder.cleanup)
        self.addCleanup(daemon.stop)
        folder = pathlib.Path(daemon.settings["storage"]["path"])
        folder.mkdir()
        shutil.copy(recording, folder / "slow_calls.db")
        daemon.start()

        found = {}
        for row in daemon.query("slow", "list", "--since", "87600h", "--limit", 1000):
            call = daemon.query("slow", "show", row["id"])
            found[str(call["id"])] = {"function": call["function"], "duration_ns": call["duration_ns"],
                                      "blocked_ns": call["time_split"]["blocked_ns"],
                                      "stack": [frame["symbol"] for frame in call["user_stack"]]}
        self.assertEqual(found, truth)
        self.assertNotIn("storage", [problem["subject"] for problem in daemon.query("status")["problems"]])
        go = daemon.path / "go"
        workload = start_workload("known_causes", "--cause", "sleep", "--runs", 1, "--ms", 30, "--wait-for-file", go)
        daemon.wait_attached("cause_sleep")
        go.touch()
        (fresh,) = wait_until("a new call", lambda: daemon.query("slow", "list", "--pid", workload.pid), 20)
        workload.communicate()
        self.assertGreater(fresh["id"], max(map(int, truth)))


class OldLibraryTest(unittest.TestCase):
    """A library lives as long as its process: it may be older than the daemon. recordings_test replays sessions of the first."""

    def test_launches_of_a_library_with_other_notes_are_counted_by_probes(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="gpuperf-old-library-")))
        shutil.copy(WORKLOADS / "hooked/libcuda.so.1", folder)
        content = (WORKLOADS / "hooked/libgpuperf_injector.so").read_bytes()
        # What a build with other structs has: its notes are of another provider (bpf/hook_notes.h). Each has the provider, the
        # name and the argument.
        changed, count = re.subn(rb"gpuperf_injector(?=\0\w+\x008@%rdi\0)", b"gpuperf_injectoq", content)
        self.assertEqual(count, 7)
        (folder / "libgpuperf_injector.so").write_bytes(changed)
        config = {"cuda_func_sym": {"cuLaunchKernel": {"symbol": "cuLaunchKernel", "may_throw": False}},
                  "libraries": {"cuda_func_sym": [f"{folder}/libcuda.so.1"]}}
        with Daemon(config) as daemon, \
                subprocess.Popen([WORKLOADS / "hooked_launches"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                 env={"LD_LIBRARY_PATH": str(folder)}) as process:
            def do(line):
                process.stdin.write(line + "\n")
                process.stdin.flush()
                return json.loads(process.stdout.readline())
            daemon.wait_attached("cuLaunchKernel")
            do("launch 300 0 0")
            rows = daemon.wait_for_counts(process.pid, {"cuLaunchKernel": 300})
            semaphores = do("semaphores")
            process.stdin.close()
            log = daemon.log()

        self.assertEqual((rows["cuLaunchKernel"]["calls"], rows["cuLaunchKernel"]["calls_hooked"]), (300, 0))
        self.assertFalse(any(semaphores.values()), semaphores)
        self.assertNotIn("warn", log)


if __name__ == "__main__":
    unittest.main(verbosity=2)
