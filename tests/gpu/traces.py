#!/usr/bin/env python3
"""The GPU tests of traces: captures of real CUDA work against truths of its own.

usage: traces.py BUNDLE RESULTS_FOLDER [CHECK...]

  trace_truth            every launch of a capture is one that was made, of its thread, stack and kernel
  trace_paths            GPU time of twenty planted call paths, to 1 %
  trace_profiles         the same of profiles over OTLP, over several periods
  trace_diff             two captures that differ in one layer: the diff's first row names it
  trace_graph_sites      every node of a CUDA graph is of the call that was captured into it, long before the replay
  trace_windows          the first of these in windows of collection, between which CUPTI is kept or ended
  launch_cost            what seeing every launch costs, by hooks and by probes, beside nsys and torch.profiler
  launch_attached        the same by hooks alone, in a program that was attached to and in one that was started with the library
  trace_attach           attached to programs that run already, and detached again
  trace_stalls           PC sampling: planted limits beside Nsight Compute, cost, and that nothing hangs
  trace_lines            source lines of samples, of nvcc's kernels, Triton's and torch.compile's
  trace_why              gpuperfctl why: planted causes of idle time
  trace_why_workloads    gpuperfctl why of the workloads of bench.sh, to be read
  trace_memory           gpuperfctl memory: live bytes, a leak, training without one, an allocation that fails
  trace_nccl             gpuperfctl nccl: bus bandwidth, and ranks that are late; skipped where there is one GPU
  trace_steps            backward passes and optimizers of training loops, counted and timed
  trace_two_gpus         one process on two GPUs; skipped where there is one
  trace_record           gpuperfctl record: its four files and its modes
  trace_record_capture   a small capture for tests/recordings/ (only when named)

Needs root and a python3 with PyTorch; nothing is compiled. traces.json in the results folder has every figure.
The last line is "N passed, N failed".
"""

import pathlib
import sys
import tempfile

from launch_cost import check_attached_cost, check_launch_cost
from session_rig import Report, Rig, run_checks, say_versions
from trace_attach import check_attach
from trace_graph_sites import check_graph_sites
from trace_lines import check_lines
from trace_memory import check_memory
from trace_nccl import check_nccl
from trace_paths import check_diff, check_paths
from trace_profiles import check_profiles
from trace_record import check_record, check_record_capture
from trace_stalls import check_stalls
from trace_steps import check_steps
from trace_truth import check_truth, check_two_gpus
from trace_why import check_why, check_why_workloads
from trace_windows import check_windows

CHECKS = {"trace_truth": check_truth, "trace_paths": check_paths, "trace_profiles": check_profiles, "trace_diff": check_diff,
          "trace_graph_sites": check_graph_sites, "trace_windows": check_windows, "launch_cost": check_launch_cost,
          "launch_attached": check_attached_cost,
          "trace_attach": check_attach, "trace_stalls": check_stalls, "trace_lines": check_lines, "trace_why": check_why,
          "trace_why_workloads": check_why_workloads, "trace_memory": check_memory, "trace_nccl": check_nccl,
          "trace_steps": check_steps, "trace_two_gpus": check_two_gpus, "trace_record": check_record,
          "trace_record_capture": check_record_capture}


def main():
    bundle, results = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    wanted = sys.argv[3:] or [name for name in CHECKS if name != "trace_record_capture"]
    unknown = [name for name in wanted if name not in CHECKS]
    if unknown:
        sys.exit(f"traces.py: no such check: {', '.join(unknown)}; there are {', '.join(CHECKS)}")
    report = Report(results / "traces_summary.txt")
    say_versions(report, bundle)
    with tempfile.TemporaryDirectory(prefix="traces-", ignore_cleanup_errors=True) as folder:
        rig = Rig(bundle, results, folder)
        run_checks(report, rig, CHECKS, wanted)


if __name__ == "__main__":
    main()
