#!/usr/bin/env python3
"""gpuperfctl overhead measure: what an injected program loses, by switching everything off and on; and what ends it early."""

import json
import subprocess
import time
import unittest
import urllib.request

from gpuperf_system import Daemon, require_root, wait_until
from injector_workload import FAKES, Workload, require_fakes

SECONDS = 25
CONFIG = {"cuda_func_sym": {"cuLaunchKernel": {"symbol": "cuLaunchKernel", "may_throw": False}},
          "libraries": {"cuda_func_sym": [str(FAKES / "libcuda.so*")]}, "slow": {"default_threshold_ms": 0}}


class YoungTest(unittest.TestCase):
    def setUp(self):
        require_root()
        require_fakes()
        self.daemon = self.enterContext(Daemon(CONFIG | {"overhead": {"budget_percent": 1}}))

    def find_session(self, program):
        rows = self.daemon.query("sessions", "--pid", program.process.pid)
        return rows[0] if rows else {"state": "", "detail": ""}

    def test_a_young_program_of_few_launches_is_recorded_within_seconds(self):
        program = self.enterContext(Workload(self.daemon.path / "run/ingest.sock",
                                             environment={"GPUPERF_SETTLE_MS": "600000"}))
        program.do("init")
        wait_until("it waits", lambda: self.find_session(program)["detail"].startswith("records begin when launches are few"))
        program.do("steady 1 1")  # 900 a second: 0.2 % if each pays 2 us, of 0.5 % that are CUPTI's
        wait_until("it is recorded", lambda: self.find_session(program)["state"] == "collecting", 30)


class OverheadTest(unittest.TestCase):
    def setUp(self):
        require_root()
        require_fakes()
        self.daemon = self.enterContext(Daemon(CONFIG))

    def start_launching(self):
        program = self.enterContext(Workload(self.daemon.path / "run/ingest.sock"))
        program.do("init")
        program.do("launch 10 1")
        self.daemon.wait_attached("cuLaunchKernel")
        program.do("steady 1")
        wait_until("hooked calls", lambda: self.read_calls(program)["calls_hooked"])
        return program

    def read_calls(self, program):
        return self.daemon.functions("--pid", program.process.pid).get("cuLaunchKernel", {"calls_hooked": 0})

    def start_measuring(self, length):
        process = subprocess.Popen(self.daemon.ctl_words("overhead", "measure", "--for", length, "-o", "json"), text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        wait_until("it measures", lambda: (self.daemon.query("status")["overhead_trial"] or {}).get("running"))
        return process

    def test_what_an_injected_program_loses_is_measured_and_published(self):
        program = self.start_launching()
        pid = program.process.pid

        trial = self.daemon.query("overhead", "measure", "--for", f"{SECONDS}s")

        (measured,) = trial["measurements"]
        print(measured)
        self.assertEqual((trial["running"], trial["stopped_by"], measured["pid"], measured["comm"]),
                         (False, "", pid, "injected"))
        self.assertGreaterEqual(measured["pairs"], 6)
        self.assertLessEqual(measured["low_ratio"], measured["ratio"])
        self.assertLessEqual(measured["ratio"], measured["high_ratio"])
        self.assertLess(measured["high_ratio"], 1)
        # Its rate without us, beside that with us, by the counts of a second.
        before, begin = self.read_calls(program)["calls"], time.monotonic()
        time.sleep(2)
        rate = (self.read_calls(program)["calls"] - before) / (time.monotonic() - begin)
        self.assertGreater(rate, 0, "it is counted again")
        self.assertGreater(measured["calls_per_second"], rate / 3)
        self.assertLess(measured["calls_per_second"], rate * 3)
        self.assertLess(self.read_calls(program)["coverage"], 0.95, "half of the time nothing was counted")
        (row,) = [row for row in self.daemon.query("overhead") if row["pid"] == pid]
        self.assertEqual(row["overhead_measured"]["ratio"], measured["ratio"])
        self.assertTrue(0.5 <= row["overhead_correction"] <= 4)
        agrees = measured["low_ratio"] <= measured["estimated_ratio"] <= measured["high_ratio"]
        self.assertEqual(row["overhead_correction"] == 1, agrees, row)
        with urllib.request.urlopen(f"http://127.0.0.1:{self.daemon.port}/metrics", timeout=10) as page:
            text = page.read().decode()
        self.assertIn('gpuperf_overhead_measured_ratio{pod="",comm="injected"}', text)
        self.assertIn('gpuperf_overhead_correction_ratio{pod="",comm="injected"}', text)
        again = self.daemon.ctl("overhead", "measure", "--last").stdout
        self.assertIn("95 % INTERVAL", again)
        self.assertIn(str(pid), again)
        self.assertIn("MEASURED", self.daemon.ctl("overhead").stdout)

    def test_a_capture_or_a_demand_ends_it_with_all_on_again(self):
        program = self.start_launching()
        process = self.start_measuring("10m")
        refused = self.daemon.ctl("overhead", "measure", check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("is being measured already", refused.stderr)

        row = self.daemon.query("trace", "start", "--duration", "1s", "--pid", program.process.pid)
        wait_until("the capture", lambda: [one for one in self.daemon.query("trace", "list")
                                           if one["id"] == row["id"] and one["state"] == "stored"], 30)
        output, errors = process.communicate(timeout=20)
        self.assertEqual((process.returncode, json.loads(output)["stopped_by"]), (0, "a capture began"), errors)
        (stored,) = [one for one in self.daemon.query("trace", "list") if one["id"] == row["id"]]
        self.assertGreater(stored["launches"], 0)
        self.daemon.wait_attached("cuLaunchKernel")

        process = self.start_measuring("10m")
        self.daemon.ctl("overhead", "stand-down", "--for", "1h", "--reason", "night")
        output, errors = process.communicate(timeout=20)
        self.assertEqual((process.returncode, json.loads(output)["stopped_by"]), (0, "a demand: night"), errors)
        self.daemon.wait_for_probe("cuLaunchKernel", "disabled")
        refused = self.daemon.ctl("overhead", "measure", check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("(night)", refused.stderr)
        self.daemon.ctl("overhead", "release")
        self.daemon.wait_attached("cuLaunchKernel")
        process = self.start_measuring("10m")
        self.daemon.ctl("overhead", "release")
        self.assertEqual(json.loads(process.communicate(timeout=20)[0])["stopped_by"], "release")

    def test_it_is_refused_where_it_would_say_nothing(self):
        for arguments, code, words in (
                (["measure"], 1, "no process has the injected library"), (["measure", "--last"], 1, "nothing was measured"),
                (["measure", "--for", "5s"], 2, "from 10s to 10m"), (["measure", "--for", "11m"], 2, "from 10s to 10m")):
            refused = self.daemon.ctl("overhead", *arguments, check=False)
            self.assertEqual(refused.returncode, code, refused.stderr)
            self.assertIn(words, refused.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
