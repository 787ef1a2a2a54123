#!/usr/bin/env python3
"""Slow calls: which count, what their records hold, where they are told."""

import json
import re
import subprocess
import unittest

from gpuperf_system import (GPUPERFCTL, SOURCE, WORKLOADS, Daemon, SharedDaemonTest, finish_workload, get_calls,
                            require_root, start_workload, wait_until)

DURATION_MS = 20


def make_config(sleep_threshold_ms=5, **slow):
    return {"custom_sym": {"slow_sleep": {"symbol": "slow_sleep",
                                          "slow_threshold_ms": sleep_threshold_ms},
                           "slow_spin": "slow_spin"},
            "libraries": {"custom_sym": [str(WORKLOADS / "slow_calls")]},
            "slow": {"default_threshold_ms": 10000} | slow}


def setUpModule():
    require_root()


class SlowCalls(unittest.TestCase):
    maxDiff = None

    def run_slow_calls(self, daemon, *arguments):
        go = daemon.path / "go"
        go.unlink(missing_ok=True)
        process = start_workload("slow_calls", *arguments, "--wait-for-file", go)
        daemon.wait_attached("slow_sleep", "slow_spin")
        go.touch()
        (truth,) = finish_workload(process)
        daemon.wait_for_counts(truth["pid"], get_calls(truth))
        return truth

    def wait_for_newest(self, daemon, newest_id):
        """The slow calls kept, once the one with that id has come."""
        def find():
            calls = daemon.query("slow", "list")
            return calls if newest_id in [call["id"] for call in calls] else None
        return wait_until(f"slow call {newest_id}", find)


class SharedSlowCallsTest(SlowCalls, SharedDaemonTest):
    CONFIG = make_config()

    def test_a_slow_call_says_who_how_long_with_what_and_from_where(self):
        truth = self.run_slow_calls(self.daemon, "--requests", 3, "--duration-ms", DURATION_MS)

        def find():
            calls = self.daemon.query("slow", "list", "--pid", truth["pid"])
            return calls if len(calls) == 3 else None
        calls = wait_until("three slow calls", find)
        ids = sorted(call["id"] for call in calls)
        self.assertEqual(ids, list(range(ids[0], ids[0] + 3)))
        for call in calls:
            self.assertEqual(
                {key: call[key] for key in ("category", "function", "pid", "tid", "comm",
                                            "threshold_ns", "reason")},
                {"category": "custom", "function": "slow_sleep", "pid": truth["pid"],
                 "tid": truth["pid"], "comm": "slow_calls", "threshold_ns": 5_000_000,
                 "reason": "absolute"})
            self.assertGreaterEqual(call["duration_ns"], DURATION_MS * 1_000_000)
            self.assertLess(call["duration_ns"], 100 * DURATION_MS * 1_000_000)
            self.assertEqual(int(call["arguments"][0]["value"], 16), DURATION_MS)
            self.assertEqual(int(call["return_value"], 16), DURATION_MS)
            self.assertEqual([frame["symbol"] for frame in call["user_stack"]][:4],
                             truth["stack"])
            self.assertTrue(call["user_stack"][0]["module"].endswith("/slow_calls"))
        shown = self.daemon.ctl("slow", "show", calls[0]["id"]).stdout
        for name in truth["stack"]:
            self.assertIn(name, shown)

    def test_a_watcher_is_told_as_it_happens(self):
        watcher = subprocess.Popen(
            [GPUPERFCTL, "--address", f"unix:{self.daemon.socket}", "slow", "watch", "--limit", "2",
             "-o", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(watcher.kill)
        # When the watch has begun cannot be seen from outside: calls are made until it has two.
        while watcher.poll() is None:
            self.run_slow_calls(self.daemon, "--requests", 2, "--duration-ms", 6)

        output, errors = watcher.communicate()
        self.assertEqual(watcher.returncode, 0, errors)
        self.assertEqual([json.loads(line)["function"] for line in output.splitlines()],
                         ["slow_sleep"] * 2)

    def test_a_slow_call_that_is_not_kept_is_said_to_be_unknown(self):
        result = self.daemon.ctl("slow", "show", "777777", check=False)

        self.assertEqual(result.returncode, 1)
        self.assertIn("777777", result.stderr)


class SlowCallsTest(SlowCalls):
    def test_only_calls_over_their_own_threshold_are_slow(self):
        with Daemon(make_config(sleep_threshold_ms=DURATION_MS)) as daemon:
            fast = self.run_slow_calls(daemon, "--requests", 2, "--duration-ms", 1)
            slow = self.run_slow_calls(daemon, "--requests", 2, "--duration-ms", DURATION_MS)

            calls = self.wait_for_newest(daemon, 2)
            self.assertEqual([call["pid"] for call in calls], [slow["pid"]] * 2)
            rows = daemon.functions("--pid", slow["pid"])
            self.assertEqual((rows["slow_sleep"]["slow_calls"], rows["slow_spin"]["slow_calls"]),
                             (2, 0))
            self.assertEqual(daemon.functions("--pid", fast["pid"])["slow_sleep"]["slow_calls"], 0)

    def test_a_call_far_over_its_functions_p99_is_slow_without_any_threshold(self):
        with Daemon(make_config(sleep_threshold_ms=0, adaptive_factor=5,
                                adaptive_floor_ms=20)) as daemon:
            usual = self.run_slow_calls(daemon, "--requests", 2000, "--duration-ms", 0)
            floor_ns = 20_000_000
            (probe,) = wait_until("an adaptive threshold", lambda: [
                probe for probe in daemon.query("probes") if probe["function"] == "slow_sleep"
                and probe["adaptive_threshold_ns"]])
            p99_ns = daemon.functions("--pid", usual["pid"])["slow_sleep"]["p99_ns"]
            self.assertGreaterEqual(probe["adaptive_threshold_ns"], max(floor_ns, 4 * p99_ns))
            self.assertLessEqual(probe["adaptive_threshold_ns"], max(floor_ns, 6 * p99_ns))
            unusual_ms = 3 * probe["adaptive_threshold_ns"] // 1_000_000

            truth = self.run_slow_calls(daemon, "--requests", 1, "--duration-ms", unusual_ms)

            (call,) = wait_until("the unusual call", lambda: daemon.query(
                "slow", "list", "--pid", truth["pid"], "--function", "slow_sleep"))
            self.assertEqual(call["reason"], "adaptive")
            self.assertGreaterEqual(call["threshold_ns"], floor_ns)
            self.assertIn("p99", daemon.ctl("slow", "show", call["id"]).stdout)

    def test_the_threshold_of_a_function_changes_while_it_runs(self):
        with Daemon(make_config(sleep_threshold_ms=10_000)) as daemon:
            self.run_slow_calls(daemon, "--requests", 1, "--duration-ms", 6)
            daemon.ctl("probes", "threshold", "slow_sl*", "5ms")
            lowered = self.run_slow_calls(daemon, "--requests", 1, "--duration-ms", 6)
            (call,) = wait_until("a slow call", lambda: daemon.query("slow", "list"))
            self.assertEqual((call["pid"], call["threshold_ns"]), (lowered["pid"], 5_000_000))

            daemon.ctl("probes", "threshold", "slow_sleep", "config")
            self.run_slow_calls(daemon, "--requests", 1, "--duration-ms", 6)

            self.assertEqual(daemon.functions()["slow_sleep"]["slow_calls"], 1)
            self.assertEqual(daemon.ctl("probes", "threshold", "no_such", "5ms",
                                        check=False).returncode, 1)

    def test_the_worst_and_the_newest_are_kept_not_the_first(self):
        config = make_config(worst_per_function=2, recent=1) | {"storage": {"path": ""}}
        with Daemon(config) as daemon:
            truth = self.run_slow_calls(daemon, "--requests", 7, "--duration-ms", 30, "--vary")

            # 30, 60, 90, 30, 60, 90, 30 ms: calls 3 and 6 are the worst, 7 the newest.
            kept = self.wait_for_newest(daemon, 7)
            self.assertEqual(sorted(call["id"] for call in kept), [3, 6, 7])
            row = daemon.functions("--pid", truth["pid"])["slow_sleep"]
            self.assertEqual((row["slow_calls"], row["max_ns"]), (7, kept[0]["duration_ns"]))

    def test_the_log_has_a_line_per_slow_call_up_to_its_rate(self):
        with Daemon(make_config(log_per_second=2)) as daemon:
            self.run_slow_calls(daemon, "--requests", 12, "--duration-ms", 6)

            self.wait_for_newest(daemon, 12)
            lines = [line for line in daemon.log().splitlines() if "function=slow_sleep" in line]
            self.assertIn(len(lines), range(1, 12))
            self.assertIn("duration_ns=", lines[0])
            self.assertEqual(daemon.drops(), {"rate_limited": 12 - len(lines)})

    def test_typed_arguments_of_the_documented_example(self):
        text = (SOURCE / "docs/configuration.md").read_text(encoding="utf-8")
        (example,) = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", text, re.S)
                      if "moe::dispatch" in block]
        program = str(WORKLOADS / "typed_calls")
        with Daemon(example | {"libraries": {"custom_sym": [program]},
                               "slow": {"default_threshold_ms": 5}}) as daemon:
            go = daemon.path / "go"
            process = start_workload("typed_calls", "--wait-for-file", go)
            daemon.wait_attached("dispatch")
            go.touch()

            (truth,) = finish_workload(process)

            rows = daemon.wait_for_counts(truth["pid"], get_calls(truth))
            self.assertEqual(rows["dispatch"]["bytes"], truth["bytes"])
            call = self.wait_for_newest(daemon, 3)[0]
            self.assertEqual(
                {argument["name"]: argument["value"] for argument in call["arguments"]},
                {"tokens": "64", "token_bytes": "4096", "operator": "expert_mlp",
                 "dims": "[4, 128, 2048, -1]", "experts": "[3, 1, 4, 1, 5, 9, 2, 6]",
                 "stream": "0x5eed"})



if __name__ == "__main__":
    unittest.main(verbosity=2)
