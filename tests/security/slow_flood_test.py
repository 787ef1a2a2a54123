#!/usr/bin/env python3
"""Finding 14: floods of slow calls of nobody's, which take the place of others' on the way to the store and in it."""

import subprocess
import unittest

from bed import CONFIG, as_nobody
from gpuperf_system import SOURCE
from made_code_bed import MadeCodeTest

FLOOD = SOURCE / "tests/security/flood_calls.py"
SECONDS = 6
THRESHOLD_MS = 0.002


class SlowFloodTest(MadeCodeTest):
    PROGRAM = FLOOD
    CONFIG = {"custom_sym": CONFIG["custom_sym"] |
              {"count_fast": {"symbol": "count_fast", "slow_threshold_ms": THRESHOLD_MS}},
              "libraries": {"custom_sym": ["slow_calls", "libcount_target.so"]},
              "storage": {"max_mib": 16}}

    def attack(self, _):
        for options in (("--processes", "2"), ("--grow",)):
            self.add_attacker(as_nobody("/usr/bin/python3", self.program, self.library, *options,
                                        stdout=subprocess.PIPE, text=True)).stdout.readline()

    def list_honest(self):
        return self.daemon.query("slow", "list", "--function", "slow_sleep", "--limit", "100000")

    def test_14_a_flood_of_slow_calls_displaces_only_its_own(self):
        self.check_attack(self.attack, SECONDS)

        made = self.daemon.functions()["slow_sleep"]["slow_calls"]
        stored = len(self.list_honest())
        flooded = len(self.daemon.query("slow", "list", "--function", "count_fast", "--limit", "100000"))
        print(f"honest: {stored} stored of {made}; {flooded} of the flood, {self.get_drops('thinned')} left out")
        self.assertGreater(self.get_drops("thinned"), 100)  # the attack did what it is meant to
        self.assertGreater(flooded, stored)
        self.assertGreaterEqual(stored, made - 5)  # those on their way
        self.check_aftermath(self.attack)


if __name__ == "__main__":
    unittest.main(verbosity=2)
