#!/usr/bin/env python3
"""A process whose probed calls come from machine code made at run time, with a perf map that names it: its
own, another file's by a link or a mount, or one that is large and changes all the time.

usage: made_code.py LIBRARY [--map KIND] [--target FILE] [--map-mib N] [--calls-per-second N]

KIND: own (a regular file), link (a symbolic link to TARGET), bind (TARGET mounted in its place), churn (a large
one, touched all the time), none. With link and bind it runs in a mount namespace of its own, with an empty /tmp.
Prints its pid once it makes calls.
"""

import argparse
import ctypes
import mmap
import os
import struct
import subprocess
import sys
import threading
import time

FUNCTIONS = 16_384  # every call comes from another one: the stacks of all calls differ
FUNCTION_BYTES = 32
SPIN_NS = 1_000_000
INSIDE = "--inside"


def enter_namespace():
    """With the same arguments, as root of a user namespace of its own."""
    os.execvp("unshare", ["unshare", "-Urm", sys.executable, *sys.argv, INSIDE])


def make_functions(callee):
    """Machine code that calls `callee` with its own arguments, FUNCTIONS times over."""
    memory = mmap.mmap(-1, FUNCTIONS * FUNCTION_BYTES, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    # push %rbp; mov %rsp,%rbp; movabs $callee,%rax; call *%rax; pop %rbp; ret
    code = b"\x55\x48\x89\xe5\x48\xb8" + struct.pack("<Q", callee) + b"\xff\xd0\x5d\xc3"
    memory.write(code.ljust(FUNCTION_BYTES, b"\xcc") * FUNCTIONS)
    return memory, ctypes.addressof(ctypes.c_char.from_buffer(memory))


def write_map(path, begin, size_mib):
    """Lines for all of the functions, then others up to that size."""
    with open(path, "w", encoding="ascii") as file:
        for i in range(FUNCTIONS):
            file.write(f"{begin + i * FUNCTION_BYTES:x} {FUNCTION_BYTES:x} made_code_{i}\n")
        filler = "".join(f"{0x1000 + i * 16:x} 10 filler_{i:06}\n" for i in range(40_000))
        while file.tell() < size_mib << 20:
            file.write(filler)


def touch_all_the_time(path):
    while True:
        os.utime(path)
        time.sleep(0.001)


def make_map(options, begin):
    path = f"/tmp/perf-{os.getpid()}.map"
    if options.map == "link":
        os.symlink(options.target, path)
    elif options.map == "bind":
        open(path, "w", encoding="ascii").close()
        subprocess.run(["mount", "--bind", options.target, path], check=True)
    elif options.map != "none":
        write_map(path, begin, options.map_mib)
    if options.map == "churn":
        threading.Thread(target=touch_all_the_time, args=(path,), daemon=True).start()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--map", default="own")
    parser.add_argument("--target")
    parser.add_argument("--map-mib", type=int, default=0)
    parser.add_argument("--calls-per-second", type=int, default=20)
    parser.add_argument(INSIDE, action="store_true")
    options = parser.parse_args()
    if options.map in ("link", "bind"):
        if not options.inside:
            enter_namespace()
        subprocess.run(["mount", "-t", "tmpfs", "none", "/tmp"], check=True)

    callee = ctypes.cast(ctypes.CDLL(options.library).count_fast, ctypes.c_void_p).value
    memory, begin = make_functions(callee)
    make_map(options, begin)
    print(os.getpid(), flush=True)
    call = 0
    while memory:
        address = begin + call % FUNCTIONS * FUNCTION_BYTES
        ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64)(address)(call, SPIN_NS)
        call += 1
        time.sleep(1 / options.calls_per_second)


main()
