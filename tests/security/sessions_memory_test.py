#!/usr/bin/env python3
"""Finding 5: what processes make the daemon keep through sessions has a budget, by user and process, and goes with them
(daemon/state/session_memory.h)."""

import unittest

from bed import AttackTest
from session_crowd import Forked, crowd, hold_sessions, make_flood

PROCESSES = 34
NAMES = 65_535
CALLS = 32_768


class SessionsMemoryTest(AttackTest):
    CONFIG = {"trace": {"recorder_seconds": 5}}  # what is recorded of the attack leaves after that time, whoever sent it

    def test_5_sessions_full_of_names_shapes_and_kernels(self):
        """34 processes with two sessions each took 2 GiB in 13 s; 24 sessions left 1.1 GiB behind."""
        flood = make_flood(NAMES, CALLS)
        path = self.daemon.path / "run/ingest.sock"

        def attack(_):
            self.add_attacker(Forked(crowd(PROCESSES, lambda: hold_sessions(path, 2, flood))))
        self.check_attack(attack, 10)
        drops = self.daemon.query("status")["drops"]
        self.assertTrue([row for row in drops if row["reason"] == "memory_full"], drops)
        self.check_aftermath(attack)


if __name__ == "__main__":
    unittest.main(verbosity=2)
