#!/usr/bin/env python3
"""Stacks of launches that the launching thread walks itself: those that the kernel side would have found, and whole from a
program's first launch on."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from gpuperf_system import SOURCE, Daemon, require_root, wait_until
from injector_workload import FAKES, INJECTOR

sys.path.append(str(SOURCE / "tests/gpu"))
from trace_raw import read_stored  # noqa: E402  pylint: disable=wrong-import-position

PROGRAM = """
import ctypes, sys, threading, time
cuda = ctypes.CDLL("libcuda.so.1")
runtime = ctypes.CDLL("libfake_runtime.so")

def launch(count):
    for _ in range(count):
        runtime.fake_runtime_launch(1, ctypes.c_void_p(0x1000), 0)

def attention(count):
    launch(count)

class Layer:
    def __call__(self, count):
        attention(count)
        launch(count)

def forward(rounds):
    layers = [Layer() for _ in range(3)]
    for _ in range(rounds):
        for layer in layers:
            layer(5)

def work():
    forward(20)
    thread = threading.Thread(target=forward, args=(20,))
    thread.start()
    thread.join()

assert cuda.cuInit(0) == 0
if sys.argv[1] == "at once":
    work()
    time.sleep(0.5)
else:
    print("ready", flush=True)
    for line in sys.stdin:
        work()
        print("done", flush=True)
"""
LAUNCHES = 2 * 20 * 3 * 10


@unittest.skipUnless((FAKES / "libfake_runtime.so").exists(), "the fake CUPTI is not built: it needs the headers of CUPTI 13")
class LaunchStacksTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        require_root()
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="gpuperf-hooks-")))
        for library in (FAKES / "libcuda.so.1", FAKES / "libfake_runtime.so", INJECTOR):
            shutil.copy(library, self.folder)
        (self.folder / "program.py").write_text(PROGRAM, encoding="utf-8")
        self.daemon = self.enterContext(Daemon({
            "cuda_func_sym": {"cuLaunchKernel": {"symbol": "cuLaunchKernel", "may_throw": False}},
            "libraries": {"cuda_func_sym": [f"{self.folder}/libcuda.so.1"]}, "trace": {"recorder": False}}))

    def run_program(self, word, **environment):
        return subprocess.Popen(
            ["/usr/bin/python3", self.folder / "program.py", word], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={"LD_LIBRARY_PATH": str(self.folder), "GPUPERF_SOCKET": str(self.folder / "none"),
                 "CUDA_INJECTION64_PATH": str(self.folder / INJECTOR.name), **environment})

    def capture(self, work, *words):
        """What was launched while `work` ran."""
        row = self.daemon.query("trace", "start", *words)
        work()
        self.daemon.ctl("trace", "stop", row["id"])
        wait_until("the capture", lambda: [one for one in self.daemon.query("trace", "list")
                                           if one["id"] == row["id"] and one["state"] == "stored"], 30)
        path = self.daemon.path / "raw"
        self.daemon.ctl("trace", "fetch", row["id"], "--format", "raw", "--file", path)
        return read_stored(path.read_bytes()).launches

    def take_stacks(self, rounds, **environment):
        """Of the last round."""
        with self.run_program("when told", **environment) as process:
            self.assertEqual(process.stdout.readline(), b"ready\n")
            self.daemon.wait_attached("cuLaunchKernel")

            def work():
                process.stdin.write(b"\n")
                process.stdin.flush()
                self.assertEqual(process.stdout.readline(), b"done\n")
            for _ in range(rounds):
                launches = self.capture(work, "--pid", process.pid)
            process.communicate(timeout=30)
        self.assertEqual(len(launches), LAUNCHES)
        return launches

    def test_they_are_those_that_the_kernel_side_finds(self):
        by_probes = self.take_stacks(3, GPUPERF_LAUNCH_HOOKS="0")  # the rules of its code are known by then
        by_hooks = self.take_stacks(1)

        def count(launches):
            stacks = {}
            for launch in launches:
                key = " > ".join(launch.stack or ("none",))
                stacks[key] = stacks.get(key, 0) + 1
            return stacks
        self.assertEqual(count(by_hooks), count(by_probes))
        named = [stack for stack in count(by_hooks) if "Layer.__call__ > attention > launch > _PyObject_MakeTpCall" in stack]
        self.assertEqual(len(named), 2, count(by_hooks))  # of two threads

    def test_a_program_of_under_a_second_has_whole_stacks_from_its_first_launch_on(self):
        self.take_stacks(1)  # the daemon has met the library, as on any host but the first time

        def work():
            with self.run_program("at once") as process:
                process.communicate(timeout=30)
        launches = self.capture(work)

        whole = [launch for launch in launches
                 if launch.stack and {"forward", "Layer.__call__", "launch"} <= set(launch.stack)
                 and launch.stack[0] in ("_start", "__clone3")]
        self.assertGreaterEqual(len(launches), 0.9 * LAUNCHES)
        self.assertGreaterEqual(len(whole), 0.95 * len(launches), {launch.stack for launch in launches})


if __name__ == "__main__":
    unittest.main(verbosity=2)
