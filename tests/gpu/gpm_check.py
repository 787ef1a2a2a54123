"""The check of hardware counters (NVML GPM): the daemon's figures beside loads of known size, what a sample costs, and
what a profiler does to them. Needs a GPU from Hopper on that nothing else uses."""

import collections
import csv
import ctypes
import io
import json
import pathlib
import statistics
import subprocess
import sys
import threading
import time

SECONDS = 5  # of each load: windows of 1 s, or of 2 s where gpuperfd samples less often
POINTS = 0.03  # how far a ratio may be off
# PCIe counts headers, too: about a tenth of what is copied, in packets of 256 bytes.
PCIE_MOST = 1.15

Load = collections.namedtuple("Load", "kind duty arguments", defaults=((),))
LOADS = [Load("spin", 1, (1.0, 32)), Load("spin", 1, (0.5, 1024)), Load("spin", 1, (0.25, 256)),
         Load("spin", 0.5, (1.0, 1024)), Load("fp32", 1), Load("fp32", 0.4), Load("fp64", 1), Load("fp64", 0.3),
         Load("fp16", 0.5), Load("copy", 1), Load("copy", 0.5), Load("copy", 0.2), Load("receive", 1),
         Load("receive", 0.3), Load("send", 0.5)]
GEMM_DUTIES = (1, 0.75, 0.5, 0.25)


class Watcher(threading.Thread):
    """Reads the counters of the first GPU until stop(); each window once."""

    def __init__(self, daemon):
        super().__init__(daemon=True)
        self.daemon_under_test = daemon
        self.windows = []  # (start, end, counters)
        self.stopping = threading.Event()

    def run(self):
        last = 0
        while not self.stopping.wait(0.3):
            counters = self.daemon_under_test.query("gpus")[0]["counters"]
            now_ns = time.monotonic_ns()
            if counters["samples"] == last or not counters["window_ns"]:
                continue
            last = counters["samples"]
            end_ns = now_ns - counters["age_ns"]  # some milliseconds late: the CLI's own time
            self.windows.append((end_ns - counters["window_ns"], end_ns, counters))

    def average(self, load):
        """Of the windows that lie in the load, by counter, and how many they are."""
        inside = [counters for start, end, counters in self.windows
                  if start > load["start_mono_ns"] + 1e8 and end < load["end_mono_ns"] - 1e7]
        names = {name for counters in inside for name, value in counters.items()
                 if value is not None and name.endswith(("_ratio", "_per_second"))}
        return {name: statistics.mean(counters[name] for counters in inside) for name in names}, len(inside)


def read_peak_bytes_per_second(gpu):
    """Of the device memory: two transfers a clock over the whole bus."""
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    nvml.nvmlInit_v2()
    device, bits = ctypes.c_void_p(), ctypes.c_uint()
    nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
    nvml.nvmlDeviceGetMemoryBusWidth(device, ctypes.byref(bits))
    return gpu["memory_clock_max_hz"] * 2 * bits.value / 8


def ask_ncu_tensor_ratio(bundle):
    """How much of a GEMM's cycles the tensor pipe is active, by Nsight Compute; 0 where it does not say. In cycles, because
    the clock sinks at full load by more than NVML reports."""
    metric = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
    answer = subprocess.run(
        ["ncu", "--metrics", metric, "--csv", "--page", "raw", "--clock-control", "none", "--cache-control", "none",
         "--launch-skip", "20", "--launch-count", "3", "--kernel-name", "regex:gemm|nvjet|cutlass", sys.executable,
         bundle / "gpm_gemm.py", "rate", "0.1"], capture_output=True, text=True, check=False, timeout=120)
    lines = [line for line in answer.stdout.splitlines() if line.startswith('"')]
    rows = list(csv.DictReader(io.StringIO("\n".join(lines))))[1:]  # the first has the units
    return statistics.mean([float(row[metric]) / 100 for row in rows if row.get(metric)] or [0])


def list_expected(load, told, peak):
    """Counter -> (what is known of it, the full scale of its points)."""
    busy = told["busy_ratio"]
    expected = {"graphics_engine_active_ratio": busy}
    if load.kind == "spin":
        share, threads = load.arguments
        expected |= {"sm_active_ratio": share * busy, "sm_occupancy_ratio": share * busy * threads / 32 / 64}
    if load.kind in ("fp32", "fp64"):
        expected |= {f"{load.kind}_active_ratio": told["pipe_ratio"], "sm_active_ratio": busy}
    if load.kind == "copy":
        expected |= {"dram_active_ratio": 2 * told["bytes_per_second"] / peak}
    if load.kind in ("receive", "send", "copy"):
        del expected["graphics_engine_active_ratio"]  # copies are the copy engines' work, or kernels of the driver
    return expected


def check_load(report, watcher, load, told, peak):
    seen, windows = watcher.average(told)
    name = f"{load.kind} {' '.join(map(str, load.arguments))} at {load.duty:.0%}"
    report.say(f"   {name}: busy {told['busy_ratio']:.4f}, pipe {told.get('pipe_ratio', 0):.4f}, "
               f"{told.get('bytes_per_second', 0) / 1e9:.2f} GB/s; {windows} windows: "
               + ", ".join(f"{key} {value:.4g}" for key, value in sorted(seen.items()) if value))
    report.check(f"{name} has windows", windows >= 1, f"{windows}")
    for counter, known in list_expected(load, told, peak).items():
        report.check(f"{name}: {counter} is within 3 points of what is known",
                     counter in seen and abs(seen[counter] - known) <= POINTS,
                     f"{seen.get(counter)} and {known:.4f}")
    if load.kind in ("receive", "send"):
        counter = "pcie_receive_bytes_per_second" if load.kind == "receive" else "pcie_transmit_bytes_per_second"
        ratio = seen.get(counter, 0) / told["bytes_per_second"]
        report.check(f"{name}: {counter} is what is copied and its headers", 0.97 <= ratio <= PCIE_MOST, f"{ratio:.3f} of it")


def wait_for_gpu(daemon):
    """The first GPU, once it was read: opening NVML may take seconds."""
    for _ in range(200):
        gpus = daemon.query("gpus")
        if gpus and gpus[0]["counters"]["window_ns"]:
            return gpus[0]
        time.sleep(0.1)
    sys.exit(f"no hardware counters after 20 s: {daemon.ctl('gpus').stdout}")


def check_loads(report, daemon, bundle):
    gpu = wait_for_gpu(daemon)
    watcher = Watcher(daemon)
    watcher.start()
    peak = read_peak_bytes_per_second(gpu)
    report.say(f"   {gpu['name']}: device memory at most {peak / 1e12:.3f} TB/s")
    results = []
    for load in LOADS:
        arguments = list(map(str, load.arguments))
        if load.arguments:
            arguments[0] = str(round(load.arguments[0] * sm_count(bundle)))
        told = json.loads(subprocess.run([bundle / "traces/gpm_load", load.kind, str(load.duty), str(SECONDS), *arguments],
                                         capture_output=True, text=True, check=True, timeout=60).stdout)
        time.sleep(0.8)  # the last window is read
        results.append((load, told))
        check_load(report, watcher, load, told, peak)
    lines = subprocess.run([sys.executable, bundle / "gpm_gemm.py", "duty", str(SECONDS), *map(str, GEMM_DUTIES)],
                           capture_output=True, text=True, check=True, timeout=120).stdout.splitlines()
    time.sleep(0.8)
    tensor_ratio = ask_ncu_tensor_ratio(bundle)
    report.say(f"   within a GEMM Nsight Compute finds the tensor pipe active for {tensor_ratio:.4f} of the cycles")
    for told in map(json.loads, lines):
        load = Load("gemm", told["duty"])
        check_load(report, watcher, load, told, peak)
        seen = watcher.average(told)[0]
        tensor = seen.get("tensor_active_ratio", 0)
        known = seen.get("graphics_engine_active_ratio", 0) * tensor_ratio
        report.check(f"gemm at {load.duty:.0%}: tensor_active_ratio is within 3 points of Nsight Compute's, while the engine is active",
                     abs(tensor - known) <= POINTS, f"{tensor:.4f} and {known:.4f}")
    watcher.stopping.set()
    counters = daemon.query("gpus")[0]["counters"]
    report.check("no sample failed", counters["failed_samples"] == 0, f"{counters['failed_samples']} of {counters['samples']}")
    report.say(daemon.ctl("gpus").stdout + daemon.ctl("doctor", check=False).stdout)


def sm_count(bundle, known=[]):
    if not known:
        output = subprocess.run([bundle / "traces/gpm_load", "spin", "1", "0.1", "1", "32"], capture_output=True, text=True,
                                check=True).stdout
        known.append(json.loads(output)["sms"])
    return known[0]


def read_gpu_thread_ns(pid):
    """CPU time of the daemon's thread that reads GPUs."""
    tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks
               if (task / "comm").read_text().strip() == "gpu")


def check_counter_cost(report, bundle, start_daemon, rounds=2, seconds=6):
    """The GEMM's rate and the CPU time of the daemon's GPU thread, with counters and without, in turns. No other daemon
    runs; `start_daemon(with_counters)` starts one."""
    rates, cpu_ns = {True: [], False: []}, {True: [], False: []}
    with subprocess.Popen([sys.executable, bundle / "gpm_gemm.py", "rate", "600"], stdout=subprocess.PIPE, text=True) as work:
        lines = []
        reader = threading.Thread(target=lambda: lines.extend(map(json.loads, work.stdout)), daemon=True)
        reader.start()
        time.sleep(10)
        periods = []
        for turn in range(2 * rounds):
            with_counters = turn % 2 == 0
            daemon = start_daemon(with_counters)
            try:
                while not daemon.query("gpus"):
                    time.sleep(0.1)
                time.sleep(2)
                before, start_ns = read_gpu_thread_ns(daemon.process.pid), time.monotonic_ns()
                time.sleep(seconds)
                after, end_ns = read_gpu_thread_ns(daemon.process.pid), time.monotonic_ns()
                samples = daemon.query("gpus")[0]["counters"]["samples"]
                shown = daemon.ctl("doctor", check=False).stdout
            finally:
                daemon.stop()
            cpu_ns[with_counters].append((after - before) / (end_ns - start_ns) * 1e9)
            periods.append((with_counters, start_ns, end_ns))
            report.say(f"   {'with' if with_counters else 'without'} counters: {samples} samples; "
                       f"{[line for line in shown.splitlines() if 'less often' in line]}")
        work.terminate()
        reader.join(10)
    for with_counters, start_ns, end_ns in periods:
        inside = [line["gemms_per_second"] for line in lines if line["start_mono_ns"] > start_ns and line["end_mono_ns"] < end_ns]
        rates[with_counters].append(statistics.mean(inside))
    with_rate, without_rate = statistics.median(rates[True]), statistics.median(rates[False])
    report.say(f"   GEMMs a second with {[round(rate, 1) for rate in rates[True]]}, without {[round(rate, 1) for rate in rates[False]]}")
    report.say(f"   CPU of the GPU thread, us a second: with {[round(ns / 1e3) for ns in cpu_ns[True]]}, "
               f"without {[round(ns / 1e3) for ns in cpu_ns[False]]}")
    report.check("counters cost the GEMM less than 1 %", with_rate > without_rate * 0.99, f"{with_rate / without_rate:.4f} of its rate")
    cost_ns = statistics.median(cpu_ns[True]) - statistics.median(cpu_ns[False])
    report.check("counters cost the daemon less than 1 % of a CPU", cost_ns < 1e7, f"{cost_ns / 1e6:.2f} ms a second")


def check_profiler(report, daemon, bundle):
    """What Nsight Compute does to the samples: said, whichever it is; afterwards there are values again."""
    before = daemon.query("gpus")[0]["counters"]
    try:
        result = subprocess.run(["ncu", "--set", "full", "--launch-count", "3", bundle / "traces/gpm_load", "fp32", "1", "1"],
                                capture_output=True, text=True, check=False, timeout=60)
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        report.say(f"   ncu does not run here: {error}")
        return
    after = daemon.query("gpus")[0]["counters"]
    report.say(f"   ncu: exit {result.returncode}; {after['samples'] - before['samples']} samples meanwhile, "
               f"{after['failed_samples'] - before['failed_samples']} failed: {after['reason']!r}; {result.stdout[-300:]}")
    for _ in range(70):
        if daemon.query("gpus")[0]["counters"]["window_ns"]:
            break
        time.sleep(1)
    report.check("counters are back after a profiler", daemon.query("gpus")[0]["counters"]["window_ns"] > 0)


def check_counters(report, daemon, bundle):
    check_loads(report, daemon, bundle)
    check_profiler(report, daemon, bundle)
