#!/usr/bin/env python3
"""Finding 10: processes of nobody's that map thousands of files with the name of a library that is probed."""

import os
import pathlib
import subprocess
import time
import unittest

from bed import CONFIG, as_nobody
from gpuperf_system import NOBODY, PATIENCE, SOURCE, wait_until
from made_code_bed import MadeCodeTest

PROCESSES = 10
FILES = 430  # of each process
SECONDS = 8
OTHER_USER = 12_345
MAX_SEEN_S = 3.0 * PATIENCE
MAX_DESCRIPTORS = 2_000


class LibraryFloodTest(MadeCodeTest):
    PROGRAM = SOURCE / "tests/security/map_libraries.py"
    CONFIG = {"custom_sym": CONFIG["custom_sym"] |
              {name: {"symbol": name, "slow_threshold_ms": 0.5}
               for name in ("count_fast", "count_status", "count_nested", "count_recurse")},
              "libraries": {"custom_sym": ["slow_calls", "libfake.so.*"]}}

    def make_folder(self, name, uid):
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        os.chown(folder, uid, uid)
        return folder

    def attack(self, _):
        folder = self.make_folder("nobodys", NOBODY)
        self.processes = [self.add_attacker(as_nobody(
            "/usr/bin/python3", self.program, self.library, folder, i * FILES, FILES,
            stdout=subprocess.PIPE, text=True)) for i in range(PROCESSES)]
        for process in self.processes[:2]:  # the others follow
            process.stdout.readline()

    def attack_and_measure(self, daemon):
        self.attack(daemon)
        self.seen_s = {uid: self.measure_seen(uid) for uid in (0, OTHER_USER)}
        print(f"seen after {self.seen_s}")

    def measure_seen(self, uid):
        """How long it takes until calls of a new program of that user are seen."""
        program = self.add_attacker(subprocess.Popen(
            ["/usr/bin/python3", self.program, self.library, self.make_folder(f"of_{uid}", uid), "0", "1", "--call"],
            user=uid, group=uid, extra_groups=[], start_new_session=True, stdout=subprocess.PIPE, text=True))
        pid = int(program.stdout.readline())
        begin = time.monotonic()
        wait_until(f"calls of a program of user {uid}", lambda: self.daemon.query("slow", "list", "--pid", pid), 120)
        return time.monotonic() - begin

    def is_explained(self):
        return any("of one user" in row["message"] for row in self.daemon.query("status")["problems"])

    def test_10_who_maps_thousands_of_fake_libraries_takes_no_others_place(self):
        self.check_attack(self.attack_and_measure, SECONDS)

        self.assertLess(max(self.seen_s.values()), MAX_SEEN_S)
        descriptors = len(list(pathlib.Path(f"/proc/{self.daemon.process.pid}/fd").iterdir()))
        print(f"{descriptors} descriptors")
        self.assertLess(descriptors, MAX_DESCRIPTORS)
        wait_until("the files left out are a problem", self.is_explained)
        wait_until("the attack does what it is meant to", lambda: self.get_drops("files_full") > 1000)
        self.check_aftermath(self.attack)


if __name__ == "__main__":
    unittest.main(verbosity=2)
