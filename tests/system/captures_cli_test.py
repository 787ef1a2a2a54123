#!/usr/bin/env python3
"""Captures as people ask for them: gpuperfctl trace, flamegraph, diff, kernels --by and record against a real
daemon. Calls of a probed function only: no GPU is needed."""

import json
import os
import pathlib
import subprocess
import unittest

from gpuperf_system import (AS_NOBODY, COUNT_LIBRARY, GPUPERFCTL, NOBODY, WORKLOADS, Daemon, finish_workload,
                            require_root, run_ctl, start_workload, wait_until)

FUNCTIONS = ("count_fast", "count_status", "count_nested")
CONFIG = {"custom_sym": {name: name for name in FUNCTIONS},
          "libraries": COUNT_LIBRARY}
FORMS = ("chrome", "perfetto", "pprof", "folded", "extended-folded", "flamegraph", "idle-flamegraph", "report", "raw")


def setUpModule():
    require_root()


class CapturesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(CONFIG).start()
        cls.addClassCleanup(cls.daemon.folder.cleanup)
        cls.addClassCleanup(cls.daemon.stop)
        cls.daemon.path.chmod(0o755)

    def as_nobody(self, *arguments):
        os.chmod(self.daemon.socket, 0o666)
        return run_ctl("--address", f"unix:{self.daemon.socket}", *arguments, check=False, prefix=AS_NOBODY)

    def capture_workload(self):
        """A stored capture of a workload that calls the probed functions."""
        go = self.daemon.path / f"go{len(list(self.daemon.path.iterdir()))}"
        process = start_workload("count_calls", "--calls", 200, "--wait-for-file", go)
        self.daemon.wait_attached(*FUNCTIONS)
        row = self.daemon.query("trace", "start", "--pid", process.pid)
        go.touch()
        finish_workload(process)
        self.daemon.ctl("trace", "stop", row["id"])
        return self.wait_stored(row["id"])

    def wait_stored(self, capture_id):
        def stored():
            shown = self.daemon.query("trace", "show", capture_id)["capture"]
            self.assertNotEqual(shown["state"], "failed", shown["problem"])
            return shown if shown["state"] == "stored" else None
        return wait_until(f"capture {capture_id} stored", stored, 30)

    def test_a_capture_from_its_start_to_its_end(self):
        row = self.capture_workload()

        self.assertGreater(row["stored_bytes"], 0)
        self.assertIn(row["id"], [listed["id"] for listed in self.daemon.query("trace", "list")])
        for form in FORMS:
            with self.subTest(form):
                file = self.daemon.path / f"form.{form}"
                self.daemon.ctl("trace", "fetch", row["id"], "--format", form, "--weight", "cpu", "--file", file)
                if form != "extended-folded":  # a line per launch, and there is none
                    self.assertGreater(file.stat().st_size, 0)
        json.loads((self.daemon.path / "form.chrome").read_text(encoding="utf-8"))
        self.assertIn("<svg", (self.daemon.path / "form.flamegraph").read_text(encoding="utf-8"))

        self.daemon.ctl("trace", "delete", row["id"])
        self.assertEqual(self.daemon.ctl("trace", "fetch", row["id"], "--format", "raw", check=False).returncode, 1)

    def test_what_is_asked_of_captures_is_answered(self):
        before = self.capture_workload()
        after = self.capture_workload()
        svg = self.daemon.path / "diff.svg"

        self.daemon.query("diff", before["id"], after["id"], "--by", "path", "--weight", "cpu", "--svg", svg)
        rows = self.daemon.query("kernels", "--by", "stack", "--capture", after["id"])

        self.assertIn("<svg", svg.read_text(encoding="utf-8"))
        self.assertEqual(rows, [], "there is no GPU work in it")

    def test_the_flight_recorder_is_frozen(self):
        file = self.daemon.path / "frozen.svg"
        before = [row["id"] for row in self.daemon.query("trace", "list")]
        self.daemon.ctl("flamegraph", "--last", "5s", "--weight", "cpu", "--file", file)
        self.daemon.ctl("kernels", "--by", "stack")
        left = [row["id"] for row in self.daemon.query("trace", "list")]
        self.daemon.ctl("flamegraph", "--last", "5s", "--keep", "--file", file)

        self.assertIn("<svg", file.read_text(encoding="utf-8"))
        self.assertEqual(left, before, "looking leaves no capture behind")
        self.assertIn("recorder", [row["trigger"] for row in self.daemon.query("trace", "list")])

    def test_a_user_captures_his_own_processes_alone(self):
        with subprocess.Popen(["sleep", "60"]) as roots:
            refused = self.as_nobody("trace", "start", "--pid", roots.pid)
            roots.kill()
        with subprocess.Popen([*AS_NOBODY, "sleep", "60"]) as own:
            begun = self.as_nobody("trace", "start", "--pid", own.pid, "-o", "json")
            own.kill()

        self.assertEqual(refused.returncode, 4, refused.stderr)
        self.assertEqual(begun.returncode, 0, begun.stderr)
        row = json.loads(begun.stdout)
        self.assertEqual(row["requester_uid"], NOBODY)
        self.assertEqual(self.as_nobody("trace", "stop", row["id"]).returncode, 0)

    def test_a_user_leaves_roots_captures_alone(self):
        row = self.capture_workload()

        self.assertEqual(self.as_nobody("trace", "delete", row["id"]).returncode, 4)
        self.assertEqual(self.as_nobody("trace", "show", row["id"]).returncode, 0)

    def test_a_command_is_recorded(self):
        folder = self.daemon.path / "recorded"
        folder.mkdir()
        result = subprocess.run(
            [GPUPERFCTL, "--address", f"unix:{self.daemon.socket}", "record", "--cpu-only", "--",
             WORKLOADS / "count_calls", "--calls", "100"],
            cwd=folder, capture_output=True, text=True, check=False, timeout=120)

        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("count_fast", result.stdout)
        self.assertIn("gpuperfctl: capture ", result.stderr)
        self.assertEqual({path.name for path in pathlib.Path(folder).iterdir()},
                         {"cpu.txt", "flamegraph.svg"})


if __name__ == "__main__":
    unittest.main(verbosity=2)
