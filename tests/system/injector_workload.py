"""A program with the injected library in it, on the fake driver and the fake CUPTI, told line by line
what to do: tests/workloads/injected.cpp."""

import collections
import json
import os
import pathlib
import select
import subprocess
import tempfile
import time
import unittest

from gpuperf_system import BUILD, WORKLOADS

FAKES = BUILD / "tests/fakes/cupti"
INJECTOR = BUILD / "injector/libgpuperf_injector.so"
KERNEL, NODE, COPY, PEER_COPY, SET, GRAPH, MEMORY = range(7)
Call = collections.namedtuple("Call", "is_driver callback_id correlation_id tid start_unix_ns end_unix_ns")
Work = collections.namedtuple("Work", "kind correlation_id stream graph_id node_id start_unix_ns end_unix_ns "
                                      "name grid_x block_x bytes address detail")


def require_fakes():
    if not (WORKLOADS / "injected").exists():
        raise unittest.SkipTest("the fake CUPTI is not built: it needs the headers of CUPTI 13")


class Workload:
    """The running program; a context manager. What it prints beside its answers is in `noise()`."""

    def __init__(self, peer_path, *, cupti=13, environment=None, prefix=()):
        self.errors = tempfile.TemporaryFile()
        settings = {"CUDA_INJECTION64_PATH": str(INJECTOR), "GPUPERF_SOCKET": str(peer_path),
                    # A busy machine answers late; what depends on the shipped wait sets it back.
                    "GPUPERF_INIT_WAIT_MS": "5000",
                    # Tests of the shipped values override these.
                    "GPUPERF_SETTLE_MS": "0",
                    "LD_LIBRARY_PATH": f"{FAKES}:{FAKES / f'cupti_{cupti}'}", **(environment or {})}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("GPUPERF_")}
        self.process = subprocess.Popen(
            [*prefix, WORKLOADS / "injected"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.errors, env={**inherited, **settings})

    def post(self, line):
        """Tells it what to do, without waiting for the answer."""
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def answer(self, peer=None, seconds=20):
        """The next answer; the peer goes on meanwhile."""
        poll = select.poll()
        poll.register(self.process.stdout, select.POLLIN | select.POLLHUP)
        for _ in range(int(seconds * 50)):
            if poll.poll(0 if peer else 20):
                break
            if peer:
                peer.pump(0.02)
        else:
            raise AssertionError(f"no answer within {seconds} s; errors: {self.noise()}")
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"ended with {self.process.wait()}: {self.noise()}")
        return json.loads(line)

    def do(self, line, peer=None):
        self.post(line)
        return self.answer(peer)

    def truth(self, peer=None):
        """Calls and works, as they were."""
        raw = self.do("truth", peer)
        return [Call(*call) for call in raw["calls"]], [Work(*work) for work in raw["works"]]

    def state(self, peer=None):
        return self.do("state", peer)

    def keep_at(self, line, until, peer, seconds=10.0):
        """Does it again and again until the condition holds."""
        deadline = time.monotonic() + seconds
        while not until():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds} s; last status: {peer.last and peer.last.status}")
            self.do(line, peer)
            peer.pump_for(0.02)

    def noise(self):
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")

    def mapped(self):
        """Names of the files that are mapped."""
        maps = pathlib.Path(f"/proc/{self.process.pid}/maps").read_text(encoding="utf-8")
        return {line.split("/")[-1] for line in maps.splitlines() if "/" in line}

    def threads(self):
        folder = pathlib.Path(f"/proc/{self.process.pid}/task")
        return [(task / "comm").read_text().strip() for task in folder.iterdir()]

    def end(self, how="exit", peer=None):
        """Ends it; the status it ended with."""
        self.post(f"quit {how}")
        for _ in range(500):
            if self.process.poll() is not None:
                break
            if peer:
                peer.pump(0.02)
            else:
                try:
                    self.process.wait(0.02)
                except subprocess.TimeoutExpired:
                    pass
        return self.process.wait(10)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        self.errors.close()


def kernels_of(session):
    """Every kernel as (correlation id, start, end, name, grid, block, stream)."""
    rows = []
    for kernel in session.records["kernel"]:
        shape = session.shapes[kernel.shape_id]
        rows.append((kernel.id, kernel.start_unix_ns, kernel.start_unix_ns + kernel.duration_ns,
                     session.name_of(kernel), shape.grid_x, shape.block_x,
                     session.places[kernel.place_id].stream))
    return sorted(rows)


def true_kernels(works):
    return sorted((work.correlation_id, work.start_unix_ns, work.end_unix_ns, work.name, work.grid_x,
                   work.block_x, work.stream) for work in works if work.kind == KERNEL)
