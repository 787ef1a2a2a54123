"""Loads of daemon_cost.py that look like those of a GPU host: injected processes, PyTorch programs."""

import contextlib
import json
import pathlib
import re
import subprocess
import sys
import time
import urllib.request

from daemon_usage import Usage, describe, read_memory
from gpuperf_system import COUNT_LIBRARY, Daemon, start_workload, wait_until
from injector_workload import Workload, require_fakes

SESSIONS = 4
LAUNCHES_PER_MS = 28  # of one process: with what they take, 25,000 a second
CALLS_PER_SECOND = 50_000
# A large library of PyTorch's: names of some 100 bytes.
FUNCTIONS = 300_000
NAME = "_ZN2at6native13some_kernel_{0}_implINS0_12_GLOBAL__N_1E{1}fiLi{2}EEEvRKNS_18TensorIteratorBase{2}E"
ASSEMBLY = """.type {0},@function
{0}: .cfi_startproc
lea {1}(%rdi),%eax
ret
.cfi_endproc
.size {0},.-{0}
"""
CALL_BACK = """.globl call_back
.type call_back,@function
call_back: .cfi_startproc
push %rbp
.cfi_def_cfa_offset 16
.cfi_offset 6,-16
call *%rdi
pop %rbp
.cfi_def_cfa_offset 8
ret
.cfi_endproc
.size call_back,.-call_back
.section .note.GNU-stack,"",@progbits
"""
PROGRAM_SECONDS = 30
SLOW_CALLS = 40
SETTLE_SECONDS = 3


def count_kernels(daemon):
    with urllib.request.urlopen(f"http://127.0.0.1:{daemon.port}/metrics", timeout=60) as page:
        text = page.read().decode()
    return sum(float(value) for value in re.findall(r"^gpuperf_kernel_duration_seconds_count\{.*\} (\S+)$", text, re.M))


def measure_records(report, seconds):
    """Kernels of four processes, each on a GPU of its own and with a launch that the library counts, beside probed calls."""
    require_fakes()
    config = {"custom_sym": {"count_fast": {"symbol": "count_fast", "may_throw": False}}, "libraries": COUNT_LIBRARY,
              "stats": {"interval_ms": 1000}}
    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(Daemon(config))
        pid = daemon.process.pid
        programs = [stack.enter_context(Workload(daemon.path / "run/ingest.sock", environment={"FAKE_CUDA_GPU": str(gpu)}))
                    for gpu in range(SESSIONS)]
        caller = start_workload("steady_calls", "--per-second", CALLS_PER_SECOND, "--seconds", seconds + 10)
        stack.callback(caller.communicate)
        stack.callback(caller.kill)
        daemon.wait_attached("count_fast")
        for program in programs:
            program.do("init")
        for program in programs:
            program.do(f"steady 1 {LAUNCHES_PER_MS}")
        time.sleep(SETTLE_SECONDS)
        kernels, before, begin = count_kernels(daemon), Usage(pid), time.monotonic()
        time.sleep(seconds)
        own, children, threads = Usage(pid).since(before)
        elapsed, memory = time.monotonic() - begin, read_memory(pid)
        rate = (count_kernels(daemon) - kernels) / elapsed
        launches = sum(program.do("halt")["launches"] for program in programs)
        with contextlib.suppress(AssertionError):  # a busy machine loses some, in the process
            wait_until("every kernel counted", lambda: count_kernels(daemon) == launches, 2)
        counted, drops = count_kernels(daemon), daemon.drops()
    report(f"kernels a second of {SESSIONS} sessions", rate, "kernels/s")
    report("counted, of those launched", 100 * counted / launches, "%")
    report("daemon, CPU at that rate and 50,000 probed calls/s", 100 * own / elapsed, "% of a core")
    report("the same for 100,000 kernels/s", 100 * own / elapsed * 100_000 / rate, "% of a core", 2)
    print(f"  {describe(threads, '% of a core', 100 / elapsed)}; drops: {drops}")
    report("its children", 100 * children / elapsed, "% of a core")
    report("resident", memory["resident"], "MiB", 128)
    print(f"  {describe(memory, 'MiB')}")


def make_large_libraries(folder):
    """Two that differ in their build ids only, under names of PyTorch's."""
    source, assembled = folder / "large.s", folder / "large.o"
    with open(source, "w", encoding="ascii") as file:
        for number in range(FUNCTIONS):
            file.write(ASSEMBLY.format(NAME.format(number % 997, "NS_6TensorE" * 4, number), number))
        file.write(CALL_BACK)
    subprocess.run(["cc", "-c", source, "-o", assembled], check=True)
    source.unlink()
    libraries = [folder / name for name in ("libtorch_cuda.so", "libc10_cuda.so")]
    for number, library in enumerate(libraries):
        subprocess.run(["cc", "-shared", f"-Wl,--build-id=0x{number + 1:040x}", "-o", library, assembled], check=True)
    return libraries


def run_torch(report, daemon, which, libraries):
    pid = daemon.process.pid
    time.sleep(SETTLE_SECONDS)
    before = Usage(pid)
    program = [sys.executable, pathlib.Path(__file__).with_name("torch_program.py"), str(PROGRAM_SECONDS), str(SLOW_CALLS)]
    subprocess.run([*program, *libraries], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(SETTLE_SECONDS)
    own, children, threads = Usage(pid).since(before)
    memory = read_memory(pid)
    report(f"PyTorch, {which}, CPU", own + children, "s", 3)
    print(f"  {describe(threads, 's')}; children {children:.2f} s; {describe(memory, 'MiB')}")
    report("highest resident so far", memory["peak"], "MiB", 128)


def make_shipped_daemon():
    """With the shipped functions and settings, but for where it listens and writes."""
    daemon = Daemon({})
    shipped = {key: daemon.settings[key] for key in ("grpc", "metrics", "storage")}
    daemon.config.write_text(json.dumps(shipped), encoding="utf-8")
    return daemon


def measure_idle(report, seconds):
    with make_shipped_daemon() as daemon:
        time.sleep(SETTLE_SECONDS)
        before, begin = Usage(daemon.process.pid), time.monotonic()
        time.sleep(seconds)
        _, children, threads = Usage(daemon.process.pid).since(before)
        elapsed, memory = time.monotonic() - begin, read_memory(daemon.process.pid)
    report("idle, CPU", 100 * (sum(threads.values()) + children) / elapsed, "% of a core")
    print(f"  {describe(threads, '% of a core', 100 / elapsed)}; {describe(memory, 'MiB')}")


def measure_torch(report, folder):
    """The shipped configuration; programs of 30 s, with what the daemon does besides in that time."""
    if subprocess.run([sys.executable, "-c", "import torch"], check=False, stderr=subprocess.DEVNULL).returncode != 0:
        print("PyTorch: not measured: this python has none (Debian package python3-torch)")
        return
    libraries = make_large_libraries(folder)
    with make_shipped_daemon() as daemon:
        run_torch(report, daemon, "a first process", libraries)
        run_torch(report, daemon, "another", libraries)
        slow = len(daemon.query("slow", "list", "--limit", 1000))
        daemon.stop()
        daemon.start()
        run_torch(report, daemon, "after a restart", libraries)
    print(f"  {slow} slow calls of two processes")
