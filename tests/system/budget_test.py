#!/usr/bin/env python3
"""The overhead budget: probes that cost more than it are suspended, visibly, and counted in windows."""

import shutil
import statistics
import tempfile
import time
import unittest
import urllib.request

from gpuperf_system import (LONG, PATIENCE, WORKLOADS, Daemon, finish_workload, require_root, start_workload,
                            wait_until)

SECONDS = 6
ESTIMATE_SECONDS = 120 if LONG else 25
SLICES_UNTIL_OUT = 10 * PATIENCE  # of 100 ms: within a second
FUNCTIONS = ("busy_tight", "busy_rare")
FOLDER = tempfile.TemporaryDirectory(prefix="gpuperf-budget-")
PROGRAM = f"{FOLDER.name}/busy_loop"


def setUpModule():
    require_root()
    unittest.addModuleCleanup(FOLDER.cleanup)
    shutil.copy(WORKLOADS / "busy_loop", FOLDER.name)


def make_config(budget_percent):
    # busy_rare by return probes: stepping its own exits may cost more than the budget on a slow host.
    return {"custom_sym": {"busy_tight": "busy_tight",
                           "busy_rare": {"symbol": "busy_rare", "may_throw": False}},
            "libraries": {"custom_sym": [PROGRAM]},
            "slow": {"default_threshold_ms": 0},
            "overhead": {"budget_percent": budget_percent}}


class ValveTest(unittest.TestCase):
    maxDiff = None

    def run_busy_loop(self, daemon, seconds=SECONDS, *more):
        go = daemon.path / "go"
        process = start_workload(PROGRAM, "--seconds", seconds, *more, "--wait-for-file", go)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        daemon.wait_attached(*FUNCTIONS)
        # Measured right after the first attaching; on a slow machine that takes longer than attaching.
        wait_until("the probes' costs are known", lambda: all(row["cost_ns"] for row in daemon.query("probes")))
        go.touch()
        return process

    def wait_for_calls(self, daemon, pid, function, calls):
        def read():
            return daemon.functions("--pid", pid)[function]
        try:
            wait_until("the calls", lambda: read()["calls"] == calls)
        except AssertionError:
            self.assertEqual(read()["calls"], calls, function)
        return read()

    def test_a_tight_loop_is_let_go_within_a_second_and_all_else_stays_exact(self):
        with Daemon(make_config(1)) as daemon:
            process = self.run_busy_loop(daemon)

            (truth,) = finish_workload(process)

            # A probed call takes some 50 times as long, so a slice with probes stands out, whatever else runs.
            slices = truth["tight_per_slice"]
            print(f"tight calls per slice: {slices}")
            free = statistics.median(slices[SLICES_UNTIL_OUT:])
            # What a slice with probes looks like, this run has shown: others on the machine cost a slice much, not that.
            probed = min(slices[:SLICES_UNTIL_OUT])
            self.assertGreater(free, 4 * probed, "it was never probed")
            self.assertGreater(min(slices[SLICES_UNTIL_OUT:]), min(0.2 * max(slices), 10 * probed))
            rare = self.wait_for_calls(daemon, truth["pid"], "busy_rare",
                                       truth["calls"]["busy_rare"]["calls"])
            self.assertEqual(rare["coverage"], 1)
            tight = daemon.functions("--pid", truth["pid"])["busy_tight"]
            self.assertLess(tight["calls"], truth["calls"]["busy_tight"]["calls"])
            self.assertLess(tight["coverage"], 0.9)
            self.check_visible(daemon, truth["pid"])

    def check_visible(self, daemon, pid):
        (suspension,) = daemon.query("status")["suspensions"]
        self.assertEqual((suspension["function"], suspension["pid"], suspension["times"]),
                         ("busy_tight", pid, 1))
        self.assertGreater(suspension["share_ratio"], 0.01)
        self.assertLessEqual(suspension["remaining_ns"], 120e9)
        self.assertTrue(daemon.wait_for_probe("busy_tight", "suspended")["reason"])
        daemon.wait_for_probe("busy_rare", "attached")
        self.assertIn("busy_tight", daemon.log())
        self.assertIn("busy_tight", daemon.ctl("doctor", check=False).stdout)
        with urllib.request.urlopen(f"http://127.0.0.1:{daemon.port}/metrics", timeout=10) as page:
            self.assertIn('gpuperf_probes{state="suspended"} 1', page.read().decode())

    def test_a_function_that_was_suspended_begins_so_when_the_daemon_is_started_again(self):
        with tempfile.TemporaryDirectory(prefix="gpuperf-budget-store-") as folder:
            config = make_config(1) | {"storage": {"path": folder}}
            with Daemon(config) as daemon:
                finish_workload(self.run_busy_loop(daemon, 2))
                wait_until("a suspension", lambda: daemon.query("status").get("suspensions"))
                self.assertEqual(daemon.stop(), 0)
            with Daemon(config) as daemon:
                daemon.wait_attached("busy_rare")
                daemon.wait_for_probe("busy_tight", "suspended")
                (suspension,) = daemon.query("status")["suspensions"]
                self.assertEqual((suspension["function"], suspension["times"], suspension["pid"]),
                                 ("busy_tight", 1, 0))
                (truth,) = finish_workload(start_workload(PROGRAM, "--seconds", 2))
                slices = truth["tight_per_slice"]
                # But for one window, if it is due.
                self.assertLess(sum(calls < 0.02 * statistics.median(slices) for calls in slices), 3 * PATIENCE, slices)

    def test_a_demand_stands_everything_down_or_lifts_the_budget_and_ends_by_itself(self):
        with Daemon(make_config(1)) as daemon:
            process = self.run_busy_loop(daemon, 60)
            wait_until("a suspension", lambda: daemon.query("status").get("suspensions"))

            daemon.ctl("overhead", "stand-down", "--for", "1h", "--reason", "SLO of the decode")
            status = daemon.query("status")
            self.assertEqual((status["overhead_demand"], status["overhead_demand_reason"]),
                             ("stand_down", "SLO of the decode"))
            self.assertGreater(int(status["overhead_demand_remaining_ns"]), 3500e9)
            self.assertIn("nothing is probed or recorded for another", daemon.ctl("status").stdout)
            for name in FUNCTIONS:
                daemon.wait_for_probe(name, "disabled")
            time.sleep(1)  # what was counted before comes with the readings after
            calls = {name: daemon.functions("--pid", process.pid)[name]["calls"] for name in FUNCTIONS}
            refused = daemon.ctl("trace", "start", "--duration", "1s", check=False)
            self.assertEqual(refused.returncode, 1)
            self.assertIn("SLO of the decode", refused.stderr)
            time.sleep(1)
            rows = daemon.functions("--pid", process.pid)
            self.assertEqual({name: rows[name]["calls"] for name in FUNCTIONS}, calls)

            daemon.ctl("overhead", "detail", "--for", "2s", "--reason", "incident")
            for name in FUNCTIONS:
                daemon.wait_for_probe(name, "attached")
            self.assertIn("no overhead budget for another", daemon.ctl("status").stdout)
            wait_until("the demand has ended, the budget is back", lambda:
                       daemon.query("status")["overhead_demand"] == "none"
                       and daemon.query("status").get("suspensions"))
            row = daemon.functions("--pid", process.pid)["busy_rare"]
            self.assertGreater(row["calls"], calls["busy_rare"])
            self.assertLess(row["coverage"], 1)  # not while nothing was probed
            for arguments, words in ((["stand-down"], "--for is required"), (["detail", "--for", "2d"], "at most 1d"),
                                     (["release", "--for", "1m"], "--for")):
                refused = daemon.ctl("overhead", *arguments, check=False)
                self.assertEqual(refused.returncode, 2)
                self.assertIn(words, refused.stderr)
            (shown,) = [row for row in daemon.ctl("overhead").stdout.splitlines() if str(process.pid) in row]
            self.assertIn("1.00 %", shown)

    def test_without_a_budget_every_call_is_counted(self):
        with Daemon(make_config(0)) as daemon:
            (truth,) = finish_workload(self.run_busy_loop(daemon, 3))

            for name in FUNCTIONS:
                row = self.wait_for_calls(daemon, truth["pid"], name,
                                          truth["calls"][name]["calls"])
                self.assertEqual(row["coverage"], 1)
            self.assertEqual(daemon.query("status").get("suspensions", []), [])

    def test_calls_between_the_windows_of_a_suspended_function_are_estimated(self):
        with Daemon(make_config(1)) as daemon:
            # A probe takes some per cent of such a program, and little of a window.
            process = self.run_busy_loop(daemon, ESTIMATE_SECONDS, "--apart-us", 400)
            (truth,) = finish_workload(process)
            made = truth["calls"]["busy_tight"]["calls"]
            if not daemon.query("status").get("suspensions"):
                self.skipTest("a probe costs too little on this machine to be over the budget")

            def estimate():
                row = daemon.functions("--pid", truth["pid"])["busy_tight"]
                error = int(row["missed"]["calls_error"]) if row.get("missed") else 0
                return abs(row["calls"] + int(row["missed"]["calls"]) - made) <= error and row
            row = wait_until("an estimate that holds the truth, once the process's end was seen", estimate)
            print(f"{made} calls made, {row['calls']} counted, missed: {row['missed']}, coverage {row['coverage']}")
            self.assertLess(row["coverage"], 0.7)
            self.assertLess(row["missed"]["calls_error"], 0.4 * made)
            self.assertIn("NOT COUNTED", daemon.ctl("functions").stdout)
            with urllib.request.urlopen(f"http://127.0.0.1:{daemon.port}/metrics", timeout=10) as page:
                self.assertIn("gpuperf_function_missed_calls_total", page.read().decode())

    def test_a_function_that_is_configured_to_be_sampled_costs_nothing_from_the_start(self):
        config = make_config(1)
        config["custom_sym"]["busy_tight"] = {"symbol": "busy_tight", "sample": True}
        with Daemon(config) as daemon:
            go = daemon.path / "go"
            process = start_workload(PROGRAM, "--seconds", 10, "--wait-for-file", go)
            self.addCleanup(process.stdout.close)
            self.addCleanup(process.kill)
            daemon.wait_attached("busy_rare")
            daemon.wait_for_probe("busy_tight", "suspended")
            go.touch()
            (truth,) = finish_workload(process)
            slices = truth["tight_per_slice"]
            free = statistics.median(slices)
            slowed = [calls for calls in slices if calls < 0.02 * free]  # with its trap, 1 in 1,000 is left
            print(f"{len(slowed)} of {len(slices)} slices with the probe")
            self.assertLessEqual(len(slowed), 3 * PATIENCE)
            row = wait_until("a window", lambda: daemon.functions("--pid", truth["pid"]).get("busy_tight"))
            self.assertLess(row["coverage"], 0.2)
            self.assertEqual(daemon.query("status").get("suspensions", []), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
