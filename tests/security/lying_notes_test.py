#!/usr/bin/env python3
"""Notes of launch hooks that are lies: what a process says of itself through the injected library is nobody else's harm."""

import shutil
import subprocess
import unittest

from bed import AttackTest, as_nobody
from gpuperf_system import WORKLOADS, wait_until

SECONDS = 6
LIARS = 2


class LyingNotesTest(AttackTest):
    CONFIG = {"cuda_func_sym": {name: {"symbol": name, "may_throw": False} for name in ("cuLaunchKernel", "cuGraphLaunch")},
              "custom_sym": {"slow_sleep": {"symbol": "slow_sleep", "slow_threshold_ms": 5}},
              "libraries": {"cuda_func_sym": [str(WORKLOADS / "hooked" / "libcuda.so.1")], "custom_sym": ["slow_calls"]}}

    def attack(self, _):
        folder = self.make_open_folder()
        for name in ("libgpuperf_injector.so", "libcuda.so.1"):
            shutil.copy(WORKLOADS / ("lying" if "injector" in name else "hooked") / name, folder)
        program = shutil.copy(WORKLOADS / "lying_notes", folder)
        for seed in range(LIARS):
            self.add_attacker(as_nobody(program, seed, env={"LD_LIBRARY_PATH": str(folder)}))
        launcher = subprocess.Popen([WORKLOADS / "hooked_launches"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                    env={"LD_LIBRARY_PATH": str(WORKLOADS / "hooked")})
        self.addCleanup(lambda: launcher.communicate(timeout=30))
        self.launcher = launcher

    def tell_launcher(self, line):
        self.launcher.stdin.write(line + "\n")
        self.launcher.stdin.flush()
        return self.launcher.stdout.readline()

    def test_20_lies_of_a_process_reach_nobody_elses_rows(self):
        self.check_attack(self.attack, SECONDS)

        wait_until("the hooks count", lambda: '"count":1' in self.tell_launcher("semaphores"))
        self.tell_launcher("launch 5000 0 0")
        self.tell_launcher("flush")
        row = wait_until("the honest calls", lambda: self.daemon.functions("--pid", self.launcher.pid).get("cuLaunchKernel"))
        self.assertEqual((row["calls"], row["calls_hooked"], row["errors"]), (5000, 5000, 0))
        liars = {process.pid for process in self.attackers}
        rows = [one for one in self.daemon.query("functions", "--per-process") if one["function"] == "cuLaunchKernel"]
        self.assertEqual({one["pid"] for one in rows}, {self.launcher.pid} | liars, rows)
        self.check_aftermath(self.attack)


if __name__ == "__main__":
    unittest.main(verbosity=2)
