#!/usr/bin/env python3
"""Sessions recorded on a GPU host are replayed into a daemon: what gpuperfctl shows of them is what was
recorded, and what torch.profiler said of the same work."""

import contextlib
import json
import pathlib
import subprocess
import sys
import unittest

from gpuperf_system import SOURCE, Daemon, require_root, wait_until
from session_replay import split_messages

RECORDINGS = SOURCE / "tests/recordings"
NAMES = ("eager", "train", "pretrain", "graph", "streams", "pair_1", "pair_2")
BYTES_MAX = 400_000
NAME_LENGTH = 900  # as in the files
# The sessions are looked at, not probes: none of these is anywhere.
NO_PROBES = {"none_func_sym": {"nothing_has_this": "gpuperf_no_such_symbol"}}


def spell(name):
    # gpuperfd leaves names mangled that might expand beyond reason (daemon/base/demangle).
    if name.startswith("_Z"):
        name = subprocess.run(["c++filt", name], capture_output=True, text=True, check=True).stdout
    return "".join(name.split())[:NAME_LENGTH]


def sum_by_name(rows):
    """{name: [launches, ns]} of gpuperfctl's rows of kernels."""
    kernels = {}
    for row in rows:
        entry = kernels.setdefault(spell(row["kernel"]), [0, 0])
        entry[0] += int(row["launches"])
        entry[1] += int(row["total_ns"])
    return kernels


def sum_copies(session):
    """(copies, sets) of gpuperfctl's session, in the form of the files."""
    copies, sets = {}, {}
    for copy in session["copies"]:
        entry = [int(copy["count"]), int(copy["bytes"])]
        if copy["direction"] == "set":
            sets[copy["target_memory"]] = entry
        else:
            copies[f"{copy['direction']} {copy['source_memory']} {copy['target_memory']}"] = entry
    return copies, sets


def get_counts(kernels):
    return {name: entry[0] for name, entry in kernels.items()}


class RecordingsTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        require_root()

    def test_every_recording_is_there_and_small(self):
        found = {path.stem for path in RECORDINGS.glob("*.session")}

        self.assertEqual(found, set(NAMES))
        for name in NAMES:
            with self.subTest(recording=name):
                content = (RECORDINGS / f"{name}.session").read_bytes()
                self.assertLessEqual(len(content), BYTES_MAX)
                self.assertGreater(len(split_messages(content)), 2)

    def test_replayed_sessions_show_what_was_recorded(self):
        recordings = sorted(RECORDINGS.glob("*.session"))
        self.assertTrue(recordings, f"no recordings in {RECORDINGS}")
        with Daemon(NO_PROBES) as daemon:
            for path in recordings:
                with self.subTest(recording=path.stem):
                    self.replay_and_compare(daemon, path)

    def test_recordings_replayed_at_once_are_told_apart(self):
        recordings = sorted(RECORDINGS.glob("*.session"))
        self.assertTrue(recordings, f"no recordings in {RECORDINGS}")
        with Daemon(NO_PROBES) as daemon:
            processes = [self.start_replay(daemon, path) for path in recordings]
            for path, process in zip(recordings, processes):
                with self.subTest(recording=path.stem):
                    self.compare(daemon, path, process.pid)

    def start_replay(self, daemon, path):
        """A replaying process; all is sent, its connection stays open."""
        process = subprocess.Popen(
            [sys.executable, pathlib.Path(__file__).with_name("session_replay.py"), path,
             daemon.path / "run/ingest.sock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        def end():
            process.communicate(timeout=20)
            self.assertEqual(process.returncode, 0)
        self.addCleanup(end)
        self.assertEqual(process.stdout.readline(), "sent\n")
        return process

    def replay_and_compare(self, daemon, path):
        self.compare(daemon, path, self.start_replay(daemon, path).pid)

    def compare(self, daemon, path, pid):
        truth = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        recorded, profiler = truth["session"], truth["profiler"]

        def read():
            return (daemon.query("kernels", "--per-process", "--pid", pid, "--limit", 0),
                    daemon.query("sessions", "list", "--pid", pid))
        with contextlib.suppress(AssertionError):  # what is missing is shown below
            wait_until(f"the records of {path.stem}", lambda: self.has_all(read(), truth), 20)
        rows, (session,) = read()

        kernels = {name: list(entry) for name, entry in recorded["kernels"].items()}
        for name, (count, total) in recorded["nodes"].items():
            entry = kernels.setdefault(name, [0, 0])
            entry[0] += count
            entry[1] += total
        self.assertEqual(sum_by_name(rows), kernels)
        self.assertEqual(get_counts(sum_by_name(rows)), get_counts(profiler["kernels"]))
        copies, sets = sum_copies(session)
        self.assertEqual((copies, sets), (recorded["copies"], recorded["sets"]))
        self.assertEqual((copies, sets), (profiler["copies"], profiler["sets"]))
        graph_launches = sum(int(graph["launches"]) for graph in session["graphs"])
        self.assertEqual(graph_launches, recorded["graph_launches"])
        self.assertEqual(graph_launches, profiler["graph_launches"])
        self.assertEqual({sync["type"]: int(sync["count"]) for sync in session["syncs"]}, recorded["syncs"])
        self.assertEqual({loss["reason"]: int(loss["count"]) for loss in session["losses"]},
                         truth["losses"])
        self.assertEqual(int(session["rejected_records"]), 0)

    def has_all(self, answer, truth):
        rows, sessions = answer
        launches = sum(int(row["launches"]) for row in rows)
        wanted = sum(entry[0] for table in ("kernels", "nodes")
                     for entry in truth["session"][table].values())
        return launches >= wanted and sessions and int(sessions[0]["received_records"]) >= truth["records"]


if __name__ == "__main__":
    unittest.main(verbosity=2)
