#!/usr/bin/env python3
"""The GPU tests: gpuperfd beside real PyTorch work, its counts against torch.profiler's.

usage: checks.py BUNDLE RESULTS_FOLDER [CHECK...]      CHECK: cuda_calls | kernels | libraries | truth | causes | stacks | nvml | gpm

Starts the bundle's daemon, runs each check, prints PASS or FAIL per claim and writes what it saw to
the results folder. The last line is "N passed, N failed"; exit code 1 when something failed.
"""

import contextlib
import glob
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.request

from gpm_check import check_counter_cost, check_counters
from session_rig import Report

BUNDLE = pathlib.Path(sys.argv[1]).resolve()
RESULTS = pathlib.Path(sys.argv[2]).resolve()
METRICS_ADDRESS = "127.0.0.1:9465"
# Every exported way to launch one kernel; graphs are not used here.
LAUNCHES = ["cuLaunchKernel", "cuLaunchKernel_ptsz", "cuLaunchKernelEx", "cuLaunchKernelEx_ptsz",
            "cuLaunchCooperativeKernel", "cuLaunchCooperativeKernel_ptsz"]


class Daemon:
    """The bundle's gpuperfd with a runtime folder of its own."""

    def __init__(self, folder, **stats):
        self.folder = pathlib.Path(folder)
        self.address = f"unix:{self.folder}/api.sock"
        with open(BUNDLE / "config.json", encoding="utf-8") as file:
            config = json.load(file)
        # The claim about kernels needs every launch function, whatever the shipped list holds.
        shown = {entry if isinstance(entry, str) else entry["symbol"]: name
                 for key, section in config.items() if key.endswith("_sym")
                 for name, entry in section.items()}
        config.setdefault("cuda_func_sym", {}).update(
            {name: name for name in LAUNCHES if name not in shown})
        # Some of these launches are slow by this: enough records to see kernels named in.
        config["cuda_func_sym"] |= {
            shown.get(name, name): {"symbol": name, "slow_threshold_ms": 0.01} for name in LAUNCHES}
        self.symbols = {name: symbol for symbol, name in shown.items()}
        config.setdefault("libtorch_func_sym", {})["linear"] = "at::_ops::linear::call"
        config.setdefault("slow", {})["default_threshold_ms"] = 20
        config["custom_sym"] = {"stage_batch": {"symbol": "stage_batch", "may_throw": False}}
        config.setdefault("libraries", {})["custom_sym"] = [str(self.folder / "libstall.so")]
        # Counts are compared with the truth: nothing may be taken out.
        config.setdefault("overhead", {})["budget_percent"] = 0
        config["stats"] = config.get("stats", {}) | {"interval_ms": 250} | stats
        config.setdefault("metrics", {})["listen"] = METRICS_ADDRESS
        config.setdefault("grpc", {})["listen"] = self.address
        config["storage"] = {"path": str(self.folder) + "/store"}
        (self.folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
        self.log = open(RESULTS / "gpuperfd.log", "a", encoding="utf-8")
        self.process = subprocess.Popen(
            [BUNDLE / "bin/gpuperfd", "--config", self.folder / "config.json",
             "--runtime-dir", self.folder], stdout=self.log, stderr=subprocess.STDOUT)
        self.wait_until_ready()

    def wait_until_ready(self):
        for _ in range(300):
            if self.process.poll() is not None:
                text = (RESULTS / "gpuperfd.log").read_text(encoding="utf-8")
                sys.exit(f"gpuperfd ended with {self.process.returncode} while starting:\n{text}")
            if self.ctl("status", check=False).returncode == 0:
                return
            time.sleep(0.1)
        sys.exit("gpuperfd did not answer within 30 s; see gpuperfd.log")

    def ctl(self, *arguments, check=True):
        result = subprocess.run([BUNDLE / "bin/gpuperfctl", "--address", self.address, *arguments],
                                capture_output=True, text=True, check=False)
        if check and result.returncode != 0:
            sys.exit(f"gpuperfctl {' '.join(arguments)}: exit {result.returncode}: {result.stderr}")
        return result

    def query(self, *arguments):
        return json.loads(self.ctl(*arguments, "-o", "json").stdout)

    def calls(self, pid):
        """Calls so far by symbol, once two readings a snapshot apart agree."""
        before = None
        for _ in range(40):
            rows = self.query("functions", "--pid", str(pid))
            now = {}
            for row in rows:
                symbol = self.symbols.get(row["function"], row["function"])
                now[symbol] = now.get(symbol, 0) + row["calls"]
            if now == before:
                return now
            before = now
            time.sleep(0.6)
        sys.exit(f"the counts of process {pid} went on changing for 24 s although it waits")

    def wait_for_probes(self):
        """Until the number of attached probes has stopped growing."""
        seen = []
        for _ in range(60):
            seen.append(self.query("status")["probes"]["attached"])
            if seen[-1] > 0 and seen[-3:] == [seen[-1]] * 3:
                return seen[-1]
            time.sleep(1)
        sys.exit("probes went on being attached for 60 s")

    def stop(self):
        self.process.terminate()
        try:
            code = self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = "none within 30 s of SIGTERM"
        self.log.close()
        return code


def library_path():
    """Folders of the CUDA libraries that python3's PyTorch brings."""
    import torch
    site = pathlib.Path(torch.__file__).parent.parent
    folders = [site / "torch/lib", *map(pathlib.Path, glob.glob(f"{site}/nvidia/*/lib"))]
    toolkit = [pathlib.Path("/usr/local/cuda/lib64")]
    return ":".join(str(folder) for folder in folders + toolkit if folder.is_dir())


def run_python(script, *options):
    """The JSON object a script prints."""
    result = subprocess.run([sys.executable, BUNDLE / script, *options], capture_output=True,
                            text=True, check=False, timeout=280)
    if result.returncode != 0:
        sys.exit(f"{script} {' '.join(options)}: exit {result.returncode}:\n"
                 f"{result.stderr[-4000:]}")
    return json.loads(result.stdout.splitlines()[-1])


@contextlib.contextmanager
def stepped(script, folder, *options):
    """Runs a script that waits at its ready file; yields its files and process."""
    files = {name: os.path.join(folder, name) for name in ("ready", "go", "done", "end")}
    for path in files.values():
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)
    known = tuple(files) if script == "torch_kernels.py" else ("ready", "go", "end")
    flags = [word for name in known for word in (f"--{name}-file", files[name])]
    process = subprocess.Popen([sys.executable, BUNDLE / script, *flags, *options],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield files, process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def wait_for(path, process):
    deadline = time.monotonic() + 240
    while not os.path.exists(path):
        if process.poll() is not None:
            sys.exit(f"the workload ended early:\n{process.stderr.read()[-4000:]}")
        if time.monotonic() > deadline:
            sys.exit(f"the workload did not reach {os.path.basename(path)} within 240 s")
        time.sleep(0.05)


def touch(path):
    with open(path, "w", encoding="utf-8"):
        pass


def finish(files, process):
    touch(files["end"])
    output, errors = process.communicate(timeout=60)
    if process.returncode != 0:
        sys.exit(f"the workload ended with {process.returncode}:\n{errors[-4000:]}")
    return json.loads(output.splitlines()[-1])


def launches(calls):
    return {name: calls.get(name, 0) for name in LAUNCHES if calls.get(name, 0)}


def describe(counts):
    return " + ".join(f"{name} {count}" for name, count in counts.items()) or "none"


def list_kernel_names(daemon, pid):
    """Names of the kernels of a process's slow launches, and the launches without one."""
    named, unnamed = set(), []
    for function in LAUNCHES:
        for call in daemon.query("slow", "list", "--function", function, "--pid", str(pid),
                                 "--limit", "200"):
            kernel = next(argument["value"] for argument in call["arguments"]
                          if argument["name"] == "kernel")
            if kernel.startswith("0x"):
                caller = next((frame["symbol"] or frame["module"] for frame in call["user_stack"]), "")
                unnamed.append((call["function"], kernel, call["duration_ns"], caller[:80]))
            else:
                named.add(kernel)
    return named, unnamed


def check_kernels(report, daemon, folder, bare):
    # The first process makes the daemon find the libraries; later ones are counted from their
    # first call.
    with stepped("torch_kernels.py", folder) as (files, process):
        wait_for(files["ready"], process)
        report.say(f"probes attached: {daemon.wait_for_probes()}")
        pid = int(pathlib.Path(files["ready"]).read_text(encoding="utf-8"))
        before = daemon.calls(pid)
        touch(files["go"])
        wait_for(files["done"], process)
        after = daemon.calls(pid)
        plain = finish(files, process)
    hits = {name: count - before.get(name, 0) for name, count in launches(after).items()}
    window = run_python("torch_kernels.py", "--profile", "window")
    report.check("launches of the measured part equal torch.profiler's kernels",
                 sum(hits.values()) == window["kernels"] > 10000,
                 f"{describe(hits)} = {sum(hits.values())}; profiler {window['kernels']}")

    with stepped("torch_kernels.py", folder) as (files, process):
        wait_for(files["ready"], process)
        touch(files["go"])
        wait_for(files["done"], process)
        pid = int(pathlib.Path(files["ready"]).read_text(encoding="utf-8"))
        whole_hits = launches(daemon.calls(pid))
        finish(files, process)
    whole = run_python("torch_kernels.py", "--profile", "whole")
    total = sum(whole_hits.values())
    report.check("launches of the whole process equal torch.profiler's kernels",
                 total == whole["kernels"] > 10000,
                 f"{describe(whole_hits)} = {total}; profiler {whole['kernels']}")

    named, unnamed = list_kernel_names(daemon, pid)
    report.check("slow launches name their kernel", len(named) >= 3 and not unnamed,
                 f"unnamed {unnamed}; named {[name[:60] for name in sorted(named)]}")

    speed = {name: round(run["tokens"] / run["seconds"], 1)
             for name, run in (("without gpuperfd", bare), ("with gpuperfd", plain))}
    report.say(f"tokens per second: {speed}")
    (RESULTS / "kernels.json").write_text(json.dumps(
        {"window": {"hits": hits, "profiler": window},
         "whole": {"hits": whole_hits, "profiler": whole}, "tokens_per_second": speed}, indent=2),
        encoding="utf-8")


def describe_stack(call):
    return "\n".join(f"    {frame['symbol'] or frame['module']}"
                     + (f"  {frame['file']}:{frame['line']}" if frame["file"] else "")
                     for frame in call["user_stack"])


def check_stacks(report, daemon, folder):
    """Every launch is slow by a threshold of 100 ns: stacks of as many as the daemon hands on."""
    def set_thresholds(value):
        for name in LAUNCHES:
            daemon.ctl("probes", "threshold", name, value)

    with stepped("torch_kernels.py", folder, "--tokens", "400") as (files, process):
        wait_for(files["ready"], process)
        daemon.wait_for_probes()
        pid = int(pathlib.Path(files["ready"]).read_text(encoding="utf-8"))
        drops_before = {(row["stage"], row["reason"]): int(row["count"])
                        for row in daemon.query("status")["drops"]}
        set_thresholds("100ns")
        touch(files["go"])
        wait_for(files["done"], process)
        set_thresholds("config")
        calls = []
        for name in LAUNCHES:
            calls += daemon.query("slow", "list", "--function", name, "--pid", str(pid),
                                  "--limit", "20000")
        finish(files, process)
    drops = {(row["stage"], row["reason"]): int(row["count"])
             - drops_before.get((row["stage"], row["reason"]), 0)
             for row in daemon.query("status")["drops"]}
    calls = [call for call in calls if call["threshold_ns"] == 100]
    ends = {}
    for call in calls:
        ends[call["user_stack_end"]] = ends.get(call["user_stack_end"], 0) + 1
    complete = [call for call in calls if call["user_stack_end"] == "complete"
                and call["user_stack"][-1]["symbol"] in ("_start", "clone3", "__clone3", "clone")]
    layers = [call for call in complete
              if any(frame["kind"] == "python" and frame["symbol"].endswith("Block.forward")
                     and frame["file"].endswith("torch_kernels.py") for frame in call["user_stack"])]
    python = [call for call in complete
              if any(frame["kind"] == "python" for frame in call["user_stack"])]
    distinct = {call["user_stack_id"] for call in calls}
    share = len(complete) / max(len(calls), 1)
    report.check("stacks of launches lead to the program's start", len(calls) >= 2000 and share > 0.99,
                 f"{len(complete)} of {len(calls)} ({100 * share:.2f} %), ends {ends}, "
                 f"{len(distinct)} distinct; drops {dict((k, v) for k, v in drops.items() if v)}")
    report.check("they name the lines of Python", len(python) > 0.99 * len(calls),
                 f"{len(python)} of {len(calls)} have frames of Python, "
                 f"{len(layers)} of them in the model's layers")
    if layers:
        longest = max(layers, key=lambda call: len(call["user_stack"]))
        report.say("the longest stack of a layer:\n" + describe_stack(longest))
    others = [call for call in calls if call["user_stack_end"] != "complete"][:3]
    for call in others:
        report.say(f"a stack that ends {call['user_stack_end'] or 'before it begins'}:\n"
                   + describe_stack(call))
    (RESULTS / "stacks.json").write_text(json.dumps(layers[:20] + others, indent=1), encoding="utf-8")


def check_libraries(report, daemon, folder):
    with stepped("torch_libraries.py", folder) as (files, process):
        wait_for(files["ready"], process)
        daemon.wait_for_probes()
        pid = int(pathlib.Path(files["ready"]).read_text(encoding="utf-8"))
        before = daemon.calls(pid)
        touch(files["go"])
        # The process prints its result before it waits for the end file.
        result = json.loads(process.stdout.readline())
        rows = daemon.query("functions", "--pid", str(pid))
        after = daemon.calls(pid)
        table = daemon.ctl("functions", "--pid", str(pid)).stdout
        touch(files["end"])
        process.wait(60)
    (RESULTS / "libraries_table.txt").write_text(table, encoding="utf-8")
    report.say(table)
    for category in ("cuda", "cublas", "cudnn", "nccl"):
        seen = sorted(row["function"] for row in rows
                      if row["category"] == category and row["calls"])
        report.check(f"{category} functions are in the table", seen, ", ".join(seen) or "none")
    reduces = after.get("ncclAllReduce", 0) - before.get("ncclAllReduce", 0)
    report.check("ncclAllReduce was counted once per all_reduce",
                 reduces == result["all_reduces_after_go"],
                 f"{reduces} of {result['all_reduces_after_go']}")


def check_truth(report, daemon, folder):
    def read(pid):
        daemon.calls(pid)  # until they are steady
        rows = {row["function"]: row for row in daemon.query("functions", "--pid", str(pid))}
        shapes = {(s["function"], int(s["m"]), int(s["n"]), int(s["k"]), int(s["batch"])): s
                  for s in daemon.query("functions", "--shapes", "--pid", str(pid))}
        return rows, shapes

    with stepped("torch_truth.py", folder) as (files, process):
        wait_for(files["ready"], process)
        daemon.wait_for_probes()
        pid = int(pathlib.Path(files["ready"]).read_text(encoding="utf-8"))
        before, shapes_before = read(pid)
        touch(files["go"])
        truth = json.loads(process.stdout.readline())
        after, shapes_after = read(pid)
        shown = daemon.ctl("functions", "--pid", str(pid)).stdout
        shapes_shown = daemon.ctl("functions", "--shapes", "--pid", str(pid)).stdout
        probes = [row for row in daemon.query("probes", "list") if row["function"] == "linear"]
        touch(files["end"])
        process.wait(60)
    (RESULTS / "truth.json").write_text(json.dumps(
        {"truth": truth, "before": before, "after": after, "linear": probes}, indent=2),
        encoding="utf-8")
    report.say(shown + shapes_shown)

    def gained(function, field):
        return int(after.get(function, {}).get(field, 0)) - int(before.get(function, {}).get(field, 0))

    def directions(rows):
        return {entry["direction"]: int(entry["bytes"])
                for entry in rows.get("cudaMemcpyAsync", {}).get("bytes_by_direction", [])}

    old = directions(before)
    gains = {name: count - old.get(name, 0) for name, count in directions(after).items()}
    copied = {name: count for name, count in gains.items() if count}
    report.check("bytes of a known copy plan", copied == truth["bytes"],
                 f"{copied}; truth {truth['bytes']}")
    new = {}
    for key, shape in shapes_after.items():
        calls = int(shape["calls"]) - int(shapes_before.get(key, {}).get("calls", 0))
        if calls:
            new[key] = calls
    report.check("operations of known GEMMs",
                 sum(gained(name, "flops") for name in after) == truth["flops"],
                 f"{sum(gained(name, 'flops') for name in after)} of {truth['flops']}: {new}")
    # A row-major product is asked of the column-major library with its sides exchanged.
    found = sorted((min(m, n), max(m, n), k, batch) for _, m, n, k, batch in new)
    wanted = sorted((min(m, n), max(m, n), k, batch) for m, n, k, batch in truth["shapes"])
    report.check("shapes of known GEMMs", found == wanted and
                 all(calls == truth["rounds"] for calls in new.values()), f"{found}; truth {wanted}")
    report.check("bytes of a known all-reduce",
                 gained("ncclAllReduce", "bytes") == truth["all_reduce_bytes"],
                 f"{gained('ncclAllReduce', 'bytes')} of {truth['all_reduce_bytes']}")
    calls = truth["linear_returned"] + truth["linear_threw"]
    report.check("aten::linear is counted, and its exceptions pass", gained("linear", "calls") == calls,
                 f"{gained('linear', 'calls')} of {calls}; "
                 + "; ".join(f"{p['state']} exits {p['exit_sites']} {p['reason']}" for p in probes))
    timed = gained("linear", "calls") - gained("linear", "untimed")
    if timed:
        completed = timed - gained("linear", "abandoned") - gained("linear", "in_flight")
        report.check("calls of aten::linear that returned were timed, those that threw were not",
                     completed == truth["linear_returned"],
                     f"{completed} of {truth['linear_returned']}, abandoned {gained('linear', 'abandoned')}")


def check_cuda_calls(report, daemon, folder):
    go = os.path.join(folder, "go")
    with contextlib.suppress(FileNotFoundError):
        os.remove(go)
    environment = os.environ | {"LD_LIBRARY_PATH": library_path()}
    process = subprocess.Popen([BUNDLE / "workloads/cuda_calls", "--wait-for-file", go],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=environment)
    daemon.wait_for_probes()
    touch(go)
    output, errors = process.communicate(timeout=120)
    report.say(errors.strip())
    if process.returncode != 0:
        report.check("cuda_calls runs on this GPU", False, f"exit {process.returncode}")
        return
    truth = json.loads(output)
    seen = daemon.calls(truth["pid"])
    named = {name: entry["calls"] for name, entry in truth["calls"].items()
             if name.startswith("cuda") and name in seen}
    # NCCL carries a runtime of its own, linked in, whose calls count in the same process.
    wrong = {name: (calls, seen[name]) for name, calls in named.items() if seen[name] < calls}
    more = {name: seen[name] - calls for name, calls in named.items() if seen[name] > calls}
    report.check("CUDA runtime calls are counted as often as made",
                 len(named) >= 10 and not wrong,
                 str(wrong or f"{len(named)} functions, {sum(named.values())} calls; further ones "
                     f"of NCCL's own runtime: {more or 'none'}"))
    errors = {name: entry["errors"] for name, entry in truth["calls"].items() if entry["errors"]}
    report.check("cuda_calls found the GPU", truth["gpu"], f"calls that failed: {errors or 'none'}")


STALL = """
#include <time.h>
void stage_batch(unsigned long ms) {
  struct timespec left = {ms / 1000, ms % 1000 * 1000000};
  while (nanosleep(&left, &left) != 0) {}
}
"""


def check_causes(report, daemon, folder):
    library = os.path.join(folder, "libstall.so")
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-o", library, "-"], input=STALL, text=True,
                   check=True)
    for function, threshold in (("stage_batch", "10ms"), ("cudaMalloc", "1ms")):
        daemon.ctl("probes", "threshold", function, threshold)
    with stepped("torch_causes.py", folder, "--stall-library", library) as (files, process):
        wait_for(files["ready"], process)
        daemon.wait_for_probes()
        pid = int(pathlib.Path(files["ready"]).read_text(encoding="utf-8"))
        touch(files["go"])
        planted = json.loads(process.stdout.readline())
        time.sleep(2)
        calls = [call for call in daemon.query("slow", "list", "--pid", str(pid), "--limit", "500")
                 if not call["in_flight"]]
        touch(files["end"])
        process.wait(60)
    (RESULTS / "causes.json").write_text(json.dumps({"planted": planted, "calls": calls}, indent=2),
                                         encoding="utf-8")
    for claim, functions, words in (
            ("a host stall", ["stage_batch"], "Slept 5"),
            ("a copy from pageable memory", ["cudaMemcpyAsync", "cudaMemcpy"], "pageable"),
            ("an allocation under pressure", ["cudaMalloc"], "memory management"),
            ("a long kernel before a synchronize", ["cudaDeviceSynchronize"],
             "for the GPU to finish what was queued before")):
        found = sorted((call for call in calls if call["function"] in functions),
                       key=lambda call: -call["duration_ns"])
        report.check(f"{claim} is a slow call that explains itself",
                     found and words in found[0]["explanation"],
                     f"{len(found)} of {functions}: {found[0]['explanation'] if found else ''}")
        if found:
            report.say(daemon.ctl("slow", "show", str(found[0]["id"])).stdout)


# Field of nvidia-smi -> (our value as nvidia-smi shows it, tolerance). Both read within a second of each
# other, on a GPU that works evenly.
SMI_FIELDS = {
    "index": (lambda gpu: gpu["index"], 0),
    "memory.used": (lambda gpu: gpu["memory_used_bytes"] / 2**20, 64),
    "memory.total": (lambda gpu: gpu["memory_total_bytes"] / 2**20, 1),
    "utilization.gpu": (lambda gpu: gpu["utilization_ratio"] * 100, 30),
    "power.draw.average": (lambda gpu: gpu["power_watts"], 60),
    "enforced.power.limit": (lambda gpu: gpu["power_limit_watts"], 1),
    "clocks.sm": (lambda gpu: gpu["sm_clock_hz"] / 1e6, 150),
    "clocks.max.sm": (lambda gpu: gpu["sm_clock_max_hz"] / 1e6, 0),
    "clocks.mem": (lambda gpu: gpu["memory_clock_hz"] / 1e6, 0),
    "temperature.gpu": (lambda gpu: gpu["temperature_celsius"], 4),
    "ecc.errors.corrected.volatile.total": (lambda gpu: gpu["ecc"]["corrected_volatile"], 0),
    "ecc.errors.uncorrected.volatile.total": (lambda gpu: gpu["ecc"]["uncorrected_volatile"], 0),
    "pcie.link.gen.max": (lambda gpu: gpu["pcie"]["max_generation"], 0),
    "pcie.link.width.current": (lambda gpu: gpu["pcie"]["width_lanes"], 0),
}
# Counters of nvidia-smi, microseconds, that begin with the driver's load: our reason.
SMI_COUNTERS = {
    "sw_power_cap": "power_cap", "sync_boost": "sync_boost", "sw_thermal_slowdown": "sw_thermal",
    "hw_thermal_slowdown": "hw_thermal", "hw_power_brake_slowdown": "power_brake"}


def ask_smi(fields):
    """One dictionary per GPU; empty where this nvidia-smi does not know a field."""
    result = subprocess.run(["nvidia-smi", f"--query-gpu={','.join(fields)}",
                             "--format=csv,noheader,nounits"], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        return []
    return [dict(zip(fields, (cell.strip() for cell in line.split(","))))
            for line in result.stdout.splitlines() if line.strip()]


def compare_gpu(gpu, smi):
    """What differs by more than its tolerance, and how many values both tell."""
    wrong, compared = {}, 0
    for field, (get, tolerance) in SMI_FIELDS.items():
        text = smi.get(field, "")
        try:
            theirs, ours = float(text), get(gpu)
        except (ValueError, TypeError):
            continue  # one of them does not tell it
        compared += 1
        if abs(theirs - ours) > tolerance:
            wrong[field] = {"nvidia-smi": theirs, "gpuperf": ours}
    return wrong, compared


def check_nvml(report, daemon):
    """What gpuperf tells of the GPUs, at work, beside nvidia-smi."""
    work = subprocess.Popen([sys.executable, "-c",
                             "import torch, time\n"
                             "a = torch.randn(8192, 8192, device='cuda', dtype=torch.bfloat16)\n"
                             "end = time.monotonic() + 30\n"
                             "while time.monotonic() < end:\n"
                             "    for _ in range(20): a @ a\n"
                             "    torch.cuda.synchronize()\n"])
    try:
        time.sleep(15)  # the work has begun, and is even; lists of processes are read every 10 s
        gpus = daemon.query("gpus")
        smi = []
        for field in SMI_FIELDS:  # one by one: an unknown field fails the whole query
            for place, row in enumerate(ask_smi(["uuid", field])):
                if place == len(smi):
                    smi.append({})
                smi[place] |= row
        counters = [ask_smi(["uuid", f"clocks_event_reasons_counters.{name}"]) for name in SMI_COUNTERS]
        shown = daemon.ctl("gpus").stdout
    finally:
        work.terminate()
        work.wait()
    (RESULTS / "gpus.json").write_text(json.dumps(
        {"gpuperf": gpus, "nvidia_smi": smi, "counters": counters}, indent=2), encoding="utf-8")
    report.say(shown)
    by_uuid = {gpu["uuid"]: gpu for gpu in gpus}
    report.check("every GPU of nvidia-smi is read", smi and {row["uuid"] for row in smi} == set(by_uuid),
                 f"{len(by_uuid)} of {len(smi)}")
    for row in smi:
        wrong, compared = compare_gpu(by_uuid.get(row["uuid"], {}), row) \
            if row["uuid"] in by_uuid else ({"uuid": "missing"}, 0)
        report.check(f"values of {row['uuid'][:12]} are nvidia-smi's", not wrong and compared >= 10,
                     f"{compared} compared; {wrong or 'none differs'}")
    told = 0
    for (name, reason), rows in zip(SMI_COUNTERS.items(), counters):
        for row in rows:
            text = row[f"clocks_event_reasons_counters.{name}"]
            limit = next((limit for limit in by_uuid.get(row["uuid"], {}).get("clock_limits", [])
                          if limit["reason"] == reason), None)
            if not text.isdigit() or limit is None:
                continue
            told += 1
            ours = limit["total_ns"]
            # 5 s: what may be gained between the two readings.
            report.check(f"time limited by {reason} is nvidia-smi's",
                         ours is not None and abs(ours / 1000 - int(text)) <= 5_000_000,
                         f"{ours} ns; nvidia-smi {text} us")
    report.say(f"counters of clock limits that nvidia-smi tells: {told}")
    status = daemon.query("status")
    report.check("nothing is wrong with reading GPUs",
                 not [row for row in status["problems"] if row["subject"] == "GPU health"],
                 str(status["problems"]))
    report.check("a process that computes is listed with its memory",
                 any(process["memory_bytes"] for gpu in gpus for process in gpu["processes"]),
                 str([gpu["processes"] for gpu in gpus]))


def write_views(report, daemon):
    with urllib.request.urlopen(f"http://{METRICS_ADDRESS}/metrics", timeout=10) as answer:
        (RESULTS / "metrics.txt").write_bytes(answer.read())
    (RESULTS / "functions.json").write_text(
        daemon.ctl("functions", "-o", "json").stdout, encoding="utf-8")
    status = daemon.ctl("status").stdout
    slow = daemon.query("slow", "list", "--limit", "1")
    shown = daemon.ctl("slow", "show", str(slow[0]["id"])).stdout if slow else "(no slow call)"
    (RESULTS / "status_and_slow_call.txt").write_text(f"{status}\n{shown}", encoding="utf-8")
    report.say(f"{status}\n{shown}")
    tick = os.sysconf("SC_CLK_TCK")
    for task in pathlib.Path(f"/proc/{daemon.process.pid}/task").iterdir():
        fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
        seconds = (int(fields[11]) + int(fields[12])) / tick
        if seconds > 0.1:
            report.say(f"thread {(task / 'comm').read_text().strip()}: {seconds:.1f} s of CPU")


def main():
    wanted = sys.argv[3:] or ["cuda_calls", "kernels", "libraries", "truth", "causes", "stacks", "nvml", "gpm"]
    report = Report(RESULTS / "summary.txt")
    version = (BUNDLE / "VERSION").read_text(encoding="utf-8").strip()
    gpu = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                         capture_output=True, text=True, check=False).stdout.strip()
    report.say(f"gpuperf {version} on {gpu}, kernel {os.uname().release}")
    with tempfile.TemporaryDirectory(prefix="gpuperf-gpu-") as folder:
        bare = run_python("torch_kernels.py") if "kernels" in wanted else None
        daemon = Daemon(folder)
        try:
            if "cuda_calls" in wanted:
                check_cuda_calls(report, daemon, folder)
            if "kernels" in wanted:
                check_kernels(report, daemon, folder, bare)
            if "libraries" in wanted:
                check_libraries(report, daemon, folder)
            if "truth" in wanted:
                check_truth(report, daemon, folder)
            if "causes" in wanted:
                check_causes(report, daemon, folder)
            if "stacks" in wanted:
                check_stacks(report, daemon, folder)
            if "nvml" in wanted:
                check_nvml(report, daemon)
            if "gpm" in wanted:
                check_counters(report, daemon, BUNDLE)
            write_views(report, daemon)
        finally:
            code = daemon.stop()
        report.check("gpuperfd stops on SIGTERM", code == 0, f"exit code {code}")
        if "gpm" in wanted:
            check_counter_cost(report, BUNDLE, lambda counters: Daemon(folder, gpu_counters=counters))
    report.say(f"{report.passed} passed, {report.failed} failed")
    sys.exit(1 if report.failed else 0)


if __name__ == "__main__":
    main()
