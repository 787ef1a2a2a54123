#!/usr/bin/env python3
"""A process that maps copies of a library, each a file of its own.

usage: map_libraries.py LIBRARY FOLDER FIRST COUNT [--call]

The copies are FOLDER/libfake.so.N with N from FIRST on. --call: calls count_fast() of the last one, 100 times a
second. Prints its pid once all are mapped.
"""

import ctypes
import mmap
import os
import shutil
import sys
import time

SPIN_NS = 1_000_000


def map_copy(library, path):
    shutil.copy(library, path)
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)


def main():
    library, folder, first, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    paths = [f"{folder}/libfake.so.{first + i}" for i in range(count)]
    maps = [map_copy(library, path) for path in paths]
    print(os.getpid(), flush=True)
    count_fast = ctypes.CDLL(paths[-1]).count_fast if "--call" in sys.argv else None
    if count_fast is not None:
        count_fast.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
    while maps:
        if count_fast is not None:
            count_fast(0, SPIN_NS)
        time.sleep(0.01)


main()
