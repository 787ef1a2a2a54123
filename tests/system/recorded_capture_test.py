#!/usr/bin/env python3
"""A capture of a decode on an H200, kept as it was stored: listed, read and shown as on that day."""

import collections
import json
import re
import shutil
import unittest

from gpuperf_system import SOURCE, Daemon, require_root

RECORDING = SOURCE / "tests/recordings/decode.capture"
CAPTURE_ID = 2  # its own, within the file
NO_PROBES = {"none_func_sym": {"nothing_has_this": "gpuperf_no_such_symbol"}}


class RecordedCaptureTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        require_root()
        cls.truth = json.loads(RECORDING.with_suffix(".json").read_text(encoding="utf-8"))
        # By default the daemon lets captures go that are a week old.
        cls.daemon = Daemon({**NO_PROBES, "ingest": {"enabled": False}, "trace": {"retention_days": 3650}})
        cls.addClassCleanup(cls.daemon.__exit__, None)
        folder = cls.daemon.path / "store/captures"
        folder.mkdir(parents=True)
        shutil.copy(RECORDING, folder / f"{CAPTURE_ID}.capture")
        cls.daemon.start()
        cls.row = cls.daemon.query("trace", "list")[0]

    def fetch(self, form, *options):
        path = self.daemon.path / "fetched"
        self.daemon.ctl("trace", "fetch", self.row["id"], "--format", form, "--file", path, *options)
        return path.read_text(encoding="utf-8")

    def test_its_row_says_what_was_captured(self):
        self.assertEqual(self.row["state"], "stored")
        for name in ("launches", "work", "work_matched", "ambiguous"):
            self.assertEqual(self.row[name], int(self.truth["row"].get(name, 0)), name)
        self.assertEqual(self.row["work_matched"], self.row["work"])

    def test_folded_time_adds_up_by_layer(self):
        layers = collections.Counter()
        for line in self.fetch("folded").splitlines():
            frames, microseconds = line.rsplit(" ", 1)
            layer = re.search(r"\blayer_\d\d\b", frames)
            layers[layer[0] if layer else "elsewhere"] += round(float(microseconds) * 1000)

        self.assertEqual({name: total_ns / 1000 for name, total_ns in layers.items()},
                         self.truth["kernel_us_by_layer"])

    def test_every_piece_of_work_is_on_the_timeline(self):
        trace = json.loads(self.fetch("chrome"))
        begins = sum(event["ph"] == "s" for event in trace["traceEvents"])

        self.assertEqual(begins, self.truth["work"])

    def test_the_report_and_the_flame_graph_are_whole(self):
        self.assertIn("layer_03", self.fetch("report"))
        self.assertTrue(self.fetch("flamegraph").rstrip().endswith("</svg>"))

    def test_time_is_grouped_by_library_call_and_by_kernel(self):
        total_ns = round(sum(self.truth["kernel_us_by_layer"].values()) * 1000)
        for grouping in ("operator", "kernel", "stack", "library", "line"):
            rows = self.daemon.query("kernels", "--by", grouping, "--capture", self.row["id"], "--limit", 100000)
            self.assertEqual(sum(row["gpu_ns"] for row in rows), total_ns, grouping)


if __name__ == "__main__":
    unittest.main(verbosity=2)
