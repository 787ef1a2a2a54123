#!/usr/bin/env python3
"""The four capabilities that the chart gives are enough, and the daemon says what it cannot do without one."""

import os
import pathlib
import pwd
import shutil
import subprocess
import unittest

from gpuperf_system import (WORKLOADS, Daemon, finish_workload, get_calls, require_root, run_ctl, wait_until)

CAPABILITIES = ("bpf", "perfmon", "sys_ptrace", "dac_read_search")  # as in deploy/chart
NOBODY = pwd.getpwnam("nobody")
CONFIG = {"custom_sym": {"slow_sleep": "slow_sleep", "slow_spin": "slow_spin"},
          "libraries": {"custom_sym": ["slow_calls"]}}  # by name: found where a process has it mapped


def setUpModule():
    require_root()
    if shutil.which("setpriv") is None:
        raise unittest.SkipTest("setpriv is not installed (Debian package util-linux)")


def drop_all_but(capabilities):
    """A prefix that runs a program as root with these capabilities and no way to more."""
    kept = ",".join(f"+{name}" for name in capabilities)
    return ("setpriv", f"--bounding-set=-all,{kept}", "--inh-caps=-all", "--no-new-privs")


class RightsTest(unittest.TestCase):
    def start_as_nobody(self, folder):
        """slow_calls in a folder that only nobody may enter; goes on once the file `go` is there."""
        home = folder / "home"
        home.mkdir()
        program = pathlib.Path(shutil.copy(WORKLOADS / "slow_calls", home))
        go = home / "go"
        for path in (home, program):
            os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
            path.chmod(0o700)
        folder.chmod(0o755)
        process = subprocess.Popen(
            [program, "--requests", "5", "--duration-ms", "1", "--wait-for-file", go, "--linger-for-file",
             home / "end"], stdout=subprocess.PIPE, text=True, user=NOBODY.pw_uid, group=NOBODY.pw_gid,
            extra_groups=[])
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process, go

    def test_four_capabilities_count_another_users_calls_exactly(self):
        with Daemon(CONFIG, prefix=drop_all_but(CAPABILITIES)) as daemon:
            process, go = self.start_as_nobody(daemon.path)
            daemon.wait_attached("slow_sleep", "slow_spin", seconds=60)
            go.touch()
            wait_until("the calls", lambda: len(daemon.wait_for_counts(
                process.pid, {"slow_sleep": 5, "slow_spin": 5})) == 2, 30)
            counted = {name: row["calls"] for name, row in daemon.functions("--pid", process.pid).items()}
            (go.parent / "end").touch()
            truth = finish_workload(process)[-1]

        self.assertEqual(counted, get_calls(truth))

    def test_without_ptrace_the_daemon_says_that_processes_cannot_be_read(self):
        capabilities = [name for name in CAPABILITIES if name != "sys_ptrace"]
        with Daemon(CONFIG, prefix=drop_all_but(capabilities)) as daemon:
            self.start_as_nobody(daemon.path)
            advice = wait_until("advice", lambda: "CAP_SYS_PTRACE" in run_ctl(
                "--address", f"unix:{daemon.socket}", "doctor", check=False).stdout, 60)

        self.assertTrue(advice)

    def test_without_bpf_the_daemon_runs_and_says_what_it_needs(self):
        with Daemon(CONFIG, prefix=drop_all_but(["sys_ptrace", "dac_read_search"])) as daemon:
            doctor = run_ctl("--address", f"unix:{daemon.socket}", "doctor", check=False).stdout

        self.assertIn("no probes until you fix this and restart gpuperfd", doctor)
        self.assertIn("CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH", doctor)


if __name__ == "__main__":
    unittest.main(verbosity=2)
