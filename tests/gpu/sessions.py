#!/usr/bin/env python3
"""The GPU tests of sessions: the injected library beside real CUDA work.

usage: sessions.py BUNDLE RESULTS_FOLDER [--stand-in] [CHECK...]

  sessions_truth      kernels, copies, sets and graphs equal torch.profiler's of a run of its own
  sessions_volume     twenty million records in one run, all accounted for
  sessions_coexist    torch.profiler, nsys, ncu and another library work as without us, and we after them
  sessions_harm       absent, stopped, killed, deaf and full daemons; every way to end; speed beside bare
  sessions_finalize   CUPTI ended again and again while threads work, what then remains, graphs made late
  sessions_overhead   the cost, beside torch.profiler and nsys, and by level
  sessions_record     recordings for tests/recordings/ (only when named)

Records are read by the bundle's daemon where that takes sessions; --stand-in: by session_receiver.py.
Needs root, nvcc, g++ and a python3 with PyTorch. The last line is "N passed, N failed".
"""

import pathlib
import resource
import sys
import tempfile

from session_coexist import check_coexist
from session_finalize import check_finalize
from session_harm import check_harm
from session_overhead import check_overhead
from session_record import check_record
from session_rig import Report, Rig, run_checks, say_versions
from session_truth import check_truth, check_volume

CHECKS = {"sessions_truth": check_truth, "sessions_volume": check_volume,
          "sessions_coexist": check_coexist, "sessions_harm": check_harm,
          "sessions_finalize": check_finalize, "sessions_overhead": check_overhead,
          "sessions_record": check_record}

NEED_NO_LAUNCHER = {"sessions_truth", "sessions_record"}


def main():
    words = [word for word in sys.argv[1:] if word != "--stand-in"]
    bundle, results = (pathlib.Path(word).resolve() for word in words[:2])
    wanted = words[2:] or [name for name in CHECKS if name != "sessions_record"]
    unknown = [name for name in wanted if name not in CHECKS]
    if unknown:
        sys.exit(f"sessions.py: no such check: {', '.join(unknown)}; there are {', '.join(CHECKS)}")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # some of the workloads abort
    report = Report(results / "sessions_summary.txt")
    say_versions(report, bundle)
    with tempfile.TemporaryDirectory(prefix="sessions-", ignore_cleanup_errors=True) as folder:
        rig = Rig(bundle, results, folder, prefers_receiver="--stand-in" in sys.argv)
        if not NEED_NO_LAUNCHER.issuperset(wanted):
            rig.build()
        run_checks(report, rig, CHECKS, wanted)


if __name__ == "__main__":
    main()
