#!/usr/bin/env python3
"""Checks that the workloads tell the truth about themselves: counts by plan, cheap first instructions.

usage: workloads_test.py BUILD_FOLDER_OF_THE_WORKLOADS
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from stack_truth import Modules, Programs, check_own_account, compare_python_stack, compare_stack

FOLDER = pathlib.Path(sys.argv.pop(1)).resolve()
STACKS = FOLDER / "stacks"
PYTHON_STACKS = FOLDER / "python_stacks"


def run(*command):
    """Standard output's JSON lines of a workload that must succeed."""
    result = subprocess.run([FOLDER / command[0], *command[1:]], capture_output=True, text=True,
                            timeout=60, check=False)
    if result.returncode != 0:
        raise AssertionError(f"{command}: exit {result.returncode}: {result.stderr}")
    return [json.loads(line) for line in result.stdout.splitlines()]


def take_stacks(*command, samples=100):
    """The lines of a program that knows its own stacks. Into a file: a long line in a pipe may be
    mixed with another thread's."""
    if not pathlib.Path(command[0]).exists():
        raise unittest.SkipTest(f"{command[0]} is not built: a build with sanitizers, or without its compiler")
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/lines", "w+b") as lines:
        subprocess.run([*map(str, command), "--samples", str(samples), "--pause-us", "0",
                        "--target-us", "0"], stdout=lines, cwd=folder, timeout=120, check=True)
        lines.seek(0)
        truths = [json.loads(line) for line in lines]
    assert sorted(truth["sample"] for truth in truths) == list(range(1, samples + 1)), command
    return truths


def make_record(truth, modules):
    """What a slow call's record must be for a sample, by the symbols of the program's own files."""
    inside = len(truth["addresses"]) - len(truth["start"])
    names = iter(truth["frames"])
    following = next(names)
    frames = []
    for i, address in enumerate(truth["addresses"]):
        name = modules.name_frame(address, following) if i < inside else None
        if name:
            following = next(names, None)
        kind = "jit" if name and name.startswith("jit_") else "native"
        module = truth["modules"][0]["path"] if name else "/usr/lib/libc.so.6"
        frames.append({"symbol": name or "", "module": "" if kind == "jit" else module,
                       "address": address, "kind": kind})
    return {"user_stack": frames, "user_stack_end": "complete"}


def first_instruction(file, symbol):
    text = subprocess.run(["objdump", "-d", f"--disassemble={symbol}", "--no-show-raw-insn", file],
                          capture_output=True, text=True, check=True).stdout
    match = re.search(rf"<{symbol}>:\n\s+[0-9a-f]+:\s+(.*)", text)
    return match.group(1).strip() if match else "(no such symbol)"


class WorkloadsTest(unittest.TestCase):
    def test_count_calls_counts_by_its_plan_in_both_processes(self):
        processes = run("count_calls", "--threads", "3", "--calls", "2000", "--fork")

        expected = {"count_fast": {"calls": 12000, "errors": {}},
                    "count_nested": {"calls": 6000, "errors": {}},
                    "count_status": {"calls": 6000, "errors": {"2": 60, "700": 6}}}
        self.assertEqual({p["role"]: p["calls"] for p in processes},
                         {"parent": expected, "child": expected})
        by_role = {p["role"]: p for p in processes}
        self.assertEqual(by_role["child"]["ppid"], by_role["parent"]["pid"])

    def test_count_calls_recurses_when_told(self):
        (process,) = run("count_calls", "--threads", "2", "--calls", "100", "--recurse", "7")

        self.assertEqual(process["calls"]["count_recurse"], {"calls": 2 * 10 * 7, "errors": {}})
        self.assertEqual(process["calls"]["count_fast"]["calls"], 400)

    def test_timed_calls_measures_less_inside_than_outside(self):
        (process,) = run("timed_calls", "--calls", "200", "--longest-ns", "50000")

        self.assertEqual({name: process[name]["calls"] for name in process if name != "pid" and
                          name != "program"}, {"timed_leaf": 200, "timed_outer": 20,
                                               "timed_inner": 60, "timed_recurse": 20})
        for name in ("timed_leaf", "timed_outer", "timed_inner", "timed_recurse"):
            inside, outside = process[name]["inside"], process[name]["outside"]
            for key, value in inside.items():
                self.assertLessEqual(value, outside[key], (name, key))
            self.assertLessEqual(outside["self"], outside["total"])
            self.assertGreaterEqual(inside["min"], 20_000)
        self.assertLess(process["timed_outer"]["outside"]["self"],
                        process["timed_outer"]["inside"]["total"])

    def test_parked_calls_says_what_became_of_its_threads(self):
        parked, ended = run("parked_calls", "--threads", "7", "--leave", "3")

        self.assertEqual(parked["parked"], 7)
        self.assertEqual((ended["returned"], ended["abandoned"]), (4, 3))

    def test_busy_loop_is_busy_and_beside_it_punctual(self):
        (process,) = run("busy_loop", "--seconds", "1")

        self.assertEqual(len(process["tight_per_slice"]), 10)
        self.assertEqual(sum(process["tight_per_slice"]), process["calls"]["busy_tight"]["calls"])
        self.assertIn(process["calls"]["busy_rare"]["calls"], range(900, 1001))

    def test_no_harm_passes_its_own_checks_without_probes(self):
        cases = subprocess.run([FOLDER / "no_harm", "--list"], capture_output=True, text=True,
                               check=True).stdout.splitlines()

        self.assertGreater(len(cases), 20)
        for case, language in map(str.split, cases):
            with self.subTest(case=case, language=language):
                (process,) = run("no_harm", "--case", case, "--language", language, "--times", "3",
                                 "--threads", "20", "--library", FOLDER / "libharm_target.so")
                self.assertEqual(process["case"], case)

    def test_slow_calls_take_as_long_as_they_say(self):
        (process,) = run("slow_calls", "--requests", "2", "--duration-ms", "3")

        self.assertEqual(process["calls"], {"slow_sleep": {"calls": 2, "errors": {}},
                                            "slow_spin": {"calls": 2, "errors": {}}})
        self.assertEqual(process["sum"], 2 * (3 + 3 + 1))

    def test_odd_exits_survives_its_own_exits(self):
        (process,) = run("odd_exits", "--times", "20", "--depth", "40", "--end-inside")

        self.assertEqual(process["caught"], 2)
        self.assertEqual(process["calls"]["recurse"]["calls"], 40)
        self.assertEqual(process["abandoned"], {"leave_by_longjmp": 20, "leave_with_thread": 20})

    def test_cuda_calls_on_the_stand_in_fails_by_its_plan(self):
        (process,) = run("cuda_calls_standin", "--rounds", "20", "--seconds", "0")

        self.assertEqual(process["libraries"], "stand-in")
        calls = process["calls"]
        self.assertEqual(calls["cudaMalloc"], {"calls": 60, "errors": {"2": 6}})
        self.assertEqual(calls["cudaFree"], {"calls": 60, "errors": {}})
        self.assertEqual(calls["cudaEventQuery"], {"calls": 20, "errors": {"600": 10}})
        self.assertEqual(calls["cublasSgemm_v2"]["calls"], 60)

    def test_cuda_calls_runs_on_what_this_machine_has(self):
        (process,) = run("cuda_calls", "--rounds", "3", "--seconds", "0")

        calls = process["calls"]
        self.assertEqual(calls["cudaMalloc"]["calls"], 9)
        self.assertEqual(calls["cublasSgemm_v2"]["calls"], 9)
        if process["libraries"] == "toolkit" and not process["gpu"]:
            self.assertEqual(sum(calls["cudaMalloc"]["errors"].values()), 9)

    def check_own_accounts(self, program, case, *arguments):
        if not (STACKS / program).exists():
            self.skipTest(f"{program} is not built")
        programs = Programs(STACKS)
        case_arguments = ["--case", case, *arguments] if case else []
        for truth in take_stacks(STACKS / program, *case_arguments):
            wrong = check_own_account(truth, Modules(truth["modules"], programs))
            self.assertIsNone(wrong, f"{program} {case}, sample {truth['sample']}")

    def test_stack_cases_know_their_own_stacks(self):
        plugins = f"{STACKS}/libfirst_plugin.so {STACKS}/libsecond_plugin.so"
        for case, *arguments in [("ordinary",), ("tail_calls",), ("deep_recursion",), ("signal",),
                                 ("signal_alternate_stack",), ("signal_fault",), ("vdso",),
                                 ("threads",), ("fork",), ("jit",),
                                 ("exec", "--argument", STACKS / "stack_cases_small"),
                                 ("plugin", "--argument", plugins),
                                 ("plugin", "--argument", plugins + " replaced.so")]:
            with self.subTest(case=case):
                self.check_own_accounts("stack_cases", case, *arguments)

    def test_stack_cases_know_their_own_stacks_however_they_are_built(self):
        for variant in ("frame_pointers", "no_pie", "small", "stripped", "static", "static_pie"):
            for case in ("ordinary", "signal", "tail_calls"):
                with self.subTest(variant=variant, case=case):
                    self.check_own_accounts(f"stack_cases_{variant}", case)

    def test_stack_cases_rust_knows_its_own_stacks(self):
        self.check_own_accounts("stack_cases_rust", None)

    def test_plugins_come_to_the_same_address(self):
        plugins = [STACKS / "libfirst_plugin.so", STACKS / "libsecond_plugin.so"]

        truths = take_stacks(STACKS / "stack_cases", "--case", "plugin", "--argument",
                             f"{plugins[0]} {plugins[1]}")

        places = {(row["path"], row["bias"]) for truth in truths for row in truth["modules"][1:]}
        self.assertEqual({path for path, _ in places}, {str(plugin) for plugin in plugins})
        self.assertLess(len({bias for _, bias in places}), len(places))

    def test_the_comparison_of_stacks_takes_the_exact_record_only(self):
        for case in ("ordinary", "jit", "vdso"):
            truths = take_stacks(STACKS / "stack_cases", "--case", case)
            programs = Programs(STACKS)
            for truth in truths:
                modules = Modules(truth["modules"], programs)
                exact = make_record(truth, modules)
                frames = exact["user_stack"]
                self.assertIsNone(compare_stack(truth, exact, modules))

                for wrong_frames in (frames[:-1], frames[1:], frames[:2] + frames[3:],
                                     frames[:2] + frames[1:],
                                     [frames[0] | {"symbol": "another"}] + frames[1:],
                                     frames[:1] + [frames[1] | {"address": 7}] + frames[2:]):
                    record = exact | {"user_stack": wrong_frames}
                    self.assertIsNotNone(compare_stack(truth, record, modules))
                for end in ("cut", "unknown", "unreadable", "broken"):
                    record = exact | {"user_stack_end": end}
                    self.assertIsNotNone(compare_stack(truth, record, modules))

    def test_python_stacks_knows_its_own_stacks(self):
        script = pathlib.Path(__file__).parent / "python_stacks/python_stacks.py"
        truths = take_stacks(sys.executable, "-B", script, PYTHON_STACKS / "libpython_calls.so",
                             PYTHON_STACKS)

        deepest = max((truth["python"] for truth in truths), key=len)
        self.assertGreaterEqual(len({tuple(row[:2]) for row in deepest}), 20)
        self.assertLessEqual({"python_stacks.py", "middle_calls.py", "inner_calls.py"},
                             {pathlib.Path(row[1]).name for row in deepest})
        self.assertEqual(len({truth["tid"] for truth in truths}), 2)
        for truth in truths:
            frames = [{"kind": "native", "symbol": row, "module": "/b/libpython_calls.so"}
                      if isinstance(row, str) else
                      dict(zip(("kind", "symbol", "file", "line"), ("python", *row), strict=True))
                      for row in truth["merged"]]
            start = {"kind": "native", "symbol": "_start", "module": "/usr/bin/python3.11"}
            record = {"user_stack": frames + [start], "user_stack_end": "complete"}
            self.assertIsNone(compare_python_stack(truth, record))
            frames[0], frames[1] = frames[1], frames[0]
            self.assertIsNotNone(compare_python_stack(truth, record | {"user_stack": frames}))

    def test_functions_begin_with_an_instruction_the_kernel_emulates(self):
        for file, symbol in [("libcount_target.so", "count_fast"),
                             ("libcount_target.so", "count_status"),
                             ("libcount_target.so", "count_nested"),
                             ("slow_calls", "slow_sleep"),
                             ("slow_calls", "slow_spin"),
                             ("standin/libcudart.so.13", "cudaMalloc"),
                             ("standin/libcublas.so.13", "cublasSgemm_v2")]:
            with self.subTest(symbol=symbol):
                self.assertRegex(first_instruction(FOLDER / file, symbol), r"^push\s+%rbp")

    def test_unknown_options_are_refused(self):
        result = subprocess.run([FOLDER / "count_calls", "--callz", "3"], capture_output=True,
                                text=True, check=False)

        self.assertEqual(result.returncode, 2)
        self.assertIn("--callz is not an option", result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
