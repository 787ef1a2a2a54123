#!/usr/bin/env python3
"""Steps of real llama.cpp: found, counted and told apart exactly as the program that asked for them says; a slow step and one that
hangs are named. Its operators and their experts, as it tells a callback of its own, in two releases. And steps that no function
marks, learned."""

import collections
import json
import re
import shutil
import subprocess
import sys
import unittest
import urllib.request

from gpuperf_system import BUILD, SOURCE, WORKLOADS, SharedDaemonTest, require_root, wait_until

LLAMA = BUILD / "npm/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64"
OLDER_LLAMA = BUILD / "npm/node_modules/older-llama-cpp/bins/linux-x64"  # has other numbers for operations, and others fused
SLOW_NS = 300_000_000  # as llama_steps.py plants it


def setUpModule():
    require_root()


class LlamaTest(SharedDaemonTest):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        if not LLAMA.exists():
            raise unittest.SkipTest(f"no llama.cpp: {LLAMA} is what npm installs (tests/run.sh)")
        super().setUpClass()

    def start(self, *arguments, llama=LLAMA, functions=("llama_decode", "process_ubatch", "llama_synchronize", "llama_get_logits_ith")):
        go = self.daemon.path / "go"
        go.unlink(missing_ok=True)
        process = subprocess.Popen([sys.executable, SOURCE / "tests/workloads/llama_steps.py", llama, go, *arguments],
                                   stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        wait_until(f"{functions} probed in {llama}", lambda: set(functions) <= {
            row["function"] for row in self.daemon.query("probes")
            if row["state"] in ("attached", "entry_only") and str(llama) in row["library"]}, 30)
        go.touch()
        return process

    def finish(self, process):
        output, _ = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 0)
        return json.loads(output)


class StepsTest(LlamaTest):
    # What ships, and nothing else: the functions of CUDA and PyTorch are not there.
    CONFIG = {"shipped_functions": True, "slow": {"default_threshold_ms": 250}}

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


class OperatorsTest(LlamaTest):
    CONFIG = {"shipped_functions": True, "ggml_func_sym": {"ggml_operator": {"sample": False}}}
    # Of those that no release fuses with others, nor leaves out because they compute nothing.
    COUNTED = ("MUL_MAT", "MUL_MAT_ID", "ROPE", "ARGSORT", "SOFT_MAX")

    def check_release(self, llama):
        truth = self.finish(self.start("--experts", llama=llama, functions=("llama_decode", "ggml_operator")))
        expected = collections.Counter()
        for call, count in truth["operators"].items():
            operation, name = call.split(" ", 1)
            if operation in self.COUNTED:
                expected[operation, re.sub(r"(?<=[-_.])\d+", "N", name)] += count
        self.assertGreater(len(expected), 10)

        def find():
            found = {(row["operation"], row["tensor"]): row for row in self.daemon.query("steps", "operators", "--pid", truth["pid"])}
            return {key: row["calls"] for key, row in found.items() if key[0] in self.COUNTED} == expected and found
        rows = wait_until("as many operators as were run", find)
        layers = self.daemon.query("steps", "experts", "--pid", truth["pid"])

        # Of one thread of two, each but the last of a graph until the next, the last until its step's end.
        for key, row in rows.items():
            self.assertGreater(row["timed_calls"], 0.9 * row["calls"], key)
        self.assertAlmostEqual(sum(row["time_ratio"] for row in rows.values()), 1, 3)
        in_operators_ns = sum(row["total_ns"] for row in rows.values())
        in_steps_ns = sum(step["duration_ns"] for step in truth["steps"])
        self.assertLess(in_operators_ns, in_steps_ns)
        self.assertEqual({layer["layer"]: {str(i): count for i, count in enumerate(layer["expert_tokens"]) if count} for layer in layers},
                         truth["experts"])
        for layer in layers:
            self.assertEqual(layer["read_tokens"], layer["tokens"])
            self.assertEqual(sum(layer["expert_tokens"]), 2 * layer["tokens"])
        self.assertEqual({reason for reason in self.daemon.drops() if "operator" in reason}, set())
        return truth

    def test_each_operator_is_counted_and_each_token_found_at_its_experts(self):
        truth = self.check_release(LLAMA)

        shown = self.daemon.ctl("steps", "experts", "--pid", truth["pid"]).stdout
        self.assertRegex(shown.splitlines()[0], r"layer [01] is the most uneven: expert \d gets [\d.]+ times the mean of its 8 experts")
        shown = self.daemon.ctl("steps", "operators", "--pid", truth["pid"]).stdout
        self.assertRegex(shown.splitlines()[0], r"spends [\d.]+ % of its operators' time on [A-Z_]+ of ")

    def test_another_release_needs_nothing_else(self):
        if not OLDER_LLAMA.exists():
            self.skipTest(f"no other llama.cpp: {OLDER_LLAMA} is what npm installs (tests/run.sh)")
        self.check_release(OLDER_LLAMA)

    def test_a_build_whose_tensors_are_not_known_is_not_probed_and_that_is_said(self):
        library = self.daemon.path / "libggml-cpu-alone.so"
        shutil.copy(next(LLAMA.glob("libggml-cpu-x64.so")), library)
        program = ("import ctypes, sys\nfor name in sys.argv[1:]: ctypes.CDLL(name, ctypes.RTLD_GLOBAL)\n"
                   "print(flush=True)\nsys.stdin.read()")
        with subprocess.Popen([sys.executable, "-c", program, LLAMA / "libggml-base.so", library], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            row = self.daemon.wait_for_probe("ggml_operator", "failed", str(library))
            process.stdin.close()

        self.assertEqual(row["reason"], "where the fields of its tensors lie is not known, so it is not probed: no libggml-base.so of its "
                         "folder is loaded and among its section's libraries")


class LearnedStepsTest(SharedDaemonTest):
    """What no function says, learned from what a program copies to the host."""
    maxDiff = None
    STANDINS = WORKLOADS / "standin"
    FUNCTIONS = {"cudaMemcpyAsync", "cudaStreamSynchronize", "cudaEventSynchronize", "cublasSgemm"}
    # Without a budget: it may suspend cublasSgemm where a probe is slow.
    CONFIG = {"shipped_functions": True, "overhead": {"budget_percent": 0}}

    def serve(self):
        go = self.daemon.path / "go"
        go.unlink(missing_ok=True)
        process = subprocess.Popen([sys.executable, SOURCE / "tests/workloads/served_steps.py", self.STANDINS, go],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        wait_until(f"{self.FUNCTIONS} probed in {self.STANDINS}", lambda: self.FUNCTIONS <= {
            row["function"] for row in self.daemon.query("probes")
            if row["state"] == "attached" and str(self.STANDINS) in row["library"]}, 30)
        go.touch()
        return json.loads(process.stdout.readline())

    def test_steps_tokens_sequences_and_phases_are_the_programs(self):
        truth = self.serve()

        steps = wait_until("the steps", lambda: [
            step for step in [self.daemon.query("steps", "list", "--pid", truth["pid"])] if len(step) >= len(truth["steps"])])[0][::-1]

        def brief(step):
            return step["tokens"], step["sequences"], step["phase"]
        self.assertEqual([brief(step) for step in steps], [brief(step) for step in truth["steps"]])
        self.assertEqual({(step["learned"], step["duration_quality"]) for step in steps}, {(True, "exact")})
        # The steps held until the sizes of their copies were known are of the same quality as the later ones.
        self.assertEqual({step["sequences_quality"] for step in steps}, {"derived"})
        # The program may lose its CPU between what it measures and what the probes see.
        far = sum(abs(found["duration_ns"] - told["duration_ns"]) > max(2_000_000, told["duration_ns"] // 5)
                  for found, told in zip(steps, truth["steps"]))
        self.assertLessEqual(far, 0.05 * len(steps))
        (row,) = self.daemon.query("steps", "--pid", truth["pid"])
        self.assertEqual((row["learned"], row["function"]), (True, "cudaMemcpyAsync"))
        wait_until("where its results are read", lambda: "Engine.copy at " in self.daemon.ctl("steps", "--pid", truth["pid"]).stdout)
        self.assertIn("(learned)", self.daemon.ctl("steps", "--pid", truth["pid"]).stdout)
        shown = self.daemon.ctl("steps", "show", steps[-1]["id"]).stdout
        self.assertIn("from its first work for the GPU until its results were waited for (exact)", shown)
        self.assertRegex(shown, r"read at +Engine.copy at .* <- Engine.read_tokens at .*served_steps.py:\d+ <- serve")


if __name__ == "__main__":
    unittest.main()
