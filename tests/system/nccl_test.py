#!/usr/bin/env python3
"""gpuperfctl nccl: ranks on the fake NCCL, one of them with a planted cause to be late, which must be named."""

import json
import os
import signal
import subprocess
import tempfile
import unittest
import urllib.request

from gpuperf_system import WORKLOADS, Daemon, require_root, wait_until
from injector_workload import FAKES, INJECTOR
from why_slow_test import throttled_cgroup

NCCL = FAKES.parent / "nccl"
FUNCTIONS = ("ncclAllReduce", "ncclCommInitRank", "ncclCommDestroy")
CONFIG = {"nccl_func_sym": {name: name for name in FUNCTIONS},
          "libraries": {"nccl_func_sym": [str(NCCL / "libnccl.so*")]}}
NAMED_SECONDS = 30


class NcclTest(unittest.TestCase):
    def setUp(self):
        require_root()
        if not (WORKLOADS / "nccl_ranks").exists():
            raise unittest.SkipTest("the fake NCCL is not built: it needs the headers of CUPTI 13")
        self.daemon = self.enterContext(Daemon(CONFIG))
        self.ranks = []
        self.addCleanup(self.kill)

    def kill(self):
        for process in self.ranks:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()

    def start(self, *causes, is_injected=True, environment=None):
        """A job with one rank for each cause; () = none."""
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="gpuperf-nccl-"))
        settings = {"LD_LIBRARY_PATH": f"{FAKES}:{FAKES / 'cupti_13'}:{NCCL}", **(environment or {})}
        if is_injected:
            settings |= {"CUDA_INJECTION64_PATH": str(INJECTOR), "GPUPERF_SETTLE_MS": "0", "GPUPERF_INIT_WAIT_MS": "5000",
                         "GPUPERF_SOCKET": str(self.daemon.path / "run/ingest.sock")}
        for rank, cause in enumerate(causes):
            self.ranks.append(subprocess.Popen(
                [WORKLOADS / "nccl_ranks", folder, str(rank), str(len(causes)), *map(str, cause)], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, text=True, env={**os.environ, **settings, "RANK": str(rank), "WORLD_SIZE": str(len(causes))}))
        for process in self.ranks:
            self.assertEqual(process.stdout.readline(), "ready\n")
        self.daemon.wait_attached(*FUNCTIONS)
        self.go()

    def go(self):
        for process in self.ranks:
            process.stdin.write("go\n")
            process.stdin.flush()

    def communicator(self):
        rows = self.daemon.query("nccl")
        return rows[0] if rows else None

    def wait_named(self, state="late"):
        def find():
            row = self.communicator()
            return row if row and row["state"] == state else None
        try:
            return wait_until(f"a rank is {state}", find, NAMED_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{json.dumps(self.communicator(), indent=1)}") from error

    def check_late(self, row, rank, causes):
        self.assertEqual(row["late_rank"], rank, json.dumps(row, indent=1))
        self.assertEqual(row["late_pid"], self.ranks[rank].pid)
        self.assertIn(row["cause"], causes, json.dumps(row, indent=1))
        page = self.daemon.ctl("nccl").stdout
        self.assertTrue(page.startswith(f"Rank {rank} (pid {self.ranks[rank].pid}, nccl_ranks) is "), page)

    def test_without_calls_it_says_so(self):
        self.assertIn("No NCCL calls seen.", self.daemon.ctl("nccl").stdout)
        self.assertEqual(self.daemon.query("nccl"), [])

    def test_a_sleeping_rank_is_named_from_kernels(self):
        self.start((), ("sleep", 20))
        row = self.wait_named()

        self.check_late(row, 1, ("sleep",))
        self.assertTrue(row["identified"])
        self.assertEqual(row["ranks"], 2)
        self.assertTrue(row["by_kernels"], json.dumps(row, indent=1))
        # 20 of some 42 ms a step; the machine may be busy, too.
        self.assertGreater(row["late_ratio"], 0.2)
        self.assertLess(row["late_ratio"], 0.8)
        wait_until("stacks", lambda: any("take_step" in frame["symbol"] for stack in self.communicator()["stacks"]
                                         for frame in stack["frames"]))
        [size] = row["sizes"]
        self.assertEqual((size["operation"], size["size_bytes"]), ("all_reduce", 4 << 20))
        self.assertGreater(size["timed"], 0)
        # A kernel lasts a millisecond after the last rank's began, and that rank's little more.
        self.assertAlmostEqual(size["min_ns"], 1_000_000, delta=200_000)
        self.assertAlmostEqual(size["bus_bandwidth"], size["algorithm_bandwidth"], delta=1)  # 2 (n-1) / n = 1
        waits = {rank["rank"]: rank for rank in row["local_ranks"]}
        self.assertGreater(waits[0]["gpu_waited_ns"], 2 * waits[1]["gpu_waited_ns"])
        self.check_metrics(row)

    def check_metrics(self, row):
        url = f"http://127.0.0.1:{self.daemon.port}/metrics"
        with urllib.request.urlopen(url, timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        late = [line for line in lines if line.startswith("gpuperf_nccl_late_ratio") and not line.endswith(" 0")]
        self.assertEqual(len(late), 1, late)
        self.assertIn(f'communicator="{row["id"]}",rank="1"', late[0])
        self.assertTrue(any(line.startswith("gpuperf_nccl_gpu_seconds_total") for line in lines))

    def test_a_late_rank_is_named_from_calls_where_nothing_is_injected(self):
        self.start((), ("sleep", 20), is_injected=False)
        row = self.wait_named()

        self.check_late(row, 1, ("sleep",))
        self.assertFalse(row["by_kernels"])
        self.assertEqual(row["sizes"][0]["timed"], 0)
        self.assertTrue(any("from calls" in line for line in row["evidence"]), row["evidence"])

    def test_a_slow_data_loader_is_named(self):
        self.start((), ("read", 30), ())
        row = self.wait_named()

        self.check_late(row, 1, ("io",))
        self.assertTrue(any("its input is late" in line for line in [row["verdict"], *row["evidence"]]))

    def test_a_cpu_quota_is_named(self):
        with throttled_cgroup(20_000) as cgroup:
            self.start((), ("spin", 10))
            (cgroup / "cgroup.procs").write_text(str(self.ranks[1].pid))
            # Before the quota takes hold, on a busy machine, it may be late for another reason.
            row = wait_until("the quota is named", lambda: (found := self.communicator()) and found["state"] == "late"
                             and found["cause"] == "cpu_quota" and found, NAMED_SECONDS)
            self.check_late(row, 1, ("cpu_quota",))
            self.kill()
            self.ranks.clear()

    def test_a_stopped_rank_is_named(self):
        self.start((), (), ())
        wait_until("operations", lambda: self.communicator() and self.communicator()["sizes"])
        self.ranks[2].send_signal(signal.SIGSTOP)
        row = self.wait_named("stuck")

        self.check_late(row, 2, ("stopped",))
        self.assertGreaterEqual(row["stuck_ns"], 10_000_000_000)
        odd = [stack["ranks"] for stack in row["stacks"] if stack["odd"]]
        self.assertEqual(len(odd), 1)
        self.assertIn("rank 2", odd[0])
        self.ranks[2].send_signal(signal.SIGCONT)
        wait_until("it goes on", lambda: self.communicator()["state"] != "stuck")

    def test_ranks_in_step_are_fine(self):
        self.start((), ())
        wait_until("operations", lambda: self.communicator() and self.communicator()["sizes"])
        self.assertTrue(self.daemon.ctl("nccl").stdout.startswith("No rank on this host is waited for."))

    def test_a_late_start_takes_ranks_from_the_environment(self):
        self.start((), ())
        self.daemon.wait_attached(*FUNCTIONS)
        self.daemon.stop()
        self.daemon.start()

        def find_ranks():  # their environment is read after their first calls
            rows = self.daemon.query("nccl")
            return rows if {row["local_ranks"][0]["rank"] for row in rows} == {0, 1} else None

        for row in wait_until("both ranks", find_ranks):
            self.assertFalse(row["identified"])
            self.assertTrue(row["ranks_inferred"] and row["local_ranks"][0]["rank_inferred"])
            self.assertEqual(row["ranks"], 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
