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

                self.assertEqual({name: row["abandoned"] for name, row in rows.items()
                                  if row["abandoned"]}, truth["abandoned"])
                self.assertEqual({row["in_flight"] for row in rows.values()}, {0})

    def test_a_mangled_function_is_counted_at_entry_and_may_throw(self):
        with Daemon(CONFIG) as daemon:
            truth, rows = self.run_odd_exits(daemon, "--times", 500)

            self.assertEqual(truth["caught"], 50)
            counted = rows["might_throw"]
            self.assertEqual((counted["untimed"], counted["max_ns"]), (500, 0))
            self.assertTrue(daemon.wait_for_probe("might_throw", "entry_only")["reason"])
            with urllib.request.urlopen(f"http://127.0.0.1:{daemon.port}/metrics", timeout=10) as page:
                metrics = page.read().decode()
            self.assertIn('gpuperf_function_calls_total{category="custom",function="might_throw"',
                          metrics)
            self.assertNotIn('gpuperf_function_duration_seconds_count{category="custom",'
                             'function="might_throw"', metrics)

    def test_a_process_that_ends_inside_a_call_leaves_it_abandoned(self):
        with Daemon(CONFIG) as daemon:
            _, rows = self.run_odd_exits(daemon, "--times", 1, "--end-inside")

            last = rows["leave_with_process"]
            self.assertEqual((last["calls"], last["abandoned"], last["in_flight"]), (1, 1, 0))

    def test_recursion_deeper_than_is_followed_is_counted_and_said(self):
        with Daemon(CONFIG) as daemon:
            self.run_odd_exits(daemon, "--times", 1, "--depth", 60)

            # 16 frames of a thread are followed. The unpaired return is the forked child's.
            self.assertEqual({drop["reason"]: drop["count"]
                              for drop in daemon.query("status")["drops"]},
                             {"call_depth": 60 - 16, "unpaired_return": 1})


if __name__ == "__main__":
    unittest.main(verbosity=2)
