#!/usr/bin/env python3
"""A start that cannot succeed, or is no longer wanted: the daemon says why, or ends."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import time
import unittest

from gpuperf_system import Daemon, require_root, wait_until

CONFIG = {"custom_sym": {"slow_sleep": "slow_sleep"}}
GROUPS = pathlib.Path("/sys/fs/cgroup")
END_LIMIT_SECONDS = 2


def setUpModule():
    require_root()


def find_memory_groups():
    """(the folder of the memory controller, its file of the limit)"""
    if (GROUPS / "memory/memory.limit_in_bytes").exists():
        return GROUPS / "memory", "memory.limit_in_bytes"
    control = GROUPS / "cgroup.subtree_control"
    if control.exists() and "memory" in control.read_text(encoding="ascii").split():
        return GROUPS, "memory.max"
    raise unittest.SkipTest("needs the memory controller of control groups: it is not available here")


@contextlib.contextmanager
def make_group(mib):
    """The start of a command that runs in a control group so large."""
    parent, limit = find_memory_groups()
    folder = parent / f"gpuperf-test-{os.getpid()}"
    folder.mkdir()
    try:
        (folder / limit).write_text(str(mib << 20), encoding="ascii")
        yield ["sh", "-c", f'echo $$ >{folder}/cgroup.procs && exec "$@"', "sh"]
    finally:
        wait_until("the group is empty", lambda: not (folder / "cgroup.procs").read_text(encoding="ascii"), 10)
        folder.rmdir()


class StartTest(unittest.TestCase):
    def refuse(self, prefix):
        """What a start that fails says, which it does at once."""
        daemon = Daemon(CONFIG, prefix=prefix)
        self.addCleanup(daemon.folder.cleanup)
        result = subprocess.run(daemon.command, capture_output=True, text=True, timeout=30, check=False)
        self.assertEqual(result.returncode, 1, result.stderr)
        return result.stderr

    def test_15_an_address_space_too_small_is_an_error_that_says_what_is_needed(self):
        self.assertRegex(self.refuse(["prlimit", f"--as={300 << 20}"]),
                         r"address space is limited to 300 MiB, and a start takes \d+ MiB")

    def test_15_a_control_group_too_small_is_an_error_that_says_what_is_needed(self):
        with make_group(110) as prefix:
            error = self.refuse(prefix)
        needed = re.search(r"may use 110 MiB, and a start takes (\d+) MiB", error)
        self.assertTrue(needed, error)
        with make_group(int(needed[1])) as prefix, Daemon(CONFIG, prefix=prefix) as daemon:
            self.assertEqual(daemon.query("status")["problems"], [])

    def test_16_sigterm_ends_a_daemon_that_is_still_starting(self):
        for delay_ms in (20, 100, 300, 600, 900):
            daemon = Daemon(CONFIG)
            self.addCleanup(daemon.folder.cleanup)
            with subprocess.Popen(daemon.command, stderr=subprocess.DEVNULL) as process:
                time.sleep(delay_ms / 1000)
                asked = time.monotonic()
                process.send_signal(signal.SIGTERM)
                code = process.wait(timeout=30)
                self.assertLess(time.monotonic() - asked, END_LIMIT_SECONDS, delay_ms)
                # Before it takes signals itself there is nothing that it would have to bring to an end.
                self.assertIn(code, (0, -signal.SIGTERM), delay_ms)


if __name__ == "__main__":
    unittest.main(verbosity=2)
