"""A Python program on the fake driver that keeps its GPU idle for a known reason: planted causes for why_test.py.

usage: python_idle.py CAUSE SECONDS     waits for a line on its input, goes on for so long, prints how many nanoseconds
                                        the cause took, and waits for another line

tokenizer: Python code computes 20 ms between launches. gil: another thread computes in Python, so that each wait for the
GPU goes on waiting for the interpreter's lock when it comes back. Its time has what the thread itself computes in it.
"""

import ctypes
import sys
import threading
import time


class Work(ctypes.Structure):
    """FakeWork of tests/fakes/cupti/fake_cuda.h."""
    _fields_ = [("kind", ctypes.c_uint32), ("correlation_id", ctypes.c_uint32), ("stream", ctypes.c_uint32),
                ("graph_id", ctypes.c_uint32), ("node_id", ctypes.c_uint64), ("start_unix_ns", ctypes.c_uint64),
                ("end_unix_ns", ctypes.c_uint64), ("name", ctypes.c_char_p), ("grid", ctypes.c_uint32 * 3),
                ("block", ctypes.c_uint32 * 3), ("bytes", ctypes.c_uint64), ("address", ctypes.c_uint64),
                ("detail", ctypes.c_uint32)]


WORK = Work(stream=7, name=b"planted_kernel", grid=(1, 1, 1), block=(32, 1, 1))


def launch(driver):
    driver.fake_launch(ctypes.byref(WORK), ctypes.c_uint64(1_000_000), ctypes.c_bool(True))


def tokenize():
    begin_ns = time.monotonic_ns()
    while time.monotonic_ns() < begin_ns + 20_000_000:
        "a b c d".split()
    return time.monotonic_ns() - begin_ns


def compute(ends):
    while not ends.is_set():
        "a b c d".split()


def run_tokenizer(driver, end):
    planted_ns = 0
    while time.monotonic() < end:
        launch(driver)
        driver.fake_synchronise()
        planted_ns += tokenize()
    launch(driver)
    return planted_ns


def run_gil(driver, end):
    ends = threading.Event()
    other = threading.Thread(target=compute, args=(ends,))
    other.start()
    begin_ns = time.monotonic_ns()
    count = 0
    while time.monotonic() < end:
        launch(driver)
        driver.fake_synchronise()
        count += 1
    planted_ns = time.monotonic_ns() - begin_ns
    ends.set()
    other.join()
    return planted_ns - count * 1_000_000


def main():
    cause, seconds = sys.argv[1], float(sys.argv[2])
    ctypes.CDLL("libfake_runtime.so", mode=ctypes.RTLD_GLOBAL)  # as in a program of the runtime
    driver = ctypes.CDLL("libcuda.so.1")
    driver.cuInit(0)
    launch(driver)
    print("ready", flush=True)
    sys.stdin.readline()
    planted_ns = {"tokenizer": run_tokenizer, "gil": run_gil}[cause](driver, time.monotonic() + seconds)
    print(planted_ns, flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
