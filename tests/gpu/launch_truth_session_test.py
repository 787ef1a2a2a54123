#!/usr/bin/env python3
"""The truth of launches beside the injected library, on the fake CUPTI: neither takes anything from the other.

usage: launch_truth_session_test.py INJECTOR LAUNCH_TRUTH FAKE_CUDA FAKE_CUPTI
       ... work FILE    the program that launches, with the truth written to FILE
"""

import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from session_receiver import Receiver
from trace_reader import read_truth

INJECTOR, LAUNCH_TRUTH, FAKE_CUDA, FAKE_CUPTI = sys.argv[1:5]
LAUNCHES = 3_000


class FakeWork(ctypes.Structure):
    """struct FakeWork of tests/fakes/cupti/fake_cuda.h"""
    _fields_ = [("kind", ctypes.c_uint32), ("correlation_id", ctypes.c_uint32), ("stream", ctypes.c_uint32),
                ("graph_id", ctypes.c_uint32), ("node_id", ctypes.c_uint64), ("start", ctypes.c_uint64),
                ("end", ctypes.c_uint64), ("name", ctypes.c_char_p), ("grid", ctypes.c_uint32 * 3),
                ("block", ctypes.c_uint32 * 3), ("bytes", ctypes.c_uint64), ("address", ctypes.c_uint64),
                ("detail", ctypes.c_uint32)]


def work(path):
    cuda = ctypes.CDLL(FAKE_CUDA, ctypes.RTLD_GLOBAL)
    cuda.cuInit(0)
    time.sleep(0.5)  # collection has begun
    truth = ctypes.CDLL(LAUNCH_TRUTH)
    truth.truth_start.restype = ctypes.c_char_p
    truth.truth_dump.argtypes = [ctypes.c_char_p, ctypes.c_uint64]
    if error := truth.truth_start(FAKE_CUPTI.encode()):
        sys.exit(error.decode())
    kernel = FakeWork(stream=7, name=b"kernel", grid=(1, 1, 1), block=(32, 1, 1))
    for number in range(LAUNCHES):
        truth.truth_mark(number % 5)
        cuda.fake_launch(ctypes.byref(kernel), ctypes.c_uint64(1000), number % 4 == 3)
    time.sleep(0.5)
    truth.truth_dump(path.encode(), 0)


class LaunchTruthSessionTest(unittest.TestCase):
    def test_both_see_every_launch_and_nobody_yields(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "truth")
            with Receiver(pathlib.Path(folder) / "socket") as receiver:
                program = subprocess.Popen(
                    [sys.executable, __file__, *sys.argv[1:5], "work", path],
                    env=os.environ | {"CUDA_INJECTION64_PATH": INJECTOR, "GPUPERF_SOCKET": str(receiver.path),
                                      "GPUPERF_INIT_WAIT_MS": "2000",
                                      "LD_LIBRARY_PATH": os.path.dirname(FAKE_CUPTI)})
                self.assertEqual(program.wait(60), 0)
                session = receiver.wait_closed(program.pid)
            calls, missed = read_truth(path)

        self.assertEqual((len(calls), missed), (LAUNCHES, 0))
        self.assertEqual([call.marker for call in calls[:6]], [0, 1, 2, 3, 4, 0])
        self.assertEqual(session.kernel_count, LAUNCHES)
        self.assertEqual((session.status["yields"], session.status["cause"]), (0, "none"))


if __name__ == "__main__":
    if sys.argv[5:6] == ["work"]:
        work(sys.argv[6])
    else:
        unittest.main(argv=sys.argv[:1], verbosity=2)
