"""A bf16 GEMM, back to back or for a share of every 20 ms: the load of gpm_check.py that only PyTorch has.

usage: gpm_gemm.py duty SECONDS DUTY...     a JSON line per duty cycle: busy_ratio, sm_clock_hz, start_mono_ns, end_mono_ns
       gpm_gemm.py rate SECONDS             a JSON line every half second: mono_ns, gemms_per_second
"""

import ctypes
import json
import statistics
import sys
import threading
import time

import torch

PERIOD_S = 0.02
SIZE = 8192
# Of bf16, dense, by the tensor cores of an SM: 989.4 TFLOPS at 1.83 GHz with 132 of them (H100 SXM).
FLOPS_PER_CYCLE = 4096
NVML_CLOCK_SM = 1


class SmClock(threading.Thread):
    """Reads the clock of the first GPU's SMs every 10 ms, until it is asked for the average: at full load it sinks."""

    def __init__(self):
        super().__init__(daemon=True)
        self.stopping = threading.Event()
        self.readings_hz = []
        self.start()

    def run(self):
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        nvml.nvmlInit_v2()
        device, mhz = ctypes.c_void_p(), ctypes.c_uint()
        nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
        while not self.stopping.wait(0.01):
            if nvml.nvmlDeviceGetClockInfo(device, NVML_CLOCK_SM, ctypes.byref(mhz)) == 0:
                self.readings_hz.append(mhz.value * 1e6)

    def average_hz(self):
        self.stopping.set()
        self.join()
        return statistics.mean(self.readings_hz)


def run(seconds, duty, left, right):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def launch(count):
        begin.record()
        for _ in range(count):
            torch.mm(left, right)
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3

    launch(20)
    unit_s = launch(100) / 100
    count = max(1, round(duty * PERIOD_S / unit_s))
    busy_s, gemms = 0, 0
    clock = SmClock()
    start_ns = next_ns = time.monotonic_ns()
    while time.monotonic_ns() < start_ns + seconds * 1e9:
        busy_s += launch(count)
        gemms += count
        next_ns += int(PERIOD_S * 1e9)
        if duty < 1:
            time.sleep(max(0, next_ns - time.monotonic_ns()) / 1e9)
    end_ns = time.monotonic_ns()
    return {"kind": "gemm", "duty": duty, "sm_clock_hz": clock.average_hz(), "busy_ratio": busy_s * 1e9 / (end_ns - start_ns),
            "gemms_per_second": gemms * 1e9 / (end_ns - start_ns),
            "tensor_cycles_per_second": gemms * 1e9 / (end_ns - start_ns) * 2 * SIZE**3 / FLOPS_PER_CYCLE
            / torch.cuda.get_device_properties(0).multi_processor_count, "start_mono_ns": start_ns, "end_mono_ns": end_ns}


def main():
    # Of a size at which the tensor pipe is the limit. Zeros take little power, so that the clock sinks less: with random
    # numbers from 1.98 to 1.3 GHz on an H100.
    left, right = (torch.zeros(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    seconds = float(sys.argv[2])
    if sys.argv[1] == "duty":
        for duty in map(float, sys.argv[3:]):
            print(json.dumps(run(seconds, duty, left, right)), flush=True)
        return
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        print(json.dumps(run(0.5, 1, left, right)), flush=True)


if __name__ == "__main__":
    main()
