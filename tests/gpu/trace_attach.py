"""gpuperfctl attach and detach, at programs that were started without the library: the first kernel's record, a capture in
which every launch finds its kernel, what it costs while the library comes and goes, and what remains when it has gone."""

import collections
import json
import os
import statistics
import threading
import time

from hook_switch import find_middle
from trace_rig import Planted, capturing, save, start_tracer, work_command

PARTS = ("eager", "train", "compiled", "triton", "lt", "graph")  # each in a process of its own
CAPTURE_SECONDS = 5
FIRST_KERNEL_SECONDS_MAX = 2
LONGER_MS_MAX = 50
AFTER_RATIO_MAX = 1.005
PAIRS, TOKENS = 60, 4
CYCLES = int(os.environ.get("ATTACH_CYCLES", "100"))


class Steps:
    """A program that works all the time, in the background, and tells how long each step took."""

    def __init__(self, program, part):
        self.program, self.part, self.rows = program, part, []
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.work)

    def work(self):
        while not self.is_over.is_set():
            self.rows += self.program.ask(f"each {self.part} 0.5")

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

    def __init__(self, rig, command, pinned=False):
        super().__init__(rig, command, truth=False)
        if pinned:
            os.sched_setaffinity(self.pid, rig.cpus)


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


def check_part(report, tracer, program, part, results):
    with Steps(program, part) as steps:
        time.sleep(3)
        row, begin_ns, end_ns = change(tracer, "attach", program.pid)
        first_ns = wait_first_kernel(tracer, program.pid) if row["state"] == "attached" else None
        time.sleep(3)
        session = (tracer.sessions(program.pid) or [{}])[0]
        with capturing(tracer, program.pid, nodes=part == "graph") as stored:
            time.sleep(CAPTURE_SECONDS)
        left, leave_ns, left_ns = change(tracer, "detach", program.pid)
        time.sleep(2)
    capture = {key: int(stored[0].get(key, 0)) for key in ("launches", "work", "work_matched", "ambiguous", "lost_events")}
    before_ms = steps.longest_ms(0, begin_ns)
    middle_ms = statistics.median(length for begin, length in steps.rows if begin < begin_ns) / 1e6
    during = {"attach": steps.longest_ms(begin_ns, first_ns or end_ns), "detach": steps.longest_ms(leave_ns, left_ns)}
    first_s = (first_ns - begin_ns) / 1e9 if first_ns else None
    results[part] = {"row": row, "left": left, "first_s": first_s, "capture": capture, "middle_ms": middle_ms,
                     "longest_before_ms": before_ms, "longest_ms": during, "session": session}
    report.check(f"{part}: the first kernel's record comes within {FIRST_KERNEL_SECONDS_MAX} s",
                 first_s is not None and first_s <= FIRST_KERNEL_SECONDS_MAX,
                 f"{first_s and round(first_s, 2)} s; {row['state']} {row['reason']} {row['detail']}; held {int(row['held_ns']) / 1e6:.2f} ms")
    report.check(f"{part}: every launch of a capture finds its kernel", capture["work"] == capture["work_matched"] > 0
                 and not capture["ambiguous"] and not capture["lost_events"],
                 f"{capture}; {session.get('state')} {session.get('level')} {session.get('detail')}")
    report.check(f"{part}: no step is more than {LONGER_MS_MAX} ms longer while the library comes and goes",
                 max(during.values()) <= before_ms + LONGER_MS_MAX,
                 f"before {middle_ms:.1f} in the middle, {before_ms:.1f} at most; attach {during['attach']:.1f}, "
                 f"detach {during['detach']:.1f}")
    report.check(f"{part}: detached", left["state"] == "can", f"{left['state']} {left['reason']} {left['detail']}")


def check_what_remains(report, rig, tracer, results):
    """A decode that was attached to, beside one that never was, before and after."""
    with Program(rig, work_command("eager"), pinned=True) as mine, Program(rig, work_command("eager"), pinned=True) as other:
        for program in (mine, other):
            program.wait_ready()

        def compare():
            rows = []
            for _ in range(PAIRS):
                rows.append([1 / program.worker.ask(f"rate {TOKENS}") for program in (mine, other)])
            return find_middle([ours / theirs for ours, theirs in rows])
        before = compare()
        with Steps(mine, "eager"):
            row, *_ = change(tracer, "attach", mine.pid)
            wait_first_kernel(tracer, mine.pid)
            time.sleep(2)
        with Steps(mine, "eager"):
            left, *_ = change(tracer, "detach", mine.pid)
        after = compare()
    results["remains"] = {"before": before, "after": after, "row": row, "left": left}
    report.check(f"decode after detach: at most {AFTER_RATIO_MAX} of before", after[0] / before[0] <= AFTER_RATIO_MAX,
                 f"{after[0] / before[0]:.4f}; before {before[0]:.4f} ({before[1]:.4f} to {before[2]:.4f}), after {after[0]:.4f} "
                 f"({after[1]:.4f} to {after[2]:.4f}) of a decode that was left alone; {left['detail']}")


def count_held(pid):
    """Descriptors, threads, mappings."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        return len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task")), len(maps.readlines())


def check_cycles(report, rig, tracer, results):
    held_ms, failed, fates = [], [], collections.Counter()
    program = Program(rig, work_command("eager", "--small"))
    try:
        program.wait_ready()
        with Steps(program, "eager") as steps:
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


def check_attach(report, rig):
    results = {}
    with start_tracer(rig) as tracer:
        tracer.wait_for_probes()
        programs = {part: Program(rig, work_command(part)) for part in PARTS}
        try:
            for part, program in programs.items():
                program.wait_ready()
            for part, program in programs.items():
                try:
                    check_part(report, tracer, program, part, results)
                except (RuntimeError, OSError, ValueError, KeyError) as error:
                    report.check(f"{part}: attached to", False, f"{type(error).__name__}: {error}"[:1500])
        finally:
            for program in programs.values():
                program.worker.finish(30)
        for check in (check_what_remains, check_cycles):
            check(report, rig, tracer, results)
        report.say(f"     drops of the daemon: {tracer.query('status')['drops']}")
    save(rig, "trace_attach", results)
