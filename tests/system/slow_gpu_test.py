#!/usr/bin/env python3
"""A slow call of an injected process says what the GPU did during it: which kernels, launched from where, how
long the GPU was idle. On the fake driver, whose truth is known."""

import time
import unittest

from gpuperf_system import Daemon, require_root, wait_until
from injector_workload import FAKES, KERNEL, Workload, require_fakes

PROBES = ("cuLaunchKernel", "cuGraphLaunch", "cuMemcpyAsync", "cuMemsetD8Async", "cuCtxSynchronize")
KERNEL_NAMES = ("square(float*, int)", "at::native::reduce", "copy_kernel")  # of the paths, by turns
MS = 1_000_000


def make_config(**sections):
    return {"cuda_func_sym": {name: name for name in PROBES},
            "libraries": {"cuda_func_sym": [str(FAKES / "libcuda.so*")]},
            "slow": {"adaptive_factor": 0, "default_threshold_ms": 50},
            "trace": {"stacks_per_second": 1_000_000}, **sections}


class SlowGpuTest(unittest.TestCase):
    config = make_config()

    def setUp(self):
        require_root()
        require_fakes()
        self.daemon = self.enterContext(Daemon(self.config))
        self.workload = self.start_workload()
        self.begun_unix_ns = time.time_ns()

    def start_workload(self):
        workload = self.enterContext(Workload(self.daemon.path / "run/ingest.sock"))
        workload.do("init")
        workload.do("launch 10 1")  # so that the library is found
        for function in PROBES:
            self.daemon.wait_for_probe(function)
        pid = workload.process.pid
        wait_until("the session", lambda: [row for row in self.daemon.query("sessions", "list")
                                           if row["pid"] == pid and row["state"] == "collecting"])
        workload.do("paths 200 1")
        workload.do("sync")
        time.sleep(0.5)  # until the rules of its code are known
        workload.do("forget")
        return workload

    def wait_for_slow_sync(self, workload, count=1):
        """The process's slow synchronising calls, once there are as many."""
        def find():
            rows = [row for row in self.daemon.query("slow", "list", "--pid", workload.process.pid)
                    if row["function"] == "cuCtxSynchronize" and not row["in_flight"]
                    and row["start_unix_ns"] >= self.begun_unix_ns]  # on a busy machine some are before
            return sorted(rows, key=lambda row: row["start_mono_ns"]) if len(rows) >= count else None
        return wait_until(f"{count} slow calls", find, 30)

    def check_adds_up(self, call):
        gpu = call["gpu"]
        self.assertEqual(gpu["busy_ns"] + gpu["idle_ns"], call["duration_ns"])
        for device in gpu["devices"]:
            self.assertEqual(device["busy_ns"] + device["idle_ns"], call["duration_ns"])

    def assert_near(self, measured, truth, ratio=0.01):
        self.assertAlmostEqual(measured, truth, delta=ratio * truth)


class SynchroniseTest(SlowGpuTest):
    def test_a_wait_names_the_kernel_its_time_and_the_path_that_launched_it(self):
        self.workload.do(f"path 7 {500 * MS}")
        self.workload.do("sync")
        truth = next(work for work in self.workload.truth()[1] if work.kind == KERNEL)
        [call] = self.wait_for_slow_sync(self.workload)
        call = self.daemon.query("slow", "show", call["id"])
        gpu = call["gpu"]

        self.check_adds_up(call)
        self.assertTrue(gpu["complete"], gpu["missing"])
        self.assertEqual([kernel["kernel"] for kernel in gpu["kernels"]], [KERNEL_NAMES[7 % 3]])
        kernel = gpu["kernels"][0]
        self.assertEqual(kernel["count"], 1)
        self.assertEqual(kernel["longest_ns"], truth.end_unix_ns - truth.start_unix_ns)
        # It had begun when the call did, or after; the call returns when it has ended.
        true_ns = truth.end_unix_ns - max(truth.start_unix_ns, call["start_unix_ns"])
        self.assert_near(kernel["total_ns"], true_ns)
        self.assertEqual((gpu["busy_ns"], gpu["kernel_ns"]), (kernel["total_ns"], kernel["total_ns"]))
        self.assertIn("path_07", kernel["launcher"]["frame"])
        self.assertEqual(kernel["launcher"]["function"], "cuLaunchKernel")  # as its hook saw it
        self.assertTrue(kernel["launcher"]["calling_thread"])
        self.assertEqual(kernel["launcher"]["tid"], self.workload.process.pid)
        awaited = gpu["awaited"]
        self.assertEqual(awaited["name"], KERNEL_NAMES[7 % 3])
        self.assertEqual(awaited["duration_ns"], 500 * MS)
        self.assertGreater(awaited["queued_ns"], 0)
        end_unix_ns = call["start_unix_ns"] + call["duration_ns"]
        self.assertAlmostEqual(awaited["before_return_ns"], end_unix_ns - truth.end_unix_ns, delta=MS)
        text = self.daemon.ctl("slow", "show", call["id"]).stdout
        self.assertIn("What the GPU did meanwhile", text)
        self.assertIn("path_07", text)

    def test_kernels_of_one_stream_are_added_up_and_told_apart(self):
        for path, duration_ms in ((3, 200), (4, 100), (3, 100)):
            self.workload.do(f"path {path} {duration_ms * MS}")
        self.workload.do("sync")
        [call] = self.wait_for_slow_sync(self.workload)
        gpu = call["gpu"]

        self.check_adds_up(call)
        times = {row["kernel"]: row for row in gpu["kernels"]}
        self.assertEqual(list(times), [KERNEL_NAMES[0], KERNEL_NAMES[1]])
        self.assertEqual([row["count"] for row in times.values()], [2, 1])
        self.assert_near(times[KERNEL_NAMES[1]]["total_ns"], 100 * MS)
        self.assertIn("path_04", times[KERNEL_NAMES[1]]["launcher"]["frame"])
        self.assertEqual(gpu["kernel_ns"], gpu["busy_ns"])
        self.assertGreater(gpu["awaited"]["stream_wait_ns"], 200 * MS)

    def test_another_process_on_the_same_gpu_is_seen(self):
        other = self.start_workload()
        other.do(f"path 1 {400 * MS}")
        self.workload.do(f"path 2 {200 * MS}")
        self.workload.do("sync")
        other.do("sync")
        [call] = self.wait_for_slow_sync(self.workload)
        gpu = call["gpu"]

        self.check_adds_up(call)
        self.assertEqual([row["pid"] for row in gpu["others"]], [other.process.pid])
        self.assertEqual(gpu["others_ns"], gpu["others"][0]["busy_ns"])
        self.assertEqual([row["kernel"] for row in gpu["kernels"]], [KERNEL_NAMES[2]])
        true = next(work for work in other.truth()[1] if work.kind == KERNEL)
        end_unix_ns = call["start_unix_ns"] + call["duration_ns"]
        self.assert_near(gpu["others_ns"], min(true.end_unix_ns, end_unix_ns)
                         - max(true.start_unix_ns, call["start_unix_ns"]))

    def test_a_paused_session_says_that_it_does_not_know(self):
        self.daemon.ctl("sessions", "pause", self.workload.process.pid)
        wait_until("paused", lambda: [row for row in self.daemon.query("sessions", "list")
                                      if row["state"] == "paused"])
        self.workload.do(f"path 7 {200 * MS}")
        self.workload.do("sync")
        [call] = self.wait_for_slow_sync(self.workload)

        self.assertFalse(call["gpu"]["complete"])
        self.assertIn("paused", call["gpu"]["missing"][0])

    def test_what_is_held_at_the_stop_is_kept(self):
        self.workload.do(f"path 7 {200 * MS}")
        self.workload.do("sync")
        self.daemon.stop()
        self.daemon.start()
        [call] = self.wait_for_slow_sync(self.workload)

        self.assertTrue(call["stored"])
        self.assertFalse(call["gpu"]["complete"])
        self.assertIn("gpuperfd stopped", call["gpu"]["missing"][0])


class NoSessionTest(unittest.TestCase):
    def test_a_process_without_the_library_is_told_of_as_ever(self):
        require_root()
        require_fakes()
        with Daemon(make_config()) as daemon, \
                Workload(daemon.path / "nobody.sock", environment={"CUDA_INJECTION64_PATH": ""}) as workload:
            workload.do("init")
            workload.do("launch 10 1")
            for function in PROBES:
                daemon.wait_for_probe(function)
            workload.do(f"path 7 {200 * MS}")
            workload.do("sync")
            call = wait_until("the slow call", lambda: daemon.query("slow", "list"))[0]

            self.assertNotIn("gpu", {key for key, value in call.items() if value})


class NoRecorderTest(SlowGpuTest):
    config = make_config(trace={"recorder": False})

    def test_without_the_flight_recorder_it_says_so(self):
        self.workload.do(f"path 7 {200 * MS}")
        self.workload.do("sync")
        [call] = self.wait_for_slow_sync(self.workload)

        self.assertEqual(call["gpu"]["missing"], ["the flight recorder is off (trace.recorder)"])
        self.assertEqual((int(call["gpu"]["busy_ns"]), int(call["gpu"]["idle_ns"])), (0, 0))


if __name__ == "__main__":
    unittest.main(verbosity=2)
