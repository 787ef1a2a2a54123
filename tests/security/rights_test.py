#!/usr/bin/env python3
"""What the daemon can do at most: rights that it does not need are given up before it begins to work."""

import pathlib
import stat
import unittest

from gpuperf_system import Daemon, require_root

# CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE, CAP_PERFMON, CAP_BPF; CAP_SYSLOG, CAP_NET_BIND_SERVICE and
# CAP_CHECKPOINT_RESTORE may be kept.
NEEDED = 1 << 2 | 1 << 19 | 1 << 38 | 1 << 39
OPTIONAL = 1 << 34 | 1 << 10 | 1 << 40
FILTERED = 2  # seccomp with a filter


def read_status(path):
    return dict(line.split(":\t", 1) for line in path.read_text(encoding="utf-8").splitlines() if ":\t" in line)


def setUpModule():
    require_root()


class RightsTest(unittest.TestCase):
    def test_16_a_daemon_started_as_root_keeps_the_capabilities_it_needs_and_is_filtered(self):
        with Daemon({"custom_sym": {"slow_sleep": "slow_sleep"}}) as daemon:
            tasks = list(pathlib.Path(f"/proc/{daemon.process.pid}/task").iterdir())
            self.assertGreater(len(tasks), 5)
            for task in tasks:
                status = read_status(task / "status")
                for held in ("CapPrm", "CapEff", "CapBnd"):
                    self.assertEqual(int(status[held], 16) & ~OPTIONAL, NEEDED, (task.name, held, status[held]))
                self.assertEqual((status["NoNewPrivs"].strip(), int(status["Seccomp"])), ("1", FILTERED))

    def test_15_the_store_can_be_entered_by_its_owner_and_group_only(self):
        with Daemon({"custom_sym": {"slow_sleep": "slow_sleep"}}) as daemon:
            mode = stat.S_IMODE((daemon.path / "store").stat().st_mode)
            self.assertEqual(mode, 0o750, oct(mode))


if __name__ == "__main__":
    unittest.main(verbosity=2)
