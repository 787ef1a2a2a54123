#!/usr/bin/env python3
"""Why a call was slow: causes a workload plants and measures itself, against what the records say."""

import contextlib
import json
import pathlib
import signal
import subprocess
import time
import unittest

from gpuperf_system import (GPUPERFCTL, LONG, WORKLOADS, Daemon, finish_workload, require_root,
                            start_workload, wait_until)

RUNS = 100 if LONG else 5
ALLOWED_OFF = 4 if LONG else 2
CAUSES = ("spin", "sleep", "futex", "faults", "runnable", "throttled", "pipe", "nested", "child")
PARTS = ("on_cpu_user_ns", "on_cpu_kernel_ns", "on_cpu_fault_ns", "runnable_ns", "throttled_ns",
         "blocked_ns")


def make_config(threshold_ms=5, **slow):
    return {"custom_sym": {f"cause_{cause}": {"symbol": f"cause_{cause}", "may_throw": False}
                           for cause in CAUSES},
            "libraries": {"custom_sym": [str(WORKLOADS / "known_causes")]},
            "slow": {"default_threshold_ms": threshold_ms, "adaptive_factor": 0,
                     "recent": 5000} | slow}


def on_cpu_ns(split):
    return sum(split[part] for part in PARTS if part.startswith("on_cpu"))


@contextlib.contextmanager
def throttled_cgroup(quota_us, period_us=100_000):
    """A cgroup with a CPU quota: its folder, and the file with its account."""
    v1 = pathlib.Path("/sys/fs/cgroup/cpu")
    root = v1 if (v1 / "cpu.cfs_quota_us").parent.is_dir() and v1.is_mount() else \
        pathlib.Path("/sys/fs/cgroup")
    folder = root / "gpuperf-why-slow"
    try:
        folder.mkdir(exist_ok=True)
        if root == v1:
            (folder / "cpu.cfs_period_us").write_text(str(period_us))
            (folder / "cpu.cfs_quota_us").write_text(str(quota_us))
        else:
            (root / "cgroup.subtree_control").write_text("+cpu")
            (folder / "cpu.max").write_text(f"{quota_us} {period_us}")
    except OSError as error:
        raise unittest.SkipTest(f"no cgroup with a CPU quota can be made here: {error}") from error
    try:
        yield folder
    finally:
        folder.rmdir()


def setUpModule():
    require_root()


class WhySlowTest(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(make_config())
        cls.daemon.start()
        cls.addClassCleanup(cls.daemon.stop)

    def run_cause(self, cause, *arguments, cgroup=None):
        """RUNS pairs of the workload's account of a call and the record of that call."""
        pairs = []
        for _ in range(8):
            pairs += self.run_once(cause, *arguments, cgroup=cgroup)
            if len(pairs) >= RUNS:
                return pairs
        raise unittest.SkipTest(
            f"{cause}: this machine is too busy to measure: {len(pairs)} of {RUNS} accounts are sound")

    def run_once(self, cause, *arguments, cgroup=None):
        daemon = self.daemon
        go = daemon.path / f"go-{cause}-{time.monotonic_ns()}"
        process = start_workload("known_causes", "--cause", cause, "--runs", RUNS, *arguments,
                                 "--wait-for-file", go)
        if cgroup:
            (cgroup / "cgroup.procs").write_text(str(process.pid))
        daemon.wait_attached(f"cause_{cause}")
        go.touch()
        truths = finish_workload(process)

        def find():
            calls = [call for call in daemon.query("slow", "list", "--pid", process.pid,
                                                   "--function", f"cause_{cause}", "--limit", 1000)
                     if not call["in_flight"]]
            return calls if len(calls) == len(truths) else None
        calls = wait_until(f"{len(truths)} records of cause_{cause}", find)
        calls.sort(key=lambda call: call["start_mono_ns"])
        # Where something came between the workload's accounts and the call, they are not the call's.
        return [(truth, call) for truth, call in zip(truths, calls, strict=True)
                if truth["duration_ns"] - call["duration_ns"] < 500_000
                and truth["reading_ns"] < 1_000_000 and self.is_sound(cause, truth)]

    @staticmethod
    def is_sound(cause, truth):
        """Whether the accounts agree among themselves: what the hypervisor takes away is in none."""
        if cause not in ("spin", "faults", "runnable"):
            return True
        lost_ns = truth["duration_ns"] - truth["run_ns"] - truth["runnable_ns"]
        return abs(lost_ns) < max(500_000, 0.02 * truth["duration_ns"])

    def setUp(self):
        self.off = []

    def tearDown(self):
        """The hypervisor may take a CPU away from the guest, whose kernel then books some of that as
        waiting and some as nothing: a few calls in a hundred have no truth to compare with."""
        for message in self.off:
            print(message)
        self.assertLessEqual(len(self.off), ALLOWED_OFF, self.off)

    def note_near(self, seen_ns, truth_ns, what, switches=0):
        """Within 5 % or 1 ms; True if so. The scheduler reads its clock once as a switch begins, the
        hook runs within it: of each switch some 13 us are waiting for the one and running for the other."""
        near = abs(seen_ns - truth_ns) <= max(0.05 * truth_ns, 1_000_000) + 20_000 * switches
        if not near:
            self.off.append(f"{what}: {seen_ns} ns, the workload measured {truth_ns} ns")
        return near

    def check_accounts(self, truth, call, throttled=False):
        """All that is exact: the time on the CPU, waiting for one, and blocked. Throttled, the thread is never
        blocked, and what its own accounts lack, the hypervisor took away: it may be booked as either."""
        split = call["time_split"]
        parts_ns = sum(split[part] for part in PARTS)
        self.assertLessEqual(abs(parts_ns - call["duration_ns"]),
                             max(0.01 * call["duration_ns"], 20_000), split)
        off_ns = truth["duration_ns"] - truth["run_ns"]
        waiting_ns = truth["runnable_ns"]
        if throttled:
            waiting_ns = min(max(truth["duration_ns"] - on_cpu_ns(split), waiting_ns), off_ns)
        blocked_ns = off_ns - waiting_ns if split["blocked_ns"] > 0 else 0
        return self.note_near(split["runnable_ns"] + split["throttled_ns"], waiting_ns,
                              "waiting for a CPU", split["preemptions"]) and \
            self.note_near(split["blocked_ns"], blocked_ns, "blocked") and \
            self.note_near(on_cpu_ns(split), truth["duration_ns"] - waiting_ns - blocked_ns,
                           "on the CPU", split["preemptions"])

    def check_explanations(self, pairs, words):
        """What dominated is what was planted, as far as this machine's other work let it."""
        for truth, call in pairs:
            self.assertRegex(call["explanation"], words, json.dumps([truth, call], indent=1))

    def test_spinning_is_time_in_user_space(self):
        for truth, call in self.run_cause("spin", "--ms", 50):
            split = call["time_split"]
            _ = self.check_accounts(truth, call) and self.note_near(
                split["on_cpu_user_ns"], truth["duration_ns"] - truth["runnable_ns"], "user space")
            # Another program may have taken more than half of the CPU meanwhile.
            if truth["run_ns"] > 0.6 * truth["duration_ns"]:
                self.assertRegex(call["explanation"], "computation in user space")

    def test_sleeping_is_said_to_be_asked_for(self):
        pairs = self.run_cause("sleep", "--ms", 20)
        for truth, call in pairs:
            self.check_accounts(truth, call)
            split = call["time_split"]
            self.assertEqual((split["blocked_on"], split["waits"][0]["syscall"]),
                             ("sleep", "clock_nanosleep"))
            self.assertIsNone(split["waker"], "a timer woke it, no thread")
        self.check_explanations(pairs, "^Slept .* in clock_nanosleep")

    def test_a_contended_mutex_names_the_thread_that_held_it(self):
        pairs = self.run_cause("futex", "--ms", 20)
        for truth, call in pairs:
            self.check_accounts(truth, call)
            split = call["time_split"]
            self.assertEqual((split["blocked_on"], split["waits"][0]["syscall"]),
                             ("futex", "futex"))
            self.assertEqual(split["waker"]["tid"], truth["waker_tid"])
            self.assertEqual(split["waker"]["comm"], "known_causes")
            self.assertIn("run_futex", " ".join(frame["symbol"] for frame in
                                                split["waker"]["stack"]))
            self.assertIn("futex_wait", [frame["symbol"] for frame in
                                         split["waits"][0]["kernel_stack"]])
        self.check_explanations(pairs, "^Blocked .* on a futex, woken by thread")

    def check_fault_explanations(self, pairs):
        for truth, call in pairs:
            self.assertLess(abs(call["time_split"]["minor_faults"] - truth["minor_faults"]), 10)
            if truth["run_ns"] > 0.6 * truth["duration_ns"] and truth["system_ns"] > 0.8 * truth["run_ns"]:
                self.assertRegex(call["explanation"], r"went into \d+ page faults")

    @staticmethod
    def get_least_fault_ns(truth, share):
        """So much of a call's time was in page faults at least: the share of it, or what the kernel itself books. That is less
        where a hypervisor enters and leaves the guest's kernel: no tick comes while it does."""
        return min(share * (truth["duration_ns"] - truth["runnable_ns"]), 0.8 * truth["system_ns"])

    # The split of the time on the CPU comes from ticks, 250 a second here: that many milliseconds.
    def test_page_faults_are_told_from_user_space(self):
        pairs = self.run_cause("faults", "--mib", 1024, "--huge")
        for truth, call in pairs:
            # The same loop without faults takes longer in user space: the kernel has not just cleared
            # the memory into the caches. The truth lies between none and that.
            most_ns = truth["duration_ns"] - truth["runnable_ns"]
            seen_ns = call["time_split"]["on_cpu_fault_ns"]
            least_ns = self.get_least_fault_ns(truth, 1 - truth["user_ns"] / most_ns)
            nearest_ns = min(max(seen_ns, least_ns), most_ns)
            _ = self.check_accounts(truth, call) and self.note_near(
                seen_ns, nearest_ns, f"page faults by {call['time_split']['cpu_samples']} samples")
        self.check_fault_explanations(pairs)

    # A tick that falls into the entry or exit of a fault, where interrupts are off, comes in user space:
    # some 3 % of a storm of the smallest faults, beside the ticks' own scatter.
    def test_small_page_faults_too_but_less_exactly(self):
        pairs = self.run_cause("faults", "--mib", 512)
        for truth, call in pairs:
            split = call["time_split"]
            self.assertGreater(split["on_cpu_fault_ns"], self.get_least_fault_ns(truth, 0.75))
        self.check_fault_explanations(pairs)

    def test_two_threads_on_one_cpu_wait_for_it(self):
        pairs = self.run_cause("runnable", "--ms", 50)
        for truth, call in pairs:
            self.check_accounts(truth, call)
            self.assertGreater(call["time_split"]["preemptions"], 0)
            if truth["runnable_ns"] > 0.55 * truth["duration_ns"]:
                self.assertRegex(call["explanation"], "had no CPU")

    def test_a_cgroups_quota_is_told_from_a_busy_cpu(self):
        with throttled_cgroup(quota_us=10_000) as cgroup:
            pairs = self.run_cause("throttled", "--ms", 20, "--throttle-stat", cgroup / "cpu.stat",
                                   cgroup=cgroup)
            for truth, call in pairs:
                _ = self.check_accounts(truth, call, throttled=True) and self.note_near(
                    call["time_split"]["throttled_ns"], truth["throttled_ns"], "throttled")
                if truth["throttled_ns"] > 0.55 * truth["duration_ns"]:
                    self.assertRegex(call["explanation"], "cgroup had used up its CPU quota")

    def test_a_slow_pipe_names_its_writer(self):
        pairs = self.run_cause("pipe", "--ms", 20)
        for truth, call in pairs:
            self.check_accounts(truth, call)
        # Where the reader had no CPU until its writer was done, it did not wait.
        waited = [(truth, call) for truth, call in pairs if call["time_split"]["waits"]]
        self.assertGreater(len(waited), len(pairs) / 2)
        for truth, call in waited:
            wait = call["time_split"]["waits"][0]
            self.assertEqual((wait["kind"], wait["syscall"], wait["file_kind"]),
                             ("io", "read", "pipe"))
            self.assertEqual(wait["waker"]["tid"], truth["waker_tid"])
        self.check_explanations(waited, "^Blocked .* in read of a pipe, woken by thread")

    def test_a_nested_slow_call_is_the_explanation(self):
        pairs = self.run_cause("nested", "--ms", 20)
        for truth, call in pairs:
            (child,) = call["children"]
            self.assertEqual((child["function"], child["calls"]),
                             ("cause_child", truth["child_calls"]))
            _ = self.check_accounts(truth, call) and self.note_near(
                child["total_ns"], truth["child_ns"], "nested calls")
        self.check_explanations(pairs, "went into 2 nested calls of cause_child")
        children = self.daemon.query("slow", "list", "--pid", pairs[0][0]["pid"], "--function",
                                     "cause_child", "--limit", 1000)
        self.assertEqual([child["outer"] for child in children], [["cause_nested"]] * 2 * RUNS)


class InFlightTest(unittest.TestCase):
    def test_a_hung_call_is_reported_while_it_hangs_and_ends_as_the_same_record(self):
        hang_ms = 30_000 if LONG else 5_000
        with Daemon(make_config(threshold_ms=200)) as daemon:
            watcher = subprocess.Popen(
                [GPUPERFCTL, "--address", f"unix:{daemon.socket}", "slow", "watch", "-o", "json"],
                stdout=subprocess.PIPE, text=True)
            self.addCleanup(watcher.kill)
            go = daemon.path / "go"
            process = start_workload("known_causes", "--cause", "pipe", "--ms", hang_ms,
                                     "--wait-for-file", go)
            daemon.wait_attached("cause_pipe")
            go.touch()
            start = time.monotonic()

            def list_calls():
                return daemon.query("slow", "list", "--function", "cause_pipe")
            (hung,) = wait_until("the call in flight", list_calls)
            self.assertLess(time.monotonic() - start, 0.2 + 2.0)
            self.assertEqual((hung["in_flight"], hung["state"], hung["return_value"]),
                             (True, "blocked", ""))
            wait = hung["time_split"]["waits"][0]
            self.assertEqual((wait["syscall"], wait["file_kind"]), ("read", "pipe"))
            self.assertIn("pipe_read", " ".join(frame["symbol"] for frame in wait["kernel_stack"]))
            self.assertIn("run_pipe", " ".join(frame["symbol"] for frame in hung["user_stack"]))
            self.assertRegex(hung["explanation"], "^Still in flight. Blocked .* in read of a pipe")

            time.sleep(2.2)
            (later,) = list_calls()
            self.assertEqual(later["id"], hung["id"])
            self.assertGreater(later["duration_ns"], hung["duration_ns"] + 1_000_000_000)

            (truth,) = finish_workload(process)
            ended = wait_until("its end", lambda: [call for call in list_calls()
                                                   if not call["in_flight"]])
            self.assertEqual([(call["id"], call["state"]) for call in ended], [(hung["id"], "")])
            self.assertLess(abs(ended[0]["duration_ns"] - truth["duration_ns"]), 50_000_000)
            watcher.send_signal(signal.SIGINT)
            told = [json.loads(line) for line in watcher.communicate()[0].splitlines()]
            self.assertEqual([(call["id"], call["in_flight"]) for call in told],
                             [(hung["id"], True), (hung["id"], False)])

    def test_a_call_its_thread_never_returns_from_is_gone(self):
        with Daemon(make_config(threshold_ms=200)) as daemon:
            go = daemon.path / "go"
            process = start_workload("known_causes", "--cause", "pipe", "--ms", 600_000,
                                     "--wait-for-file", go)
            daemon.wait_attached("cause_pipe")
            go.touch()
            wait_until("the call in flight",
                       lambda: daemon.query("slow", "list", "--function", "cause_pipe"))
            process.kill()
            process.communicate()

            (call,) = wait_until(
                "its end", lambda: [call for call in
                                    daemon.query("slow", "list", "--function", "cause_pipe")
                                    if not call["in_flight"]], seconds=20)
            self.assertEqual(call["state"], "gone")


if __name__ == "__main__":
    unittest.main(verbosity=2)
