"""Processes of nobody's with code made at run time (made_code.py) beside the daemon and the honest."""

import pathlib
import shutil
import subprocess

from bed import CONFIG, AttackTest, as_nobody
from gpuperf_system import SOURCE, WORKLOADS

MADE_CODE = SOURCE / "tests/security/made_code.py"


class MadeCodeTest(AttackTest):
    PROGRAM = MADE_CODE
    CONFIG = {"custom_sym": CONFIG["custom_sym"] | {"count_fast": {"symbol": "count_fast", "slow_threshold_ms": 0.5}},
              "libraries": {"custom_sym": ["slow_calls", "libcount_target.so"]}}

    def setUp(self):
        super().setUp()
        self.folder = self.make_open_folder()
        self.library = shutil.copy(WORKLOADS / "libcount_target.so", self.folder)
        self.program = shutil.copy(self.PROGRAM, self.folder)
        self.maps = []

    def end_attack(self):
        super().end_attack()
        for path in self.maps:
            path.unlink(missing_ok=True)

    def start(self, *options, count=1):
        """The pids of processes of nobody's, once they make calls."""
        processes = [self.add_attacker(as_nobody("/usr/bin/python3", self.program, self.library, *options,
                                                 stdout=subprocess.PIPE, text=True)) for _ in range(count)]
        pids = [int(process.stdout.readline()) for process in processes]
        self.maps += [pathlib.Path(f"/tmp/perf-{pid}.map") for pid in pids]
        return pids

    def get_drops(self, reason):
        return sum(int(row["count"]) for row in self.daemon.query("status")["drops"] if row["reason"] == reason)
