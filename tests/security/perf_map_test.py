#!/usr/bin/env python3
"""Finding 7: perf maps of nobody's, which the daemon reads to name code made at run time."""

import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from bed import CONFIG, AttackTest, as_nobody
from gpuperf_system import SOURCE, WORKLOADS, wait_until

MADE_CODE = SOURCE / "tests/security/made_code.py"
SECRET = "root-only-line"


class PerfMapTest(AttackTest):
    CONFIG = {"custom_sym": CONFIG["custom_sym"] | {"count_fast": {"symbol": "count_fast", "slow_threshold_ms": 0.5}},
              "libraries": {"custom_sym": ["slow_calls", "libcount_target.so"]}}

    def setUp(self):
        super().setUp()
        holder = tempfile.TemporaryDirectory(prefix="gpuperf-made-code-", dir="/var/tmp")
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.folder.chmod(0o755)
        self.library = shutil.copy(WORKLOADS / "libcount_target.so", self.folder)
        self.program = shutil.copy(MADE_CODE, self.folder)
        self.maps = []

    def end_attack(self):
        super().end_attack()
        for path in self.maps:
            path.unlink(missing_ok=True)

    def start(self, *options):
        """The pid of a process of nobody's."""
        process = self.add_attacker(as_nobody("/usr/bin/python3", self.program, self.library, *options,
                                              stdout=subprocess.PIPE, text=True))
        pid = int(process.stdout.readline())
        self.maps.append(pathlib.Path(f"/tmp/perf-{pid}.map"))
        return pid

    def list_calls(self, pid):
        return self.daemon.query("slow", "list", "--pid", pid, "--function", "count_fast")

    def list_frames(self, pid):
        """Of one of its slow calls, once there is one whose caller is known to be made code."""
        def find():
            for row in self.list_calls(pid)[:5]:
                frames = self.daemon.query("slow", "show", row["id"])["user_stack"]
                if frames and frames[0]["module"] == "/dev/zero":
                    return frames
            return None
        return wait_until(f"a slow call of pid {pid} with its stack", find)

    def get_drops(self, reason):
        return sum(int(row["count"]) for row in self.daemon.query("status")["drops"] if row["reason"] == reason)

    def check_nothing_leaks(self, kind):
        secret = self.folder / "secret"
        secret.write_text(f"0 ffffffffffffffff {SECRET}\n", encoding="ascii")
        secret.chmod(0o600)
        pid = self.start("--map", kind, "--target", secret)

        frames = self.list_frames(pid)

        shown = json.dumps(frames) + self.daemon.log() + self.daemon.ctl("slow", "list").stdout
        self.assertFalse(SECRET in shown)
        wait_until("the refusal is counted", lambda: self.get_drops("file_refused"), 3)

    def test_7_a_link_to_a_file_of_roots_names_nothing(self):
        self.check_nothing_leaks("link")

    def test_7_a_file_of_roots_mounted_in_its_place_names_nothing(self):
        self.check_nothing_leaks("bind")

    def test_a_processs_own_map_names_its_code(self):
        pid = self.start("--map", "own")

        names = [frame.get("symbol", "") for frame in self.list_frames(pid)]

        self.assertTrue(any(name.startswith("made_code_") for name in names), names)


if __name__ == "__main__":
    unittest.main(verbosity=2)
