"""What seeing every launch costs a program that does nothing but launch: by hooks in the process and by probes.

All ways are switched inside one process, whose library has no session: CUPTI stays out of it. A second process, without
the library, says what the hooks cost while nobody listens."""

import json
import signal
import statistics
import time

from session_rig import Worker
from trace_rig import Tracer, save, work_command

ROUNDS = 7
DECODE, EMPTY = "rate 24", "launch 20000"  # tokens a second; ns for an empty kernel's launch
SETTLE_SECONDS = 0.7  # after a change, until probes are in or out
ENTRIES = ("cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel", "cuGraphLaunch")
PROBES = {"cuda_func_sym": {name: name for name in ENTRIES}}
BARE, IDLE = "not injected", "hooks, no daemon"
# Settings of each way, and whether a capture runs.
WAYS = {"hooks, statistics": ({"launch_hooks": True, "recorder": False}, False),
        "hooks, statistics and recorder": ({"launch_hooks": True, "recorder": True}, False),
        "hooks, stack at every launch": ({"launch_hooks": True, "recorder": False}, True),
        "probes, statistics": ({"launch_hooks": False, "recorder": False}, False),
        "probes, statistics and recorder": ({"launch_hooks": False, "recorder": True}, False),
        "probes, stack at every launch": ({"launch_hooks": False, "recorder": False}, True)}
# At most of the bare time (issue: launches seen inside the process).
LIMITS = {"hooks, no daemon": 1.005, "hooks, statistics and recorder": 1.01, "hooks, stack at every launch": 1.03}


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


class Programs:
    """Both programs, once with the library and once without."""

    def __init__(self, rig):
        nowhere = rig.new_path("none")
        self.workers = {(program, name): Worker(rig, command, socket)
                        for program, command in {"decode": work_command("eager"), "empty": [rig.launcher, "serve"]}.items()
                        for name, socket in {BARE: None, IDLE: nowhere}.items()}
        self.figures = {"decode": {}, "empty": {}}
        for worker in self.workers.values():
            worker.read(120)

    def pid(self, program):
        return self.workers[program, IDLE].process.pid

    def measure(self, way, worker=IDLE):
        """Seconds per token, and per launch."""
        self.figures["decode"].setdefault(way, []).append(1 / self.workers["decode", worker].ask(DECODE))
        self.figures["empty"].setdefault(way, []).append(self.workers["empty", worker].ask(EMPTY) / 1e9)

    def finish(self):
        for worker in self.workers.values():
            worker.finish(15)


def measure_ways(rig, programs, counts, order):
    folder = rig.new_path("daemon")
    folder.mkdir()
    with SwitchedTracer(rig, folder, budget_percent=0, probes=PROBES) as tracer:
        tracer.start()
        tracer.wait_for_probes()
        for name in order:
            settings, captures = WAYS[name]
            tracer.set(**settings)
            number = tracer.start_capture() if captures else None
            time.sleep(SETTLE_SECONDS if captures else 0)
            before = tracer.count_calls(programs.pid("decode"))
            programs.measure(name)
            time.sleep(SETTLE_SECONDS)
            after = tracer.count_calls(programs.pid("decode"))
            counts.append({"way": name, "calls": after[0] - before[0], "hooked": after[1] - before[1]})
            if number is not None:
                tracer.stop_capture(number)


def check_launch_cost(report, rig):
    rig.build()
    programs, counts = Programs(rig), []
    try:
        for number in range(ROUNDS):
            for name in (BARE, IDLE)[::-1 if number % 2 else 1]:
                programs.measure(name, name)
            measure_ways(rig, programs, counts, list(WAYS)[::-1 if number % 2 else 1])
            for name in (IDLE, BARE)[::-1 if number % 2 else 1]:
                programs.measure(name, name)
    finally:
        programs.finish()
    ratios = {program: compare(report, program, figures) for program, figures in programs.figures.items()}
    for name, limit in LIMITS.items():
        report.check(f"{name}: at most {limit} of bare", ratios["decode"][name]["fastest"] <= limit,
                     f"{ratios['decode'][name]['fastest']:.4f} of eager decode, the fastest of {ROUNDS} each")
    hooked = [row for row in counts if row["way"].startswith("hooks")]
    report.check("hooks counted every launch, and each once",
                 len({row["calls"] for row in counts}) == 1 and counts[0]["calls"] > 0
                 and all(row["calls"] == row["hooked"] for row in hooked)
                 and not any(row["hooked"] for row in counts if row not in hooked),
                 json.dumps(counts[:len(WAYS)]))
    save(rig, "launch_cost", {"seconds": programs.figures, "ratios": ratios, "counts": counts})


def compare(report, program, figures):
    """Time beside the bare program's: of the medians, and of the fastest, which other load disturbs least."""
    ratios = {}
    for name, values in figures.items():
        base = figures[BARE if name == IDLE else IDLE]
        ratios[name] = {"median": statistics.median(values) / statistics.median(base), "fastest": min(values) / min(base)}
        report.say(f"     {program}, {name}: {ratios[name]['median']:.3f} by the medians, {ratios[name]['fastest']:.3f} by the "
                   f"fastest; {statistics.median(values) * 1e6:.2f} us ({min(values) * 1e6:.2f} to {max(values) * 1e6:.2f})")
    return ratios
