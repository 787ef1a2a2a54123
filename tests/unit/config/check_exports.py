#!/usr/bin/env python3
"""Checks that every symbol of deploy/config.json is exported by the library it is meant for, C++ names in any overload.

Libraries are looked for under $CUDA_HOME/lib64 (else /usr/local/cuda/lib64), libcuda also among its
stubs, and libtorch under $GPUPERF_LIBTORCH_DIR or where python3 finds torch. A library that is not
there is said and left out; without any the test is skipped."""

import json
import os
import pathlib
import re
import subprocess
import sys

LIBRARIES = {
    "cuda_func_sym": ["libcudart.so", "libcuda.so"],
    "cublas_func_sym": ["libcublas.so", "libcublasLt.so"],
    "cudnn_func_sym": ["libcudnn.so"],
    "nccl_func_sym": ["libnccl.so"],
    "libtorch_func_sym": ["libtorch_cpu.so", "libtorch_cuda.so", "libc10_cuda.so"],
}


def libtorch_folder():
    if folder := os.environ.get("GPUPERF_LIBTORCH_DIR"):
        return pathlib.Path(folder)
    found = subprocess.run(
        ["python3", "-c", "import importlib.util as u; s = u.find_spec('torch'); "
         "print(s.submodule_search_locations[0] if s else '')"],
        capture_output=True, text=True, check=False).stdout.strip()
    return pathlib.Path(found) / "lib" if found else None


def find_library(name):
    cuda = pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "lib64"
    folders = [cuda, cuda / "stubs", libtorch_folder()]
    for folder in filter(None, folders):
        for path in [folder / name, *sorted(folder.glob(name + ".*"))]:
            if path.exists():
                return path
    return None


def exported(path):
    lines = subprocess.run(["nm", "-D", "--defined-only", path],
                           capture_output=True, text=True, check=True).stdout.splitlines()
    # "address type name@@version"; only code can be probed.
    rows = (line.split() for line in lines)
    symbols = {re.sub("@.*", "", row[2]) for row in rows if len(row) == 3 and row[1] in "TWi"}
    names = subprocess.run(["c++filt", "--no-params"], input="\n".join(symbols),
                           capture_output=True, text=True, check=True).stdout.splitlines()
    return symbols | set(names)


def main():
    config = json.loads((pathlib.Path(sys.argv[1]) / "deploy/config.json").read_text())
    checked = 0
    missing = []
    for section, names in LIBRARIES.items():
        paths = [find_library(name) for name in names]
        if None in paths:
            print(f"{section}: skipped, not installed:",
                  ", ".join(n for n, p in zip(names, paths) if not p))
            continue
        symbols = set().union(*map(exported, paths))
        wanted = [entry if isinstance(entry, str) else entry["symbol"]
                  for entry in config[section].values()]
        checked += len(wanted)
        missing += [f"{section}: {symbol}: not exported by {', '.join(names)}"
                    for symbol in wanted if symbol not in symbols]
        print(f"{section}: {len(wanted)} symbols looked up in", *paths)
    if checked == 0:
        print("skipped: no library is installed")
        return 77
    for line in missing:
        print(line)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
