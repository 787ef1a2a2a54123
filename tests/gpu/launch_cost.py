"""What seeing every launch costs a program that does nothing but launch: by hooks, by probes, with CUPTI's records, at
rest and in windows; beside CUPTI alone, torch.profiler and Nsight Systems.

The hooks' own cost is measured within one process: they are switched off and on between tokens (hook_switch.py).

Of all else programs stay and the daemon's settings are switched. A slice of each measured program stands between two of a bare one, so that what disturbs the host disturbs both. What counts is the median of the ratios of neighbours, with the
interval that it lies in by 95 %: by the clock, and by the launching thread's CPU time, which other load disturbs less.

The bare program, and the one that is switched, have a libcuda of their own: the daemon's probes are in the host's."""

import dataclasses
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import time

from session_coexist import NSYS, find_tool
from session_rig import Worker
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
# Programs: no session, twice; a session that CUPTI stays in; one that it leaves.
ALONE, HOOKS, EARLY, SETTLED = "alone", "hooks", "early", "settled"


# Within one process: the program, settings, whether a capture runs, the notes that are switched, the limit.
SWITCHED = {"hooks, statistics beside idle hooks": (ALONE, False, False, "count", 1.005),
            "flight recorder beside statistics": (ALONE, True, False, "launches", 1.005),
            "stack at every launch beside statistics": (ALONE, False, True, "launches,each", 1.025),
            "the same beside CUPTI's records and statistics": (EARLY, False, True, "launches,each", 1.05)}


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
# At most of the bare time (issue: launches seen inside the process).
LIMITS = {"between windows": 1.01, FULL: 1.20}
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


class Programs:
    """All of them load at once, each on CPUs that all share, and wait until they are asked."""

    def __init__(self, report, rig, socket):
        eager, nowhere, own = work_command("eager"), rig.new_path("none"), make_own_libcuda(rig)
        client = {"CUDA_INJECTION64_PATH": str(rig.client)}
        self.workers = {BARE: Worker(rig, eager, libraries=own), BARE_TOO: Worker(rig, eager), CUPTI: Worker(rig, eager, **client),
                        ALONE: Worker(rig, eager, nowhere, own), HOOKS: Worker(rig, eager, nowhere), EARLY: Worker(rig, eager, socket, **INIT_WAIT, GPUPERF_SETTLE_MS="3600000"),
                        SETTLED: Worker(rig, eager, socket, **INIT_WAIT, GPUPERF_SETTLE_MS="0")}
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
        self.rows = {}  # by way: (us by the clock, of CPU) of a token, and the same of the bare program beside it

    def pid(self, program):
        return self.workers[program].process.pid

    def ask(self, program):
        """us for a token, by the clock and of CPU."""
        rate, cpu_seconds = self.workers[program].ask_all(ORDER)
        return 1e6 / rate, 1e6 * cpu_seconds

    def measure(self, way, program, slices=SLICES):
        before = self.ask(BARE)
        for _ in range(slices):
            mine, after = self.ask(program), self.ask(BARE)
            bare = [(first + second) / 2 for first, second in zip(before, after)]
            self.rows.setdefault(way, []).append((*mine, *bare))
            before = after

    def finish(self):
        for worker in self.workers.values():
            worker.finish(15)


def list_nsys(rig):
    """Name and command of each way to use it; none where it is not."""
    tool = find_tool(NSYS)
    if tool is None:
        return {}
    plain = [tool, "profile", "--trace=cuda", "--cpuctxsw=none", "--force-overwrite=true"]
    ways = {"nsys -t cuda": ["--sample=none"],
            "nsys -t cuda, backtraces of Python": [
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


def measure_way(tracer, programs, name, counts):
    way = WAYS[name]
    pid = programs.pid(way.program)
    tracer.set(way.hooks, way.recorder)
    if way.order:
        tracer.say(pid, way.order)
    number = tracer.start_capture(pid) if way.captures else None
    programs.ask(way.program)
    time.sleep(SETTLE_SECONDS)
    before = tracer.count_calls(pid)
    programs.measure(name, way.program)
    time.sleep(SETTLE_SECONDS)
    after = tracer.count_calls(pid)
    row = {"way": name, "calls": after[0] - before[0], "hooked": after[1] - before[1]}
    if way.order == "run":  # or CUPTI would record calls once no hooks do
        tracer.say(pid, "pause")
    if number is not None:
        row |= {key: int(value) for key, value in tracer.stop_capture(number).items() if key in ("work", "work_matched", "ambiguous")}
    counts.append(row)


def measure_switched(report, tracer, programs):
    """The time of a token with some notes on beside that with them off, in pairs."""
    table = {}
    for name, (program, recorder, captures, notes, limit) in SWITCHED.items():
        pid, worker = programs.pid(program), programs.workers[program]
        tracer.set(True, recorder)
        if program == EARLY:
            tracer.say(pid, "run")
        number = tracer.start_capture(pid) if captures else None
        programs.ask(program)
        time.sleep(SETTLE_SECONDS)
        worker.give(f"switch {SWITCHED_PAIRS} {notes}")
        times = json.loads(worker.read(120))
        if number is not None:
            tracer.stop_capture(number)
        if program == EARLY:
            tracer.say(pid, "pause")
        table[name] = find_middle([on / off for on, off in zip(times["on"], times["off"])])
        middle, low, high = table[name]
        report.check(f"{name}: at most {limit}", middle <= limit,
                     f"{middle:.4f} ({low:.4f} to {high:.4f}), {SWITCHED_PAIRS} pairs, {1e3 * statistics.median(times['off']):.1f} ms a token")
    return table


def find_middle(values):
    """The median and the interval that it lies in by 95 %."""
    values, half = sorted(values), 0.98 * len(values) ** 0.5
    low, high = max(int(len(values) / 2 - half), 0), min(int(len(values) / 2 + half), len(values) - 1)
    return statistics.median(values), values[low], values[high]


def judge(report, programs, counts):
    table = {}
    for name, rows in programs.rows.items():
        clock, cpu = find_middle([row[0] / row[2] for row in rows]), find_middle([row[1] / row[3] for row in rows])
        table[name] = {"clock": clock, "cpu": cpu}
        report.say(f"     {name}: {clock[0]:.3f} of bare ({clock[1]:.3f} to {clock[2]:.3f}), of CPU {cpu[0]:.3f} "
                   f"({cpu[1]:.3f} to {cpu[2]:.3f}), {len(rows)} pairs; {statistics.median(row[0] for row in rows):.0f} us a token")
    for name, limit in LIMITS.items():
        middle, low, high = table[name]["cpu"]
        report.check(f"{name}: at most {limit} of bare's CPU time", middle <= limit, f"{middle:.4f} ({low:.4f} to {high:.4f})")
    ratio = table[FULL]["cpu"][0] / table[CUPTI]["cpu"][0]
    report.check(f"a full capture: at most {FULL_OF_CUPTI} of CUPTI alone", ratio <= FULL_OF_CUPTI, f"{ratio:.4f}")
    counted = [row for row in counts if WAYS[row["way"]].is_counted()]
    report.check("each launch was counted once, by a hook or by a probe",
                 len({row["calls"] for row in counted}) == 1 and counted[0]["calls"] > 0
                 and all(row["hooked"] == (row["calls"] if WAYS[row["way"]].hooks else 0) for row in counted), json.dumps(counted[:5]))
    full = [row for row in counts if row["way"] == FULL]
    report.check("each kernel of the full captures has its launch",
                 all(row["work"] == row["work_matched"] > 0 and not row["ambiguous"] for row in full), json.dumps(full[:5]))
    return table


def check_launch_cost(report, rig):
    rig.build()
    folder = rig.new_path("daemon")
    folder.mkdir()
    probes = {"cuda_func_sym": {name: name for name in ENTRIES}, "libraries": {"cuda_func_sym": [find_libcuda()]}}
    tracer = SwitchedTracer(rig, folder, probes=probes, more={"ingest": {"cupti_budget_percent": 0}})
    counts, begin = [], time.monotonic()
    tracer.start()
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
