#!/usr/bin/env python3
"""Finding 6: who may read the API cannot make gRPC bloat or stop the daemon (docs/decisions/0023-grpc-guard.md).

The attackers are nobody, with the right to open the socket that members of group gpuperf have.
"""

import json
import pathlib
import time
import unittest

from bed import AttackTest, as_nobody, read_resident_mib
from gpuperf_system import wait_until

ATTACKER = pathlib.Path(__file__).with_name("http2_attacker.py")
# An answer of 900 kB for every reader: the daemon shows its configuration as it was read.
LARGE_CONFIG = {"$schema": "x" * 900_000}
# Each alone took hundreds of MiB within seconds, or gigabytes; now some MiB.
MAX_GROWTH_MIB = 64


class GrpcTest(AttackTest):
    CONFIG = LARGE_CONFIG

    def attack(self, name, connections=1):
        self.daemon.socket.chmod(0o666)
        with open(ATTACKER, "rb") as program:  # nobody may not be able to open it
            return self.add_attacker(as_nobody("/usr/bin/python3", "-", name, self.daemon.socket, connections,
                                               stdin=program))

    def count_drops(self, reason):
        drops = self.daemon.query("status")["drops"]
        return sum(int(row["count"]) for row in drops if row["stage"] == "api" and row["reason"] == reason)

    def check_growth(self, name, connections, seconds=0.7, refused=None):
        """For so long, and until something was refused for that reason."""
        before_mib = read_resident_mib(self.daemon.process.pid)
        attacker = self.attack(name, connections)
        peak_mib = before_mib
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline or refused and not self.count_drops(refused):
            self.assertLess(time.monotonic(), deadline + 10, f"nothing was refused as {refused}")
            peak_mib = max(peak_mib, read_resident_mib(self.daemon.process.pid))
            time.sleep(0.02)
        self.assertIsNone(attacker.poll(), "the attacker has failed")
        self.end_attack()
        print(json.dumps({"attack": name, "connections": connections, "MiB": round(peak_mib - before_mib, 1)}))
        self.assertLess(peak_mib - before_mib, MAX_GROWTH_MIB, name)

    def test_6_headers_without_end(self):
        for name in ("continuation", "small_continuation", "empty_continuation"):
            self.check_growth(name, 4, refused="misuse")

    def test_6_calls_given_up(self):
        self.check_growth("many_calls", 4, refused="misuse")
        for name in ("rapid_reset", "rapid_reset_of_streams", "deaf_reset", "reconnect"):
            self.check_growth(name, 4, refused="throttled")

    def test_6_floods_of_small_frames(self):
        for name in ("ping", "settings", "deaf_ping", "window_update", "empty_data"):
            self.check_growth(name, 4, refused="throttled")

    def test_6_what_waits_to_be_taken(self):
        for name in ("untaken_answers", "deaf_calls", "large_requests"):
            self.check_growth(name, 64, seconds=1.5, refused="answers_full")

    def test_6_others_are_served_meanwhile(self):
        def attack(_):
            for name in ("continuation", "many_calls"):
                self.attack(name)
            # Later they would wait with all of that user, who asks for too much.
            wait_until("attackers are refused", lambda: self.count_drops("misuse"), 30)
            for name in ("rapid_reset", "deaf_ping", "untaken_answers", "large_requests"):
                self.attack(name)
        self.check_attack(attack)
        self.check_aftermath(attack)


if __name__ == "__main__":
    unittest.main(verbosity=2)
