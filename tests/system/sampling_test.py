#!/usr/bin/env python3
"""PC sampling from the command to the table: gpuperfctl has a program sampled, and says what its kernels wait for."""

import collections
import pathlib
import unittest

from gpuperf_system import Daemon, require_root, wait_until
from injector_workload import FAKES, Workload, require_fakes

WAITS = 0.75  # of the fake's samples, one a microsecond
LONG = "launch 3000 1 20000"  # launches of 20 us each
# Of lines.cu: where the fake's samples wait, in a function that was inlined, and where they do not.
LINES = pathlib.Path(__file__).parent.parent / "recordings/lines"
WAITING = {"file": "/src/lines.cu", "line": 4, "function": "twice(float const*, int)", "outer_file": "/src/lines.cu", "outer_line": 13}
ISSUING = {"file": "/src/lines.cu", "line": 12, "function": "", "outer_file": "/src/lines.cu", "outer_line": 12}


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
        # Before other launches, whose shape is another.
        self.launch = wait_until("records", self.launch_square)["launch"]
        self.program.do("steady 2 20 memory")
        wait_until("records go on", lambda: self.session()["state"] == "collecting")

    def launch_square(self):
        self.program.do("launch 10 1")
        return self.kernels().get("square")

    def session(self):
        rows = self.daemon.query("sessions", "--pid", self.program.process.pid)
        return rows[0] if rows else {"state": "", "level": [], "samples": 0}

    def kernels(self):
        return {row["short_name"]: row for row in
                self.daemon.query("kernels", "--per-process", "--pid", self.program.process.pid)}

    def test_a_program_is_sampled_on_demand_while_it_launches_and_allocates(self):
        pid = self.program.process.pid
        launch = self.launch
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
        self.assertEqual([hot["pc_offset_bytes"] for hot in kernel["stalls"]["hottest"]], [0xe0, 0x130])
        self.assertEqual([verdict["name"] for verdict in kernel["verdicts"]], ["small launch", "memory latency"])
        shown = self.daemon.ctl("kernels", "show", "square", "--pid", pid).stdout
        for text in ("Limited by memory latency", "waits for data from global or local memory", "0xe0"):
            self.assertIn(text, shown)
        self.assertIn("long_scoreboard 75", self.daemon.ctl("kernels", "--stalls").stdout)

    def sample_module(self, how, name):
        """Square's samples after the program has loaded a module from a file."""
        pid = self.program.process.pid
        self.assertEqual(self.program.do(f"load {how} {LINES / name}")["result"], 0)
        self.daemon.ctl("sessions", "burst", pid, "--samples", "--for", "2s")
        wait_until("it samples", lambda: "samples" in self.session()["level"])
        self.program.do(LONG)
        wait_until("it has ended by itself", lambda: "samples" not in self.session()["level"])
        return wait_until("its module", lambda: next(
            (row for row in [self.kernels()["square"]["stalls"]]
             if row and "not arrived" not in row["unlined_reason"]), None))

    def check_lines(self, stalls):
        self.assertEqual([line["source"] for line in stalls["lines"]], [WAITING, ISSUING])
        self.assertEqual([line["stall"] for line in stalls["lines"]], ["long_scoreboard", "selected"])
        self.assertEqual(sum(line["samples"] for line in stalls["lines"]), stalls["samples"])
        self.assertAlmostEqual(stalls["lines"][0]["share_ratio"], WAITS, delta=0.02)
        self.assertEqual([hot["source"] for hot in stalls["hottest"]], [WAITING, ISSUING])
        self.assertEqual((stalls["unlined_samples"], stalls["unlined_reason"]), (0, ""))

    def test_samples_have_source_lines(self):
        self.check_lines(self.sample_module("plain", "lines.cubin"))
        shown = self.daemon.ctl("kernels", "show", "square", "--pid", self.program.process.pid).stdout
        self.assertIn("/src/lines.cu:4 twice(float const*, int) at /src/lines.cu:13", shown)
        other = self.kernels()["reduce"]["stalls"]
        self.assertEqual((other["lines"], other["unlined_samples"]), ([], other["samples"]))
        self.assertIn("says nothing of them", other["unlined_reason"])

    def test_so_do_those_of_a_fat_binary_that_hooks_saw_loaded(self):
        self.program.do("fail cuptiRegisterComputeCrcCallback")
        self.check_lines(self.sample_module("wrapped", "lines.fatbin"))

    def test_so_do_those_of_a_module_that_the_driver_compiled(self):
        self.check_lines(self.sample_module("compiled", "lines.cubin"))

    def test_an_image_that_has_gone_is_said_to_be_missing(self):
        stalls = self.sample_module("freed", "lines.cubin")
        self.assertEqual((stalls["lines"], stalls["unlined_samples"]), ([], stalls["samples"]))
        self.assertIn("not in the process any more", stalls["unlined_reason"])
        shown = self.daemon.ctl("kernels", "show", "square", "--pid", self.program.process.pid).stdout
        self.assertIn("Source lines of", shown)

    def test_a_capture_has_its_program_sampled(self):
        row = self.daemon.query("trace", "start", "--sampling", "--duration", "3s", "--pid", self.program.process.pid)
        wait_until("it samples", lambda: "samples" in self.session()["level"])
        self.program.do(LONG)
        wait_until("the capture", lambda: [one for one in self.daemon.query("trace", "list")
                                           if one["id"] == row["id"] and one["state"] == "stored"], 30)
        self.assertGreater(self.kernels()["square"]["stalls"]["samples"], 0)
        # By stall reason below their kernels; the time of each kernel as without.
        folded = self.daemon.ctl("trace", "fetch", row["id"], "--format", "folded").stdout
        times = collections.Counter()
        for line in folded.splitlines():
            path, _, time_us = line.rpartition(" ")
            for frame in {frame for frame in path.split(";") if frame.startswith("[GPU_")}:
                times[frame] += float(time_us)
        kernels = {one["name"]: one for one in self.daemon.query("kernels", "--by", "kernel", "--capture", row["id"])}
        square = "square(float*, int)"
        self.assertAlmostEqual(times[f"[GPU_Kernel]{square}"], kernels[square]["gpu_ns"] / 1e3, places=2)
        stalls_us = times["[GPU_Stall]long_scoreboard"] + times["[GPU_Stall]selected"]
        self.assertAlmostEqual(times["[GPU_Stall]long_scoreboard"] / stalls_us, WAITS, delta=0.02)
        report = self.daemon.ctl("trace", "fetch", row["id"], "--format", "report").stdout
        self.assertIn("long_scoreboard 75", report)
        same = self.daemon.query("diff", row["id"], row["id"], "--by", "stall")
        self.assertIn(("[GPU_Stall]long_scoreboard", 0), [(one["name"], one["delta_ns"]) for one in same])
        wrong = self.daemon.ctl("trace", "start", "--sampling", "--cpu-only", check=False)
        self.assertNotEqual(wrong.returncode, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
