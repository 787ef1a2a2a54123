#!/usr/bin/env python3
"""GPU memory end to end, on a driver with memory to give (tests/workloads/standin): exact live bytes while eight threads
release what others allocated, a leak on one of twenty paths, allocations that fail, and what the driver reports beside."""

import contextlib
import json
import pathlib
import subprocess
import time
import urllib.request
import unittest

from gpuperf_system import WORKLOADS, Daemon, require_root, wait_until
from gpus_test import FakeDriver

CONFIG = json.loads((pathlib.Path(__file__).resolve().parents[2] / "deploy/config.json").read_text(encoding="utf-8"))
DRIVER = {name: row for name, row in CONFIG["cuda_func_sym"].items()
          if name in ("cudaMalloc", "cudaFree") or name.startswith(("cuMem", "cuArray", "cuDevicePrimaryCtx"))}
PATH_KIB = [64 + 16 * path for path in range(20)]
LEAKING = 13
KINDS = {"managed": "managed", "pinned": "pinned", "registered": "registered"}


class Paths:
    """The workload; a context manager that ends it."""

    def __enter__(self):
        self.process = subprocess.Popen([WORKLOADS / "memory_paths"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        self.start = json.loads(self.process.stdout.readline())
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(timeout=30)
        self.process.stdout.close()

    def begin(self, *words):
        print(*words, file=self.process.stdin, flush=True)

    def answer(self):
        return json.loads(self.process.stdout.readline())

    def tell(self, *words):
        self.begin(*words)
        return self.answer()


def attach(daemon):
    """Probes are in the driver once one process has mapped it: those that start later are seen from their first call on."""
    with Paths():
        daemon.wait_attached("cuMemAlloc", "cudaMalloc")
        time.sleep(2)


def find(daemon, pid, *arguments):
    """The process's memory; None = it is not known yet."""
    rows = [row for row in daemon.query("memory", "--pid", pid, *arguments) if row["pid"] == pid]
    return rows[0] if rows else None


def get_live(row, kind):
    return sum(use["live_bytes"] for use in row["kinds"] if use["kind"] == kind)


def wait_for_truth(test, daemon, pid, truth):
    """Once what is shown equals what the driver says."""
    seen = {}

    def match():
        row = find(daemon, pid)
        if row is None:
            return False
        seen.update({"gpu": row["live_bytes"]}, **{kind: get_live(row, kind) for kind in KINDS})
        return seen == {key: truth[key] for key in seen}
    try:
        wait_until("what is live", match, seconds=3)
    except AssertionError:
        pass
    test.assertEqual(seen, {key: truth[key] for key in ("gpu", *KINDS)})
    return find(daemon, pid, "--stacks")


def name_paths(site):
    return [frame["symbol"] for frame in site["stack"] if frame["symbol"].startswith("allocate_path_")]


class MemoryTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        require_root()

    def test_says_that_nobody_has_allocated_anything(self):
        with Daemon({"cuda_func_sym": DRIVER}) as daemon:
            self.assertEqual(daemon.query("memory"), [])
            self.assertIn("No process has allocated GPU memory yet. What is probed: gpuperfctl probes",
                          daemon.ctl("memory").stdout)
            self.assertIn("No leak.", daemon.ctl("memory", "--leaks").stdout)
            self.assertIn("No allocation has failed", daemon.ctl("memory", "--ooms").stdout)
            failed = daemon.ctl("memory", "show", 1, check=False)
            self.assertEqual(failed.returncode, 1)
            self.assertIn("process 1 has not allocated GPU memory", failed.stderr)

    def test_is_exact_while_threads_release_what_others_allocated(self):
        with Daemon({"cuda_func_sym": DRIVER}) as daemon, contextlib.ExitStack() as stack:
            attach(daemon)
            paths = stack.enter_context(Paths())
            for _ in range(3):
                truth = paths.tell("run", -1, 2000)
                self.assertGreater(truth["gpu"], 0)
                row = wait_for_truth(self, daemon, paths.pid, truth)
                self.assertEqual(row["gaps"], [])
                self.assertEqual((row["unknown_releases"], row["missed_releases"]), (0, 0))
            self.assertFalse({"report_ring_full", "full", "sites_full"} & set(daemon.drops()))
            allocations = sum(use["allocations"] for use in row["kinds"])
            calls = sum(function["calls"] for name, function in daemon.functions("--pid", paths.pid).items()
                        if name in ("cuMemAlloc", "cuMemAllocPitch", "cuMemAllocAsync", "cuMemAllocFromPoolAsync", "cuMemAllocManaged",
                                    "cuMemHostAlloc", "cuMemHostRegister", "cuMemCreate", "cuArrayCreate"))
            self.assertEqual(allocations, calls)
            # Every path by its name, those of the runtime by the runtime's function.
            named = {path: site["function"] for site in row["sites"] for path in name_paths(site)}
            self.assertEqual(len(named), 20, sorted(named))
            self.assertEqual(named["allocate_path_3"], "cudaMalloc")
            self.assertEqual(named["allocate_path_10"], "cuMemAlloc")
            self.assertEqual(sum(site["use"]["live_bytes"] for site in row["sites"]),
                             sum(use["live_bytes"] for use in row["kinds"]))
            # What a context has ends with it, but for pools and physical memory.
            paths.tell("reset")
            row = wait_until("the reset", lambda: self.find_reset(daemon, paths.pid))
            self.assertEqual(row["gaps"], [])

    def find_reset(self, daemon, pid):
        row = find(daemon, pid)
        return row if get_live(row, "device") == get_live(row, "pinned") == get_live(row, "array") == 0 else None

    def test_names_the_path_that_leaks_within_a_minute(self):
        with Daemon({"cuda_func_sym": DRIVER}) as daemon, Paths() as paths:
            daemon.wait_attached("cuMemAlloc", "cudaMalloc")
            paths.tell("run", -1, 1000)
            begin = time.monotonic()
            paths.begin("run", LEAKING, 75_000)
            row = wait_until("a leak", lambda: find(daemon, paths.pid, "--leaks"), seconds=60)
            self.assertLess(time.monotonic() - begin, 60)
            self.assertEqual([name_paths(site) for site in row["sites"]], [[f"allocate_path_{LEAKING}"]])
            site = row["sites"][0]
            growth = site["growth"]
            self.assertEqual(growth["window_ns"], 40_000_000_000)
            self.assertEqual(growth["grown_bytes"], growth["grown_count"] * PATH_KIB[LEAKING] * 1024)
            self.assertEqual(site["unreleased_ratio"], 1)
            self.assertEqual(site["use"]["live_count"], site["use"]["allocations"])
            self.assertEqual(site["function"], "cudaMalloc")
            text = daemon.ctl("memory", "--leaks").stdout
            self.assertRegex(text, rf"leak: grew by .* in \d+ pieces within 40\.0 s, .*/min\n(.*\n)*.*allocate_path_{LEAKING}\+")
            self.assertGreater(daemon_metric(daemon, "gpuperf_memory_leak_bytes_per_second"), 0)
            truth = paths.answer()
            wait_for_truth(self, daemon, paths.pid, truth)

    def test_keeps_what_a_process_held_at_its_end(self):
        with Daemon({"cuda_func_sym": DRIVER}) as daemon:
            with Paths() as paths:
                daemon.wait_attached("cuMemAlloc", "cudaMalloc")
                truth = paths.tell("run", -1, 500)
                wait_for_truth(self, daemon, paths.pid, truth)
            row = wait_until("its end", lambda: (row := find(daemon, paths.pid, "--stacks")) and row["exited"] and row)
            self.assertEqual(row["live_bytes"], truth["gpu"])
            self.assertIn("exited", daemon.ctl("memory").stdout)
            self.assertIsNone(daemon_metric(daemon, "gpuperf_memory_live_bytes"))

    def test_says_who_held_memory_when_an_allocation_failed(self):
        with Daemon({"cuda_func_sym": DRIVER}) as daemon, Paths() as other, Paths() as paths:
            daemon.wait_attached("cuMemAlloc", "cudaMalloc")
            held = other.tell("run", -1, 500)
            wait_for_truth(self, daemon, other.pid, held)
            self.assertEqual(paths.tell("fail", 7 << 30)["status"], 2)
            self.assertEqual(paths.tell("fail", 7 << 30)["status"], 2)
            incident = wait_until("the incident", lambda: [
                row for row in daemon.query("memory", "--ooms") if row["times"] == 2 and row["stack"]])[0]
            self.assertEqual((incident["pid"], incident["asked_bytes"], incident["function"], incident["kind"]),
                             (paths.pid, 7 << 30, "cudaMalloc", "device"))
            self.assertTrue(any("fail" in frame["symbol"] for frame in incident["stack"]))
            self.assertEqual(incident["comm"], "memory_paths")
            holder = incident["holders"][0]
            self.assertEqual((holder["pid"], holder["live_bytes"]), (other.pid, held["gpu"]))
            self.assertEqual(len(holder["sites"]), 3)
            daemon.wait_for_log("out of GPU memory")
            self.assertIn("7.00 GiB of device memory refused to cudaMalloc", daemon.ctl("memory", "--ooms").stdout)
            self.assertEqual(daemon_metric(daemon, "gpuperf_memory_allocation_failures_total"), 2)

    def test_says_that_it_came_late(self):
        with Paths() as paths:
            paths.tell("run", -1, 200)
            with Daemon({"cuda_func_sym": DRIVER}) as daemon:
                daemon.wait_attached("cuMemAlloc", "cudaMalloc")
                paths.tell("run", -1, 200)
                row = wait_until("the process", lambda: find(daemon, paths.pid))
                self.assertTrue(any("before its calls were seen" in gap for gap in row["gaps"]), row["gaps"])
                self.assertIn("~", daemon.ctl("memory").stdout)
                self.assertIn("Incomplete", daemon.ctl("memory", "show", paths.pid).stdout)

    def test_shows_what_the_driver_reports_beside(self):
        used = 1 << 30
        with Paths() as paths, FakeDriver({"cuda_func_sym": DRIVER}, **{"0.process_pid": paths.pid, "0.process_memory": used}) as daemon:
            daemon.wait_attached("cuMemAlloc", "cudaMalloc")
            truth = paths.tell("grow", 500)
            row = wait_until("the driver's figure", lambda: (row := find(daemon, paths.pid)) and row["used_bytes"] and row)
            self.assertEqual((row["used_bytes"], row["rest_bytes"]), (used, used - truth["gpu"]))
            self.assertEqual(row["gpus"], [{"gpu": 0, "used_bytes": used}])
            self.assertLessEqual(row["least_rest_bytes"], row["rest_bytes"])
            self.assertIn("not explained by allocations", daemon.ctl("memory", "show", paths.pid).stdout)


def daemon_metric(daemon, name):
    """The value of the metric's one series of the workload, or its sum over kinds; None = there is none."""
    with urllib.request.urlopen(f"http://127.0.0.1:{daemon.port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    values = [float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + "{") and 'comm="memory_paths"' in line]
    return sum(values) if values else None


if __name__ == "__main__":
    unittest.main(verbosity=2)
