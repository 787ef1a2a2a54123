"""What the system tests share: a daemon of their own, the CLI, workloads, and what is left in the kernel."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

BUILD = pathlib.Path(os.environ.get("GPUPERF_BUILD", "build")).resolve()
SOURCE = pathlib.Path(__file__).resolve().parents[2]
GPUPERFD = pathlib.Path(os.environ.get("GPUPERF_DAEMON", BUILD / "daemon/gpuperfd")).resolve()  # another build's
GPUPERFCTL = BUILD / "client/gpuperfctl"
WORKLOADS = BUILD / "tests/workloads"
LONG = bool(os.environ.get("GPUPERF_LONG_TESTS"))  # tests/run.sh --long
# How many times as long as on a machine with nothing else to do may something take.
PATIENCE = 1 if LONG else 5
POLL_S = 0.02
# The library of count_calls, for probes of its functions in section custom_sym.
COUNT_LIBRARY = {"custom_sym": [str(WORKLOADS / "libcount_target.so")]}
NOBODY = 65534
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")


def require_root():
    if os.geteuid() != 0:
        raise unittest.SkipTest("needs root: the daemon loads BPF programs")


def wait_until(what, condition, seconds=10.0):
    """Polls `condition` and returns its first true answer; fails naming `what` when time is up: after `seconds` on a machine
    with nothing else to do (PATIENCE)."""
    seconds *= PATIENCE
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(POLL_S)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Daemon:
    """gpuperfd with its own directory, socket and port; a context manager that stops it."""
    CTL_OPTIONS = ()  # of every gpuperfctl

    def __init__(self, config, *arguments, prefix=()):
        self.folder = tempfile.TemporaryDirectory(prefix="gpuperf-test-")
        self.path = pathlib.Path(self.folder.name)
        self.socket = self.path / "api.sock"
        self.port = free_port()
        settings = {"grpc": {"listen": f"unix:{self.socket}"},
                    "metrics": {"listen": f"127.0.0.1:{self.port}"},
                    "stats": {"interval_ms": 200},
                    "storage": {"path": str(self.path / "store")},
                    # On a busy machine a call that lost its CPU is unusual by its function's p99.
                    "slow": {"adaptive_factor": 0},
                    # Tests call and launch in tight loops.
                    "overhead": {"budget_percent": 0}}
        for section, values in config.items():
            settings[section] = {**settings.get(section, {}), **values} \
                if isinstance(values, dict) else values
        self.settings = settings
        self.config = self.path / "config.json"
        self.config.write_text(json.dumps(settings), encoding="utf-8")
        self.command = [*prefix, GPUPERFD, "--config", self.config, "--runtime-dir",
                        self.path / "run", *arguments]
        self.log_path = self.path / "log"
        self.log_begin = 0  # of this start's part of the log
        self.process = None

    def start(self, seconds=30.0):
        self.log_begin = len(self.log()) if self.log_path.exists() else 0
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(self.command, stderr=log, stdout=log)
        self.wait_for_log("gpuperfd ready", seconds)
        return self

    def log(self):
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def wait_for_log(self, text, seconds=30.0):
        def seen():
            log = self.log()[self.log_begin:]
            if self.process.poll() is not None and text not in log:
                raise AssertionError(f"gpuperfd ended with {self.process.returncode}:\n{log}")
            return text in log
        wait_until(f"{text!r} in the log:\n{self.log()}", seen, seconds)

    def stop(self, how=signal.SIGTERM):
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(timeout=30)
        return self.process.returncode

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, *_):
        try:
            if kind is not None:
                print(self.log()[-4000:], file=sys.stderr)
            self.stop()
        finally:
            self.folder.cleanup()

    def ctl(self, *arguments, check=True):
        return run_ctl("--address", f"unix:{self.socket}", *self.CTL_OPTIONS, *arguments, check=check)

    def ctl_words(self, *arguments):
        """Of a gpuperfctl that the test starts itself."""
        return [str(word) for word in (GPUPERFCTL, "--address", f"unix:{self.socket}", *self.CTL_OPTIONS, *arguments)]

    def query(self, *arguments):
        return json.loads(self.ctl(*arguments, "-o", "json").stdout)

    def functions(self, *arguments):
        """Statistics by function name."""
        return {row["function"]: row for row in self.query("functions", *arguments)}

    def drops(self):
        """What was dropped, by reason. Not what kernels before 7.0 have no memory for: a thread while another on its CPU,
        preempted, is being given its own."""
        return {drop["reason"]: int(drop["count"]) for drop in self.query("status")["drops"]
                if drop["reason"] != "thread_state"}

    def wait_for_counts(self, pid, expected, seconds=10.0):
        """Statistics of one process by function, once they show the calls expected and none of
        them in flight, or the last seen."""
        seen = {}

        def match():
            seen.clear()
            seen.update(self.functions("--pid", pid))
            # The daemon may have read the counts during the last call: that one is in flight then.
            return ({name: row["calls"] for name, row in seen.items()} == expected
                    and not any(row["in_flight"] for row in seen.values()))
        try:
            wait_until("the expected counts", match, seconds)
        except AssertionError:
            pass  # the caller compares, and shows both sides
        return seen

    def wait_for_probe(self, function, state="attached", library=""):
        """The function's row in that state and in a library whose path holds `library`."""
        def find():
            return [row for row in self.query("probes") if row["function"] == function
                    and row["state"] == state and library in row["library"]]
        return wait_until(f"{function} {state} in {library or 'any library'}", find)[0]

    def attached(self, *functions):
        states = {row["function"]: row["state"] for row in self.query("probes")}
        return all(states.get(name) in ("attached", "entry_only") for name in functions)

    def wait_attached(self, *functions, seconds=10.0):
        try:
            wait_until(f"{functions} attached", lambda: self.attached(*functions), seconds)
        except AssertionError as late:
            rows = [(row["function"], row["state"], row["library"], row["reason"]) for row in self.query("probes")]
            raise AssertionError(f"{late}; instead: {rows}") from None


class SharedDaemonTest(unittest.TestCase):
    """Tests of one daemon with one configuration, neither of which they change."""
    CONFIG = {}

    @classmethod
    def setUpClass(cls):
        cls.daemon = cls.enterClassContext(Daemon(cls.CONFIG))


def find_cgroup_root():
    """Where the unified hierarchy of control groups can be written to."""
    mounts = [line.split() for line in pathlib.Path("/proc/self/mounts").read_text().splitlines()]
    for mount in mounts:
        if mount[2] == "cgroup2" and os.access(pathlib.Path(mount[1]) / "cgroup.procs", os.W_OK):
            return pathlib.Path(mount[1])
    raise unittest.SkipTest("no writable cgroup2 mount: containers cannot be told apart here")


class Cgroups:
    """Control groups of a test's own; a context manager that removes them, once they are empty."""

    def __init__(self):
        self.root = find_cgroup_root() / f"gpuperf-test-{os.getpid()}.slice"
        self.made = []

    def make(self, path):
        """One below the test's own: "a.slice/docker-ID.scope"."""
        group = self.root
        for name in path.split("/"):
            group = group / name
            if not group.exists():
                group.mkdir()
                self.made.append(group)
        return group

    def __enter__(self):
        self.root.mkdir()
        return self

    def __exit__(self, *_):
        for group in [*reversed(self.made), self.root]:
            wait_until(f"{group} is empty", lambda group=group: self.remove(group))

    @staticmethod
    def remove(group):
        try:
            group.rmdir()
            return True
        except OSError:  # busy: its last process is not reaped yet
            return False


def run_ctl(*arguments, check=True, prefix=()):
    result = subprocess.run([*prefix, GPUPERFCTL, *map(str, arguments)], capture_output=True, text=True,
                            timeout=120, check=False)
    if check and result.returncode != 0:
        raise AssertionError(f"gpuperfctl {arguments}: exit {result.returncode}: {result.stderr}")
    return result


def start_workload(*command, **options):
    return subprocess.Popen([WORKLOADS / command[0], *map(str, command[1:])],
                            stdout=subprocess.PIPE, text=True, **options)


def finish_workload(process):
    """The JSON lines of a workload that must succeed."""
    output, _ = process.communicate(timeout=600)
    if process.returncode != 0:
        raise AssertionError(f"workload: exit {process.returncode}")
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def get_calls(truth):
    """{function: calls} of a workload's own count, only those called."""
    return {name: entry["calls"] for name, entry in truth["calls"].items() if entry["calls"]}


def bpf_objects():
    """What of gpuperf, of any daemon, is in the kernel: maps, programs and links with their ids. The
    kernel frees a dead daemon's a moment later: compare with what was there before."""
    names = ("probe_session", "probe_entry", "probe_return", "probe_count", "process_exit",
             "cell_index", "slow_ring", "free_cells")
    found = set()
    for kind in ("map", "prog", "link"):
        text = subprocess.run(["bpftool", kind, "show"], capture_output=True, text=True,
                              check=True).stdout
        found |= {f"{kind}: {line.strip()}" for line in text.splitlines()
                  if any(name in line for name in names) or re.search(r"\b(uprobe_multi)\b", line)}
    return found
