"""Takes a sample: prints the stack as Python sees it, and makes the probed call."""

import ctypes
import itertools
import json
import os
import sys
import threading
import time

# Set once by python_stacks.py.
library = None   # stack_target and call_back
extension = None  # the C extension; None where it could not be loaded
samples = itertools.count(1)
last_sample = 0
pause_seconds = 0.0
lock = threading.Lock()

# Python functions that call a C function of ours, by name -> those C functions, innermost first.
C_CALLS = {"through_ctypes": ["call_back"],
           "through_ctypes_twice": ["call_back", "call_back_twice"],
           "through_extension": ["call_inside", "through_extension"]}

PYTHON_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64)


class Finished(Exception):
    """All samples are taken."""


def load(library_path, extension_folder):
    global library, extension
    library = ctypes.CDLL(library_path)
    for name in ("stack_target", "call_back", "call_back_twice"):
        getattr(library, name).restype = ctypes.c_uint64
    library.stack_target.argtypes = [ctypes.c_uint64]
    for name in ("call_back", "call_back_twice"):
        getattr(library, name).argtypes = [PYTHON_CALLBACK, ctypes.c_uint64]
    library.set_stack_target_ns.argtypes = [ctypes.c_uint64]
    sys.path.insert(0, extension_folder)
    try:
        import python_extension
        extension = python_extension
    except ImportError:
        pass


def next_sample():
    with lock:
        sample = next(samples)
    if sample > last_sample:
        raise Finished
    if pause_seconds:
        time.sleep(pause_seconds)
    return sample


def print_stack(sample):
    """The caller's stack, each function with the line it is at. The caller calls stack_target in
    the line in which it calls this."""
    python, merged = [], []
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        row = [getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno]
        if merged:  # the innermost calls stack_target itself
            merged += C_CALLS.get(code.co_name, [])
        python.append(row)
        merged.append(row)
        frame = frame.f_back
    line = json.dumps({"sample": sample, "pid": os.getpid(), "tid": threading.get_native_id(),
                       "python": python, "merged": merged})
    with lock:
        os.write(1, (line + "\n").encode())
    return sample
