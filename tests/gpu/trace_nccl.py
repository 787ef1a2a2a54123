"""gpuperfctl nccl on two real GPUs: bus bandwidth beside the benchmark's own, and ranks that are late or stuck by a planted
cause, which must be named."""

import contextlib
import itertools
import json
import pathlib
import signal
import subprocess
import sys
import time

from trace_rig import list_ranks, save, start_tracer

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
SIZES = tuple(1 << bits for bits in (20, 22, 24, 26, 28, 30))
TOLERANCE = 0.03
NAMED_SECONDS = 30
PORTS = itertools.count(29700)
# Cause -> what gpuperfctl nccl may call it.
CAUSES = {"delay": ("sleep",), "loader": ("io", "lock", "sleep"), "quota": ("cpu_quota",), "stopped": ("stopped",)}

PROGRAM = r"""
import json, os, sys, time
import torch
import torch.distributed as dist
rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
def make(operation, size):
    whole = torch.ones(size // 4, device="cuda")
    part = torch.ones(size // 4 // count, device="cuda")
    other = torch.empty_like(whole)
    return {"all_reduce": lambda: dist.all_reduce(whole),
            "all_gather": lambda: dist.all_gather_into_tensor(whole, part),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole),
            "all_to_all": lambda: dist.all_to_all_single(other, whole)}[operation]
def bench(operation, size):
    run = make(operation, size)
    for _ in range(5): run()
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()
    print("warm", flush=True)
    sys.stdin.readline()
    iterations = max(20, min(400, (1 << 31) // size))
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(iterations): run()
    end.record()
    torch.cuda.synchronize()
    print(json.dumps({"iterations": iterations, "seconds": begin.elapsed_time(end) / 1e3}), flush=True)
class Slow(torch.utils.data.Dataset):
    def __init__(self, seconds): self.seconds = seconds
    def __len__(self): return 1 << 30
    def __getitem__(self, index):
        time.sleep(self.seconds)
        return torch.ones(16)
def compute():
    total, end = 0, time.thread_time() + 0.02
    while time.thread_time() < end: total += 1
def steps(cause):
    big = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    data = iter(torch.utils.data.DataLoader(Slow(0.06 if cause == "loader" else 0.001), batch_size=1, num_workers=1))
    print("warm", flush=True)
    while True:
        next(data)
        compute()
        if cause == "delay": time.sleep(0.02)
        y = big
        for _ in range(20): y = y @ big
        dist.all_reduce(y)
        torch.cuda.synchronize()
print("ready", flush=True)
for line in sys.stdin:
    words = line.split()
    if words[0] == "bench": bench(words[1], int(words[2]))
    elif words[0] == "steps": steps(words[1] if rank == 1 else "")
"""


class Ranks:
    """Two processes of one job."""

    def __init__(self, rig, tracer):
        self.processes = [subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                           text=True, env=rig.environment(tracer.socket) | more)
                          for more in list_ranks(2, next(PORTS))]
        self.read_all("ready")

    def read_all(self, expected=None):
        lines = [process.stdout.readline().strip() for process in self.processes]
        if expected and lines != [expected] * len(lines):
            raise RuntimeError(f"ranks said {lines} in place of {expected}")
        return lines

    def give(self, line):
        for process in self.processes:
            process.stdin.write(line + "\n")
            process.stdin.flush()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()


def find_size(tracer, operation, size):
    """Of the communicator that has most of it: timed operations and their GPU time."""
    found = [row for communicator in tracer.query("nccl") for row in communicator["sizes"]
             if (row["operation"], row["size_bytes"]) == (operation, size)]
    return max(found, key=lambda row: row["count"], default={"count": 0, "timed": 0, "gpu_ns": 0, "bus_bandwidth": 0})


def settle(tracer, operation, size, count):
    """Once so many are counted, and their kernels known or given up."""
    deadline = time.monotonic() + 12
    while (row := find_size(tracer, operation, size))["count"] < count and time.monotonic() < deadline:
        time.sleep(0.2)
    return row


def compare(report, tracer, ranks, operation, size):
    ranks.give(f"bench {operation} {size}")
    ranks.read_all("warm")
    before = settle(tracer, operation, size, 5)
    ranks.give("go")
    own = json.loads(ranks.read_all()[0])
    after = settle(tracer, operation, size, before["count"] + own["iterations"])
    timed, gpu_ns = after["timed"] - before["timed"], after["gpu_ns"] - before["gpu_ns"]
    factor = 1 if operation == "all_reduce" else 0.5  # two ranks
    benchmark = size * own["iterations"] / own["seconds"] * factor
    ours = size * timed / gpu_ns * 1e9 * factor if gpu_ns else 0
    report.check(f"{operation}, {size >> 20} MiB: every operation is counted and timed",
                 after["count"] - before["count"] == own["iterations"] == timed,
                 f"{after['count'] - before['count']} counted, {timed} timed of {own['iterations']}")
    report.check(f"{operation}, {size >> 20} MiB: bus bandwidth is the benchmark's within 3 %",
                 abs(ours / benchmark - 1) <= TOLERANCE, f"{ours / 1e9:.2f} GB/s, the benchmark's own {benchmark / 1e9:.2f} GB/s")
    return {"gpuperf": ours, "benchmark": benchmark, "timed": timed, "iterations": own["iterations"]}


@contextlib.contextmanager
def quota(pid, percent):
    """A control group with a CPU quota around a process."""
    v1 = pathlib.Path("/sys/fs/cgroup/cpu")
    root = v1 if v1.is_dir() else pathlib.Path("/sys/fs/cgroup")
    folder = root / "gpuperf-nccl"
    folder.mkdir(exist_ok=True)
    if root == v1:
        (folder / "cpu.cfs_quota_us").write_text(str(percent * 1000))
    else:
        (root / "cgroup.subtree_control").write_text("+cpu")
        (folder / "cpu.max").write_text(f"{percent * 1000} 100000")
    (folder / "cgroup.procs").write_text(str(pid))
    yield


def name_late(report, rig, tracer, cause):
    with Ranks(rig, tracer) as ranks, contextlib.ExitStack() as stack:
        ranks.give(f"steps {cause}")
        ranks.read_all("warm")
        time.sleep(5)
        late = ranks.processes[1]
        if cause == "quota":
            try:
                stack.enter_context(quota(late.pid, 30))
            except OSError as error:
                return report.say(f"   {cause}: skipped: no control group with a quota can be made here: {error}")
        if cause == "stopped":
            late.send_signal(signal.SIGSTOP)
        begin, row = time.monotonic(), None
        while time.monotonic() - begin < NAMED_SECONDS:
            row = next((row for row in tracer.query("nccl") if row["late_pid"] == late.pid and row["cause"] in CAUSES[cause]), None)
            if row:
                break
            time.sleep(0.5)
        seconds = time.monotonic() - begin
        report.say(tracer.ctl("nccl").stdout)
        late.send_signal(signal.SIGCONT)
    report.check(f"{cause}: rank 1 is named with its cause within {NAMED_SECONDS} s", row is not None and row["late_rank"] == 1,
                 f"{seconds:.1f} s: {row['cause'] if row else 'not named'}")
    return {"seconds": seconds, "communicator": row}


def check_nccl(report, rig):
    import torch  # only here: others of these checks need none
    if torch.cuda.device_count() < 2:
        return report.say("   skipped: there is one GPU")
    figures = {"bandwidth": {}, "late": {}}
    with start_tracer(rig) as tracer:
        with Ranks(rig, tracer) as ranks:
            tracer.wait_for_probes()
            for operation in OPERATIONS:
                for size in SIZES:
                    figures["bandwidth"][f"{operation} {size}"] = compare(report, tracer, ranks, operation, size)
            report.say(tracer.ctl("nccl").stdout)
        for cause in CAUSES:
            figures["late"][cause] = name_late(report, rig, tracer, cause)
    save(rig, "trace_nccl", figures)
