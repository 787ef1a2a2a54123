#!/usr/bin/env python3
"""A process that makes slow calls as fast as it can: count_fast() of LIBRARY, by some threads' worth of
processes, each call from the same place.

usage: flood_calls.py LIBRARY [--grow] [--processes N]

--grow: each call takes longer than all before it. Prints its pid once it makes calls.
"""

import argparse
import ctypes
import os

FIRST_SPIN_NS = 5_000


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--grow", action="store_true")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    for _ in range(options.processes - 1):
        if os.fork() == 0:
            break
    count_fast = ctypes.CDLL(options.library).count_fast
    count_fast.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
    print(os.getpid(), flush=True)
    spin_ns = FIRST_SPIN_NS
    while True:
        count_fast(0, spin_ns)
        spin_ns += 20 if options.grow else 0


main()
