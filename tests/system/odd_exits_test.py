#!/usr/bin/env python3
"""Calls that do not return as calls do are counted, nothing leaks, and no workload is harmed."""

import unittest
import urllib.request

from gpuperf_system import (LONG, WORKLOADS, Daemon, finish_workload, get_calls, require_root,
                            start_workload)

TIMES = 12_000 if LONG else 300
C_FUNCTIONS = ("leave_by_longjmp", "leave_with_thread", "leave_with_process", "recurse",
               "fork_inside")
CONFIG = {"custom_sym": {name: name for name in C_FUNCTIONS} |
                        {"might_throw": "_ZN4demo11might_throwEm"},
          "libraries": {"custom_sym": [str(WORKLOADS / "odd_exits")]}}


def setUpModule():
    require_root()


class OddExitsTest(unittest.TestCase):
    maxDiff = None

    def run_odd_exits(self, daemon, *arguments):
        """The program's own account and the daemon's rows of it."""
        go = daemon.path / "go"
        process = start_workload("odd_exits", *arguments, "--wait-for-file", go)
        daemon.wait_attached(*C_FUNCTIONS, "might_throw")
        go.touch()
        (truth,) = finish_workload(process)
        rows = daemon.wait_for_counts(truth["pid"], get_calls(truth))
        self.assertEqual({name: row["calls"] for name, row in rows.items()}, get_calls(truth))
        return truth, rows

    def test_calls_left_in_any_way_are_counted_with_every_mechanism(self):
        for mechanism in ("session", "multi", "perf"):
            with self.subTest(mechanism), Daemon(CONFIG, "--mechanism", mechanism) as daemon:
                truth, rows = self.run_odd_exits(daemon, "--times", TIMES, "--depth", 12)

                expected = dict(truth["abandoned"])
                if self.times_throws(daemon):
                    expected["might_throw"] = truth["caught"]
                self.assertEqual({name: row["abandoned"] for name, row in rows.items()
                                  if row["abandoned"]}, expected)
                self.assertEqual({row["in_flight"] for row in rows.values()}, {0})

    def times_throws(self, daemon):
        """Whether might_throw is timed: at its own exits, for which its body must be decoded."""
        probe = next(row for row in daemon.query("probes")
                     if row["function"] == "might_throw" and row["library"])
        if probe["state"] == "attached":
            self.assertGreater(probe["exit_sites"], 0, "a return probe on a C++ function")
        else:
            self.assertTrue(probe["reason"])
        return probe["state"] == "attached"

    def test_a_mangled_function_may_throw_and_gets_no_return_probe(self):
        with Daemon(CONFIG) as daemon:
            truth, rows = self.run_odd_exits(daemon, "--times", 500)

            self.assertEqual(truth["caught"], 50)
            counted = rows["might_throw"]
            timed = self.times_throws(daemon)
            self.assertEqual((counted["untimed"], counted["abandoned"], counted["in_flight"]),
                             (0, 50, 0) if timed else (500, 0, 0))
            self.assertEqual(counted["max_ns"] > 0, timed)
            with urllib.request.urlopen(f"http://127.0.0.1:{daemon.port}/metrics", timeout=10) as page:
                metrics = page.read().decode()
            self.assertIn('gpuperf_function_calls_total{category="custom",function="might_throw"',
                          metrics)
            self.assertEqual('gpuperf_function_duration_seconds_count{category="custom",'
                             'function="might_throw"' in metrics, timed)

    def test_a_process_that_ends_inside_a_call_leaves_it_abandoned(self):
        with Daemon(CONFIG) as daemon:
            _, rows = self.run_odd_exits(daemon, "--times", 1, "--end-inside")

            last = rows["leave_with_process"]
            self.assertEqual((last["calls"], last["abandoned"], last["in_flight"]), (1, 1, 0))

    def test_recursion_deeper_than_is_followed_is_counted_and_said(self):
        with Daemon(CONFIG) as daemon:
            self.run_odd_exits(daemon, "--times", 1, "--depth", 60)

            # 16 frames of a thread are followed. What a forked child returns from is nobody's call.
            self.assertEqual(daemon.drops(), {"call_depth": 60 - 16})


if __name__ == "__main__":
    unittest.main(verbosity=2)
