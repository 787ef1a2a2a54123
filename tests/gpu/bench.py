#!/usr/bin/env python3
"""What gpuperf as shipped costs real work, beside full captures, torch.profiler, Nsight Systems and GPM polling.

usage: bench.py BUNDLE RESULTS_FOLDER bench_WORKLOAD...      WORKLOAD: one of WORKLOADS; PAIRS=N in the environment: pairs of shipped

One daemon runs with the shipped configuration. Each way is a program that stays; its slices stand between slices of a bare
program, and the median of the ratios of neighbours counts. The bare program has libraries of its own: those of PyTorch, CUDA
and the driver are copied, and the daemon's configuration names the host's files.

Prints a table per workload, checks the limits, and writes every step's length to bench.json."""

import contextlib
import ctypes
import itertools
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from hook_switch import find_middle
from launch_cost import find_libcuda, make_own_libcuda
from session_coexist import NSYS, find_tool
from session_rig import Report, Rig, Worker, find_runtime, run_checks, say_versions
from trace_rig import Tracer, list_ranks, work_command

PAIRS = int(os.environ.get("PAIRS", "30"))  # of the shipped way; the others have a sixth
SLICE_SECONDS = 1
FIRST_SECONDS, FIRST_PROGRAMS = 10, 3
SECTIONS = {"cuda_func_sym": ["libcudart.so*", "libcuda.so*"], "cublas_func_sym": ["libcublas.so*", "libcublasLt.so*"],
            "cudnn_func_sym": ["libcudnn*.so*"], "nccl_func_sym": ["libnccl.so*"], "libtorch_func_sym": ["libtorch*.so*", "libc10*.so*"]}
BARE, BARE_TOO, SHIPPED, FIRST, CAPTURE = "bare", "bare, again", "as shipped", "as shipped, first 10 s", "full capture"
PROFILER, NSYS_WAY, GPM = "torch.profiler, CUDA and CPU", "nsys -t cuda", "GPM polled ten times a second"
# Most of bare: mean and 99th percentile of a step, mean in the first 10 s (issue: the budget covers everything).
LIMITS = {"eager": (1.01, 1.02, 1.03), "graph": (1.005, None, None), "train": (1.003, None, 1.01)}
PUBLISHED_POINTS, PUBLISHED_SHARE = 0.005, 0.3
TOGETHER = {"graph": 50, "compiled": 10}  # so many make a step
MEASURED_SECONDS = 60
PORT = 29541


class Copies:
    """The libraries of PyTorch, CUDA and the driver once more: no probe is in them."""

    def __init__(self, rig, folder):
        runtime = find_runtime()
        self.site = runtime.parents[3]
        self.python = folder / "python"
        for name in ("torch", "nvidia"):
            shutil.copytree(self.site / name, self.python / name, ignore=shutil.ignore_patterns("include", "test", "*.a"))
        self.libraries = f"{make_own_libcuda(rig)}:{self.python / runtime.parent.relative_to(self.site)}"

    def environment(self):
        return {"PYTHONPATH": str(self.python), "LD_LIBRARY_PATH": self.libraries}

    def probed(self):
        """The `libraries` of a configuration: the host's files alone."""
        folders = [self.site / "torch/lib", pathlib.Path(find_libcuda()).parent, *sorted(self.site.glob("nvidia/*/lib"))]
        return {section: [f"{folder}/{name}" for folder in folders for name in names] for section, names in SECTIONS.items()}


class Steps:
    """A program that does one part of trace_work.py; on several GPUs, one process each."""

    def __init__(self, bench, part, is_bare, profiler="", prefix=(), ranks=1):
        more = bench.copies.environment() if is_bare else {}
        socket = None if is_bare else bench.tracer.socket
        command = [*prefix, *work_command(part, *(["--profiler", profiler] if profiler else []))]
        self.workers = [Worker(bench.rig, command, socket, pinned=ranks == 1, **more, **rank)
                        for rank in list_ranks(ranks, next(bench.ports))]
        self.part = part

    def wait_ready(self):
        for worker in self.workers:
            worker.read(180)

    def pid(self):
        return self.workers[0].process.pid

    def run(self, seconds):
        """Lengths of steps, us."""
        for worker in self.workers:
            worker.give(f"each {self.part} {seconds} {TOGETHER.get(self.part, 1)}")
        return [length / 1e3 for _, length in [json.loads(worker.read(180)) for worker in self.workers][0]]

    def finish(self):
        for worker in self.workers:
            worker.finish(60)


class Launches:
    """A C++ loop of launches; a step is a launch: the median of 2,000."""

    def __init__(self, bench, _part, is_bare, **_):
        self.worker = Worker(bench.rig, [bench.rig.launcher, "serve"], None if is_bare else bench.tracer.socket,
                             bench.copies.libraries if is_bare else None)

    def wait_ready(self):
        self.worker.read(60)

    def pid(self):
        return self.worker.process.pid

    def run(self, seconds):
        rows, end = [], time.monotonic() + seconds
        while time.monotonic() < end:
            rows.append(self.worker.ask("launch 20000") / 1e3)
        return rows

    def finish(self):
        self.worker.finish(15)


class Processes:
    """Four programs at once that start, launch 2,000 kernels and end, again and again; a step is from start to end of all."""

    def __init__(self, bench, _part, is_bare, **_):
        self.rig, self.socket = bench.rig, None if is_bare else bench.tracer.socket
        self.libraries = bench.copies.libraries if is_bare else None

    def wait_ready(self):
        self.run(0)

    def pid(self):
        return 0  # another each time

    def run(self, seconds):
        rows, end = [], time.monotonic() + seconds
        while not rows or time.monotonic() < end:
            begin_ns = time.monotonic_ns()
            started = [self.rig.start([self.rig.launcher, "end", "return", "2000"], self.socket, self.libraries) for _ in range(4)]
            if any(process.wait(60) != 0 for process in started):
                raise RuntimeError(f"a program failed: {started[0].stderr.read()}")
            rows.append((time.monotonic_ns() - begin_ns) / 1e3)
        return rows

    def finish(self):
        pass


WORKLOADS = {"eager": Steps, "graph": Steps, "train": Steps, "compiled": Steps, "ddp": Steps, "launches": Launches, "processes": Processes}


class GpmPoller:
    """Takes samples of NVML's GPU performance monitoring as DCGM does, for as long as it is told to."""

    def __init__(self):
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        self.device, self.sample = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("nvmlInit_v2")
        self.call("nvmlDeviceGetHandleByIndex_v2", 0, ctypes.byref(self.device))
        self.call("nvmlGpmSampleAlloc", ctypes.byref(self.sample))

    def call(self, name, *arguments):
        if (status := getattr(self.library, name)(*arguments)) != 0:
            raise RuntimeError(f"{name}: NVML error {status}")

    @contextlib.contextmanager
    def polling(self):
        is_over = threading.Event()

        def poll():
            while not is_over.wait(0.1):
                self.call("nvmlGpmSampleGet", self.device, self.sample)
        thread = threading.Thread(target=poll)
        thread.start()
        yield
        is_over.set()
        thread.join()


class Workload:
    """The programs of one workload, and what was measured of them."""

    def __init__(self, bench, name):
        kind, self.bench, self.name = WORKLOADS[name], bench, name
        ranks = 2 if name == "ddp" else 1

        def make(is_bare, **more):
            return kind(bench, name, is_bare, ranks=ranks, **more) if kind is Steps else kind(bench, name, is_bare)
        self.programs = {BARE: make(True), BARE_TOO: make(True), SHIPPED: make(False), CAPTURE: make(False)}
        self.fresh = [make(False) for _ in range(FIRST_PROGRAMS)] if LIMITS.get(name, (0, 0, None))[2] else []
        if kind is Steps and ranks == 1:
            self.programs[PROFILER] = make(True, profiler="both")
            if nsys := find_tool(NSYS):
                self.programs[NSYS_WAY] = make(True, prefix=[
                    nsys, "profile", "--trace=cuda", "--cpuctxsw=none", "--sample=none", "--force-overwrite=true", "--output", bench.rig.new_path("nsys")])
        self.pairs, self.said = {}, {SHIPPED: [], CAPTURE: []}  # pairs: steps of the way, of the bare program before and after

    def wait_ready(self, report):
        for name, program in list(self.programs.items()):
            try:
                program.wait_ready()
                program.run(SLICE_SECONDS)
            except RuntimeError as error:
                if name in (BARE, SHIPPED):
                    raise
                report.say(f"     {self.name}, {name}: does not work here: {str(error)[-300:]}")
                del self.programs[name]
        for program in self.fresh:
            program.wait_ready()

    def measure(self, way, program, count, seconds=SLICE_SECONDS):
        bare = self.programs[BARE]
        before = bare.run(SLICE_SECONDS)
        for _ in range(count):
            with self.bench.adding_shares(program.pid() if way in self.said else 0) as shares:
                mine = program.run(seconds)
                after = bare.run(SLICE_SECONDS)
            if shares:
                self.said[way].append(sum(shares) / seconds)
            self.pairs.setdefault(way, []).append((mine, before, after))
            before = after

    def measure_all(self):
        for program in self.fresh:
            self.measure(FIRST, program, 1, FIRST_SECONDS)
        few = max(PAIRS // 6, 5)
        for number in range(few):
            self.measure(SHIPPED, self.programs[SHIPPED], max(PAIRS // few, 1))
            with self.bench.capturing(self.programs[CAPTURE].pid()):
                self.measure(CAPTURE, self.programs[CAPTURE], 1)
            if self.bench.poller:
                with self.bench.poller.polling():
                    self.measure(GPM, self.programs[BARE_TOO], 1)
            for way in (BARE_TOO, PROFILER, NSYS_WAY)[::-1 if number % 2 else 1]:
                if way in self.programs:
                    self.measure(way, self.programs[way], 1)

    def measure_itself(self):
        """What gpuperf finds by experiment in its own program; {} = nothing."""
        program = self.programs[SHIPPED]
        with subprocess.Popen([*self.bench.tracer.ctl_words("overhead", "measure", "--for", f"{MEASURED_SECONDS}s", "-o", "json")],
                              stdout=subprocess.PIPE, text=True) as measuring:
            while measuring.poll() is None:
                program.run(5 * SLICE_SECONDS)
            answer = measuring.stdout.read()
        rows = json.loads(answer)["measurements"] if measuring.returncode == 0 else []
        return next((row for row in rows if row["pid"] == program.pid()), {})

    def compare(self, way, reduce=statistics.mean):
        """(median, low, high) of the ratios of neighbours."""
        return find_middle([reduce(mine) / statistics.mean((reduce(before), reduce(after))) for mine, before, after in self.pairs[way]])

    def compare_p99(self, way):
        """Of all steps together."""
        def p99(rows):
            return statistics.quantiles(rows, n=100)[98]
        mine = [length for row, _, _ in self.pairs[way] for length in row]
        bare = [length for _, before, _ in self.pairs[way] for length in before]
        return p99(mine) / p99(bare) if min(len(mine), len(bare)) >= 200 else None

    def finish(self):
        for program in [*self.programs.values(), *self.fresh]:
            program.finish()


class Bench:
    def __init__(self, report, rig, folder):
        self.rig, self.copies, self.ports = rig, Copies(rig, folder), itertools.count(PORT)
        config = {"libraries": self.copies.probed()}
        self.tracer = Tracer(rig, folder, budget_percent=None, more=config)
        self.tracer.start()
        try:
            self.poller = GpmPoller()
        except (OSError, RuntimeError, AttributeError) as error:
            self.poller = None
            report.say(f"     {GPM}: does not work here: {error}")

    def read_share(self, pid):
        return next((float(row["overhead_ratio"]) for row in self.tracer.query("processes") if int(row["pid"]) == pid), 0)

    @contextlib.contextmanager
    def adding_shares(self, pid):
        """Seconds that gpuperf says the process lost meanwhile. What it publishes comes up to two seconds late, so this goes on
        while the process rests."""
        shares, is_over = [], threading.Event()

        def add():
            last = time.monotonic()
            while not is_over.wait(0.2):
                share, now = self.read_share(pid), time.monotonic()
                shares.append(share * (now - last))
                last = now
        if pid == 0:
            yield shares
            return
        thread = threading.Thread(target=add)
        thread.start()
        yield shares
        is_over.set()
        thread.join()

    @contextlib.contextmanager
    def capturing(self, pid):
        number = self.tracer.start_capture(pid or None)
        yield
        self.tracer.stop_capture(number)


def report_workload(report, workload):
    name = workload.name
    report.say("| way | step, of bare | 99th percentile | published |\n|---|---|---|---|")
    table = {}
    for way in workload.pairs:
        middle, low, high = table[way] = workload.compare(way)
        p99 = workload.compare_p99(way)
        said = workload.said.get(way)
        report.say(f"| {way} | {middle:.3f} ({low:.3f} to {high:.3f}) | {f'{p99:.3f}' if p99 else '-'} | "
                   f"{f'{statistics.mean(said):.2%}' if said else '-'} |")
    bare = [length for row in workload.pairs[SHIPPED] for length in row[1]]
    report.say(f"     {name}: a bare step takes {statistics.median(bare):.1f} us, {len(workload.pairs[SHIPPED])} pairs of {SLICE_SECONDS} s")
    for limit, way, figure in zip(LIMITS.get(name, ()), (SHIPPED, SHIPPED, FIRST), ("step", "99th percentile", "step")):
        if limit and way in table:
            got = table[way][0] if figure == "step" else workload.compare_p99(way)
            report.check(f"{name}: {figure} {way} at most {limit} of bare", got is not None and got <= limit, f"{got}")
    for way, said in workload.said.items():
        if said:
            lost = 1 - 1 / table[way][0]
            away = abs(statistics.mean(said) - lost)
            report.check(f"{name}: published share of {way} is near what is lost", away <= max(PUBLISHED_POINTS, PUBLISHED_SHARE * lost),
                         f"published {statistics.mean(said):.2%}, lost {lost:.2%}")
    return table


def make_check(name):
    def check(report, rig):
        bench = Bench.shared
        if name == "ddp" and len(os.listdir("/proc/driver/nvidia/gpus")) < 2:
            report.say("     ddp: this host has one GPU, two are needed")
            return
        workload = Workload(bench, name)
        try:
            workload.wait_ready(report)
            bench.tracer.wait_for_probes()
            workload.measure_all()
            itself = workload.measure_itself() if workload.programs[SHIPPED].pid() else {}
        finally:
            workload.finish()
        path = rig.results / "bench.json"
        results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        if itself:
            report.say(f"     {name}: gpuperfctl overhead measure: probes and hooks take {itself['ratio']:.2%} ({itself['low_ratio']:.2%} to "
                       f"{itself['high_ratio']:.2%}, {itself['pairs']} pairs), estimated {itself['estimated_ratio']:.2%}")
        results[name] = {"table": report_workload(report, workload), "measured": itself, "said": workload.said, "rows": {
            way: [[statistics.mean(steps) for steps in row] for row in rows] for way, rows in workload.pairs.items()}}
        path.write_text(json.dumps(results), encoding="utf-8")
    return check


CHECKS = {f"bench_{name}": make_check(name) for name in WORKLOADS}


def main():
    bundle, results = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    wanted = sys.argv[3:]
    unknown = [name for name in wanted if name not in CHECKS]
    if unknown or not wanted:
        sys.exit(f"bench.py: no such workload: {', '.join(unknown)}; there are {', '.join(CHECKS)}")
    report = Report(results / "bench_summary.txt")
    say_versions(report, bundle)
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        rig = Rig(bundle, results, folder)
        rig.build()
        begin = time.monotonic()
        Bench.shared = Bench(report, rig, pathlib.Path(folder))
        report.say(f"     libraries copied and gpuperfd started after {time.monotonic() - begin:.0f} s")
        try:
            run_checks(report, rig, CHECKS, wanted)
        finally:
            Bench.shared.tracer.stop()


if __name__ == "__main__":
    main()
