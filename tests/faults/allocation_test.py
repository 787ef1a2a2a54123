#!/usr/bin/env python3
"""Allocations that fail. Of the injected library: the program goes on, as without it, whichever fails. Of the daemon: it goes on,
or ends and says why; what it had acknowledged is there afterwards, nothing of it is left, and no program notices."""

import collections
import contextlib
import json
import mmap
import os
import pathlib
import random
import signal
import struct
import subprocess
import tempfile
import time
import unittest
import urllib.request

from gpuperf_system import BUILD, LONG, WORKLOADS, Daemon, bpf_objects, require_root, wait_until
from injector_workload import Workload, require_fakes

PRELOAD = BUILD / "tests/faults/libfailing_allocations.so"
DAEMON_TRIALS = 100 if LONG else 8
CONFIG = {"custom_sym": {"cause_sleep": "cause_sleep"}, "libraries": {"custom_sym": [str(WORKLOADS / "known_causes")]},
          "slow": {"default_threshold_ms": 0.5}}
COUNT, FAILS_AT, FAILS_ON, FAILED = range(4)


def setUpModule():
    require_root()
    require_fakes()


class Control:
    """Which allocation of a program is to fail, and how many it made; of one program after the other."""

    def __init__(self, path, **environment):
        path.write_bytes(bytes(32))
        self.environment = {"LD_PRELOAD": str(PRELOAD), "GPUPERF_FAILING_ALLOCATIONS": str(path), **environment}
        self.file = open(path, "r+b")
        self.memory = mmap.mmap(self.file.fileno(), 32)

    def __getitem__(self, number):
        return struct.unpack_from("Q", self.memory, 8 * number)[0]

    def __setitem__(self, number, value):
        struct.pack_into("Q", self.memory, 8 * number, value)

    def set(self, nth, all_after):
        """The nth from now on."""
        self[FAILED] = 0
        self[FAILS_ON] = int(all_after)
        self[FAILS_AT] = self[COUNT] + nth if nth else 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.memory.close()
        self.file.close()


class InjectedTest(unittest.TestCase):
    LINES = ("init", "graph make decode 4", "launch 50 2", "graph launch decode 3", "launch 50 1")

    def run_program(self, daemon, control):
        with Workload(daemon.path / "run/ingest.sock", environment=control.environment) as program:
            for line in self.LINES:
                program.do(line)
            _, works = program.truth()
            self.assertEqual((program.end(), program.noise()), (0, ""))
        return len(works)

    def test_every_mapping_may_fail(self):
        with Daemon(CONFIG) as daemon, Control(daemon.path / "control", GPUPERF_FAILING_OBJECT="libgpuperf_injector") as control:
            expected = self.run_program(daemon, control)
            self.assertGreater(control[COUNT], 5)
            most = 0
            for all_after in (False, True):
                nth = 1
                while True:
                    with self.subTest(nth=nth, all_after=all_after):
                        control.set(nth, all_after)
                        self.assertEqual(self.run_program(daemon, control), expected)
                    if control[FAILED] == 0:
                        break
                    most = max(most, nth)
                    nth += 1
            print(f"each of {most} mappings of the library failed, alone and with all after it")
            self.assertEqual(daemon.query("status")["problems"], [])


class DaemonTest(unittest.TestCase):
    """Memory that is missing once, or from some moment on."""

    def setUp(self):
        seed = int(os.environ.get("GPUPERF_SEED", random.randrange(1 << 30)))
        print(f"GPUPERF_SEED={seed}")
        self.choose = random.Random(seed)
        self.others = bpf_objects()
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.control = self.enterContext(Control(pathlib.Path(folder) / "control", GPUPERF_FAILING_CALLS="malloc"))
        variables = [f"{name}={value}" for name, value in self.control.environment.items()]
        self.daemon = Daemon(CONFIG, prefix=("env", *variables))
        self.addCleanup(self.daemon.folder.cleanup)
        self.addCleanup(self.daemon.stop)
        self.told = []
        self.ways = collections.Counter()

    def run_sleeper(self):
        self.sleeper = subprocess.Popen([WORKLOADS / "known_causes", "--cause", "sleep", "--runs", "100000000", "--ms", "1"],
                                        stdout=subprocess.DEVNULL)
        self.addCleanup(self.sleeper.wait)
        self.addCleanup(self.sleeper.kill)

    def check_end(self):
        """It has ended, or ends when told to: if not well, it said why."""
        code = self.daemon.stop()
        if code == 0:
            self.ways["went on"] += 1
            return
        said = self.daemon.log()[self.daemon.log_begin:]
        self.assertIn(code, (1, -signal.SIGABRT), said)
        if code == 1:
            self.assertIn("memory", said)
        self.ways["ended with a message" if code == 1 else "aborted in a library"] += 1

    def fail_in_start(self, allocations):
        self.control[FAILED] = self.control[FAILS_ON] = 0
        self.control[COUNT], self.control[FAILS_AT] = 0, self.choose.randrange(1, allocations)
        try:
            self.daemon.start()
        except AssertionError:
            self.assertNotIn(self.daemon.process.poll(), (None, 0))
        self.check_end()

    def fail_in_service(self):
        self.control.set(0, False)
        self.daemon.start()
        self.daemon.wait_attached("cause_sleep")
        self.check_what_was_told()
        watched = self.daemon.path / "told"
        with open(watched, "wb") as file:
            watcher = subprocess.Popen(self.daemon.ctl_words("slow", "watch", "-o", "json"), stdout=file, stderr=subprocess.DEVNULL)
        wait_until("a call is told", lambda: watched.stat().st_size, 20)
        self.control.set(self.choose.randrange(1, 3_000), self.choose.random() < 0.5)
        for words in (("functions",), ("slow", "list"), ("trace", "start"), ("status",)):
            self.daemon.ctl(*words, check=False)
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self.daemon.port}/metrics", timeout=5) as page:
            page.read()
        wait_until("it has failed", lambda: self.control[FAILED], 20)
        time.sleep(0.5)
        if self.daemon.process.poll() is None:
            self.control.set(0, False)
            self.daemon.query("status")
            self.assertEqual(self.daemon.stop(), 0)
        self.check_end()
        watcher.wait(10)
        told = [json.loads(line) for line in watched.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
        self.told = [call["id"] for call in told if call["stored"]]

    def check_what_was_told(self):
        kept = {call["id"] for call in self.daemon.query("slow", "list", "--since", "60s", "--limit", 100_000)}
        self.assertEqual([call for call in self.told if call not in kept], [])

    def test_it_goes_on_or_says_why_it_ends(self):
        self.run_sleeper()
        self.daemon.start()
        allocations = self.control[COUNT]
        self.daemon.stop()
        for _ in range(DAEMON_TRIALS):
            self.fail_in_service()
            self.fail_in_start(allocations)
        self.control.set(0, False)
        self.daemon.start()
        self.check_what_was_told()
        self.assertEqual(self.daemon.stop(), 0)
        self.assertIsNone(self.sleeper.poll())
        wait_until("nothing of ours in the kernel", lambda: bpf_objects() <= self.others, 5)
        print(f"{2 * DAEMON_TRIALS} failed allocations: {dict(self.ways)}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
