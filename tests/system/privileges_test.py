#!/usr/bin/env python3
"""The capabilities of the service, held by a user who is not root: enough, and none too many."""

import os
import pathlib
import re
import shutil
import subprocess
import unittest

from gpuperf_system import SOURCE, WORKLOADS, Daemon, finish_workload, require_root, wait_until

UNIT = SOURCE / "deploy/systemd/gpuperfd.service"
DAEMON_UID = 64_711   # nobody's
WORKLOAD_UID = 64_712
HOME = pathlib.Path("/var/tmp")  # no tmpfs: file systems of workloads rarely are


def read_capabilities():
    """Those of the unit, which are the bounding set and the ambient ones alike."""
    text = UNIT.read_text(encoding="utf-8")
    sets = [re.search(rf"^{name}=(.*)$", text, re.M)[1].split()
            for name in ("CapabilityBoundingSet", "AmbientCapabilities")]
    assert sets[0] == sets[1], sets
    return sets[0]


def as_user(uid, capabilities=()):
    names = [name.removeprefix("CAP_").lower() for name in capabilities]
    held = ",".join(["-all", *(f"+{name}" for name in names)])
    return ("setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", "--inh-caps", held,
            "--ambient-caps", held, "--bounding-set", held, "--no-new-privs", "--")


class PrivilegesTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        require_root()
        # Another user's program, in a home that is closed to others.
        self.home = HOME / f"gpuperf-privileges-{os.getpid()}"
        self.home.mkdir(mode=0o700)
        self.addCleanup(shutil.rmtree, self.home)
        shutil.copy(WORKLOADS / "known_causes", self.home)
        for path in (self.home, self.home / "known_causes"):
            os.chown(path, WORKLOAD_UID, WORKLOAD_UID)

    def start_daemon(self, capabilities):
        config = {"custom_sym": {"cause_pipe": {"symbol": "cause_pipe", "may_throw": False}},
                  "libraries": {"custom_sym": [str(self.home / "known_causes")]},
                  "slow": {"default_threshold_ms": 5, "adaptive_factor": 0}}
        daemon = Daemon(config, prefix=as_user(DAEMON_UID, capabilities))
        self.addCleanup(daemon.folder.cleanup)
        for path in (daemon.path, daemon.config):
            os.chown(path, DAEMON_UID, DAEMON_UID)
        self.addCleanup(daemon.stop)
        daemon.start(seconds=120)
        return daemon

    def run_workload(self, daemon):
        """The workload's slow call, or None where it was not seen."""
        go = self.home / "go"
        workload = subprocess.Popen([*as_user(WORKLOAD_UID), self.home / "known_causes", "--cause", "pipe",
                                     "--runs", "50", "--ms", "40", "--wait-for-file", go], cwd="/",
                                    stdout=subprocess.PIPE, text=True)
        try:
            daemon.wait_attached("cause_pipe", seconds=15)
        except AssertionError:
            pass  # the caller looks at what came of it
        go.touch()
        finish_workload(workload)
        go.unlink()

        def find():
            calls = [call for call in daemon.query("slow", "list", "--pid", workload.pid) if not call["in_flight"]]
            # The last: by then the daemon knows the process, however busy the machine is.
            return calls and daemon.query("slow", "show", max(call["id"] for call in calls))
        try:
            return wait_until("the slow call", find, 5)
        except AssertionError:
            return None

    def kernel_symbols(self, call):
        return [frame["symbol"] for wait in call["time_split"]["waits"] for frame in wait["kernel_stack"]]

    def record_call(self, capabilities):
        daemon = self.start_daemon(capabilities)
        call = self.run_workload(daemon)

        self.assertIsNotNone(call, daemon.log())
        self.assertEqual(daemon.query("status")["problems"], [])
        self.assertTrue(any("run_pipe" in frame["symbol"] for frame in call["user_stack"]), call["user_stack"])
        # Lines are read by the process that holds no rights at all.
        self.assertTrue(any(frame.get("line") for frame in call["user_stack"]), call["user_stack"])
        return call

    def test_with_those_of_the_service_another_users_call_is_recorded_with_its_stack_and_lines(self):
        call = self.record_call(read_capabilities())

        if int(pathlib.Path("/proc/sys/kernel/perf_event_paranoid").read_text(encoding="ascii")) > 1:
            self.assertEqual([name for name in self.kernel_symbols(call) if name], [])

    def test_with_cap_syslog_too_the_kernels_functions_have_names(self):
        call = self.record_call([*read_capabilities(), "CAP_SYSLOG"])

        self.assertIn("pipe_read", " ".join(self.kernel_symbols(call)))

    def test_without_cap_bpf_it_says_that_nothing_is_probed(self):
        self.assertIn("CAP_BPF", str(self.check_probes_nothing("CAP_BPF")))

    def test_without_cap_perfmon_it_says_that_nothing_is_probed(self):
        self.check_probes_nothing("CAP_PERFMON")

    def check_probes_nothing(self, missing):
        daemon = self.start_daemon([name for name in read_capabilities() if name != missing])
        status = daemon.query("status")

        self.assertEqual(status["mechanism"], "none")
        self.assertIn("CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH", str(status["problems"]))
        return status["problems"]

    def test_without_cap_sys_ptrace_it_says_that_processes_cannot_be_seen(self):
        daemon = self.start_daemon([name for name in read_capabilities() if name != "CAP_SYS_PTRACE"])

        wait_until("the problem is named", lambda: "CAP_SYS_PTRACE" in str(daemon.query("status")["problems"]))

    def test_without_cap_dac_read_search_libraries_in_closed_homes_are_not_probed(self):
        daemon = self.start_daemon([name for name in read_capabilities() if name != "CAP_DAC_READ_SEARCH"])

        self.assertIsNone(self.run_workload(daemon))
        (probe,) = daemon.query("probes")
        self.assertEqual(probe["state"], "waiting")


if __name__ == "__main__":
    unittest.main(verbosity=2)
