"""Calls the probed function from below frames of Python: a process of stack_cost.

Reads lines "FRAMES CALLS", answers each with the thread's CPU time in nanoseconds; with 0 calls, with the
number of native frames.
"""

import ctypes
import sys
import time

library = ctypes.CDLL(sys.argv[1])
library.go_down.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
library.go_down.restype = ctypes.c_uint64


def call(calls):
    start_ns = time.thread_time_ns()
    frames = library.go_down(1, calls)
    return time.thread_time_ns() - start_ns if calls else frames


def go_down(frames, calls):
    return call(calls) if frames <= 3 else go_down(frames - 1, calls)


for line in sys.stdin:
    frames, calls = map(int, line.split())
    print(go_down(frames, calls), flush=True)
