#!/usr/bin/env python3
"""Findings 11, 12 and 13: what is bounded is shared among users, and root finds places (daemon/base/shares.h)."""

import ctypes
import os
import time
import unittest

from bed import AttackTest, as_nobody
from gpuperf_system import AS_NOBODY, COUNT_LIBRARY, NOBODY, WORKLOADS, run_ctl, wait_until
from session_crowd import Forked, crowd, hold_sessions

OTHER_USERS = (NOBODY - 1, NOBODY - 2, NOBODY - 3)


class SharesTest(AttackTest):
    def fork(self, work, uid=NOBODY, kept=()):
        return self.add_attacker(Forked(work, uid, kept))

    def count_drops(self, stage, reason):
        drops = self.daemon.query("status")["drops"]
        return sum(int(row["count"]) for row in drops if row["stage"] == stage and row["reason"] == reason)


class SessionSharesTest(SharesTest):
    CONFIG = {"ingest": {"max_sessions": 64, "max_sessions_per_user": 48}}

    def test_12_users_that_take_all_sessions(self):
        """Two users took all sessions, and root was refused."""
        path = self.daemon.path / "run/ingest.sock"
        welcomes, welcomed = os.pipe()
        self.addCleanup(os.close, welcomes)

        def open_two():
            hold_sessions(path, 2, on_welcome=lambda: os.write(welcomed, b"1"))

        def attack(_):
            for uid in (NOBODY, *OTHER_USERS[:2]):
                self.fork(crowd(24, open_two), uid, [welcomed])
        self.check_attack(attack, 3)

        os.set_blocking(welcomes, False)
        self.assertGreater(len(os.read(welcomes, 1000)), 40)
        wait_until("sessions are refused", lambda: self.count_drops("session", "sessions_full") > 20, 30)
        for uid in (0, OTHER_USERS[2]):
            self.fork(open_two, uid, [welcomed])
            wait_until(f"a session of user {uid}", lambda: self.read_some(welcomes))
        self.check_aftermath(attack)
        os.close(welcomed)

    @staticmethod
    def read_some(descriptor):
        try:
            return os.read(descriptor, 1)
        except BlockingIOError:
            return b""


class CellSharesTest(SharesTest):
    CONFIG = {"stats": {"max_cells": 32}, "libraries": {"custom_sym": ["slow_calls", *COUNT_LIBRARY["custom_sym"]]},
              "custom_sym": {"slow_sleep": {"symbol": "slow_sleep", "slow_threshold_ms": 5},
                             **{name: name for name in ("count_fast", "count_status", "count_nested", "count_recurse")}}}

    def test_11_processes_that_take_all_cells(self):
        """Processes of one user called so many functions that others had no rows by pid."""
        library = ctypes.CDLL(str(WORKLOADS / "libcount_target.so"))

        def call():
            for _ in range(6000):
                library.count_fast(1, 0)
                library.count_status(1)
                library.count_nested(1, 0)
                library.count_recurse(1)
                time.sleep(0.1)

        def attack(_):
            self.fork(crowd(20, call))
        self.fork(call)  # so that there is something to attach to
        self.daemon.wait_attached("count_fast", "count_recurse")
        self.check_attack(attack, 3)

        wait_until("calls beyond the user's share", lambda: self.count_drops("bpf", "cells_user_full"))
        for uid in (OTHER_USERS[0], 0):
            child = self.fork(call, uid)
            wait_until(f"rows of a process of user {uid}",
                       lambda pid=child.pid: self.daemon.query("functions", "--pid", pid), 5)
        self.assertEqual(self.count_drops("bpf", "cells_full"), 0)
        self.check_aftermath(attack)


class CaptureSharesTest(SharesTest):
    def test_13_captures_of_a_user_that_keep_root_from_capturing(self):
        """Eight captures of a member of the API's group were all there are."""
        self.daemon.socket.chmod(0o666)
        own = self.add_attacker(as_nobody("sleep", "600"))

        results = [self.start(prefix=AS_NOBODY, pid=own.pid) for _ in range(8)]

        self.assertEqual([result.returncode == 0 for result in results], [True] * 3 + [False] * 5, results)
        self.assertIn("this user already has 3 running captures", results[-1].stderr)
        for _ in range(2):
            started = self.start()
            self.assertEqual(started.returncode, 0, started.stderr)

    def start(self, pid=None, **options):
        target = () if pid is None else ("--pid", pid)
        return run_ctl("--address", f"unix:{self.daemon.socket}", "trace", "start", *target, check=False, **options)


if __name__ == "__main__":
    unittest.main(verbosity=2)
