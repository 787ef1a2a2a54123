#!/usr/bin/env python3
"""A thread of the daemon that hangs: it shows, the others go on, and it does not keep the daemon from stopping."""

import pathlib
import subprocess
import time
import unittest
import urllib.error
import urllib.request

from bed import MAX_STOP_S, AttackTest, Honest
from gpuperf_system import SOURCE, wait_until

PROGRAM = SOURCE / "tests/security/hold_thread.py"
PWRITE = 18
LIMIT_S = 10  # Work::kLimit


class StuckThreadTest(AttackTest):
    def hold(self, name, syscall):
        """Until the process that is returned is killed, or the daemon has ended."""
        threads = pathlib.Path(f"/proc/{self.daemon.process.pid}/task").iterdir()
        tid, = (thread.name for thread in threads if (thread / "comm").read_text(encoding="ascii").strip() == name)
        holder = subprocess.Popen(["/usr/bin/python3", PROGRAM, tid, str(syscall)], stdout=subprocess.PIPE, text=True,
                                  start_new_session=True)
        self.add_attacker(holder)
        self.assertEqual(holder.stdout.readline(), "held\n")
        return holder

    def ask_readiness(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.daemon.port}/readyz", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def count_calls(self):
        return self.daemon.functions()["slow_sleep"]["calls"]

    def find_problems(self):
        return [row["subject"] for row in self.daemon.query("status")["problems"]]

    def test_a_store_whose_disk_no_longer_answers_shows_and_does_not_keep_the_daemon_from_stopping(self):
        honest = Honest(self.daemon)
        self.addCleanup(honest.stop)
        self.assertEqual(self.ask_readiness(), (200, "ready\n"))

        holder = self.hold("store", PWRITE)
        wait_until("/readyz to name the thread", lambda: "thread store: at one piece of work" in self.ask_readiness()[1],
                   2 * LIMIT_S)

        self.assertEqual(self.ask_readiness()[0], 503)
        wait_until("the problem", lambda: "thread store" in self.find_problems())
        self.assertIn("thread store", self.daemon.ctl("doctor", check=False).stdout)
        self.assertIn("thread hangs", self.daemon.log())
        before = self.count_calls()
        wait_until("further calls", lambda: self.count_calls() > before)

        holder.kill()
        wait_until("/readyz to be well again", lambda: self.ask_readiness() == (200, "ready\n"))
        wait_until("the problem to go", lambda: "thread store" not in self.find_problems())

        self.hold("store", PWRITE)
        self.assertEqual(honest.failures, [])
        begin = time.monotonic()
        self.assertEqual(self.daemon.stop(), 0)
        self.assertLess(time.monotonic() - begin, MAX_STOP_S)
        self.assertIn("store", self.daemon.log().splitlines()[-1])


if __name__ == "__main__":
    unittest.main(verbosity=2)
