"""What seeing every launch costs a program that does nothing but launch: by hooks, by probes, with CUPTI's records, at
rest and in windows; beside CUPTI alone, torch.profiler and Nsight Systems.

The hooks' own cost is measured within one process: they are switched off and on between tokens (hook_switch.py).

For all else programs stay and the daemon's settings are switched. A slice of each measured program stands between two of
a bare one, so that what disturbs the host disturbs both; the median of the ratios of neighbours counts.

The bare program, and the one that is switched, have a libcuda of their own: the daemon's probes are in the host's."""

import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import time

from hook_switch import find_middle
from session_coexist import NSYS, find_tool
from session_rig import Worker
from trace_compare import sum_paths
from trace_rig import INIT_WAIT, Tracer, save, work_command

ROUNDS, SLICES, SWITCHED_PAIRS = 2, 8, 300
TOKENS = 4
ORDER = f"rate {TOKENS}"
SETTLE_SECONDS = 0.7  # after a change, until probes are in or out
AWAY_SECONDS = 3  # until the library knows that its daemon is gone
ENTRIES = ("cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel", "cuGraphLaunch", "cuMemcpyHtoDAsync_v2",
           "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2", "cuMemcpyAsync", "cuMemsetD8Async", "cuMemsetD32Async")
LIBCUDA = re.compile(r"libcuda\.so\.1 .*x86-64.* => (\S+)")
BARE, BARE_TOO, CUPTI = "not injected", "not injected, again", "CUPTI's records of kernels alone"
IDLE, AFTER = "hooks, no daemon", "no daemon, after windows"
FULL = "full capture: stack of every launch, record of every kernel"
PROFILERS = {"torch.profiler": "both", "torch.profiler, with_stack": "stack"}
NSYS_STACKS = "nsys -t cuda, backtraces of Python"
WITH_STACKS = ("torch.profiler, with_stack", NSYS_STACKS)
FUNCTIONS = re.compile(r"\b(?:layer_\d\d|embed_token|choose_token)\b")  # of the model
STACKS_MIN = 0.99
STARTED, ATTACHED = "started with the library", "attached to"
# Programs: no session, twice; a session that CUPTI stays in; one that it leaves.
ALONE, HOOKS, EARLY, SETTLED = "alone", "hooks", "early", "settled"


@dataclasses.dataclass
class Way:
    program: str
    hooks: bool = True
    recorder: bool = False
    captures: bool = False
    order: str = ""  # to the session

    def is_counted(self):
        """No session: each launch is counted by a hook or by a probe."""
        return self.program == HOOKS


WAYS = {"hooks, statistics": Way(HOOKS),
        "hooks, statistics and recorder": Way(HOOKS, recorder=True),
        "hooks, stack at every launch": Way(HOOKS, captures=True),
        "probes, statistics": Way(HOOKS, hooks=False),
        "probes, stack at every launch": Way(HOOKS, hooks=False, captures=True),
        "in a window": Way(EARLY, recorder=True, order="run"),
        "between windows, first two minutes": Way(EARLY, recorder=True, order="pause"),
        "between windows": Way(SETTLED, recorder=True, order="pause"),
        FULL: Way(SETTLED, recorder=True, captures=True, order="run")}
# Of one process: its way, the notes that are switched, the limit.
SWITCHED = {"hooks, statistics beside idle hooks": (Way(ALONE), "count", 1.005),
            "flight recorder beside statistics": (Way(ALONE, recorder=True), "launches", 1.005),
            "stack at every launch beside statistics": (Way(ALONE, captures=True), "launches,each", 1.025),
            "the same beside CUPTI's records and statistics": (Way(EARLY, captures=True, order="run"), "launches,each", 1.05)}
# At most of the bare time (issue: launches seen inside the process).
LIMITS = {IDLE: 1.005, "between windows": 1.01, FULL: 1.20, AFTER: 1.003}
FULL_OF_CUPTI = 1.05


class SwitchedTracer(Tracer):
    """A daemon whose settings change while it runs."""

    def set(self, launch_hooks, recorder):
        path = self.folder / "config.json"
        config = json.loads(path.read_text(encoding="utf-8"))
        config.setdefault("overhead", {})["launch_hooks"] = launch_hooks
        config["trace"] = {"recorder": recorder}
        path.write_text(json.dumps(config), encoding="utf-8")
        self.send_signal(signal.SIGHUP)
        time.sleep(SETTLE_SECONDS)

    def count_calls(self, pid):
        """Calls of the entries, and how many of them hooks counted."""
        rows = self.query("functions", "--pid", pid)
        return sum(int(row["calls"]) for row in rows), sum(int(row["calls_hooked"]) for row in rows)

    def say(self, pid, word):
        state = {"run": "collecting", "pause": "paused"}[word]
        self.do("sessions", word, pid)
        if self.wait(pid, lambda found: found["state"] == state) is None:
            raise RuntimeError(f"process {pid} is not {state}: {self.sessions(pid)[:1]}")


class Workers:
    """Programs that wait until they are asked, by name."""

    def __init__(self, workers):
        self.workers = workers

    def pid(self, program):
        return self.workers[program].process.pid

    def ask(self, program):
        """us for a token."""
        return 1e6 / self.workers[program].ask(ORDER)

    def finish(self):
        for worker in self.workers.values():
            worker.finish(15)


class Programs(Workers):
    """All of them load at once, each on CPUs that all share."""

    def __init__(self, report, rig, socket):
        eager, nowhere, own = work_command("eager"), rig.new_path("none"), make_own_libcuda(rig)
        client = {"CUDA_INJECTION64_PATH": str(rig.client)}
        super().__init__({BARE: Worker(rig, eager, libraries=own), BARE_TOO: Worker(rig, eager), CUPTI: Worker(rig, eager, **client),
                        ALONE: Worker(rig, eager, nowhere, own), HOOKS: Worker(rig, eager, nowhere),
                        EARLY: Worker(rig, eager, socket, **INIT_WAIT, GPUPERF_SETTLE_MS="3600000"),
                        SETTLED: Worker(rig, eager, socket, **INIT_WAIT, GPUPERF_SETTLE_MS="0")})
        others = {name: work_command("eager", "--profiler", kind) for name, kind in PROFILERS.items()} | list_nsys(rig)
        self.others = list(others)
        self.workers |= {name: Worker(rig, command) for name, command in others.items()}
        for name, worker in list(self.workers.items()):
            try:
                worker.read(150)
                worker.ask(ORDER)
            except RuntimeError as error:
                report.say(f"     {name}: does not work here: {str(error)[-300:]}")
                if name not in self.others:
                    raise
                self.others.remove(name)
        self.rows = {}  # by way: us for a token, and of the bare program beside it

    def measure(self, way, program, slices=SLICES):
        before = self.ask(BARE)
        for _ in range(slices):
            mine, after = self.ask(program), self.ask(BARE)
            self.rows.setdefault(way, []).append((mine, (before + after) / 2))
            before = after


def list_nsys(rig):
    """Name and command of each way to use it; none where it is not."""
    tool = find_tool(NSYS)
    if tool is None:
        return {}
    plain = [tool, "profile", "--trace=cuda", "--cpuctxsw=none", "--force-overwrite=true"]
    ways = {"nsys -t cuda": ["--sample=none"],
            NSYS_STACKS: [
                "--sample=process-tree", "--cudabacktrace=kernel:1", "--python-backtrace=cuda"]}
    return {name: [*plain, *options, "--output", rig.new_path("nsys"), *work_command("eager")]
            for name, options in ways.items()}


def find_libcuda():
    known = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    return os.path.realpath(LIBCUDA.search(known)[1])


def make_own_libcuda(rig):
    """A folder with a copy: no probe is in it."""
    folder = rig.new_path("libcuda")
    folder.mkdir()
    shutil.copy(find_libcuda(), folder / "libcuda.so.1")
    return folder


@contextlib.contextmanager
def in_way(tracer, programs, way):
    """The block runs in that way. Yields a list that has the capture's row in the end, where there is one."""
    pid, rows = programs.pid(way.program), []
    tracer.set(way.hooks, way.recorder)
    if way.order:
        tracer.say(pid, way.order)
    number = tracer.start_capture(pid) if way.captures else None
    programs.ask(way.program)
    time.sleep(SETTLE_SECONDS)
    yield rows
    if way.order == "run":  # or CUPTI would record calls once no hooks do
        tracer.say(pid, "pause")
    if number is not None:
        rows.append(tracer.stop_capture(number))


def read_capture(tracer, row):
    """What it matched, and which share of the GPU's time is below a function of the model."""
    totals = sum_paths(tracer.fetch_folded(int(row["id"])), FUNCTIONS)
    named_us = sum(total for name, total in totals.items() if name)
    return {key: int(row[key]) for key in ("work", "work_matched", "ambiguous", "lost_events")} | {
        "named_share": named_us / (sum(totals.values()) or 1)}


def measure_way(tracer, programs, name, counts):
    way = WAYS[name]
    pid = programs.pid(way.program)
    with in_way(tracer, programs, way) as captured:
        before = tracer.count_calls(pid)
        programs.measure(name, way.program)
        time.sleep(SETTLE_SECONDS)
        after = tracer.count_calls(pid)
    counts.append({"way": name, "calls": after[0] - before[0], "hooked": after[1] - before[1]}
                  | (read_capture(tracer, captured[0]) if name == FULL else {}))


def measure_notes(tracer, programs, way, notes):
    """The time of a token with some notes on beside that with them off, in pairs: the ratios' middle, and in words."""
    with in_way(tracer, programs, way):
        worker = programs.workers[way.program]
        worker.give(f"switch {SWITCHED_PAIRS} {notes}")
        rows = json.loads(worker.read(120))
    middle, low, high = find_middle([on / off for on, off in rows])
    return (middle, low, high), (f"{middle:.4f} ({low:.4f} to {high:.4f}), {SWITCHED_PAIRS} pairs, "
                                 f"{1e3 * statistics.median(off for _, off in rows):.1f} ms a token")


def measure_switched(report, tracer, programs):
    table = {}
    for name, (way, notes, limit) in SWITCHED.items():
        table[name], said = measure_notes(tracer, programs, way, notes)
        report.check(f"{name}: at most {limit}", table[name][0] <= limit, said)
    return table


def judge(report, programs, counts):
    table = {name: find_middle([mine / bare for mine, bare in rows]) for name, rows in programs.rows.items()}
    for name, (middle, low, high) in table.items():
        rows = programs.rows[name]
        report.say(f"     {name}: {middle:.3f} of bare ({low:.3f} to {high:.3f}), {len(rows)} pairs; "
                   f"{statistics.median(mine for mine, _ in rows):.0f} us a token")
    for name, limit in LIMITS.items():
        middle, low, high = table[name]
        report.check(f"{name}: at most {limit} of bare", middle <= limit, f"{middle:.4f} ({low:.4f} to {high:.4f})")
    full = table[FULL][0]
    report.check(f"a full capture: at most {FULL_OF_CUPTI} of CUPTI alone", full <= FULL_OF_CUPTI * table[CUPTI][0],
                 f"{full / table[CUPTI][0]:.4f}")
    for name in programs.others:
        if name in WITH_STACKS:
            report.check(f"a full capture costs less than {name}", full < table[name][0], f"{full:.3f}; {table[name][0]:.3f}")
    counted = [row for row in counts if WAYS[row["way"]].is_counted()]
    report.check("each launch was counted once, by a hook or by a probe",
                 len({row["calls"] for row in counted}) == 1 and counted[0]["calls"] > 0
                 and all(row["hooked"] == (row["calls"] if WAYS[row["way"]].hooks else 0) for row in counted), json.dumps(counted[:5]))
    captures = [row for row in counts if row["way"] == FULL]
    report.check("what was measured are whole captures, with stacks",
                 all(row["work"] == row["work_matched"] > 0 and not row["ambiguous"] and not row["lost_events"]
                     and row["named_share"] >= STACKS_MIN for row in captures), json.dumps(captures))
    return table


def start_switched(rig):
    """A daemon with probes on the launch entries alone."""
    folder = rig.new_path("daemon")
    folder.mkdir()
    probes = {"cuda_func_sym": {name: name for name in ENTRIES}, "libraries": {"cuda_func_sym": [find_libcuda()]}}
    return SwitchedTracer(rig, folder, probes=probes).start()


def check_attached_cost(report, rig):
    """What is switched within one process, in a program that was started with the library and in one that was attached to."""
    with start_switched(rig) as tracer:
        eager, own = work_command("eager"), make_own_libcuda(rig)
        programs = Workers({STARTED: Worker(rig, eager, tracer.socket, own, **INIT_WAIT, GPUPERF_SETTLE_MS="0"),
                            ATTACHED: Worker(rig, eager, libraries=own)})
        try:
            for worker in programs.workers.values():
                worker.read(150)
                worker.ask(ORDER)
            tracer.do("attach", "--pid", programs.pid(ATTACHED))
            for name in programs.workers:
                programs.ask(name)
                tracer.wait_collecting(programs.pid(name))
                tracer.say(programs.pid(name), "pause")
            table = {}
            for name, (way, notes, _) in SWITCHED.items():
                started, attached = [measure_notes(tracer, programs, dataclasses.replace(way, program=program), notes)
                                     for program in programs.workers]
                table[name] = {STARTED: started[0], ATTACHED: attached[0]}
                report.check(f"{name}: no more in a program that was attached to than in one that was started with the library",
                             attached[0][1] <= started[0][2], f"{attached[1]}; {started[1]}")
        finally:
            programs.finish()
    save(rig, "launch_attached", table)


def check_launch_cost(report, rig):
    rig.build()
    counts, begin = [], time.monotonic()
    tracer = start_switched(rig)
    programs = Programs(report, rig, tracer.socket)
    try:
        for pid in map(programs.pid, (EARLY, SETTLED)):
            tracer.wait_collecting(pid)
            tracer.say(pid, "pause")
        tracer.wait_for_probes()
        report.say(f"     programs are ready after {time.monotonic() - begin:.0f} s")
        switched = measure_switched(report, tracer, programs)
        for number in range(ROUNDS):
            for name in list(WAYS)[::-1 if number % 2 else 1]:
                measure_way(tracer, programs, name, counts)
        report.say(f"     with a daemon: {time.monotonic() - begin:.0f} s")
        for program in (EARLY, SETTLED):
            report.say(f"     {program}: {tracer.sessions(programs.pid(program))[0]['detail']}")
        tracer.stop()
        time.sleep(AWAY_SECONDS)
        alone = {BARE_TOO: BARE_TOO, CUPTI: CUPTI, IDLE: HOOKS, AFTER: SETTLED} | {name: name for name in programs.others}
        for number in range(ROUNDS):
            for name in list(alone)[::-1 if number % 2 else 1]:
                programs.measure(name, alone[name], SLICES // 2 if name in programs.others else SLICES)
        table = judge(report, programs, counts)
    finally:
        tracer.stop()
        programs.finish()
    save(rig, "launch_cost", {"rows": programs.rows, "table": table, "switched": switched, "counts": counts})
