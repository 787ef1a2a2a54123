#!/usr/bin/env python3
"""No probe harms a workload and no later call is lost, whatever happens in a call or to a file."""

import mmap
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import unittest

from gpuperf_system import (LONG, WORKLOADS, Daemon, finish_workload, get_calls, require_root,
                            start_workload, wait_until)

TIMES = 1000 if LONG else 50
THREADS = 12_000 if LONG else 500
OVERWRITES = 20 if LONG else 2  # the daemon leaves a file alone for seconds after each
CALLING_MS = 50
C_FUNCTIONS = {f"harm_{name}": f"harm_{name}" for name in ("leaf", "call", "outer")}
CPP_FUNCTIONS = {"cpp_leaf": "_ZN4demo4leafEm", "cpp_call": "_ZN4demo4callEPFmPvES0_",
                 "cpp_outer": "_ZN4demo5outerEPFmPvES0_", "cpp_tail": "_ZN4demo4tailEPFmPvES0_",
                 "cpp_rescue": "_ZN4demo6rescueEPFmPvES0_", "cpp_checked": "_ZN4demo7checkedEm",
                 "cpp_choose": "_ZN4demo6chooseEm"}
COUNTED = ("calls", "abandoned", "untimed", "in_flight")


def setUpModule():
    require_root()


class Scene:
    """A daemon that probes libraries of its own: probes act on files, and some are overwritten."""

    def __init__(self, test):
        folder = tempfile.TemporaryDirectory(prefix="gpuperf-no-harm-")
        test.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        self.opened = self.path / "opened/libharm_target.so"  # cases open and close it
        self.opened.parent.mkdir()
        for name in ("libharm_target.so", "libcpp_target.so"):
            shutil.copy(WORKLOADS / name, self.path)
        shutil.copy(WORKLOADS / self.opened.name, self.opened)
        self.daemon = Daemon(
            {"custom_sym": C_FUNCTIONS | CPP_FUNCTIONS,
             "libraries": {"custom_sym": [f"{self.path}/*_target.so", str(self.opened)]},
             "slow": {"default_threshold_ms": 0},
             # Totals are summed over the rows of many children: all must still be there.
             "stats": {"max_exited_processes": 10_000}})
        self.daemon.start()
        test.addCleanup(lambda: self.daemon.__exit__(None))

    def start(self, case, language, times=TIMES, **environment):
        return start_workload("no_harm", "--case", case, "--language", language, "--times", times,
                              "--threads", THREADS, "--library", self.opened,
                              env=os.environ | {"LD_LIBRARY_PATH": str(self.path)} | environment)

    def wait_probed(self, path, times=0):
        """Has the file probed, by mapping it as a program would; `times` it was so, under that path."""
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE,
                                                 prot=mmap.PROT_READ | mmap.PROT_EXEC):
            wait_until(f"{path} probed",
                       lambda: self.count_probed(path) >= times and self.count_attached(path))

    def wait_all_probed(self):
        for path in (self.path / "libharm_target.so", self.path / "libcpp_target.so", self.opened):
            self.wait_probed(path)

    def count_probed(self, path):
        """Files that were probed under that path, one after the other."""
        return self.daemon.log().count(f"library probed library={path} ")

    def count_attached(self, path):
        return sum(row["library"] == str(path) and row["state"] in ("attached", "entry_only")
                   for row in self.daemon.query("probes"))

    def read_totals(self):
        """Per function, over all processes there ever were."""
        return {name: {key: row[key] for key in COUNTED}
                for name, row in self.daemon.functions().items()}


class CallsTest(unittest.TestCase):
    """One daemon for all cases: one that spoils something for those after it is found out."""

    maxDiff = None

    def setUp(self):
        self.scene = Scene(self)
        self.daemon = self.scene.daemon
        self.scene.wait_all_probed()
        states = {row["function"]: row["state"] for row in self.daemon.query("probes")}
        self.entry_only = {name for name, state in states.items() if state == "entry_only"}
        # Nothing but a jump to another probed function, whose calls its own would be.
        self.aliases = {name for name, state in states.items() if state == "alias"}

    def get_expected(self, before, truth):
        expected = {name: dict(counts) for name, counts in before.items()}
        for name, entry in truth["calls"].items():
            if name in self.aliases:
                continue
            row = expected.setdefault(name, dict.fromkeys(COUNTED, 0))
            row["calls"] += entry["calls"]
            if name in self.entry_only:
                row["untimed"] += entry["calls"]
            else:
                row["abandoned"] += truth["abandoned"].get(name, 0)
        return expected

    def run_case(self, case, language):
        before = self.scene.read_totals()
        started = time.monotonic()

        (truth,) = finish_workload(self.scene.start(case, language))

        elapsed_ns = (time.monotonic() - started) * 1e9
        expected = self.get_expected(before, truth)
        try:
            wait_until("the expected totals", lambda: self.scene.read_totals() == expected)
        except AssertionError:
            self.assertEqual(self.scene.read_totals(), expected)
        # A call's time is the last thing of it that is read.
        wait_until("times that agree", lambda: all(row["self_ns"] <= row["total_ns"] and row["max_ns"] <= elapsed_ns for row in
                                                   self.daemon.functions("--pid", truth["pid"]).values()))

    def test_every_way_out_of_a_call(self):
        output = subprocess.run([WORKLOADS / "no_harm", "--list"], capture_output=True, text=True,
                                check=True).stdout
        for case, language in map(str.split, output.splitlines()):
            with self.subTest(case=case, language=language):
                try:
                    self.run_case(case, language)
                except AssertionError:
                    time.sleep(1)  # what is still to be read of it is not the next case's
                    raise


class FilesTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.scene = Scene(self)
        self.daemon = self.scene.daemon
        self.scene.wait_all_probed()

    def start_calling(self):
        process = self.scene.start("keep_calling", "c", CALLING_MS)
        maps = pathlib.Path(f"/proc/{process.pid}/maps")
        wait_until("the library opened", lambda: str(self.scene.opened) in maps.read_text())
        return process

    def finish_and_compare(self, process, exact):
        (truth,) = finish_workload(process)
        expected = get_calls(truth)
        if exact:
            rows = self.daemon.wait_for_counts(truth["pid"], expected)
            self.assertEqual({name: row["calls"] for name, row in rows.items()}, expected)

    def test_a_library_renamed_over_while_it_is_called(self):
        for _ in range(TIMES):
            times = self.scene.count_probed(self.scene.opened)
            process = self.start_calling()
            fresh = self.scene.opened.with_suffix(".new")
            shutil.copy(WORKLOADS / self.scene.opened.name, fresh)
            fresh.rename(self.scene.opened)

            self.finish_and_compare(process, exact=True)
            self.scene.wait_probed(self.scene.opened, times + 1)

    def test_a_library_overwritten_in_place_while_it_is_called(self):
        content = (WORKLOADS / self.scene.opened.name).read_bytes()
        for _ in range(OVERWRITES):
            process = self.start_calling()
            with open(self.scene.opened, "r+b") as file:  # the same inode, as `cp` over it
                file.write(content)
            self.wait_probes_out()

            # What it calls while the probes are out is not counted, but it lives and computes.
            self.finish_and_compare(process, exact=False)
            self.wait_probed_again()
            self.finish_and_compare(self.start_calling(), exact=True)

    def test_a_library_overwritten_in_place_by_another_version(self):
        first = WORKLOADS / self.scene.opened.name
        second = WORKLOADS / "second_version" / self.scene.opened.name
        for version in (second, first) * (OVERWRITES // 2):
            with open(self.scene.opened, "r+b") as file:
                file.write(version.read_bytes())
                file.truncate()
            self.wait_probes_out()

            # Programs that start now run the new code, at other addresses than the old probes'.
            self.finish_and_compare(self.start_calling(), exact=False)
            self.wait_probed_again()
            self.finish_and_compare(self.start_calling(), exact=True)

    def wait_probes_out(self):
        wait_until("its probes are out", lambda: not self.scene.count_attached(self.scene.opened))

    def wait_probed_again(self):
        with open(self.scene.opened, "rb") as file, mmap.mmap(
                file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC):
            wait_until("it is probed again",
                       lambda: self.scene.count_attached(self.scene.opened) == len(C_FUNCTIONS), 30)


if __name__ == "__main__":
    unittest.main(verbosity=2)
