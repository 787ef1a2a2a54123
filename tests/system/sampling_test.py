#!/usr/bin/env python3
"""PC sampling from the command to the table: gpuperfctl has a program sampled, and says what its kernels wait for."""

import unittest

from gpuperf_system import Daemon, require_root, wait_until
from injector_workload import FAKES, Workload, require_fakes

WAITS = 0.75  # of the fake's samples, one a microsecond
LONG = "launch 3000 1 20000"  # launches of 20 us each


class SamplingTest(unittest.TestCase):
    def setUp(self):
        require_root()
        require_fakes()
        self.daemon = self.enterContext(Daemon({
            "cuda_func_sym": {"cuLaunchKernel": {"symbol": "cuLaunchKernel", "may_throw": False}},
            "libraries": {"cuda_func_sym": [str(FAKES / "libcuda.so*")]}, "slow": {"default_threshold_ms": 0}}))
        self.program = self.enterContext(Workload(self.daemon.path / "run/ingest.sock"))
        self.program.do("init")
        self.program.do("launch 10 1")
        self.daemon.wait_attached("cuLaunchKernel")
        self.program.do("steady 2 20 memory")
        wait_until("records", lambda: self.session()["state"] == "collecting")

    def session(self):
        rows = self.daemon.query("sessions", "--pid", self.program.process.pid)
        return rows[0] if rows else {"state": "", "level": [], "samples": 0}

    def kernels(self):
        return {row["short_name"]: row for row in
                self.daemon.query("kernels", "--per-process", "--pid", self.program.process.pid)}

    def test_a_program_is_sampled_on_demand_while_it_launches_and_allocates(self):
        pid = self.program.process.pid
        launch = self.kernels()["square"]["launch"]
        self.assertEqual((launch["block"], launch["sm_count"], launch["blocks_per_sm"]), ([128, 1, 1], 132, 12))
        self.assertIsNone(self.kernels()["square"]["stalls"])
        self.assertIn("Not sampled yet", self.daemon.ctl("kernels", "show", "square", "--pid", pid).stdout)

        self.daemon.ctl("sessions", "burst", pid, "--samples", "--for", "3s")
        wait_until("it samples", lambda: "samples" in self.session()["level"])
        self.assertIn("kernels", self.session()["level"], "records go on")
        self.program.do(LONG)
        wait_until("it has ended by itself", lambda: "samples" not in self.session()["level"])

        session, kernel = self.session(), self.kernels()["square"]
        self.assertGreater(session["sampled_ns"], 1e9)
        of_kernels = sum(row["stalls"]["samples"] for row in self.kernels().values())
        self.assertEqual((session["samples"], session["dropped_samples"]), (of_kernels, 0))
        (waits, issues) = kernel["stalls"]["stalls"]
        self.assertEqual((waits["name"], issues["name"]), ("long_scoreboard", "selected"))
        self.assertAlmostEqual(waits["share_ratio"], WAITS, delta=0.02)
        self.assertEqual([hot["pc_offset_bytes"] for hot in kernel["stalls"]["hottest"]], [0x120, 0x130])
        self.assertEqual([verdict["name"] for verdict in kernel["verdicts"]], ["small launch", "memory latency"])
        shown = self.daemon.ctl("kernels", "show", "square", "--pid", pid).stdout
        for text in ("Limited by memory latency", "waits for data from global or local memory", "0x120"):
            self.assertIn(text, shown)
        self.assertIn("long_scoreboard 75", self.daemon.ctl("kernels", "--stalls").stdout)

    def test_a_capture_has_its_program_sampled(self):
        row = self.daemon.query("trace", "start", "--sampling", "--duration", "3s", "--pid", self.program.process.pid)
        wait_until("it samples", lambda: "samples" in self.session()["level"])
        self.program.do(LONG)
        wait_until("the capture", lambda: [one for one in self.daemon.query("trace", "list")
                                           if one["id"] == row["id"] and one["state"] == "stored"], 30)
        self.assertGreater(self.kernels()["square"]["stalls"]["samples"], 0)
        wrong = self.daemon.ctl("trace", "start", "--sampling", "--cpu-only", check=False)
        self.assertNotEqual(wrong.returncode, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
