#!/usr/bin/env python3
"""Stacks of slow calls: the whole of each, against what the programs print of themselves."""

import collections
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import unittest

from gpuperf_system import (GPUPERFCTL, LONG, SOURCE, WORKLOADS, Daemon, require_root, wait_until)

sys.path.insert(0, str(SOURCE / "tests/workloads"))
from stack_truth import Modules, Programs, compare_python_stack, compare_stack  # noqa: E402

SAMPLES = 10_000 if LONG else 300
THRESHOLD_MS = 0.01  # stack_target takes 50 us
PAUSE_US = 2500      # 400 samples a second: beyond 1,000 slow calls a second not all are handed on
STACKS = WORKLOADS / "stacks"
PYTHON_STACKS = WORKLOADS / "python_stacks"
REPORTED = "reported"  # the file that has the last sample reported
PLUGINS = [STACKS / "libfirst_plugin.so", STACKS / "libsecond_plugin.so"]


@dataclasses.dataclass
class Case:
    program: str
    case: str = "ordinary"
    argument: tuple = ()      # of the case: files
    other_program: str = ""   # it becomes this one in between
    pause_us: int = PAUSE_US  # of each thread
    may_throw: bool = False   # True: its end is seen at its own exits, not by a return probe
    end: str = "complete"     # of stacks that are not cut


CASES = {
    "without_frame_pointers": Case("stack_cases"),
    "with_frame_pointers": Case("stack_cases_frame_pointers"),
    "at_a_fixed_address": Case("stack_cases_no_pie"),
    "optimised_for_size": Case("stack_cases_small"),
    "of_a_stripped_program": Case("stack_cases_stripped"),
    "of_a_static_program": Case("stack_cases_static"),
    "of_a_static_pie": Case("stack_cases_static_pie"),
    "seen_at_the_functions_own_exits": Case("stack_cases", may_throw=True),
    "deeper_than_what_is_kept": Case("stack_cases", "deep_recursion"),
    "deeper_than_what_is_kept_with_frame_pointers": Case("stack_cases_frame_pointers",
                                                         "deep_recursion"),
    "that_share_frames_with_the_one_before": Case("stack_cases", "sharing"),
    "that_share_frames_with_frame_pointers": Case("stack_cases_frame_pointers", "sharing"),
    "that_share_frames_seen_at_exits": Case("stack_cases_small", "sharing", may_throw=True),
    "on_stacks_that_are_swapped": Case("stack_cases", "swapped_stacks",
                                       end="broken"),  # the C library describes no start of theirs
    "with_tail_calls": Case("stack_cases", "tail_calls"),
    "in_signal_handlers": Case("stack_cases", "signal"),
    "in_signal_handlers_of_a_static_program": Case("stack_cases_static", "signal"),
    "on_a_signal_stack": Case("stack_cases", "signal_alternate_stack"),
    "of_faults": Case("stack_cases", "signal_fault"),
    "through_the_vdso": Case("stack_cases", "vdso"),
    "of_eight_threads": Case("stack_cases", "threads", pause_us=8 * PAUSE_US),
    "of_forked_children": Case("stack_cases", "fork"),
    "of_a_rust_program": Case("stack_cases_rust"),
    "across_exec": Case("stack_cases_no_pie", "exec", other_program="stack_cases_small"),
    "through_made_code": Case("stack_cases", "jit"),
    "through_plugins": Case("stack_cases", "plugin", tuple(PLUGINS)),
    "through_a_plugin_that_is_replaced": Case(
        "stack_cases", "plugin", (*PLUGINS, pathlib.Path("replaced.so"))),
}


def make_config(files, may_throw=False):
    return {"custom_sym": {"stack_target": {
                "symbol": "stack_target", "slow_threshold_ms": THRESHOLD_MS,
                "may_throw": may_throw, "args": [{"name": "sample", "arg": 0, "type": "u64"}]}},
            "libraries": {"custom_sym": [str(file) for file in files]},
            "slow": {"default_threshold_ms": 10000, "log_per_second": 0},
            "storage": {"path": ""}}


def get_sample(call):
    return int(call["arguments"][0]["value"])


class Watcher:
    """`gpuperfctl slow watch` into a file, which is read as it grows: up to 250 MB."""

    def __init__(self, daemon):
        self.path = daemon.path / "slow_calls"
        self.errors_path = daemon.path / "watch_errors"
        self.read_bytes = 0
        with open(self.path, "wb") as output, open(self.errors_path, "wb") as errors:
            self.process = subprocess.Popen(
                [GPUPERFCTL, "--address", f"unix:{daemon.socket}", "slow", "watch", "--function",
                 "stack_target", "-o", "json"], stdout=output, stderr=errors)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def read_calls(self):
        """The calls that have returned since the last look."""
        with open(self.path, "rb") as file:
            file.seek(self.read_bytes)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self.read_bytes += len(line)
                call = json.loads(line)
                if not call.get("in_flight"):
                    yield call

    def count_missed(self):
        return sum(map(int, re.findall(r"missed (\d+)", self.errors_path.read_text())))


class Comparison:
    """Every record against the truth of its sample."""

    def __init__(self, compare):
        self.compare = compare
        self.truths = {}  # sample -> the program's line, until its record has come
        self.early = {}   # the other way round
        self.right = 0
        self.wrong = collections.Counter()  # what was wrong -> samples
        self.first_wrong = ""

    def add_truth(self, line):
        # Not parsed before it is needed: a deep stack takes 20 kB.
        sample = int(re.match(rb'\{"sample": ?(\d+)', line)[1])
        self.truths[sample] = line
        if sample in self.early:
            self.add_call(self.early.pop(sample))

    def add_call(self, call):
        sample = get_sample(call)
        if sample == 0:
            return
        if sample not in self.truths:
            self.early[sample] = call
            return
        truth = json.loads(self.truths.pop(sample))
        what = self.compare(truth, call)
        if what is None:
            self.right += 1
            return
        self.wrong[re.sub(r"\d+|: .*", "", what, flags=re.S)] += 1
        self.first_wrong = self.first_wrong or \
            f"sample {sample}: {what}\n{render_truth(truth)}\n{render_call(call)}"


def render_truth(truth):
    rows = truth.get("merged") or truth["frames"]
    lines = [f"the program's own account, {len(truth.get('addresses', []))} addresses:"]
    return "\n  ".join(lines + [row if isinstance(row, str) else " ".join(map(str, row))
                                for row in rows])


def render_call(call):
    lines = [f"the record, {len(call['user_stack'])} frames, end {call.get('user_stack_end')}:"]
    for frame in call["user_stack"]:
        lines.append(f"{frame.get('kind', '')} {frame.get('symbol', '')}+"
                     f"{frame.get('offset_bytes', 0)} {frame.get('file', '')}:"
                     f"{frame.get('line', 0)} {frame.get('module', '')} "
                     f"0x{frame.get('address', 0):x}")
    return "\n  ".join(lines)


def setUpModule():
    require_root()
    if not (STACKS / "stack_cases").exists():
        raise unittest.SkipTest("the programs that know their stacks are not built with sanitizers")


class StacksTest(unittest.TestCase):
    maxDiff = None

    def check(self, config, compare, command, companions=()):
        """Runs a program that takes SAMPLES samples, compares every stack. `companions` only warm
        up beside it, so that their files are probed before it becomes one of them."""
        with Daemon(config) as daemon, Watcher(daemon) as watcher:
            go, end = daemon.path / "go", daemon.path / "end"
            truth_path = daemon.path / "truth"
            with open(truth_path, "wb") as output:
                process = subprocess.Popen(
                    [*map(str, command), "--samples", str(SAMPLES), "--wait-for-file", go,
                     "--linger-for-file", end], stdout=output, cwd=daemon.path)
            self.addCleanup(process.kill)
            others = [subprocess.Popen([program, "--wait-for-file", end, "--samples", "0"])
                      for program in companions]
            for other in others:
                self.addCleanup(other.kill)
            pending = {process.pid, *(other.pid for other in others)}
            wait_until("warm-up calls", lambda: not pending.difference_update(
                call["pid"] for call in watcher.read_calls()) and not pending, 30)
            go.touch()

            comparison = Comparison(compare)
            self.compare_all(process, truth_path, watcher, comparison)
            end.touch()
            self.assertEqual(process.wait(timeout=60), 0)
            drops = daemon.query("status")["drops"]
            dropped = watcher.count_missed() + sum(drop["count"] for drop in drops)
            for other in others:
                other.wait(timeout=60)

        missing = len(comparison.truths)
        counts = (f"{SAMPLES} samples: {comparison.right} right, {comparison.wrong.total()} wrong, "
                  f"{missing} missing, {dropped} counted as dropped {drops}")
        print(counts)
        self.assertEqual(comparison.right + comparison.wrong.total() + missing, SAMPLES, counts)
        self.assertEqual(comparison.early, {}, counts)
        if comparison.wrong:
            kinds = [f"{count} x {what}" for what, count in comparison.wrong.most_common()]
            self.fail("\n".join([counts, *kinds, f"first wrong: {comparison.first_wrong}"]))
        self.assertLessEqual(missing, dropped, counts)

    def compare_all(self, process, truth_path, watcher, comparison):
        """Until every sample is compared, or nothing has come for some seconds."""
        quiet_seconds = 5
        samples = 0
        last_news = time.monotonic()
        reported = 0
        with open(truth_path, "rb") as truths:
            while time.monotonic() < last_news + quiet_seconds:
                before = samples, comparison.right, comparison.wrong.total()
                while (line := truths.readline()).endswith(b"\n"):
                    samples += 1
                    comparison.add_truth(line)
                truths.seek(-len(line), os.SEEK_CUR)
                for call in watcher.read_calls():
                    comparison.add_call(call)
                    reported = max(reported, get_sample(call))
                new_path = truth_path.with_name("reported.new")
                new_path.write_text(f"{reported}\n", encoding="ascii")
                new_path.rename(truth_path.with_name(REPORTED))
                if before != (samples, comparison.right, comparison.wrong.total()):
                    last_news = time.monotonic()
                if samples == SAMPLES and not comparison.truths:
                    return
                if process.poll():
                    self.fail(f"the program ended with {process.returncode}")
                time.sleep(0.05)

    def check_native(self, case):
        program = STACKS / case.program
        if not program.exists():
            self.skipTest(f"{case.program} is not built: the build says why")
        programs = Programs(STACKS)

        def compare(truth, call):
            return compare_stack(truth, call, Modules(truth["modules"], programs), case.end)

        others = [STACKS / case.other_program] if case.other_program else []
        command = [program, "--case", case.case, "--pause-us", case.pause_us,
                   "--argument", " ".join(map(str, [*case.argument, *others]))]
        if case.case == "plugin":
            command += ["--reported-file", REPORTED]
        self.check(make_config([program, *others], case.may_throw), compare, command, others)

    def test_of_python_functions(self):
        self.check_python(2 * PAUSE_US)

    def test_of_python_functions_that_share_frames(self):
        self.check_python(PAUSE_US, "--sharing")

    def check_python(self, pause_us, *options):
        library = PYTHON_STACKS / "libpython_calls.so"
        script = SOURCE / "tests/workloads/python_stacks/python_stacks.py"
        for interpreter in find_pythons():
            with self.subTest(interpreter=interpreter):
                self.check(make_config([library]), compare_python_stack,
                           [interpreter, "-B", script, library, PYTHON_STACKS, "--pause-us",
                            pause_us, *options])


def find_pythons():
    """Those of the distribution, and more by GPUPERF_TEST_PYTHONS=PATH:PATH."""
    paths = sorted(path for path in pathlib.Path("/usr/bin").iterdir()
                   if re.fullmatch(r"python3\.\d+", path.name))
    more = os.environ.get("GPUPERF_TEST_PYTHONS", "")
    return [str(path) for path in paths] + [path for path in more.split(":") if path]


def add_tests():
    for name, case in CASES.items():
        setattr(StacksTest, f"test_{name}", lambda self, case=case: self.check_native(case))


add_tests()


if __name__ == "__main__":
    unittest.main(verbosity=2)
