"""What the tests of traces share: the daemon with probes on, captures of it, programs with planted paths.

What gpuperfctl's commands and fields are called is written down in Tracer alone."""

import contextlib
import json
import os
import subprocess
import sys
import time

from session_rig import FOLDER, Gpuperfd, Worker
from trace_raw import read_stored
from trace_reader import load_chrome, read_folded, read_truth

CAPTURE_SECONDS_MAX = 60
# cuInit may wait for a daemon that is busy with probes; graphs can be covered from there alone.
INIT_WAIT = {"GPUPERF_INIT_WAIT_MS": "2000"}
NODE_BURSTS = {"GPUPERF_NODE_BURSTS": "1"}


class Tracer(Gpuperfd):
    """The bundle's daemon with its shipped configuration, or with other `probes` than its sections of functions;
    `budget_percent` 0 = nothing is ever left out, None = as shipped; `more` sections of settings."""

    def __init__(self, rig, folder, budget_percent=0, probes=None, more=None):
        super().__init__(rig, folder)
        config = json.loads((rig.bundle / "config.json").read_text(encoding="utf-8"))
        if probes is not None:
            config = {key: value for key, value in config.items() if not key.endswith("_sym")} | probes
        config |= {"grpc": {"listen": self.address}, "metrics": {"listen": ""},
                   "storage": {"path": str(folder / "store")}, **(more or {})}
        if budget_percent is not None:
            config.setdefault("overhead", {})["budget_percent"] = budget_percent
        config.setdefault("stats", {})["interval_ms"] = 250
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")

    def do(self, *words):
        answer = self.ctl(*words)
        if answer.returncode != 0:
            raise RuntimeError(f"gpuperfctl {' '.join(map(str, words))}: exit {answer.returncode}: "
                               f"{answer.stderr.strip()}")
        return answer.stdout

    def wait_for_probes(self):
        """Until the number of attached probes has stopped growing."""
        seen, deadline = [], time.monotonic() + 30
        while time.monotonic() < deadline:
            seen.append(self.query("status")["probes"]["attached"])
            if seen[-1] > 0 and seen[-3:] == [seen[-1]] * 3:
                return seen[-1]
            time.sleep(0.4)
        raise RuntimeError(f"probes did not become attached, or steady, within 30 s: {seen[-5:]}")

    def wait_collecting(self, pid):
        """Until a process sends records."""
        session = self.wait(pid, lambda found: found["state"] == "collecting")
        if session is None:
            raise RuntimeError(f"process {pid} has no session that collects: {self.sessions(pid)[:1]}")
        return session

    def captures(self):
        answer = self.query("trace", "list")
        rows = answer if isinstance(answer, list) else answer["captures"]
        return {int(row["id"]): row | {"state": row["state"].lower().removeprefix("capture_state_")}
                for row in rows}

    def wait_capture(self, number, states, seconds=60):
        """The capture's row once it is in one of these states."""
        deadline, row = time.monotonic() + seconds, None
        while time.monotonic() < deadline:
            row = self.captures().get(number)
            if row and row["state"] in states:
                return row
            if row and row["state"] == "failed":
                raise RuntimeError(f"capture {number} failed: {row.get('problem')}")
            time.sleep(0.1)
        raise RuntimeError(f"capture {number} is not {' or '.join(states)} after {seconds} s: {row}")

    def start_capture(self, pid=None, name="test", nodes=False):
        """Number of a capture that runs, of one process or of all; of one process also with the nodes of its
        graphs, where it was started with NODE_BURSTS."""
        target = [*(["--pid", pid] if pid else []), *(["--nodes"] if nodes else [])]
        row = self.query("trace", "start", *target, "--duration", f"{CAPTURE_SECONDS_MAX}s", "--name", name)
        number = int((row[0] if isinstance(row, list) else row)["id"])
        self.wait_capture(number, ("running",))
        if nodes and self.wait(pid, lambda found: "nodes" in found["level"]) is None:
            raise RuntimeError(f"process {pid} sends no nodes of graphs: {self.sessions(pid)[:1]}")
        return number

    def stop_capture(self, number):
        """The stored capture's row."""
        self.do("trace", "stop", number)
        return self.wait_capture(number, ("stored",))

    def fetch(self, number, form, path, *options):
        with open(path, "wb") as file:
            answer = subprocess.run(
                [self.rig.bundle / "bin/gpuperfctl", "--address", self.address, "trace", "fetch",
                 str(number), "--format", form, *options], stdout=file, stderr=subprocess.PIPE, check=False,
                timeout=120)
        if answer.returncode != 0:
            raise RuntimeError(f"gpuperfctl trace fetch {number} --format {form}: exit {answer.returncode}: "
                               f"{answer.stderr.decode(errors='replace').strip()}")
        return path

    def fetch_text(self, number, form, *options):
        path = self.fetch(number, form, self.rig.new_path(f"capture-{number}"), *options)
        return path.read_text(encoding="utf-8")

    def fetch_folded(self, number, *options):
        return read_folded(self.fetch_text(number, "folded", *options))

    def fetch_trace(self, number):
        """The capture as it lies on disk, as rows."""
        path = self.fetch(number, "raw", self.rig.new_path(f"capture-{number}"))
        return read_stored(path.read_bytes())

    def fetch_chrome(self, number):
        path = self.fetch(number, "chrome", self.rig.new_path(f"capture-{number}"))
        trace = load_chrome(path)
        path.unlink()  # tens of MB
        return trace


def start_tracer(rig, **options):
    folder = rig.new_path("tracer")
    folder.mkdir()
    return Tracer(rig, folder, **options).start()


def make_library_path(rig):
    """For programs that carry the CUDA runtime within them: nothing else would say where CUPTI is."""
    return ":".join(filter(None, (str(rig.runtime.parent), os.environ.get("LD_LIBRARY_PATH"))))


class Planted:
    """A program with planted paths that does what it is asked; with `truth`, it knows its launches."""

    def __init__(self, rig, command, socket=None, truth=True, **more):
        self.rig = rig
        libraries = make_library_path(rig) if command[0] != sys.executable else None
        if truth:
            more["LAUNCH_TRUTH"] = str(rig.truth)
        self.worker = Worker(rig, command, socket, libraries, pinned=False, **INIT_WAIT, **more)
        self.pid = self.worker.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.worker.finish(30)

    def wait_ready(self, seconds=150):
        if (line := self.worker.read(seconds)) != "ready":
            raise RuntimeError(f"the program said {line!r}")
        return self

    def begin(self, order):
        """Gives an order, and a file for the truth of its launches; `end` has the answer and the calls."""
        self.path = self.rig.new_path("truth")
        self.worker.give(f"{order} {self.path}")
        return self

    def end(self, seconds=90):
        answer = self.ask_answer(seconds)
        calls, missed = read_truth(self.path)
        self.path.unlink()
        if missed:
            raise RuntimeError(f"{missed} calls had no room in the truth")
        return answer, calls

    def ask_answer(self, seconds=90):
        answer = json.loads(self.worker.read(seconds))
        if "error" in answer:
            raise RuntimeError(f"the program could not: {answer['error']}")
        return answer

    def ask(self, order, seconds=90):
        self.worker.give(order)
        return self.ask_answer(seconds)


def work_command(parts, *options):
    return [sys.executable, FOLDER / "trace_work.py", "serve", parts, *options]


def list_ranks(count, port):
    """Environment of each process of a training on so many GPUs."""
    return [{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count), "RANK": str(rank)}
            for rank in range(count)]


@contextlib.contextmanager
def capturing(tracer, pid=None, nodes=False):
    """A capture around the block: of one process or of all. Yields a list that has its row in the end."""
    number, rows = tracer.start_capture(pid, nodes=nodes), []
    try:
        yield rows
    finally:
        rows.append(tracer.stop_capture(number))


def learn(tracer, program, order):
    """A capture that is not looked at: where code is met for the first time, stacks end there until the daemon
    has read how it is walked, some milliseconds later."""
    with capturing(tracer, program.pid):
        program.ask(order)


def save(rig, check, result):
    """Adds to the one file of results: few files come back from a GPU host."""
    path = rig.results / "traces.json"
    results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps(results | {check: result}, indent=1), encoding="utf-8")
