#!/usr/bin/env python3
"""The daemon on other kernels: programs load, every call is counted once, a slow call says where its time went, and the
kernel survives, also one that preempts threads within probes.

usage: kernels_test.py [unittest's arguments]     all kernels with GPUPERF_LONG_TESTS (tests/run.sh --long)
"""

import json
import os
import re
import shutil
import unittest

import machine
from gpuperf_system import LONG

# Series, and the mechanism that is the best there; what each stands for.
KERNELS = {
    "6.1": "perf",      # Debian 12's own; perf events, as on Ubuntu 22.04 (5.15)
    "6.12": "multi",    # has the functions of sessions but not sessions
    "6.16": "session",
    "6.18": "session",
    "7.0": "session",   # other functions of sessions, and preemption of what the kernel does for a thread
    "7": "session",     # the newest
}
SHORT = ("6.1", "7.0")  # not the newest: what the archive gets tomorrow is no change of ours
SECONDS = 900  # of one kernel; with nothing else to do each takes one to two minutes
TROUBLE = re.compile(r"^\[ *\d+\.\d+\] .*(?:BUG:|Oops|WARNING:|Kernel panic|rcu: INFO|segfault).*$", re.M)


class KernelsTest(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        for program, package in (("busybox", "busybox-static"), ("cpio", "cpio")):
            if shutil.which(program) is None:
                raise unittest.SkipTest(f"{program} is not installed (Debian package {package})")
        try:
            cls.archive, cls.emulator = machine.prepare()
        except machine.Unobtainable as error:
            raise unittest.SkipTest(f"no virtual machines: {error}") from error
        cls.initramfs = machine.FOLDER / f"initramfs-{os.getpid()}"
        machine.make_initramfs(cls.initramfs)

    @classmethod
    def tearDownClass(cls):
        cls.initramfs.unlink()

    def check(self, series):
        try:
            kernel, version = machine.find_kernel(self.archive, series)
        except machine.Unobtainable as error:
            self.skipTest(str(error))
        log = self.emulator.boot(kernel, self.initramfs, machine.FOLDER / f"log-{version}", SECONDS)

        self.assertEqual(TROUBLE.findall(log), [], log[-6000:])
        self.assertRegex(log, r"(?m)^DONE", f"{version}:\n{log[-6000:]}")
        results = {name: json.loads(text) for name, text in re.findall(r"RESULT (\w+) (.*)$", log, re.M)}
        print(f"{version}: {results['status']['mechanism']}, {sum(results['count']['counted'].values())} calls counted")
        self.check_results(results, KERNELS[series])

    def check_results(self, results, mechanism):
        self.assertEqual(results["status"], {"mechanism": mechanism, "problems": []})
        self.assertEqual(results["count"]["counted"], results["count"]["expected"])
        self.assertEqual(results["count"]["open"], 0)
        # Kernels that preempt, before 7.0, have no memory for a thread while another on that CPU is being given its own:
        # such calls are counted, not timed, and reported.
        told = sum(drop["count"] for drop in results["drops"] if drop["reason"] == "thread_state")
        self.assertLessEqual(results["count"]["untimed"], told)
        self.assertLess(told, 0.01 * sum(results["count"]["expected"].values()))
        slow = results["slow"]
        self.assertGreater(slow["blocked_ns"], slow["duration_ns"] / 2, slow)
        self.assertLessEqual(slow["blocked_ns"], slow["duration_ns"], slow)
        self.assertTrue(any("run_pipe" in symbol for symbol in slow["stack"]), slow)
        self.assertEqual(results["ends"], {way: [300, 300, 0, 0] for way in ("kill", "execute")})
        self.assertEqual(results["stop"], {"code": 0})


def add_test(series):
    def test(self):
        if not LONG and series not in SHORT:
            self.skipTest("only in the long form")
        self.check(series)
    setattr(KernelsTest, f"test_{series.replace('.', '_')}", test)


for kernel_series in KERNELS:
    add_test(kernel_series)

if __name__ == "__main__":
    unittest.main(verbosity=2)
