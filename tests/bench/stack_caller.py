"""Calls the probed function from below frames of Python: a process of stack_cost.

Reads lines "FRAMES CALLS OWN DEPTH APART TOUCHED_BYTES", answers each with the thread's CPU time in nanoseconds; with 0 calls, with the
number of native frames. OWN 0: of three frames two are of functions that come again and again, as those that call
PyTorch's modules do; 1: each is of a function of its own. DEPTH: of the library's frames, inside of those. APART not 0: its 64 ways inside of that.
"""

import ctypes
import sys
import time

library = ctypes.CDLL(sys.argv[1])
library.go_down.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
library.go_down.restype = ctypes.c_uint64
library.go_down_ways.argtypes = [ctypes.c_uint64] * 4
library.go_down_ways.restype = ctypes.c_uint64


depth = 1
apart = 0
touched_bytes = 0


def call(calls):
    if apart:
        return library.go_down_ways(depth, apart, touched_bytes, calls)
    start_ns = time.thread_time_ns()
    frames = library.go_down(depth, calls)
    return time.thread_time_ns() - start_ns if calls else frames


def call_module(frames, calls):
    return call(calls) if frames <= 3 else call_forward(frames - 1, calls)


def call_forward(frames, calls):
    return call(calls) if frames <= 3 else MODULES[frames](frames - 1, calls)


MODULES = {}
OWN = {}
for i in range(64):
    exec(f"def forward_{i}(frames, calls):\n"
         f"    return call(calls) if frames <= 3 else call_module(frames - 1, calls)\n"
         f"def own_{i}(frames, calls):\n"
         f"    return call(calls) if frames <= 3 else OWN[frames](frames - 1, calls)\n"
         f"MODULES[{i}], OWN[{i}] = forward_{i}, own_{i}\n")

for line in sys.stdin:
    frames, calls, own, depth, apart, touched_bytes = map(int, line.split())
    print((OWN if own else MODULES)[frames](frames, calls), flush=True)
