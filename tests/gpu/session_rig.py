"""What the tests of sessions share: the bundle's programs, a daemon or its stand-in, workers that are
measured in turn.

Nothing here waits for ever: whatever does not come in time is a failure of the check that waited.
"""

import contextlib
import glob
import importlib.util
import itertools
import json
import os
import pathlib
import select
import shutil
import signal
import statistics
import subprocess
import sys
import time
import traceback

from session_receiver import Receiver, demangle

FOLDER = pathlib.Path(__file__).resolve().parent
NAME_LENGTH = 900  # mangled names come with up to 1,024 bytes; torch.profiler leaves longer ones mangled
CPUS = 4  # for whatever is timed: the same ones for all, near the GPU


class Report:
    """What is printed also goes to a file."""

    def __init__(self, path):
        self.file = open(path, "w", encoding="utf-8", buffering=1)
        self.passed = self.failed = 0

    def say(self, text):
        print(text, flush=True)
        print(text, file=self.file)

    def check(self, claim, holds, detail=""):
        self.passed += bool(holds)
        self.failed += not holds
        self.say(f"{'PASS' if holds else 'FAIL'} {claim}: {detail}")


def run_checks(report, rig, checks, wanted):
    """Each named check, whatever becomes of those before it; then the counts, and the program ends."""
    for name in wanted:
        report.say(f"## {name}")
        started = time.monotonic()
        try:
            checks[name](report, rig)
        except Exception as error:  # pylint: disable=broad-except  # the other checks still run
            report.check(f"{name} runs to its end", False, f"{error}\n{traceback.format_exc()}")
        report.say(f"     {name}: {time.monotonic() - started:.0f} s")
    report.say(f"{report.passed} passed, {report.failed} failed")
    sys.exit(1 if report.failed else 0)


def say_versions(report, bundle):
    version = (bundle / "VERSION").read_text(encoding="utf-8").strip()
    gpus = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                          capture_output=True, text=True, check=False).stdout.strip().replace("\n", "; ")
    report.say(f"gpuperf {version} on {gpus}")


def find_runtime():
    """The CUDA runtime that python3's PyTorch brings, with CUPTI beside it; else the toolkit's."""
    site = pathlib.Path(importlib.util.find_spec("torch").origin).parent.parent
    found = [*sorted(glob.glob(f"{site}/nvidia/*/lib/libcudart.so.1?")),
             *sorted(glob.glob("/usr/local/cuda/lib64/libcudart.so.1?"))]
    if not found:
        sys.exit("there is no libcudart beside PyTorch and none in /usr/local/cuda")
    return pathlib.Path(found[0])


def find_cpus():
    """CPUs of the GPU's own node, few of them, the same for everybody."""
    allowed = os.sched_getaffinity(0)
    near = set()
    with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
        bus = subprocess.run(["nvidia-smi", "--query-gpu=pci.bus_id", "--format=csv,noheader", "-i", "0"],
                             capture_output=True, text=True, check=True, timeout=20).stdout.strip()
        text = pathlib.Path(f"/sys/bus/pci/devices/{bus[-12:].lower()}/local_cpulist").read_text()
        for part in text.strip().split(","):
            first, _, last = part.partition("-")
            near |= set(range(int(first), int(last or first) + 1))
    return set(sorted(near & allowed or allowed)[-CPUS:])


class Rig:
    def __init__(self, bundle, results, folder, prefers_receiver=False):
        self.bundle = pathlib.Path(bundle)
        self.results = pathlib.Path(results)
        self.folder = pathlib.Path(folder)
        self.injector = self.bundle / "injector/libgpuperf_injector.so"
        if not self.injector.exists():
            sys.exit(f"{self.injector} is missing: make the bundle with tests/gpu/pack.sh")
        self.runtime = find_runtime()
        self.cpus = find_cpus()
        self.launcher = self.folder / "session_launch"
        self.client = self.folder / "libsession_client.so"
        self.programs = self.bundle / "traces"  # those with planted paths
        self.truth = self.programs / "liblaunch_truth.so"
        self.numbers = itertools.count(1)
        # 3 = no daemon is there; 2 = no such command.
        self.has_daemon = not prefers_receiver and subprocess.run(
            [self.bundle / "bin/gpuperfctl", "--address", f"unix:{self.folder}/none", "sessions", "list"],
            capture_output=True, check=False).returncode == 3

    def build(self):
        source = FOLDER / "session_launch.cu"
        nvcc = shutil.which("/usr/local/cuda/bin/nvcc") or shutil.which("nvcc")
        if nvcc is None:
            sys.exit("there is no nvcc here: the tests of sessions compile a workload")
        # By themselves they find PyTorch's libraries: the tools that run them must not.
        search = f"-rpath,{self.runtime.parent},--enable-new-dtags"
        subprocess.run([nvcc, "-O2", "-arch=native", "--cudart", "shared", "-o", self.launcher, source,
                        "-Xcompiler", "-pthread", "-Xlinker", search, "-ldl"], check=True)
        subprocess.run(["g++", "-std=c++17", "-O2", "-shared", "-fPIC", f"-Wl,{search}", "-o", self.client,
                        FOLDER / "session_client.cpp", "-ldl"], check=True)

    def environment(self, socket=None, libraries=None):
        """Of a process: without us; with us and the daemon's socket."""
        own = {name: value for name, value in os.environ.items()
               if name not in ("CUDA_INJECTION64_PATH", "GPUPERF_SOCKET", "GPUPERF_DISABLE")}
        if libraries is not None:
            own["LD_LIBRARY_PATH"] = str(libraries)
        if socket is not None:
            own |= {"CUDA_INJECTION64_PATH": str(self.injector), "GPUPERF_SOCKET": str(socket)}
        return own

    def new_path(self, name):
        return self.folder / f"{next(self.numbers)}-{name}"

    @staticmethod
    def work_command(*options):
        return [sys.executable, str(FOLDER / "session_work.py"), *map(str, options)]

    def start(self, command, socket=None, libraries=None, **more):
        return subprocess.Popen(list(map(str, command)), env=self.environment(socket, libraries) | more,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True)

    def run(self, command, socket=None, libraries=None, seconds=120, **more):
        return finish(self.start(command, socket, libraries, **more), seconds)

    def run_work(self, *options, socket=None, seconds=120):
        return self.run(self.work_command(*options), socket, seconds=seconds).json()

    def start_collector(self, name="collector"):
        """The bundle's daemon; its stand-in where that takes no sessions yet."""
        folder = self.new_path(name)
        folder.mkdir()
        return (Gpuperfd if self.has_daemon else ReceiverProcess)(self, folder).start()


class Finished:
    """A process that has ended, or was killed because it did not."""

    def __init__(self, process, output, errors, in_time):
        self.code, self.output, self.errors, self.in_time = process.returncode, output, errors, in_time
        self.pid = process.pid

    def json(self):
        lines = self.output.splitlines()
        if self.code != 0 or not lines:
            raise RuntimeError(f"exit {self.code}{'' if self.in_time else ', killed: it hung'}: "
                               f"{self.errors[-2000:]}")
        return json.loads(lines[-1]) | {"stderr": self.errors}


def finish(process, seconds=120):
    try:
        return Finished(process, *process.communicate(timeout=seconds), True)
    except subprocess.TimeoutExpired:
        process.kill()
        return Finished(process, *process.communicate(), False)


class Gpuperfd:
    """The bundle's daemon without probes, its folders in `folder`; `store` is where it keeps its files."""

    def __init__(self, rig, folder, store=None):
        self.rig, self.folder = rig, folder
        self.socket = folder / "ingest.sock"
        self.address = f"unix:{folder}/api.sock"
        config = {"none_func_sym": {"nothing_has_this": "gpuperf_no_such_symbol"},
                  "overhead": {"budget_percent": 0}, "stats": {"interval_ms": 250},
                  "metrics": {"listen": ""}, "grpc": {"listen": self.address},
                  "storage": {"path": str(store or folder / "store")}}
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        self.process = None

    def start(self):
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [self.rig.bundle / "bin/gpuperfd", "--config", self.folder / "config.json",
                 "--runtime-dir", self.folder], stdout=log, stderr=log)
        deadline = time.monotonic() + 30
        while self.ctl("status").returncode != 0:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"gpuperfd is not there: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.1)
        return self

    def send_signal(self, number):
        self.process.send_signal(number)

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(number)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        return self.process.returncode

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def ctl_words(self, *words):
        return [self.rig.bundle / "bin/gpuperfctl", "--address", self.address, *map(str, words)]

    def ctl(self, *words):
        return subprocess.run(self.ctl_words(*words), capture_output=True, text=True, check=False, timeout=60)

    def query(self, *words):
        answer = self.ctl(*words, "-o", "json")
        if answer.returncode != 0:
            raise RuntimeError(f"gpuperfctl {words}: exit {answer.returncode}: {answer.stderr}")
        return json.loads(answer.stdout)

    def sessions(self, pid):
        """Newest first, ended ones included."""
        return self.query("sessions", "list", "--all", "--pid", pid, "--limit", 0)

    def wait(self, pid, condition, seconds=20.0):
        """The process's newest session, once it meets the condition; None when time is up."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = self.sessions(pid)
            if found and condition(found[0]):
                return found[0]
            time.sleep(0.1)
        return None

    def wait_totals(self, pid, seconds=30.0):
        """Totals of an ended process, once two looks agree."""
        self.wait(pid, lambda session: session["state"] == "closed", seconds)
        before, deadline = None, time.monotonic() + seconds
        while time.monotonic() < deadline:
            now = self.totals(pid)
            if now == before:
                return now
            before = now
            time.sleep(0.6)
        return before

    def totals(self, pid):
        """In the form of session_receiver.Totals."""
        rows = self.query("kernels", "--per-process", "--pid", pid, "--limit", 0)
        totals = {"kernels": {}, "nodes": {}, "copies": {}, "sets": {}, "syncs": {}, "graph_launches": 0}
        for row in rows:
            table = "nodes" if int(row["graph_launches"]) else "kernels"
            totals[table][row["kernel"]] = [int(row["launches"]), int(row["total_ns"])]
        for session in self.sessions(pid)[:1]:  # what it did is its process's, in all its sessions
            for copy in session["copies"]:
                entry = [int(copy["count"]), int(copy["bytes"])]
                if copy["direction"] == "set":
                    totals["sets"][copy["target_memory"]] = entry
                else:
                    key = f"{copy['direction']} {copy['source_memory']} {copy['target_memory']}"
                    totals["copies"][key] = entry
            totals["syncs"] = {sync["type"]: int(sync["count"]) for sync in session["syncs"]}
            totals["graph_launches"] = sum(int(graph["launches"]) for graph in session["graphs"])
        return totals


class ReceiverProcess:
    """The stand-in as a process of its own."""

    def __init__(self, rig, folder):
        self.rig, self.folder = rig, folder
        self.socket = folder / "ingest.sock"
        self.process = None

    def start(self):
        self.process = subprocess.Popen([sys.executable, FOLDER / "session_receiver.py", self.socket],
                                        stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            raise RuntimeError("the stand-in did not start")
        return self

    send_signal = Gpuperfd.send_signal
    stop = Gpuperfd.stop
    __enter__ = Gpuperfd.__enter__
    __exit__ = Gpuperfd.__exit__


class Worker:
    """A process that is measured by lines of a pipe. `command` gets the pipes' paths appended."""

    def __init__(self, rig, command, socket=None, libraries=None, pinned=True, **more):
        self.paths = [rig.new_path("pipe"), rig.new_path("pipe")]
        for path in self.paths:
            os.mkfifo(path)
        # Open at both ends, so that neither side waits for the other to come.
        self.pipes = [os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC) for path in self.paths]
        self.text = b""
        self.errors = open(rig.new_path("stderr"), "w+", encoding="utf-8")
        self.output = open(rig.new_path("stdout"), "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [*map(str, command), *map(str, self.paths)], stdin=subprocess.DEVNULL, stdout=self.output,
            stderr=self.errors, env=rig.environment(socket, libraries) | more)
        if pinned:
            os.sched_setaffinity(self.process.pid, rig.cpus)

    def read(self, seconds=90.0):
        """The next line; an error when it does not come."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self.text:
            if select.select([self.pipes[1]], [], [], 0.2)[0]:
                self.text += os.read(self.pipes[1], 4096)
            elif self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                raise RuntimeError(f"no answer; exit {self.process.wait()}; {self.read_errors()[-1500:]}")
        line, _, self.text = self.text.partition(b"\n")
        return line.decode()

    def give(self, order):
        os.write(self.pipes[0], f"{order}\n".encode())

    def ask(self, order, seconds=90.0):
        self.give(order)
        return float(self.read(seconds).split()[0])

    def read_errors(self):
        for file in (self.errors, self.output):
            file.flush()
            file.seek(0)
        return self.errors.read() + self.output.read()

    def finish(self, seconds=60.0):
        """Exit code, None when it hung; what it wrote to stdout and stderr."""
        for pipe in self.pipes:
            os.close(pipe)
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            code = None
        return code, self.read_errors()


def measure(workers, order, rounds, figures):
    """Asks every worker in turn, another one first each round. Adds to `figures`, by name."""
    names = list(workers)
    for number in range(rounds):
        for name in names[number % len(names):] + names[:number % len(names)]:
            figures.setdefault(name, []).append(workers[name].ask(order))


def compare_speed(figures, name, base="bare", is_rate=True):
    """Speed beside `base` by rounds: median and quartiles of the ratios. 1 = as fast."""
    ratios = [mine / other if is_rate else other / mine
              for mine, other in zip(figures[name], figures[base])]
    low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return statistics.median(ratios), low, high


def name_kernel(name):
    """One spelling for all sources: without spaces, and of very long names the beginning, for those are cut."""
    return "".join((demangle(name) if name.startswith("_Z") else name).split())[:NAME_LENGTH]


def merge_names(table):
    merged = {}
    for name, (count, total) in table.items():
        entry = merged.setdefault(name_kernel(name), [0, 0])
        entry[0] += count
        entry[1] += total
    return merged


def receive(rig, **options):
    """The stand-in in this process, at a socket of its own."""
    return Receiver(rig.new_path("socket"), **options)
