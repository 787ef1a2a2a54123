#!/usr/bin/env python3
"""gpuperfctl why: planted causes of idle time, each with its true length, are the first line; on the fake driver."""

import json
import os
import pathlib
import subprocess
import unittest

from gpuperf_system import WORKLOADS, Daemon, require_root, wait_until
from injector_workload import FAKES, INJECTOR, Workload, require_fakes
from why_slow_test import throttled_cgroup

MS = 1_000_000
PROBES = ("cuLaunchKernel", "cuCtxSynchronize")
PLANTED = ("planted_call", "planted_blocked_call")
CONFIG = {"cuda_func_sym": {name: name for name in PROBES},
          "custom_sym": {**{name: name for name in PLANTED}, "planted_step": {"symbol": "planted_step", "role": "step"}},
          "libraries": {"cuda_func_sym": [str(FAKES / "libcuda.so*")],
                        "custom_sym": [str(WORKLOADS / "injected")]}}


class WhyTest(unittest.TestCase):
    def setUp(self):
        require_root()
        require_fakes()
        self.daemon = self.enterContext(Daemon(CONFIG))
        self.workload = self.enterContext(Workload(self.daemon.path / "run/ingest.sock"))
        self.pid = self.workload.process.pid
        self.workload.do("init")
        self.workload.do("launch 10 1")  # so that the library is found
        for function in (*PROBES, *PLANTED, "planted_step"):
            self.daemon.wait_for_probe(function)
        wait_until("the session", lambda: [row for row in self.daemon.query("sessions", "list")
                                           if row["pid"] == self.pid
                                           and (row["state"] == "collecting" or row["in_windows"])])
        self.capture(lambda: self.workload.do("idle spin 20 5"))  # until the rules of its code are known

    def capture(self, work):
        """Runs `work` within a capture; the capture's id."""
        row = self.daemon.query("trace", "start", "--pid", self.pid)
        work()
        self.daemon.ctl("trace", "stop", row["id"])

        def find():
            shown = self.daemon.query("trace", "show", row["id"])["capture"]
            self.assertNotEqual(shown["state"], "failed", shown["problem"])
            return shown["state"] == "stored"
        wait_until(f"capture {row['id']} stored", find, 30)
        return row["id"]

    def explain(self, capture):
        answer = self.daemon.query("why", "--capture", capture, "--pid", self.pid)
        [process] = answer["processes"]
        self.assertEqual(sum(part["time_ns"] for part in process["parts"]), answer["duration_ns"])
        self.assertEqual(sum(finding["time_ns"] for finding in process["findings"]), answer["duration_ns"])
        return process

    def plant(self, cause, duration_ms=20, times=20):
        """What `why` says of it, and how long it took in truth."""
        truth = {}
        capture = self.capture(lambda: truth.update(self.workload.do(f"idle {cause} {duration_ms} {times}")))
        return self.explain(capture), truth["planted_ns"], capture

    def assert_near(self, process, measured_ns, truth_ns, tolerance=0.05, more=("no_cpu",)):
        """Within 5 %, or 10 % where ticks tell, of which there are 250 a second; the program measures its wall time, which holds `more`: on a busy machine waits for a CPU."""
        more_ns = sum(part["time_ns"] for part in process["parts"] if part["cause"] in more)
        self.assertLess(measured_ns, (1 + tolerance) * truth_ns, json.dumps(process, indent=1))
        self.assertGreater(measured_ns, (1 - tolerance) * truth_ns - more_ns, json.dumps(process, indent=1))

    def find_first(self, process):
        """The first line; but for what a busy machine adds: waits for a CPU, and for the command that ends the capture."""
        return next(finding for finding in process["findings"]
                    if finding["cause"] != "nothing" and finding["text"] != "ready to run, without a CPU")

    def find(self, process, text):
        return next((finding for finding in process["findings"] if text in finding["text"]), None)

    def check(self, cause, expected_cause, text, function, times=20, tolerance=0.05):
        process, truth_ns, capture = self.plant(cause, times=times)
        first = self.find_first(process)

        self.assertEqual(first["cause"], expected_cause, json.dumps(process, indent=1))
        self.assertIn(text, first["text"])
        self.assert_near(process, first["time_ns"], truth_ns, tolerance)
        self.assertIn(function, " ".join(first["stack"]))
        self.assertEqual(first["tid"], self.pid)
        return process, first, capture

    def test_host_code_is_the_function_that_samples_found(self):
        self.check("spin", "host_computing", "in planted_spin, on the CPU", "planted_spin", times=100, tolerance=0.1)

    def test_a_probed_call_is_named_with_its_stack(self):
        process, first, capture = self.check("call", "host_computing", "in planted_call, on the CPU", "planted_call")

        self.assertEqual(process["verdict"], "launch_bound")
        self.assertEqual(first["stretches"], 20)
        self.assertEqual(first["command"], f"gpuperfctl slow list --pid {self.pid} --function planted_call")
        page = self.daemon.ctl("why", "--capture", capture).stdout
        self.assertIn("launch-bound", page)
        self.assertIn("planted_call", page)
        report = self.daemon.path / "report.html"
        self.daemon.ctl("trace", "fetch", capture, "--format", "report", "--file", report)
        self.assertIn("in planted_call, on the CPU", report.read_text(encoding="utf-8"))

    def test_a_blocked_call_is_named(self):
        self.check("blocked_call", "host_blocked", "in planted_blocked_call, blocked", "planted_blocked_call")

    def test_page_faults_are_told_from_other_code(self):
        process, truth_ns, _ = self.plant("fault")
        faults = self.find(process, "page faults")
        code = self.find(process, "planted_fault, on the CPU") or {"time_ns": 0}

        self.assertIn("planted_fault", " ".join(faults["stack"]))
        self.assert_near(process, faults["time_ns"] + code["time_ns"], truth_ns)

    def test_sleep_is_told(self):
        self.check("sleep", "host_blocked", "sleeping in planted_sleep", "planted_sleep")

    def test_a_lock_is_told_and_who_held_it(self):
        _, first, _ = self.check("lock", "host_blocked", "waiting for a lock or another thread in planted_lock",
                                 "planted_lock")

        self.assertEqual(first["detail"], "Most waits were ended by other threads of the process.")

    def test_input_is_told(self):
        process, _, _ = self.check("read", "input", "waiting for a file, pipe or socket in planted_read",
                                   "planted_read")

        self.assertEqual(process["verdict"], "input_bound")

    def test_a_cpu_quota_is_told(self):
        with throttled_cgroup(20_000) as cgroup:
            procs = cgroup / "cgroup.procs"
            procs.write_text(str(self.pid))
            process, truth_ns, _ = self.plant("spin", 200, 5)
            (cgroup.parent / "cgroup.procs").write_text(str(self.pid))
        first = process["findings"][0]

        self.assertEqual(first["text"], "stopped by its CPU quota", json.dumps(process, indent=1))
        self.assertAlmostEqual(first["time_ns"], 0.8 * truth_ns, delta=0.15 * truth_ns)  # the quota is 20 %

    def plant_in_python(self, cause):
        environment = {"CUDA_INJECTION64_PATH": str(INJECTOR), "GPUPERF_SETTLE_MS": "0",
                       "GPUPERF_SOCKET": str(self.daemon.path / "run/ingest.sock"),
                       "LD_LIBRARY_PATH": f"{FAKES}:{FAKES / 'cupti_13'}"}
        program = pathlib.Path(__file__).with_name("python_idle.py")
        with subprocess.Popen(["/usr/bin/python3", program, cause, "2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True, env={**os.environ, **environment}) as python:
            self.assertEqual(python.stdout.readline(), "ready\n")
            wait_until("the session", lambda: [row for row in self.daemon.query("sessions", "list")
                                               if row["pid"] == python.pid
                                               and (row["state"] == "collecting" or row["in_windows"])])
            row = self.daemon.query("trace", "start", "--pid", python.pid)
            python.stdin.write("go\n")
            python.stdin.flush()
            truth_ns = int(python.stdout.readline())
            self.daemon.ctl("trace", "stop", row["id"])
            wait_until("the capture", lambda: self.daemon.query("trace", "show", row["id"])["capture"]["state"] == "stored",
                       30)
            [process] = self.daemon.query("why", "--capture", row["id"], "--pid", python.pid)["processes"]
            python.stdin.close()
        return process, truth_ns

    def test_python_code_is_the_function_that_samples_found(self):
        process, truth_ns = self.plant_in_python("tokenizer")
        first = self.find_first(process)

        self.assertEqual(first["text"], "in tokenize (python_idle.py), on the CPU", json.dumps(process, indent=1))
        self.assert_near(process, first["time_ns"], truth_ns, tolerance=0.1)

    def test_the_interpreters_lock_is_told(self):
        process, truth_ns = self.plant_in_python("gil")
        first = self.find_first(process)

        # It waits at two places: after each call through ctypes.
        waits = [finding for finding in process["findings"]
                 if finding["text"].startswith("waiting for Python's global interpreter lock (GIL) in ")]
        self.assertIn(first, waits, json.dumps(process, indent=1))
        self.assert_near(process, sum(finding["time_ns"] for finding in waits), truth_ns, more=("no_cpu", "host_computing", "launching"))

    def test_the_longest_step_is_compared_with_the_others(self):
        truth = {}
        capture = self.capture(lambda: truth.update(self.workload.do("idle lock 10 20 150")))
        process = self.explain(capture)
        (steps,) = process["steps"]
        # All but the last, which no other follows within the capture.
        self.assertEqual((steps["function"], steps["phase"]), ("planted_step", "unspecified"))
        self.assertIn(steps["steps"], (19, 20), json.dumps(steps, indent=1))
        self.assertEqual(sum(part["time_ns"] for part in steps["parts"]), steps["total_ns"])
        self.assertGreater(steps["longest_ns"], 150 * MS)
        self.assertLess(steps["median_ns"], 150 * MS)
        first = steps["differences"][0]
        self.assertIn("waiting for a lock or another thread in planted_lock", first["finding"]["text"],
                      json.dumps(steps, indent=1))
        self.assertGreater(first["finding"]["time_ns"] - first["usual_ns"], 100 * MS)
        page = self.daemon.ctl("why", "--capture", capture).stdout
        self.assertIn("The longest took ", page)
        self.assertRegex(page, r"\+1[0-9]{2} ms .* waiting for a lock or another thread in planted_lock")
        report = self.daemon.path / "report.html"
        self.daemon.ctl("trace", "fetch", capture, "--format", "report", "--file", report)
        self.assertIn("What the longest step spent more time on than the others", report.read_text(encoding="utf-8"))
        trace = json.loads(self.daemon.ctl("trace", "fetch", capture, "--format", "chrome").stdout)
        drawn = [event for event in trace["traceEvents"] if event.get("cat") == "step"]
        self.assertEqual(len(drawn), steps["steps"])

    def test_any_step_is_explained_beside_the_others(self):
        before = self.capture(lambda: None)
        self.workload.do("idle call 10 20 150")
        made = wait_until("the steps", lambda: len(rows := self.daemon.query("steps", "list", "--function", "planted_step")) >= 20 and rows)
        by_length = sorted(made, key=lambda row: row["duration_ns"])
        for step, is_long in ((by_length[len(made) // 2], False), (by_length[-1], True)):
            answer = self.daemon.query("why", "--step", step["id"])
            [process] = answer["processes"]
            [told] = process["steps"]
            self.assertTrue(told["asked"], json.dumps(told, indent=1))
            self.assertEqual(told["longest_ns"], step["duration_ns"])
            self.assertEqual(sum(part["time_ns"] for part in told["longest_parts"]), told["longest_ns"])
            first = next(iter(told["differences"]), None)
            if is_long:
                self.assertEqual(first["finding"]["text"], "in planted_call, on the CPU", json.dumps(told, indent=1))
                self.assertGreater(first["finding"]["time_ns"] - first["usual_ns"], 100 * MS)
                self.assertIn("planted_call", " ".join(first["finding"]["stack"]))
            else:
                self.assertLess(told["longest_ns"], 150 * MS)
        kept = self.daemon.query("trace", "list")[0]
        self.assertEqual(kept["name"], f"step {step['id']}")
        page = self.daemon.ctl("why", "--capture", kept["id"], "--step", step["id"]).stdout
        print(page)
        self.assertIn(f"(pid {self.pid}), GPU 0: one step\n", page)
        self.assertIn("in others) in planted_call, on the CPU", page)
        refused = self.daemon.ctl("why", "--capture", before, "--step", step["id"], check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn(f"capture {before} does not have the step as a whole", refused.stderr)

    def test_why_takes_its_own_capture(self):
        self.workload.post("idle call 20 100")
        answer = self.daemon.query("why", "--pid", self.pid, "--for", "1s")
        self.workload.answer()

        [process] = answer["processes"]
        self.assertEqual(self.find_first(process)["text"], "in planted_call, on the CPU")
        self.assertEqual(process["verdict"], "launch_bound")


if __name__ == "__main__":
    unittest.main(verbosity=2)
