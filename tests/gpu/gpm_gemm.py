"""A bf16 GEMM, back to back or for a share of every 20 ms: the load of gpm_check.py that only PyTorch has.

usage: gpm_gemm.py duty SECONDS DUTY...     a JSON line per duty cycle: busy_ratio, start_mono_ns, end_mono_ns
       gpm_gemm.py rate SECONDS             a JSON line every half second: mono_ns, gemms_per_second
"""

import json
import sys
import time

import torch

PERIOD_S = 0.02
SIZE = 8192


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
    start_ns = next_ns = time.monotonic_ns()
    while time.monotonic_ns() < start_ns + seconds * 1e9:
        busy_s += launch(count)
        gemms += count
        next_ns += int(PERIOD_S * 1e9)
        if duty < 1:
            time.sleep(max(0, next_ns - time.monotonic_ns()) / 1e9)
    end_ns = time.monotonic_ns()
    return {"kind": "gemm", "duty": duty, "busy_ratio": busy_s * 1e9 / (end_ns - start_ns),
            "gemms_per_second": gemms * 1e9 / (end_ns - start_ns), "start_mono_ns": start_ns, "end_mono_ns": end_ns}


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
