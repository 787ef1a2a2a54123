"""What the attacks share: a daemon, an honest process beside the attack, and what the two of them see of it.

An attack is processes of nobody's. They run at the lowest priority: what is tested is what they make the
daemon do, not how the kernel shares out its CPUs.
"""

import collections
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

from gpuperf_system import LONG, NOBODY, PATIENCE, Daemon, require_root, wait_until

HONEST = pathlib.Path(__file__).with_name("honest.py")
# What is promised. Without --long, PATIENCE times as much is allowed: what these tests were written against took for ever.
MAX_CALL_DELAY_S = 1.0 * PATIENCE  # p99
MAX_SCRAPE_S = 0.1 * PATIENCE
MAX_CONTROL_S = 0.2 * PATIENCE
MAX_STOP_S = 2.0 * PATIENCE
MAX_KILL_S = 0.5 * PATIENCE
MAX_START_S = 3.0 * PATIENCE
MAX_MEMORY_S = 60.0 if LONG else 24.0  # until what an attack took has come back; wait_until() is as patient
MEMORY_CEILING_MIB = 512  # the default of the configuration
# A tenth of an idle daemon is less than what the heap of a run differs by from that of the next.
MEMORY_SLACK_MIB = 8 if LONG else 16
# Of the honest process alone, before memory is compared with what was there before: by then the daemon remembers as many slow
# calls as it ever will, and has read all that it names them by.
WARM_UP_S = 5.0
CONFIG = {"custom_sym": {"slow_sleep": {"symbol": "slow_sleep", "slow_threshold_ms": 5}},
          "libraries": {"custom_sym": ["slow_calls"]},
          "slow": {"recent": 50}}


def put_last(pid):
    """Gives the process, which leads a session, and all it starts the lowest priority. Where sessions share out the CPUs among
    them (kernel.sched_autogroup_enabled), a process's own counts only within its session: sched(7), "The autogroup feature"."""
    try:
        os.setpriority(os.PRIO_PROCESS, pid, 19)
        pathlib.Path(f"/proc/{pid}/autogroup").write_text("19", encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        pass  # a kernel without the feature, or a program that has ended


def as_nobody(*command, **options):
    """Popen of a program without rights, at the lowest priority, in a session of its own."""
    process = subprocess.Popen([str(word) for word in command], user=NOBODY, group=NOBODY, extra_groups=[],
                               start_new_session=True, **options)
    put_last(process.pid)
    return process


def read_resident_mib(pid):
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return 0.0  # it has ended
    for line in status.splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0  # a zombie


def take_p99(values):
    return sorted(values)[min(len(values) - 1, len(values) * 99 // 100)] if values else float("inf")


class Honest:
    """A process whose calls are slow, a scraper and root, each at work until stopped: honest.py."""

    def __init__(self, daemon):
        self.seen = collections.defaultdict(list)  # by kind: (when by CLOCK_MONOTONIC in s, value)
        self.failures = []
        self.process = subprocess.Popen(
            ["/usr/bin/python3", HONEST, daemon.socket, str(daemon.port), str(daemon.process.pid)],
            stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()
        daemon.wait_attached("slow_sleep")
        wait_until("the honest are at work", lambda: self.seen["begun"] and self.seen["call"], 30)

    def read(self):
        for line in self.process.stdout:
            row = json.loads(line)
            self.seen[row["kind"]].append((row["at"], row["value"]))
            if row["kind"] == "failure":
                self.failures.append((row["at"], row["why"]))

    def list_since(self, kind, begin_s):
        return [value for at_s, value in self.seen[kind] if at_s >= begin_s]

    def stop(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()


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

    def check_attack(self, attack, seconds=5.0, ceiling_mib=MEMORY_CEILING_MIB):
        """Runs `attack(daemon)`, which adds attackers and returns, lets them go on for so long, and compares what the
        honest saw meanwhile with what is promised. What comes next: check_aftermath()."""
        honest = Honest(self.daemon)
        self.addCleanup(honest.stop)
        time.sleep(WARM_UP_S)
        self.before_mib = statistics.median(honest.list_since("resident", time.monotonic() - 0.5))

        begin_s = time.monotonic()
        attack(self.daemon)
        time.sleep(seconds)
        # How late each came is judged below. A scrape that hangs takes no time yet.
        wait_until("slow calls and scrapes go on", lambda: len(honest.list_since("call", begin_s)) > 10
                   and len(honest.list_since("scrape", begin_s)) > 3 * seconds / PATIENCE)

        calls, scrapes, controls, resident, failures = (
            honest.list_since(kind, begin_s) for kind in ("call", "scrape", "control", "resident", "failure"))
        seen = {"slow calls": len(calls), "scrapes": len(scrapes), "call delay p99 s": take_p99(calls),
                "scrape p99 s": take_p99(scrapes), "control p99 s": take_p99(controls),
                "resident MiB": max(resident), "resident before MiB": self.before_mib, "failures": honest.failures[-3:]}
        print(json.dumps(seen))
        self.assertLess(seen["call delay p99 s"], MAX_CALL_DELAY_S, seen)
        self.assertLess(seen["scrape p99 s"], MAX_SCRAPE_S, seen)
        self.assertLess(seen["control p99 s"], MAX_CONTROL_S, seen)
        self.assertLess(seen["resident MiB"], ceiling_mib, seen)
        self.assertEqual(failures, [], seen)

    def check_aftermath(self, attack):
        """After check_attack(), once the test has seen what it wants of this daemon: the attack ends, and what it took comes
        back; then it goes on, and the daemon ends as it is told to, and another starts in its place."""
        self.check_memory_comes_back()
        attack(self.daemon)
        self.check_ends(signal.SIGTERM, MAX_STOP_S)
        self.check_ends(signal.SIGKILL, MAX_KILL_S)

    def check_memory_comes_back(self):
        self.end_attack()
        seen_mib = []

        def is_back():
            seen_mib.append(read_resident_mib(self.daemon.process.pid))
            return seen_mib[-1] <= max(self.before_mib * 1.1, self.before_mib + MEMORY_SLACK_MIB)
        try:
            wait_until(f"resident memory is back at {self.before_mib:.1f} MiB and {MEMORY_SLACK_MIB} or a tenth", is_back,
                       MAX_MEMORY_S)
        finally:
            print(json.dumps({"resident MiB left": seen_mib[-1], "before": self.before_mib}))

    def check_ends(self, how, limit_s):
        begin = time.monotonic()
        self.daemon.stop(how)
        stopped_s = time.monotonic() - begin
        begin = time.monotonic()
        self.daemon.start()
        started_s = time.monotonic() - begin
        print(json.dumps({"by": how.name, "stop s": stopped_s, "start s": started_s}))
        self.assertLess(stopped_s, limit_s)
        self.assertLess(started_s, MAX_START_S)
