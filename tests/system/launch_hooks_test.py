#!/usr/bin/env python3
"""Launches that hooks count in the process: no call is lost, none is counted twice, and slow calls and traces have them
like those of probes. On stand-ins for the driver and for the injected library, which say what they counted."""

import collections
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

from gpuperf_system import SOURCE, WORKLOADS, Daemon, require_root, wait_until
from injector_workload import FAKES, INJECTOR
from why_slow_test import PARTS

sys.path.append(str(SOURCE / "tests/gpu"))
from trace_raw import read_stored  # noqa: E402  pylint: disable=wrong-import-position

# A copy of our own: probes act on the file, so whoever else runs this workload would be counted.
FOLDER = tempfile.TemporaryDirectory(prefix="gpuperf-hooks-")
CONFIG = {"cuda_func_sym": {name: {"symbol": name, "may_throw": False} for name in ("cuLaunchKernel", "cuGraphLaunch")},
          "custom_sym": {name: {"symbol": name, "may_throw": False} for name in ("outer_call", "inner_call")},
          "libraries": {"cuda_func_sym": [f"{FOLDER.name}/libcuda.so.1"],
                        "custom_sym": [str(WORKLOADS / "hooked_launches")]},
          "slow": {"default_threshold_ms": 0},
          "trace": {"recorder": False}}
OFF = {name: False for name in ("count", "calls", "slow", "launch", "thread", "launches", "each")}
ON = OFF | {name: True for name in ("count", "calls", "slow", "launch", "thread")}


def setUpModule():
    require_root()
    unittest.addModuleCleanup(FOLDER.cleanup)
    for name in ("libcuda.so.1", "libgpuperf_injector.so"):
        shutil.copy(WORKLOADS / "hooked" / name, FOLDER.name)


class Launcher:
    """The running workload; a context manager."""

    def __init__(self):
        self.process = subprocess.Popen([WORKLOADS / "hooked_launches"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env={"LD_LIBRARY_PATH": FOLDER.name})
        self.pid = self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.communicate(timeout=30)

    def begin(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def end(self):
        return json.loads(self.process.stdout.readline())

    def do(self, line):
        self.begin(line)
        return self.end()

    def semaphores(self):
        return {name: value > 0 for name, value in self.do("semaphores").items()}

    def wait_for(self, semaphores):
        wait_until(f"semaphores {semaphores}", lambda: self.semaphores() == semaphores)


class LaunchHooksTest(unittest.TestCase):
    maxDiff = None

    def start(self, **config):
        daemon = self.enterContext(Daemon(CONFIG | config))
        launcher = self.enterContext(Launcher())
        daemon.wait_attached("cuLaunchKernel", "cuGraphLaunch", "outer_call", "inner_call")
        return daemon, launcher

    def row(self, daemon, launcher, calls, function="cuLaunchKernel"):
        """The function's row once it has so many calls; or the last one seen."""
        seen = {}

        def find():
            seen.update(daemon.functions("--pid", launcher.pid).get(function, {}))
            return (seen.get("calls"), seen.get("in_flight")) == (calls, 0)
        try:
            wait_until(f"{calls} calls", find)
        except AssertionError:
            pass  # the caller compares
        return seen

    def wait_slow(self, daemon, launcher, count):
        """The longest slow calls: on a busy machine more of them are slow than were meant to be."""
        def find():
            calls = daemon.query("slow", "list", "--pid", launcher.pid)
            return calls if len(calls) >= count else None
        calls = wait_until(f"{count} slow calls", find)
        return sorted(calls, key=lambda call: -call["duration_ns"])[:count]

    def test_counts_are_the_hooks_own_and_no_call_is_counted_twice(self):
        daemon, launcher = self.start()
        launcher.wait_for(ON)
        launcher.do("launch 5000 0 0")
        launcher.do("launch 30 0 700")
        launcher.do("launch 20 0 1")
        launcher.do("launch 10 50 0")
        launcher.do("graph 7")
        launcher.do("flush")
        launcher.do("launch 100 3 0")  # in a second note
        launcher.do("flush")
        truth = launcher.do("totals")

        row = self.row(daemon, launcher, 5160)
        graph = self.row(daemon, launcher, 7, "cuGraphLaunch")

        self.assertEqual((truth["calls"], truth["traps"]), (5160, 0))
        self.assertEqual({key: row[key] for key in ("calls", "calls_hooked", "total_ns", "self_ns", "min_ns", "max_ns",
                                                    "in_flight", "abandoned", "untimed", "slow_calls")},
                         {"calls": 5160, "calls_hooked": 5160, "total_ns": truth["total_ns"],
                          "self_ns": truth["total_ns"], "min_ns": truth["min_ns"], "max_ns": truth["max_ns"],
                          "in_flight": 0, "abandoned": 0, "untimed": 0, "slow_calls": 0})
        self.assertEqual({error["code"]: error["count"] for error in row["error_counts"]}, {700: 30, 1: 20})
        self.assertLess(row["p50_ns"], 3_000)
        self.assertGreater(row["p999_ns"], 45_000)
        self.assertEqual((graph["calls"], graph["calls_hooked"]), (7, 7))

    def test_every_mechanism_takes_what_hooks_hand_over(self):
        for mechanism in ("multi", "perf"):  # the others run with sessions
            with self.subTest(mechanism), Daemon(CONFIG, "--mechanism", mechanism) as daemon, Launcher() as launcher:
                daemon.wait_attached("cuLaunchKernel")
                launcher.wait_for(ON)
                launcher.do("launch 900 0 0")
                launcher.do("flush")

                self.assertEqual(self.row(daemon, launcher, 900)["calls_hooked"], 900)

    def test_the_daemons_death_hands_the_calls_back_to_the_probes_and_the_next_one_takes_them_again(self):
        daemon, launcher = self.start()
        launcher.wait_for(ON)
        daemon.stop(signal.SIGKILL)
        launcher.wait_for(OFF)
        launcher.do("launch 11 0 0")
        self.assertEqual(launcher.do("totals")["traps"], 11)

        daemon.start()
        daemon.wait_attached("cuLaunchKernel")
        launcher.wait_for(ON)
        launcher.do("launch 500 0 0")
        launcher.do("flush")

        self.assertEqual(self.row(daemon, launcher, 500)["calls_hooked"], 500)
        daemon.stop()
        launcher.wait_for(OFF)

    def test_hooks_and_probes_take_turns_as_the_configuration_says(self):
        daemon, launcher = self.start(overhead={"budget_percent": 0, "launch_hooks": False})
        self.assertEqual(launcher.semaphores(), OFF)
        launcher.do("launch 300 0 0")
        row = self.row(daemon, launcher, 300)
        self.assertEqual((row["calls"], row["calls_hooked"]), (300, 0))

        daemon.settings["overhead"]["launch_hooks"] = True
        daemon.config.write_text(json.dumps(daemon.settings), encoding="utf-8")
        daemon.ctl("config", "reload")
        launcher.wait_for(ON)
        launcher.do("launch 400 0 0")
        launcher.do("flush")
        row = self.row(daemon, launcher, 700)
        self.assertEqual((row["calls"], row["calls_hooked"]), (700, 400))

        daemon.ctl("probes", "disable", "cuLaunchKernel")
        launcher.do("launch 50 0 0")
        launcher.do("graph 3")
        launcher.do("flush")
        self.assertEqual(self.row(daemon, launcher, 3, "cuGraphLaunch")["calls"], 3)
        self.assertEqual(self.row(daemon, launcher, 700)["calls"], 700)

    def test_a_slow_call_has_its_stack_its_arguments_and_its_result(self):
        daemon, launcher = self.start(slow={"default_threshold_ms": 20, "adaptive_factor": 0})
        launcher.wait_for(ON)

        launcher.do("launch 20 1000 0")  # not slow
        launcher.do("launch 1 60000 2")
        launcher.do("flush")

        (call,) = self.wait_slow(daemon, launcher, 1)
        self.assertEqual((call["function"], call["tid"], call["threshold_ns"], call["reason"]),
                         ("cuLaunchKernel", launcher.pid, 20_000_000, "absolute"))
        self.assertTrue(60_000_000 <= call["duration_ns"] < 2_000_000_000, call["duration_ns"])
        values = {argument["name"]: argument["value"] for argument in call["arguments"]}
        self.assertEqual(values, {"kernel": "0x7000", "grid": "(2, 3, 4)", "block": "(64, 5, 6)",
                                  "shared_bytes": "60000", "stream": "0x9000"})
        self.assertEqual(call["return_value"], "CUDA_ERROR_OUT_OF_MEMORY")
        self.assertEqual([frame["symbol"] for frame in call["user_stack"]][:2], ["launch_here", "main"])
        row = self.row(daemon, launcher, 21)
        self.assertEqual(row["calls"], 21)
        self.assertGreaterEqual(row["slow_calls"], 1)

    def run_slow(self, line, threshold_ms=20, blocked_ms=0):
        """The slow call of a launch, and the workload's answer. A busy machine may let it run only once there is nothing left to
        wait for: it is repeated, at most twice, until it was blocked for so long."""
        daemon, launcher = self.start(slow={"default_threshold_ms": threshold_ms, "adaptive_factor": 0})
        launcher.wait_for(ON)
        before = set()
        for _ in range(3):
            answer = launcher.do(line)
            call = next(call for call in self.wait_slow(daemon, launcher, len(before) + 1) if call["id"] not in before)
            if call["time_split"]["blocked_ns"] >= blocked_ms * 1_000_000:
                break
            before.add(call["id"])
        self.assertEqual(call["function"], "cuLaunchKernel")
        split = call["time_split"]
        self.assertLessEqual(abs(sum(split[part] for part in PARTS) - call["duration_ns"]),
                             max(0.01 * call["duration_ns"], 20_000), split)
        return call, answer

    def test_a_slow_call_that_slept_says_so(self):
        call, _ = self.run_slow("launch 1 60000 0 sleep")

        split = call["time_split"]
        self.assertEqual((split["blocked_on"], split["waits"][0]["syscall"], split["waker"]), ("sleep", "clock_nanosleep", None))
        self.assertTrue(59_900_000 <= split["blocked_ns"] <= call["duration_ns"], split)
        self.assertRegex(call["explanation"], "^Slept .* in clock_nanosleep")

    def test_a_slow_call_that_was_woken_names_the_waker(self):
        call, answer = self.run_slow("launch 1 60000 0 mutex", blocked_ms=20)

        split = call["time_split"]
        self.assertIsNotNone(split["waker"], split)
        self.assertEqual((split["blocked_on"], split["waits"][0]["syscall"], split["waker"]["tid"]),
                         ("futex", "futex", answer["holder"]))
        self.assertIn("hold_mutex", [frame["symbol"] for frame in split["waker"]["stack"]])
        self.assertIn("futex_wait", [frame["symbol"] for frame in split["waits"][0]["kernel_stack"]])
        self.assertRegex(call["explanation"], "^Blocked .* on a futex, woken by thread")

    def test_a_slow_call_that_spun_was_on_the_cpu_or_waited_for_one(self):
        call, _ = self.run_slow("launch 1 60000 0")

        split = call["time_split"]
        self.assertEqual(split["blocked_ns"], 0)
        if split["runnable_ns"] + split["throttled_ns"] < 30_000_000:
            self.assertGreater(split["cpu_samples"], 0)

    def test_a_probed_call_inside_a_hooked_one_stands_between_it_and_those_around(self):
        daemon, launcher = self.start(slow={"default_threshold_ms": 20, "adaptive_factor": 0})
        launcher.wait_for(ON)

        launches_ns = launcher.do("outer 1 60000 inner")["launches_ns"]
        launcher.do("flush")

        calls = {call["function"]: call for call in self.wait_slow(daemon, launcher, 3)}
        self.assertEqual({name: call["outer"] for name, call in calls.items()},
                         {"outer_call": [], "cuLaunchKernel": ["outer_call"], "inner_call": ["outer_call", "cuLaunchKernel"]})
        self.assertEqual({name: [(child["function"], child["calls"]) for child in call["children"]]
                          for name, call in calls.items()},
                         {"outer_call": [("cuLaunchKernel", 1)], "cuLaunchKernel": [("inner_call", 1)], "inner_call": []})
        row = self.row(daemon, launcher, 1, "outer_call")
        self.assertEqual(row["total_ns"] - row["self_ns"], launches_ns)

    def test_a_call_that_hangs_is_reported_in_flight_and_ends_as_the_same_record(self):
        daemon, launcher = self.start(slow={"default_threshold_ms": 200, "adaptive_factor": 0})
        launcher.wait_for(ON)

        for way, state in (("sleep", "blocked"), ("", "running|runnable")):
            with self.subTest(way or "spin"):
                known = {call["id"] for call in self.list_slow(daemon, launcher)}
                launcher.begin(f"launch 1 4000000 0 {way}")
                (hung,) = wait_until("the call in flight",
                                     lambda known=known: [call for call in self.list_slow(daemon, launcher)
                                                          if call["id"] not in known])
                self.assertEqual((hung["function"], hung["tid"], hung["in_flight"]), ("cuLaunchKernel", launcher.pid, True))
                self.assertRegex(hung["state"], state)
                self.assertLess(hung["duration_ns"], 4_000_000_000)
                self.assertEqual([frame["symbol"] for frame in hung["user_stack"]][:1], ["launch_here"])
                launcher.end()
                (ended,) = wait_until("its end", lambda hung=hung: [
                    call for call in self.list_slow(daemon, launcher) if call["id"] == hung["id"] and not call["in_flight"]])
                self.assertEqual((ended["state"], ended["start_mono_ns"]), ("", hung["start_mono_ns"]))
                self.assertGreaterEqual(ended["duration_ns"], 4_000_000_000)

    @staticmethod
    def list_slow(daemon, launcher):
        return daemon.query("slow", "list", "--pid", launcher.pid)

    def test_short_calls_that_were_seen_in_flight_leave_nothing_behind(self):
        daemon, launcher = self.start(slow={"default_threshold_ms": 0.2, "adaptive_factor": 0})
        launcher.wait_for(ON)
        launcher.do("noted 150")

        launcher.do("launch 400000 10 0")  # 4 s in which ticks find them
        for _ in range(2 * (os.cpu_count() or 1)):
            spinner = self.enterContext(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            self.addCleanup(spinner.kill)
        launcher.do("launch 150000 10 0")  # they also lose the CPU
        launcher.do("flush")

        self.assertEqual(self.row(daemon, launcher, 550_000)["in_flight"], 0)
        calls = wait_until("no call in flight", lambda: self.none_in_flight(daemon, launcher), 20)
        self.assertEqual([call for call in calls if call["state"] == "gone"], [])

    def none_in_flight(self, daemon, launcher):
        calls = daemon.query("slow", "list", "--pid", launcher.pid, "--limit", 1000)
        return None if any(call["in_flight"] for call in calls) else calls or None

    def test_a_call_left_by_longjmp_is_in_flight_until_the_next(self):
        daemon, launcher = self.start(slow={"default_threshold_ms": 200, "adaptive_factor": 0})
        launcher.wait_for(ON)

        launcher.do("launch 1 0 0 leave")
        wait_until("the call in flight", lambda: self.list_slow(daemon, launcher))
        launcher.do("launch 1 0 0")

        (call,) = wait_until("its end", lambda: self.none_in_flight(daemon, launcher), 20)
        self.assertEqual(call["state"], "gone")

    def test_a_call_around_hooked_calls_does_not_count_their_time_as_its_own(self):
        daemon, launcher = self.start(slow={"default_threshold_ms": 30, "adaptive_factor": 0})
        launcher.wait_for(ON)

        launches_ns = [launcher.do("outer 10 300")["launches_ns"] for _ in range(5)]
        launches_ns += [launcher.do("outer 1 60000")["launches_ns"]]
        launcher.do("flush")

        row = self.row(daemon, launcher, 6, "outer_call")
        self.assertEqual(row["total_ns"] - row["self_ns"], sum(launches_ns))
        slow = {call["function"]: call for call in self.wait_slow(daemon, launcher, 2)}
        self.assertEqual(slow["cuLaunchKernel"]["outer"], ["outer_call"])

    def test_a_capture_has_every_launch_with_its_stack(self):
        daemon, launcher = self.start()
        launcher.wait_for(ON)
        self.capture(daemon, launcher, 50)  # until the rules of its code are known

        stored = self.capture(daemon, launcher, 200)

        self.assertEqual(len(stored.launches), 200)
        self.assertEqual({" > ".join((launch.stack or ("none",))[-2:]) for launch in stored.launches}, {"main > launch_here"})
        launcher.wait_for(ON)

    def capture(self, daemon, launcher, count):
        row = daemon.query("trace", "start", "--pid", launcher.pid)
        launcher.wait_for(ON | {"launches": True, "each": True})
        launcher.do(f"launch {count} 0 0")
        daemon.ctl("trace", "stop", row["id"])
        wait_until("the capture", lambda: [one for one in daemon.query("trace", "list")
                                           if one["id"] == row["id"] and one["state"] == "stored"], 30)
        path = daemon.path / "raw"
        daemon.ctl("trace", "fetch", row["id"], "--format", "raw", "--file", path)
        return read_stored(path.read_bytes())


def read_symbols(library, *arguments):
    """Address and name of a library's symbols."""
    lines = subprocess.run(["nm", *arguments, "--defined-only", library], check=True, capture_output=True, text=True).stdout
    return {line.split()[2]: int(line.split()[0], 16) for line in lines.splitlines()}


HookFlags = collections.namedtuple("HookFlags", "count attention captures special launches each thread_slot")
NO_SLOT = 16  # of `special`


def read_hook_flags(pid, injector):
    """The beginning of struct HookFlags (injector/note_points.h)."""
    address = read_symbols(injector)["gpuperf_hook_flags"]
    maps = pathlib.Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines()
    base = next(int(line.split("-")[0], 16) for line in maps if line.endswith(str(injector)))
    with open(f"/proc/{pid}/mem", "rb") as memory:
        memory.seek(base + address)
        return HookFlags(*struct.unpack("<6H4xQ", memory.read(24)))


def wait_for_hooks(pid, injector):
    """Until the hooks of a process count: the kernel holds their semaphore up. Their flags."""
    return wait_until("the hooks count", lambda: next(
        (flags for flags in [read_hook_flags(pid, injector)] if flags.count), None))


@unittest.skipUnless((FAKES / "libfake_runtime.so").exists(), "the fake CUPTI is not built: it needs the headers of CUPTI 13")
class InjectedLibraryTest(unittest.TestCase):
    """The library itself, in a program whose runtime has found the driver's functions before."""

    THREADS, CALLS, FAILING_EVERY = 8, 1_000_000, 100

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="gpuperf-hooks-")))
        for library in (FAKES / "libcuda.so.1", FAKES / "libfake_runtime.so", INJECTOR):
            shutil.copy(library, self.folder)

    def start(self, **config):
        return self.enterContext(Daemon(CONFIG | {
            "libraries": {"cuda_func_sym": [f"{self.folder}/libcuda.so.1"]}, "custom_sym": {}} | config))

    def launch(self, daemon, *words, calls, **environment):
        """Runs the workload; its row once it has so many calls."""
        with subprocess.Popen([WORKLOADS / "launcher", *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              env={"LD_LIBRARY_PATH": str(self.folder), "GPUPERF_SOCKET": str(self.folder / "none"),
                                   "CUDA_INJECTION64_PATH": str(self.folder / INJECTOR.name), **environment}) as process:
            self.assertEqual(process.stdout.readline(), b"ready\n")
            daemon.wait_attached("cuLaunchKernel")
            if environment.get("GPUPERF_LAUNCH_HOOKS") != "0":
                self.flags = wait_for_hooks(process.pid, self.folder / INJECTOR.name)
            process.stdin.write(b"\n")
            process.stdin.flush()
            self.assertEqual(process.stdout.readline(), b"done\n")
            row = wait_until(f"{calls} calls", lambda: next(
                (found for found in daemon.functions("--pid", process.pid).values() if found["calls"] >= calls), None))
            process.communicate(b"\n", timeout=30)
        return row

    def test_counts_every_launch_of_eight_threads(self):
        daemon = self.start()
        calls = self.THREADS * self.CALLS
        row = self.launch(daemon, self.THREADS, self.CALLS, calls=calls)
        self.assertEqual((row["calls"], row["calls_hooked"], row["errors"], row["in_flight"], row["abandoned"]),
                         (calls, calls, calls // self.FAILING_EVERY, 0, 0))
        self.assertEqual(row["calls_past_hooks"], 0)
        self.assertNotEqual(self.flags.thread_slot, 0, "each launch has to ask the C library for its thread's counts")
        self.assertFalse(self.flags.special & NO_SLOT)

    def test_counts_where_the_c_library_has_no_room_for_threads_counts(self):
        daemon = self.start()
        row = self.launch(daemon, 2, 20_000, calls=40_000, GLIBC_TUNABLES="glibc.rtld.optional_static_tls=0")
        self.assertEqual((row["calls"], row["calls_hooked"], row["errors"]), (40_000, 40_000, 400))
        self.assertEqual(self.flags.thread_slot, 0, "else the test tests nothing")
        self.assertTrue(self.flags.special & NO_SLOT)

    def test_leaves_launches_to_probes_where_it_is_told_to(self):
        daemon = self.start()
        row = self.launch(daemon, 2, 2000, calls=4000, GPUPERF_LAUNCH_HOOKS="0")
        self.assertEqual((row["calls"], row["calls_hooked"]), (4000, 0))

    def test_the_recorder_has_every_launch_and_few_stacks(self):
        daemon = self.start(trace={"recorder": True})
        self.launch(daemon, 2, 20_000, 20, calls=40_000)
        time.sleep(1)
        row = daemon.query("trace", "freeze")
        row = row[0] if isinstance(row, list) else row
        wait_until("the capture", lambda: [one for one in daemon.query("trace", "list")
                                           if one["id"] == row["id"] and one["state"] == "stored"], 30)
        path = daemon.path / "raw"
        daemon.ctl("trace", "fetch", row["id"], "--format", "raw", "--file", path)
        launches = read_stored(path.read_bytes()).launches
        self.assertEqual(len(launches), 40_000)
        with_stack = sum(1 for launch in launches if launch.stack)
        self.assertTrue(20 < with_stack < 10_000, with_stack)


# Of the contract: the entries that are counted by hooks.
ENTRIES = re.findall(r"X\((cu\w+), \d+\)", (SOURCE / "bpf/hook_notes.h").read_text(encoding="utf-8"))


@unittest.skipUnless((FAKES / "libfake_runtime.so").exists(), "the fake CUPTI is not built: it needs the headers of CUPTI 13")
class EveryEntryTest(unittest.TestCase):
    """All entries by which work comes to a GPU, through hooks, and some past them."""

    ODD = "cuMemcpy3DPeer_ptds"  # begins otherwise in this driver, so that no hook takes its place
    COPY = "cuMemcpyDtoH_v2"

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="gpuperf-hooks-")))
        for library in (FAKES / "libcuda.so.1", INJECTOR):
            shutil.copy(library, self.folder)
        self.make_odd(self.folder / "libcuda.so.1")

    def make_odd(self, driver):
        """mov %rsp, %rbp, in its other form."""
        code = bytearray(driver.read_bytes())
        begin = read_symbols(driver, "-D")[self.ODD]
        at = code.index(b"\x48\x89\xe5", begin, begin + 8)
        code[at:at + 3] = b"\x48\x8b\xec"
        driver.write_bytes(code)

    def start(self, **config):
        self.daemon = self.enterContext(Daemon(CONFIG | {
            "cuda_func_sym": {name: {"symbol": name, "may_throw": False} for name in ENTRIES}, "custom_sym": {},
            "libraries": {"cuda_func_sym": [f"{self.folder}/libcuda.so.1"]}} | config))
        self.program = self.enterContext(subprocess.Popen(
            [WORKLOADS / "driver_calls"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={"LD_LIBRARY_PATH": str(self.folder), "GPUPERF_SOCKET": str(self.folder / "none"),
                 "CUDA_INJECTION64_PATH": str(self.folder / INJECTOR.name)}))
        self.addCleanup(self.program.stdin.close)
        self.wait_done()
        self.daemon.wait_attached(*ENTRIES)
        wait_for_hooks(self.program.pid, self.folder / INJECTOR.name)

    def begin(self, line):
        self.program.stdin.write(line + "\n")
        self.program.stdin.flush()

    def wait_done(self):
        self.assertEqual(self.program.stdout.readline(), "{}\n")

    def do(self, line):
        self.begin(line)
        self.wait_done()

    def list_slow(self):
        return self.daemon.query("slow", "list", "--pid", self.program.pid)

    def test_each_call_is_counted_once_by_a_hook_or_by_a_probe(self):
        self.start(overhead={"budget_percent": 0})
        threads, calls = 8, 200
        self.do(f"mix {threads} {calls}")

        rows = {}

        def are_all_there():
            rows.update(self.daemon.functions("--pid", self.program.pid))
            return sum(row["calls"] for row in rows.values()) >= threads * calls * len(ENTRIES)
        wait_until("all calls", are_all_there)

        self.assertEqual({name: (row["calls"], row["calls_hooked"], row["errors"], row["in_flight"], row["abandoned"])
                          for name, row in rows.items()},
                         {name: (threads * calls, 0 if name == self.ODD else threads * calls * 3 // 4,
                                 threads * calls // 10, 0, 0) for name in ENTRIES})

    def test_what_goes_past_the_hooks_is_counted_and_the_doctor_says_so(self):
        self.start(overhead={"budget_percent": 0})
        rounds = 25
        for _ in range(rounds):  # windows are of a second
            self.do("mix 1 8")
            time.sleep(0.2)

        rows = self.daemon.functions("--pid", self.program.pid)
        for name, row in rows.items():
            past = 8 * rounds if name == self.ODD else 2 * rounds
            self.assertTrue(past // 5 <= row["calls_past_hooks"] < past, (name, row["calls_past_hooks"]))
        answer = json.loads(self.daemon.ctl("doctor", "-o", "json", check=False).stdout)
        checks = [check for check in answer if "bypassed its launch hooks" in check["message"]]
        self.assertEqual(len(checks), 1)
        self.assertIn(f"process {self.program.pid} (driver_calls)", checks[0]["message"])
        self.assertIn(f"most of them {self.ODD}", checks[0]["message"])

    def test_a_slow_copy_has_its_stack_its_size_and_its_time_split(self):
        self.start(slow={"default_threshold_ms": 20, "adaptive_factor": 0})

        self.do(f"sleep {self.COPY} 60")

        (call,) = wait_until("the slow call", self.list_slow)
        self.assertEqual((call["function"], call["threshold_ns"]), (self.COPY, 20_000_000))
        self.assertEqual({argument["name"]: argument["value"] for argument in call["arguments"]}["bytes"], "4096")
        self.assertEqual([frame["symbol"] for frame in call["user_stack"]][0], "call_here")
        split = call["time_split"]
        self.assertEqual((split["blocked_on"], split["waits"][0]["syscall"]), ("sleep", "clock_nanosleep"))
        self.assertTrue(59_900_000 <= split["blocked_ns"] <= call["duration_ns"], split)
        def read_row():
            row = self.daemon.functions("--pid", self.program.pid).get(self.COPY, {})
            return tuple(row.get(key) for key in ("calls", "calls_hooked", "slow_calls"))
        wait_until("its row", lambda: read_row() == (1, 1, 1))

    def test_a_copy_that_hangs_is_reported_in_flight_and_ends_as_the_same_record(self):
        self.start(slow={"default_threshold_ms": 200, "adaptive_factor": 0})

        self.begin(f"sleep {self.COPY} 4000")
        (hung,) = wait_until("the call in flight", self.list_slow)
        self.assertEqual((hung["function"], hung["in_flight"], hung["state"]), (self.COPY, True, "blocked"))
        self.wait_done()
        (ended,) = wait_until("its end", lambda: [call for call in self.list_slow() if not call["in_flight"]])
        self.assertEqual(ended["id"], hung["id"])
        self.assertGreaterEqual(ended["duration_ns"], 4_000_000_000)

    def test_a_capture_has_every_copy_and_memset_with_its_stack(self):
        self.start()
        self.capture(2)  # until the rules of its code are known
        launches = self.capture(8)

        plain_names = (re.sub("(_v2|_ptds|_ptsz)+$", "", name) for name in ENTRIES)
        self.assertEqual(collections.Counter(launch.name for launch in launches), collections.Counter(8 * list(plain_names)))
        self.assertEqual({launch.stack[-1] if launch.stack else None for launch in launches}, {"call_here"})

    def capture(self, calls):
        row = self.daemon.query("trace", "start", "--pid", self.program.pid)
        self.do(f"mix 1 {calls}")
        self.daemon.ctl("trace", "stop", row["id"])
        wait_until("the capture", lambda: [one for one in self.daemon.query("trace", "list")
                                           if one["id"] == row["id"] and one["state"] == "stored"], 30)
        path = self.daemon.path / "raw"
        self.daemon.ctl("trace", "fetch", row["id"], "--format", "raw", "--file", path)
        return read_stored(path.read_bytes()).launches


if __name__ == "__main__":
    unittest.main(verbosity=2)
