#!/usr/bin/env python3
"""Finding 8: large perf maps of nobody's that change all the time, which the daemon reads to name his slow calls."""

import pathlib
import time
import unittest

from made_code_bed import MadeCodeTest

MAPS = 4
MAP_MIB = 63
SECONDS = 6
MAX_CPU_RATIO = 0.8  # of one CPU, of all of the daemon


class NamingTest(MadeCodeTest):
    def read_cpu_s(self):
        fields = pathlib.Path(f"/proc/{self.daemon.process.pid}/stat").read_text(encoding="ascii").rsplit(")")[1].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def attack(self, _):
        self.start("--map", "churn", "--map-mib", str(MAP_MIB), count=MAPS)
        self.begin = time.monotonic(), self.read_cpu_s()

    def test_8_who_has_large_perf_maps_that_change_waits_and_others_do_not(self):
        self.check_attack(self.attack, SECONDS)

        cpu_ratio = (self.read_cpu_s() - self.begin[1]) / (time.monotonic() - self.begin[0])
        print(f"CPU of the daemon: {cpu_ratio:.2f}")
        self.assertLess(cpu_ratio, MAX_CPU_RATIO)
        self.assertGreater(self.get_drops("map_paused"), 0)  # the attack did what it is meant to
        self.check_aftermath(self.attack)


if __name__ == "__main__":
    unittest.main(verbosity=2)
