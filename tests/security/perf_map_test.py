#!/usr/bin/env python3
"""Finding 7: perf maps of nobody's, which the daemon reads to name code made at run time."""

import json
import unittest

from gpuperf_system import wait_until
from made_code_bed import MadeCodeTest

SECRET = "root-only-line"


class PerfMapTest(MadeCodeTest):
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

    def check_nothing_leaks(self, kind):
        secret = self.folder / "secret"
        secret.write_text(f"0 ffffffffffffffff {SECRET}\n", encoding="ascii")
        secret.chmod(0o600)
        (pid,) = self.start("--map", kind, "--target", secret)

        frames = self.list_frames(pid)

        shown = json.dumps(frames) + self.daemon.log() + self.daemon.ctl("slow", "list").stdout
        self.assertFalse(SECRET in shown)
        wait_until("the refusal is counted", lambda: self.get_drops("file_refused"), 3)

    def test_7_a_link_to_a_file_of_roots_names_nothing(self):
        self.check_nothing_leaks("link")

    def test_7_a_file_of_roots_mounted_in_its_place_names_nothing(self):
        self.check_nothing_leaks("bind")

    def test_a_processs_own_map_names_its_code(self):
        (pid,) = self.start("--map", "own")

        names = [frame.get("symbol", "") for frame in self.list_frames(pid)]

        self.assertTrue(any(name.startswith("made_code_") for name in names), names)


if __name__ == "__main__":
    unittest.main(verbosity=2)
