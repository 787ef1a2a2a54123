#!/usr/bin/env python3
"""The HTTP port under attack by nobody: findings 2, 3, 4 and 9 of the audit, and what 16 says of HTTP."""

import json
import pathlib
import re
import unittest
import urllib.request

from bed import AttackTest, as_nobody

ATTACKS = pathlib.Path(__file__).with_name("http_attacks.py").read_text(encoding="utf-8")
# Idle, and what HttpLimits and HttpRequestReader let 256 connections of one address hold: some 32 MiB, and as much again for
# the heap.
CEILING_MIB = 256


class HttpTest(AttackTest):
    def begin(self, attack, connections=1, processes=1):
        """Processes of nobody's that do it until the test ends. What they were answered is in ATTACK.log."""
        for _ in range(processes):
            with open(self.daemon.path / f"{attack}.log", "ab") as log:
                self.add_attacker(as_nobody("/usr/bin/python3", "-c", ATTACKS, attack, self.daemon.port, connections,
                                            stdout=log))

    def read_answers(self, attack):
        """The statuses that an attack was answered with."""
        return set(re.findall(r"'HTTP/1.1 (\d+)", (self.daemon.path / f"{attack}.log").read_text(encoding="utf-8")))

    def count_refused(self):
        """Refusals of the HTTP port by reason."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.daemon.port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        rows = re.findall(r'^gpuperf_dropped_total\{stage="http",reason="(\w+)"\} (\d+)$', text, re.M)
        refused = {reason: int(count) for reason, count in rows}
        print(json.dumps({"refused": refused}))
        return refused

    def test_findings_2_3_4_and_16_requests_are_bounded_where_bytes_are_read(self):
        def attack(_):
            self.begin("chunked", processes=4)
            self.begin("no_length")
            self.begin("ranges")
            self.begin("headers")

        self.check_attack(attack, seconds=4, ceiling_mib=CEILING_MIB)

        self.assertGreater(self.count_refused()["request_too_large"], 5)
        self.assertEqual(self.read_answers("chunked"), {"413"})
        self.assertEqual(self.read_answers("no_length"), {"404"})
        self.assertEqual(self.read_answers("ranges"), {"200"})
        self.assertEqual(self.read_answers("headers"), {"431"})
        self.check_aftermath(attack)

    def test_finding_9_scrapes_are_served_whatever_connections_others_hold(self):
        def attack(_):
            self.begin("idle", connections=12)
            self.begin("idle", connections=500)
            self.begin("drip_headers", connections=300)
            self.begin("slow_readers", connections=300)
            self.begin("reconnects")
            self.begin("scrapes", processes=2)

        self.check_attack(attack, seconds=4, ceiling_mib=CEILING_MIB)

        self.assertGreater(self.count_refused()["connections_full"], 500)
        self.check_aftermath(attack)


if __name__ == "__main__":
    unittest.main(verbosity=2)
