"""What the attacks share: a daemon, an honest process beside the attack, and what the two of them see of it.

An attack is processes of nobody's. They run at the lowest priority: what is tested is what they make the
daemon do, not how the kernel shares out its CPUs.
"""

import http.client
import json
import os
import pathlib
import signal
import statistics
import subprocess
import tempfile
import threading
import time
import unittest

from gpuperf_system import GPUPERFCTL, NOBODY, WORKLOADS, Daemon, require_root, run_ctl, wait_until

CALL_MS = 10
MAX_CALL_DELAY_S = 1.0  # p99
MAX_SCRAPE_S = 0.1
MAX_CONTROL_S = 0.2
MAX_STOP_S = 2.0
MAX_START_S = 3.0
MEMORY_CEILING_MIB = 512  # the default of the configuration
# A tenth of an idle daemon is less than what the heap of a run differs by from that of the next.
MEMORY_SLACK_MIB = 8
# Of the honest process alone, before memory is compared with what was there before: by then the daemon remembers as many slow
# calls as it ever will, and has read all that it names them by.
WARM_UP_S = 5.0
CONFIG = {"custom_sym": {"slow_sleep": {"symbol": "slow_sleep", "slow_threshold_ms": 5}},
          "libraries": {"custom_sym": ["slow_calls"]},
          "slow": {"recent": 50}}


def as_nobody(*command, **options):
    """Popen of a program without rights, at the lowest priority, in a session of its own."""
    return subprocess.Popen([str(word) for word in command], user=NOBODY, group=NOBODY, extra_groups=[],
                            preexec_fn=lambda: os.nice(19), start_new_session=True, **options)


def read_resident_mib(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0  # a zombie


def take_p99(values):
    return sorted(values)[min(len(values) - 1, len(values) * 99 // 100)] if values else float("inf")


class Honest:
    """A process whose calls are slow, a scraper and root, each at work until stopped."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.call_delays_s = []
        self.scrapes_s = []
        self.controls_s = []
        self.resident_mib = []
        self.failures = []
        self.is_over = threading.Event()
        self.workload = subprocess.Popen(
            [WORKLOADS / "slow_calls", "--requests", "1000000", "--duration-ms", str(CALL_MS)],
            stdout=subprocess.DEVNULL)
        self.watcher = subprocess.Popen(
            [GPUPERFCTL, "--address", f"unix:{daemon.socket}", "slow", "watch", "--pid",
             str(self.workload.pid), "-o", "json"], stdout=subprocess.PIPE, text=True)
        daemon.wait_attached("slow_sleep")
        wait_until("the first slow call", lambda: daemon.query("slow", "list"))
        self.control()  # waits for the calibration at the daemon's start
        self.threads = [threading.Thread(target=work) for work in (
            self.watch, lambda: self.repeat(self.scrape, self.scrapes_s),
            lambda: self.repeat(self.control, self.controls_s), self.look_at_memory)]
        for thread in self.threads:
            thread.start()

    def watch(self):
        for line in self.watcher.stdout:
            call = json.loads(line)
            ended_s = (call["start_unix_ns"] + call["duration_ns"]) / 1e9
            self.call_delays_s.append(time.time() - ended_s)

    def repeat(self, work, durations_s):
        while not self.is_over.wait(0.1):
            begin = time.monotonic()
            try:
                work()
            except (OSError, http.client.HTTPException, AssertionError) as error:
                self.failures.append(f"{work.__name__}: {error!r}")
            durations_s.append(time.monotonic() - begin)

    def scrape(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=10)
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        if answer.status != 200 or b"gpuperf_function_calls_total" not in text:
            raise AssertionError(f"status {answer.status}, {len(text)} bytes")

    def control(self):
        run_ctl("--address", f"unix:{self.daemon.socket}", "probes", "threshold", "slow_sleep", "5ms")

    def look_at_memory(self):
        while not self.is_over.wait(0.05):
            self.resident_mib.append(read_resident_mib(self.daemon.process.pid))

    def stop(self):
        self.is_over.set()
        for process in (self.workload, self.watcher):
            process.kill()
            process.wait()
        for thread in self.threads:
            thread.join()
        self.watcher.stdout.close()


class AttackTest(unittest.TestCase):
    """A daemon and an honest process; `attack()` of a test does the rest."""
    CONFIG = {}

    def setUp(self):
        require_root()
        self.daemon = Daemon(CONFIG | self.CONFIG)
        self.daemon.start()
        self.addCleanup(lambda: self.daemon.__exit__(None))
        self.daemon.path.chmod(0o711)  # nobody may reach what is open to him in it
        (self.daemon.path / "run").chmod(0o711)
        self.attackers = []
        self.addCleanup(self.end_attack)

    def make_open_folder(self):
        """A folder that every user can enter, removed at the end."""
        holder = tempfile.TemporaryDirectory(prefix="gpuperf-attack-", dir="/var/tmp")
        self.addCleanup(holder.cleanup)
        folder = pathlib.Path(holder.name)
        folder.chmod(0o755)
        return folder

    def add_attacker(self, process):
        self.attackers.append(process)
        return process

    def end_attack(self):
        for process in self.attackers:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        self.attackers = []

    def check_attack(self, attack, seconds=5.0, ceiling_mib=MEMORY_CEILING_MIB, warm_up_s=1.0):
        """Runs `attack(daemon)`, which adds attackers and returns, lets them go on for so long, and compares what the
        honest saw meanwhile with what is promised. Returns the daemon's memory before, in MiB: for
        check_memory_comes_back() give it WARM_UP_S."""
        honest = Honest(self.daemon)
        self.addCleanup(honest.stop)
        time.sleep(warm_up_s)
        before_mib = statistics.median(honest.resident_mib[-10:])
        calls_before = len(honest.call_delays_s)
        for seen in (honest.scrapes_s, honest.controls_s, honest.failures):
            seen.clear()

        attack(self.daemon)
        time.sleep(seconds)

        seen = {"slow calls": len(honest.call_delays_s) - calls_before, "scrapes": len(honest.scrapes_s),
                "call delay p99 s": take_p99(honest.call_delays_s[calls_before:]),
                "scrape p99 s": take_p99(honest.scrapes_s), "control p99 s": take_p99(honest.controls_s),
                "resident MiB": max(honest.resident_mib), "resident before MiB": before_mib,
                "failures": honest.failures[:3]}
        print(json.dumps(seen))
        self.assertGreater(seen["slow calls"], 10, seen)
        self.assertGreater(seen["scrapes"], 3 * seconds, seen)  # one that hangs takes no time yet
        self.assertLess(seen["call delay p99 s"], MAX_CALL_DELAY_S, seen)
        self.assertLess(seen["scrape p99 s"], MAX_SCRAPE_S, seen)
        self.assertLess(seen["control p99 s"], MAX_CONTROL_S, seen)
        self.assertLess(seen["resident MiB"], ceiling_mib, seen)
        self.assertEqual(honest.failures, [])
        return before_mib

    def check_memory_comes_back(self, before_mib, seconds=60):
        """Once the attack is over."""
        self.end_attack()
        seen_mib = []

        def is_back():
            seen_mib.append(read_resident_mib(self.daemon.process.pid))
            return seen_mib[-1] <= max(before_mib * 1.1, before_mib + MEMORY_SLACK_MIB)
        try:
            wait_until(f"resident memory is back at {before_mib:.1f} MiB and {MEMORY_SLACK_MIB} or a tenth", is_back, seconds)
        finally:
            print(json.dumps({"resident MiB left": seen_mib[-1], "before": before_mib}))

    def check_ends(self):
        """SIGTERM while the attack goes on; then the next daemon, in the same place."""
        begin = time.monotonic()
        self.daemon.stop()
        stopped_s = time.monotonic() - begin
        begin = time.monotonic()
        self.daemon.start()
        started_s = time.monotonic() - begin
        print(json.dumps({"stop s": stopped_s, "start s": started_s}))
        self.assertLess(stopped_s, MAX_STOP_S)
        self.assertLess(started_s, MAX_START_S)
