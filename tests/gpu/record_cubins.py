#!/usr/bin/env python3
"""Cubins of Triton and of torch.compile with their line tables, for tests of source lines of GPU code where there is no GPU.

usage: record_cubins.py FOLDER     Writes NAME.cubin and cubins.json: for each its kernel and CUPTI's CRC of it."""

import ctypes
import glob
import json
import os
import pathlib
import shutil
import sys

FOLDER = pathlib.Path(sys.argv[1])
FOLDER.mkdir(parents=True, exist_ok=True)
os.environ["TRITON_CACHE_DIR"] = str(FOLDER / "cache")
os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(FOLDER / "inductor")

import torch  # noqa: E402  (they read the environment)

import trace_triton  # noqa: E402


def find_crc(image):
    """CUPTI's CRC of a cubin; None where there is no libcupti."""
    class Params(ctypes.Structure):
        _fields_ = [("size", ctypes.c_size_t), ("cubin_size", ctypes.c_size_t), ("cubin", ctypes.c_void_p), ("crc", ctypes.c_uint64)]
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = {line.split()[-1] for line in maps if "libcupti.so" in line}
    if not paths:
        return None
    buffer = ctypes.create_string_buffer(image, len(image))
    params = Params(ctypes.sizeof(Params), len(image), ctypes.addressof(buffer), 0)
    result = ctypes.CDLL(paths.pop()).cuptiGetCubinCrc(ctypes.byref(params))
    return params.crc if result == 0 else None


left, right, out = (torch.randn(1 << 20, device="cuda") for _ in range(3))
trace_triton.launch_sum(left, right, out)


@torch.compile
def soften(values):
    return torch.softmax(values * 2 + 1, dim=-1)


soften(left.reshape(1024, 1024))
torch.cuda.synchronize()
rows = []
for path in sorted(glob.glob(str(FOLDER / "**/*.cubin"), recursive=True)):
    path = pathlib.Path(path)
    image = path.read_bytes()
    shutil.copy(path, FOLDER / f"{path.stem}.cubin")
    rows.append({"kernel": path.stem, "bytes": len(image), "crc": find_crc(image)})
for name in ("cache", "inductor"):
    shutil.rmtree(FOLDER / name, ignore_errors=True)
(FOLDER / "cubins.json").write_text(json.dumps(rows, indent=1))
print(json.dumps(rows, indent=1), torch.__version__)
