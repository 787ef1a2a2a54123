"""CUPTI is ended from within launch hooks, and GRAPH_TRACE goes on right before the first graph: in PyTorch,
while threads launch, copy and allocate. Results are compared, and so is what a launch costs."""

import concurrent.futures
import contextlib
import json
import os
import random
import select
import statistics
import subprocess
import sys
import time

from session_receiver import ALL_KINDS, API, MEMORY, PAUSE, RUN, SYNC, Receiver
from session_rig import FOLDER, Worker, compare_speed, measure, receive
from trace_rig import start_tracer

WINDOWS = int(os.environ.get("WINDOWS", "640"))  # long form: 10000
# What threads do meanwhile, and how many windows.
CYCLES = {"16 threads of PyTorch work": ("work:16", WINDOWS),
          "some threads allocate": ("launch:8,alloc:4", WINDOWS // 4),
          "some threads do other things": ("launch:4,alloc:4,host:4,streams:2,esync:2,query:2", WINDOWS // 4),
          "graphs and torch.profiler come and go": ("launch:6,copy:4,alloc:2,graph:3,profiler:1", WINDOWS // 4)}
ROUNDS, LAUNCHES = 15, 60_000      # a measurement of 0.2 s
REPLAYS = 1_000
IDLE_RATIO = 0.99
ENDED = "CUPTI is finalised"
# After records of calls or allocations CUPTI stays: ended then, it corrupted the heap.
NO_CALLS = ALL_KINDS & ~(1 << API) & ~(1 << SYNC) & ~(1 << MEMORY)


class Program:
    """session_finalize_work.py, line by line."""

    def __init__(self, rig, socket, **more):
        self.errors = open(rig.new_path("stderr"), "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [sys.executable, FOLDER / "session_finalize_work.py", "work"], env=rig.environment(socket) | more,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, bufsize=1)
        self.pid = self.process.pid

    def read(self, seconds=60):
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            raise RuntimeError(f"no answer within {seconds} s: {self.said()}")
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"exit {self.process.wait(20)}: {self.said()}")
        return json.loads(line)

    def do(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        return self.read()

    def said(self):
        self.errors.seek(0)
        return self.errors.read()[-4000:]

    def check_alive(self, number):
        if self.process.poll() is not None:
            raise RuntimeError(f"exit {self.process.returncode} in window {number}: {self.said()}")

    def end(self):
        """Exit code and what it wrote to stderr."""
        self.process.stdin.write("quit\n")
        try:
            return self.process.wait(60), self.said()
        except subprocess.TimeoutExpired:
            self.process.kill()
            return None, self.said()

    def __enter__(self):
        self.read()
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for file in (self.process.stdin, self.process.stdout, self.errors):
            with contextlib.suppress(BrokenPipeError):
                file.close()


def wait_for_state(receiver, pid, state, detail="", seconds=20.0):
    session = receiver.wait(pid, lambda session: session.status.get("state") == state
                            and detail in session.status["detail"], seconds)
    if session is None:
        found = receiver.find(pid)
        raise RuntimeError(f"not {state} {detail!r} within {seconds} s: {found[-1].status if found else 'none'}")
    return session


def check_cycles(report, rig):
    """All at once: nothing is timed."""
    random.seed(1)
    with concurrent.futures.ThreadPoolExecutor(len(CYCLES)) as pool:
        for run in [pool.submit(run_cycles, report, rig, name, *plan) for name, plan in CYCLES.items()]:
            run.result()


def run_cycles(report, rig, name, order, windows):
    """On and ended again and again while threads work. A daemon counts the launches, so that windows hold them."""
    entries = {"cuda_func_sym": {name: name for name in ("cuLaunchKernel", "cuLaunchKernelEx", "cuMemcpyDtoHAsync_v2")}}
    windows_per_look = max(windows // 16, 1)  # a status that says so may take a second
    has_graphs = "graph" in order
    with start_tracer(rig, probes=entries) as tracer, \
            receive(rig, welcome={"flush_ms": 50, "kinds": NO_CALLS}) as receiver, \
            Program(rig, receiver.path, GPUPERF_SETTLE_MS="0") as program:
        tracer.wait_for_probes()
        program.do("spin", order)
        session = wait_for_state(receiver, program.pid, "collecting")
        ended = looks = 0
        for number in range(windows):
            program.check_alive(number)
            session.order(mode=RUN, kinds=NO_CALLS, flush_ms=50)
            time.sleep(random.uniform(0.003, 0.03))
            session.order(mode=PAUSE, kinds=NO_CALLS, flush_ms=50)
            if number % windows_per_look == windows_per_look - 1 and not has_graphs:
                looks += 1
                with contextlib.suppress(RuntimeError):
                    wait_for_state(receiver, program.pid, "paused", ENDED, 5)
                    ended += 1
            else:
                time.sleep(random.uniform(0.003, 0.03))
        work = program.do("halt")
        status, kernels, holds_ns = session.status, session.kernel_count, sorted(session.totals.holds_ns)
        code, said = program.end()
    report.say(f"     launches were held {len(holds_ns)} times; median {statistics.median(holds_ns or [0]) / 1e6:.2f} ms, "
               f"at most {max(holds_ns, default=0) / 1e6:.1f}; {len(session.gaps)} gaps")
    # torch.profiler warns there.
    report.check(f"{windows} times on and ended while {name} ({order})", code == 0 and (has_graphs or not said),
                 f"exit {code}, {said!r}; {work['rounds']} rounds")
    report.check("every result is right", work["wrong"] == 0 and work["rounds"] > 0, f"wrong {work['wrong']}")
    report.check("CUPTI was ended whenever it was looked at", ended == looks, f"{ended} of {looks}")
    report.check("records came, and the session is sound", kernels > 0 and not session.error,
                 f"{kernels} kernels, losses {status['losses']}, {session.error}")


def check_residue(report, rig):
    """What a launch costs where CUPTI never was, is, and was ended."""
    with receive(rig, welcome={"kinds": NO_CALLS}) as receiver:
        workers = {name: Worker(rig, [rig.launcher, "serve"], socket, GPUPERF_SETTLE_MS="0") for name, socket in
                   {"bare": None, "bare again": None, "on": receiver.path, "ended": receiver.path}.items()}
        for worker in workers.values():
            worker.read()
        pid = workers["ended"].process.pid
        workers["ended"].ask(f"launch {LAUNCHES}")
        wait_for_state(receiver, pid, "collecting").order(mode=PAUSE, kinds=NO_CALLS)
        time.sleep(0.5)
        workers["ended"].ask(f"launch {LAUNCHES}")
        wait_for_state(receiver, pid, "paused", ENDED)
        figures = {}
        measure(workers, f"launch {LAUNCHES}", ROUNDS, figures)
        ends = {name: worker.finish() for name, worker in workers.items()}
    for name in ("bare again", "on", "ended"):
        ratio, low, high = compare_speed(figures, name, is_rate=False)
        report.check(f"launches, {name}", ends[name] == (0, "") and (name != "ended" or ratio >= IDLE_RATIO),
                     f"{statistics.median(figures[name]):.0f} ns beside {statistics.median(figures['bare']):.0f} "
                     f"bare; {ratio:.4f} of its speed ({low:.4f} to {high:.4f})")


def check_late_graphs(report, rig):
    """Graphs captured after the order, while threads launch, are recorded to the last launch."""
    def replay(program, names):
        return sum(program.do("replay", name, REPLAYS)["wrong"] for name in names)

    def settle(receiver, program, case, expected, wrong):
        session = receiver.find(program.pid)[-1]
        work = program.do("halt")
        code, said = program.end()
        receiver.wait_closed(program.pid)
        launches = session.totals.graph_launches
        report.check(f"late graphs, {case}", launches == expected and code == 0 and not said
                     and wrong + work["wrong"] == 0,
                     f"{launches} of {expected} launches, exit {code}, wrong {wrong + work['wrong']}, {said!r}")

    with receive(rig) as receiver, Program(rig, receiver.path) as program:
        program.do("spin", "work:4")
        wait_for_state(receiver, program.pid, "collecting")
        for name in "ab":
            program.do("capture", name)
        settle(receiver, program, "order from cuInit on", 2 * REPLAYS, replay(program, "ab"))

    path = rig.new_path("late")
    with Program(rig, path) as program:
        program.do("spin", "work:4")
        with Receiver(path) as receiver:
            wait_for_state(receiver, program.pid, "collecting", seconds=30)
            program.do("capture", "a")
            settle(receiver, program, "daemon came late", REPLAYS, replay(program, "a"))

    # Nothing is known of GRAPH_TRACE then: it stays off.
    for number in range(6):
        with receive(rig, welcome={"kinds": NO_CALLS}) as receiver, \
                Program(rig, receiver.path, GPUPERF_SETTLE_MS="0") as program:
            program.do("spin", "work:4")
            session = wait_for_state(receiver, program.pid, "collecting")
            session.order(mode=PAUSE, kinds=NO_CALLS)
            wait_for_state(receiver, program.pid, "paused", ENDED)
            program.do("capture", "paused")
            session.order(mode=RUN, kinds=NO_CALLS)
            wait_for_state(receiver, program.pid, "collecting")
            program.do("capture", "on")
            settle(receiver, program, f"none after CUPTI was ended ({number})", 0, replay(program, ["paused", "on"]))


def check_ids(report, rig):
    """Only reported: docs/decisions/0012-cupti.md asks whether single calls work again after the end."""
    ended = rig.run([sys.executable, FOLDER / "session_finalize_work.py", "ids"])
    report.say(f"     single calls by callback id, late, then after cuptiFinalize twice: exit {ended.code}, "
               f"{ended.output.strip() or ended.errors[-300:]}")


def check_finalize(report, rig):
    for check in (check_cycles, check_residue, check_late_graphs, check_ids):
        check(report, rig)
