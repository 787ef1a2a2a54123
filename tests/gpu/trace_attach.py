"""gpuperfctl attach and detach, at programs that were started without the library: the first kernel's record, a capture in
which every launch finds its kernel, what it costs while the library comes and goes, and what remains when it has gone."""

import collections
import json
import os
import statistics
import threading
import time

import torch
from hook_switch import find_middle
from session_rig import Worker, finish
from trace_rig import Planted, capturing, list_ranks, save, start_tracer, work_command

PARTS = ("eager", "train", "compiled", "triton", "lt", "graph")  # each in a process of its own
LAUNCHERS = 16  # threads of a C++ program
PROFILED = 4    # programs that torch.profiler records
PORT = 29533
RANKS = 2       # processes of a training, where there are as many GPUs
CAPTURE_SECONDS = 5
ROOM = {"trace": {"max_capture_mib": 1024}, "limits": {"memory_mib": 2048}}  # 260,000 launches a second on an H200
EDGE_SHARE = 1e-3  # of a capture's launches: their work was still to come when it ended
FIRST_KERNEL_SECONDS_MAX = 2
LONGER_MS_MAX = 50
AFTER_RATIO_MAX = 1.005
PAIRS, TOKENS = 150, 2
CYCLES = int(os.environ.get("ATTACH_CYCLES", "100"))


class Steps:
    """Programs that do the same order again and again, in the background, and how long each step took: as the first of
    them says, or else how long the order took."""

    def __init__(self, programs, order):
        self.workers, self.order, self.rows = [program.worker for program in programs], order, []
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.work)

    def work(self):
        while not self.is_over.is_set():
            begin_ns = time.monotonic_ns()
            for worker in self.workers:
                worker.give(self.order)
            answer = [worker.read() for worker in self.workers][0]
            self.rows += json.loads(answer) if answer[0] == "[" else [[begin_ns, time.monotonic_ns() - begin_ns]]

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()

    def longest_ms(self, begin_ns, end_ns):
        return max((length for begin, length in self.rows if begin < end_ns and begin + length > begin_ns), default=0) / 1e6


class Program(Planted):
    """Without the library, and without the truth: that would be another client of CUPTI."""

    def __init__(self, rig, command, **more):
        super().__init__(rig, command, truth=False, **more)


class Launcher:
    """A C++ program without the library."""

    def __init__(self, rig):
        self.worker = Worker(rig, [rig.launcher, "serve"], pinned=False)
        self.worker.read()
        self.pid = self.worker.process.pid


def change(tracer, verb, pid):
    """The row, and when it was asked for and answered."""
    begin_ns = time.monotonic_ns()
    answer = tracer.ctl(verb, "--pid", pid, "-o", "json")
    end_ns = time.monotonic_ns()
    if not answer.stdout:
        raise RuntimeError(f"{verb} {pid}: exit {answer.returncode}: {answer.stderr}")
    return json.loads(answer.stdout)[0], begin_ns, end_ns


def wait_first_kernel(tracer, pid, seconds=20):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if any(int(row["launches"]) for row in tracer.query("kernels", "--pid", pid)):
            return time.monotonic_ns()
        time.sleep(0.02)
    return None


def check_part(report, tracer, programs, part, order, results):
    pids = [program.pid for program in programs]
    with Steps(programs, order) as steps:
        time.sleep(3)
        attached = [change(tracer, "attach", pid) for pid in pids]
        firsts_ns = [wait_first_kernel(tracer, pid) if row["state"] == "attached" else None
                     for pid, (row, *_) in zip(pids, attached)]
        time.sleep(3)
        sessions = [(tracer.sessions(pid) or [{}])[0] for pid in pids]
        with capturing(tracer, pids[0] if len(pids) == 1 else None, nodes=part == "graph") as stored:
            time.sleep(CAPTURE_SECONDS)
        detached = [change(tracer, "detach", pid) for pid in pids]
        time.sleep(2)
    begin_ns, end_ns = attached[0][1], max([attached[-1][2], *filter(None, firsts_ns)])
    firsts_s = [first_ns and (first_ns - begun_ns) / 1e9 for first_ns, (_, begun_ns, _) in zip(firsts_ns, attached)]
    capture = {key: int(stored[0].get(key, 0)) for key in ("launches", "work", "work_matched", "ambiguous", "lost_events")}
    before_ms = steps.longest_ms(0, begin_ns)
    middle_ms = statistics.median(length for begin, length in steps.rows if begin < begin_ns) / 1e6
    during = {"attach": steps.longest_ms(begin_ns, end_ns), "detach": steps.longest_ms(detached[0][1], detached[-1][2])}
    rows, left = [row for row, *_ in attached], [row for row, *_ in detached]
    results[part] = {"rows": rows, "left": left, "firsts_s": firsts_s, "capture": capture, "middle_ms": middle_ms,
                     "longest_before_ms": before_ms, "longest_ms": during, "sessions": sessions}
    report.check(f"{part}: the first kernel's record comes within {FIRST_KERNEL_SECONDS_MAX} s",
                 all(first is not None and first <= FIRST_KERNEL_SECONDS_MAX for first in firsts_s),
                 f"{firsts_s} s; " + "; ".join(f"{row['state']} {row['reason']} {row['detail']}; held "
                                               f"{int(row['held_ns']) / 1e6:.2f} ms" for row in rows))
    report.check(f"{part}: every launch of a capture finds its kernel", capture["work"] == capture["work_matched"] > 0
                 and capture["launches"] * (1 - EDGE_SHARE) <= capture["work"] and not capture["ambiguous"] and not capture["lost_events"],
                 f"{capture}; {[(found.get('state'), found.get('level'), found.get('detail')) for found in sessions]}")
    report.check(f"{part}: no step is more than {LONGER_MS_MAX} ms longer while the library comes and goes",
                 max(during.values()) <= before_ms + LONGER_MS_MAX,
                 f"before {middle_ms:.1f} in the middle, {before_ms:.1f} at most; attach {during['attach']:.1f}, "
                 f"detach {during['detach']:.1f}")
    report.check(f"{part}: detached", all(row["state"] == "can" for row in left),
                 "; ".join(f"{row['state']} {row['reason']} {row['detail']}" for row in left))


def check_what_remains(report, rig, tracer, results):
    """A decode that was attached to beside one that never was, in turns on one CPU: before, while attached, after."""
    command = work_command("eager")
    with Program(rig, command) as mine, Program(rig, command) as other:
        for program in (mine, other):
            program.wait_ready()
            os.sched_setaffinity(program.pid, [min(rig.cpus)])

        def compare():
            rows = []
            for _ in range(PAIRS):
                rows.append([1 / program.worker.ask(f"rate {TOKENS}") for program in (mine, other)])
            return find_middle([ours / theirs for ours, theirs in rows])
        before = compare()
        with Steps([mine], "each eager 0.5"):
            row, *_ = change(tracer, "attach", mine.pid)
            wait_first_kernel(tracer, mine.pid)
        attached = compare()
        with Steps([mine], "each eager 0.5"):
            left, *_ = change(tracer, "detach", mine.pid)
        after = compare()
    results["remains"] = {"before": before, "attached": attached, "after": after, "row": row, "left": left}
    said = {name: f"{middle / before[0]:.4f} ({low / before[0]:.4f} to {high / before[0]:.4f})"
            for name, (middle, low, high) in (("before", before), ("while attached", attached), ("after", after))}
    report.check(f"decode after detach: at most {AFTER_RATIO_MAX} of before", after[0] / before[0] <= AFTER_RATIO_MAX,
                 f"beside a decode that was left alone, {PAIRS} pairs each: {said}; {left['detail']}")


def check_profilers(report, rig, tracer, results):
    """Attached to at moments when torch.profiler records, mostly: it records what it does without us."""
    alone, *others = [rig.start(rig.work_command("profiles")) for _ in range(1 + PROFILED)]
    rows = []
    for process in others:
        deadline = time.monotonic() + 30
        while (row := change(tracer, "attach", process.pid)[0])["state"] != "attached" and time.monotonic() < deadline:
            time.sleep(0.2)  # it has not loaded libcuda yet
        rows.append(f"{row['state']} {row['reason']}")
        time.sleep(1.5)
    sessions = [(tracer.sessions(process.pid) or [{}])[0] for process in others]
    wanted, *seen = [finish(process, 120).json()["profiles"] for process in (alone, *others)]
    results["profilers"] = {"wanted": wanted, "seen": seen, "rows": rows, "sessions": sessions}
    report.check(f"{PROFILED} programs attached to while torch.profiler comes and goes: its events are as without us",
                 all(row == "attached " for row in rows) and all(profiles == wanted for profiles in seen),
                 f"{rows}; {[sum(mine != theirs for mine, theirs in zip(profiles, wanted)) for profiles in seen]} of {len(wanted)} "
                 f"profiles differ; {[(found.get('state'), found.get('detail')) for found in sessions]}")


def count_held(pid):
    """Descriptors, threads, mappings."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        return len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task")), len(maps.readlines())


def check_cycles(report, rig, tracer, results):
    held_ms, failed, fates = [], [], collections.Counter()
    program = Program(rig, work_command("eager", "--small"))
    try:
        program.wait_ready()
        with Steps([program], "each eager 0.5") as steps:
            time.sleep(1)
            for number in range(CYCLES):
                for verb, state in (("attach", "attached"), ("detach", "can")):
                    row, *_ = change(tracer, verb, program.pid)
                    if row["state"] != state:
                        failed.append(f"{number}: {verb}: {row['state']} {row['reason']} {row['detail']}")
                    if verb == "attach":
                        held_ms.append(int(row["held_ns"]) / 1e6)
                    else:
                        fates[row["detail"]] += 1
                if number == 4:
                    before = count_held(program.pid)
            after = count_held(program.pid)
    finally:
        code, said = program.worker.finish(30)
    held_ms.sort()
    results["cycles"] = {"cycles": CYCLES, "held_ms": held_ms, "failed": failed, "before": before, "after": after, "steps": len(steps.rows)}
    report.check(f"{CYCLES} times attached and detached while it decodes", not failed and code == 0 and not said,
                 f"{len(failed)} failed {failed[:3]}; exit {code}, {said[-300:]!r}; held {held_ms[len(held_ms) // 2]:.2f} ms in the middle, "
                 f"{held_ms[-1]:.2f} at most; {dict(fates)}")
    report.check("and nothing stays", after[0] <= before[0] and after[1] <= before[1] and after[2] <= before[2] + 8,
                 f"(descriptors, threads, mappings) {before} then {after}")


def start_programs(report, rig):
    """The programs of each part and what they are asked for."""
    parts = {part: ([Program(rig, work_command(part))], f"each {part} 0.5") for part in PARTS}
    gpus = torch.cuda.device_count()
    if gpus >= RANKS:
        parts["ddp"] = [Program(rig, work_command("ddp"), **rank) for rank in list_ranks(RANKS, PORT)], "each ddp 0.5"
    else:
        report.say(f"     ddp: this host has {gpus} GPU, {RANKS} are needed")
    for programs, _ in parts.values():
        for program in programs:
            program.wait_ready()
    rig.build()
    parts[f"{LAUNCHERS} threads in C++"] = [Launcher(rig)], f"paced {LAUNCHERS} 1000"
    parts[f"{LAUNCHERS} threads in C++, a new stream every 100 launches"] = [Launcher(rig)], f"threads {LAUNCHERS} 100"
    return parts


def check_attach(report, rig):
    results = {}
    with start_tracer(rig, more=ROOM) as tracer:
        tracer.wait_for_probes()
        parts = start_programs(report, rig)
        try:
            for part, (programs, order) in parts.items():
                try:
                    check_part(report, tracer, programs, part, order, results)
                except (RuntimeError, OSError, ValueError, KeyError) as error:
                    report.check(f"{part}: attached to", False, f"{type(error).__name__}: {error}"[:1500])
        finally:
            for programs, _ in parts.values():
                for program in programs:
                    program.worker.finish(30)
        for check in (check_profilers, check_what_remains, check_cycles):
            check(report, rig, tracer, results)
        report.say(f"     drops of the daemon: {tracer.query('status')['drops']}")
    save(rig, "trace_attach", results)
