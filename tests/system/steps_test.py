#!/usr/bin/env python3
"""Steps of real llama.cpp: found, counted and told apart exactly as the program that asked for them says; a slow step and one that
hangs are named."""

import collections
import json
import subprocess
import sys
import unittest
import urllib.request

from gpuperf_system import BUILD, SOURCE, SharedDaemonTest, require_root, wait_until

LLAMA = BUILD / "npm/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64"
SLOW_NS = 300_000_000  # as llama_steps.py plants it


def setUpModule():
    require_root()
    if not LLAMA.exists():
        raise unittest.SkipTest(f"no llama.cpp: {LLAMA} is what npm installs (tests/run.sh)")


class StepsTest(SharedDaemonTest):
    maxDiff = None
    # What ships, and nothing else: the functions of CUDA and PyTorch are not there.
    CONFIG = {"shipped_functions": True, "slow": {"default_threshold_ms": 250}}

    def start(self, *arguments):
        go = self.daemon.path / "go"
        go.unlink(missing_ok=True)
        process = subprocess.Popen([sys.executable, SOURCE / "tests/workloads/llama_steps.py", LLAMA, go, *arguments],
                                   stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        self.daemon.wait_attached("llama_decode", "process_ubatch", "llama_synchronize", "llama_get_logits_ith", seconds=30)
        go.touch()
        return process

    def finish(self, process):
        output, _ = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 0)
        return json.loads(output)

    def find_steps(self, truth, *arguments):
        def find():
            steps = self.daemon.query("steps", "list", "--pid", truth["pid"], *arguments)
            return steps if len(steps) >= len(truth["steps"]) or arguments else None
        return wait_until("the steps", find)

    def test_every_step_is_found_with_its_tokens_sequences_and_phase(self):
        truth = self.finish(self.start())

        steps = self.find_steps(truth)[::-1]

        def brief(step):
            return step["tokens"], step["sequences"], step["phase"]
        self.assertEqual([brief(step) for step in steps], [brief(step) for step in truth["steps"]])
        for step in steps:
            self.assertEqual({step[name] for name in ("tokens_quality", "sequences_quality", "phase_quality", "duration_quality")},
                             {"exact"}, step)
        for found, told in zip(steps, truth["steps"]):
            # The program measures around both calls: what it says is longer by what it takes itself.
            self.assertLessEqual(found["duration_ns"], told["duration_ns"])
        self.assertEqual({reason: count for reason, count in self.daemon.drops().items() if "report" in reason or "processes" in reason},
                         {})
        self.check_sums(truth)

    def check_sums(self, truth):
        (row,) = self.daemon.query("steps", "--pid", truth["pid"])
        self.assertEqual(row["function"], "llama_decode")
        self.assertEqual(row["steps"], len(truth["steps"]))
        tokens = collections.Counter()
        for step in truth["steps"]:
            tokens[step["phase"]] += step["tokens"]
        self.assertEqual({phase["phase"]: phase["exact_tokens"] for phase in row["phases"]}, tokens)
        with urllib.request.urlopen(f"http://127.0.0.1:{self.daemon.port}/metrics") as answer:
            metrics = answer.read().decode()
        for phase in tokens:
            self.assertRegex(metrics, f'gpuperf_step_seconds_count{{category="llama",function="llama_decode",phase="{phase}"}} \\d+')
        self.assertIn("gpuperf_step_stalled_processes", metrics)

    def test_a_planted_slow_step_is_the_longest_and_says_where_its_time_went(self):
        truth = self.finish(self.start())

        def find():
            steps = self.find_steps(truth, "--slow")
            return steps[0] if steps and steps[0]["slow_call_id"] else None
        slowest = wait_until("the slow step with its slow call", find)

        self.assertGreaterEqual(slowest["duration_ns"], SLOW_NS)
        self.assertEqual((slowest["phase"], slowest["tokens"]), ("decode", 2))
        shown = self.daemon.ctl("steps", "show", slowest["id"]).stdout
        self.assertIn("x the median of", shown.splitlines()[0])
        self.assertIn(f"Slow call {slowest['slow_call_id']} within it", shown)

    def test_a_step_that_hangs_is_named_while_it_does(self):
        go_on = self.daemon.path / "go_on"
        process = self.start(go_on)

        def find():
            return [row for row in self.daemon.query("steps", "--pid", process.pid) if row["stall"] == "in_step"]
        (row,) = wait_until("a process that hangs", find, 30)
        first_line = self.daemon.ctl("steps", "--pid", process.pid).stdout.splitlines()[0]
        go_on.touch()
        truth = self.finish(process)

        self.assertGreater(row["stall_ns"], 1_000_000_000)
        self.assertIn("hangs in a step for", first_line)
        (after,) = wait_until("an end of it", lambda: [
            row for row in self.daemon.query("steps", "--pid", process.pid) if not row["stall"] and row["exited"]])
        self.assertEqual((after["stalls"], after["steps"]), (1, len(truth["steps"])))


if __name__ == "__main__":
    unittest.main()
