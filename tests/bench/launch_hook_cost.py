#!/usr/bin/env python3
"""What the launch hooks cost a launch, on a fake driver, in a Python program: by how much a launch takes longer with some
notes on than with them off, switched within the process every 50 launches. Between two launches the program moves
memory and runs code, jumping from line to line, so that what the hooks need is no longer in the caches, neither data
nor instructions nor predictions. Stacks are also taken from 2,048 paths in random order, with nothing moved. Run as root
on a built tree:

    PYTHONPATH=tests/system:tests/gpu GPUPERF_BUILD=build python3 tests/bench/launch_hook_cost.py [PAIRS [WAY]]
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from gpuperf_system import SOURCE, Daemon
from hook_switch import find_middle
from injector_workload import FAKES, INJECTOR

SETTLE_SECONDS = 3
MOVED_KIB = (0, 64, 128, 256)
PATHS = "paths"
# Settings, whether a capture runs, what is switched.
WAYS = {"statistics": (False, False, "count"), "flight recorder, beside statistics": (True, False, "launches"),
        "stack at every launch, beside statistics": (False, True, "launches,each")}
PROGRAM = """
import ctypes, functools, json, mmap, random, struct, sys, time
from hook_switch import HookSwitch
cuda, runtime, libc = (ctypes.CDLL(name) for name in ("libcuda.so.1", "libfake_runtime.so", None))
assert cuda.cuInit(0) == 0
launch = functools.partial(runtime.fake_runtime_launch, 1, ctypes.c_void_p(0x1000), 0)
BYTES = 16 << 20
FROM, TO = (ctypes.create_string_buffer(BYTES) for _ in range(2))
LINE = 64

def make_code(size):
    # A function that jumps to each line of so many bytes, in random order.
    code = mmap.mmap(-1, size, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    lines = random.Random(1).sample(range(size // LINE), size // LINE)
    for at, to in zip(lines, lines[1:]):
        code[at * LINE + 8:at * LINE + 13] = b"\\xe9" + struct.pack("<i", to * LINE + 8 - (at * LINE + 13))
    code[0:5] = b"\\xe9" + struct.pack("<i", lines[0] * LINE + 8 - 5)
    code[lines[-1] * LINE + 8] = 0xc3
    return code, ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(code)))

CODES = {0: (None, None)}

def measure(count, size):
    if size not in CODES:
        CODES[size] = make_code(size)
    _, run = CODES[size]
    place, spent, clock = 0, 0, time.perf_counter_ns
    for _ in range(count):
        start = clock()
        launch()
        spent += clock() - start
        if size:
            run()
            libc.memmove(ctypes.byref(TO, place), ctypes.byref(FROM, place), ctypes.c_size_t(size))
            place = (place + size) % (BYTES - size)
    return spent / count

def descend(depth, size):
    if depth == 0:
        return measure(50, size)
    return descend(depth - 1, size) if depth % 2 else next(map(functools.partial(descend, depth - 1), [size]))

ORDER = random.Random(2)

def turn_left(path, turns):
    return follow(path >> 1, turns - 1)

def turn_right(path, turns):
    return follow(path >> 1, turns - 1)

def follow(path, turns):
    if turns == 0:
        return measure(1, 0)
    return turn_right(path, turns) if path & 1 else turn_left(path, turns)

def follow_paths(count=2000, turns=11):
    return sum(follow(ORDER.getrandbits(turns), turns) for _ in range(count)) / count

print("ready", flush=True)
for line in sys.stdin:
    notes, size, pairs = line.split()
    rows = HookSwitch(notes.split(",")).compare(
        int(pairs), follow_paths if size == "paths" else functools.partial(descend, 20, int(size) << 10))
    print(json.dumps(rows), flush=True)
"""


class Program:
    """Its libcuda is its own: no probe is in it, so that a launch past idle hooks meets none."""

    def __init__(self, folder):
        for library in (FAKES / "libcuda.so.1", FAKES / "libfake_runtime.so", INJECTOR):
            shutil.copy(library, folder)
        (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
        self.process = subprocess.Popen(
            ["/usr/bin/python3", folder / "program.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={"LD_LIBRARY_PATH": str(folder), "GPUPERF_SOCKET": str(folder / "none"),
                 "PYTHONPATH": str(SOURCE / "tests/gpu"), "CUDA_INJECTION64_PATH": str(folder / INJECTOR.name)})
        assert self.process.stdout.readline() == "ready\n"

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def main():
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 800
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        probed = folder / "probed"
        probed.mkdir()
        shutil.copy(FAKES / "libcuda.so.1", probed)
        program = Program(folder)
        for way, (recorder, captures, notes) in WAYS.items():
            if not way.startswith(sys.argv[2] if len(sys.argv) > 2 else ""):
                continue
            config = {"cuda_func_sym": {entry: entry for entry in ("cuLaunchKernel", "cuLaunchKernelEx")},
                      "libraries": {"cuda_func_sym": [f"{probed}/libcuda.so*"]}, "trace": {"recorder": recorder}}
            with Daemon(config) as daemon:
                time.sleep(SETTLE_SECONDS)
                capture = daemon.query("trace", "start", "--pid", program.process.pid)["id"] if captures else None
                for kib in MOVED_KIB + ((PATHS,) if captures else ()):
                    rows = program.ask(notes, kib, pairs)
                    middle, low, high = find_middle([on - off for on, off in rows])
                    what = "from random paths" if kib == PATHS else f"{kib} KiB moved"
                    print(f"{way}, {what}: {middle:.0f} ns ({low:.0f} to {high:.0f}) of "
                          f"{find_middle([off for _, off in rows])[0]:.0f}", flush=True)
                if captures:
                    daemon.ctl("trace", "stop", capture)
        program.process.kill()


if __name__ == "__main__":
    main()
