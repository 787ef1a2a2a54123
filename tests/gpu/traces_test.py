#!/usr/bin/env python3
"""The comparing of captures with truths, on made-up ones: what is right passes, and each wrong is found."""

import copy
import json
import pathlib
import re
import struct
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from trace_compare import (compare_launches, compare_paths, compare_views, count_paths, has_names,
                           sum_paths)
from trace_raw import read_stored
from trace_reader import (TRUTH_CALL, Launch, Work, load_chrome, read_chrome, read_extended_folded,
                          read_folded, read_gpu_frame, read_truth)
from trace_sites import compare_sites, describe_replay, select_nodes

PID, GPU_PID, STREAM = 700, 5_000_000, 6_000_000
TS0_NS = 90_000_000_000_123
KERNEL = "void add<float>(float*)"
MARKERS = {1: ["layer_00", "Attention.forward"], 2: ["layer_01"]}
# Of each launch: id, tid, marker, is a graph's, stack.
LAUNCHES = [(11, 701, 1, False, "2"), (12, 702, 2, False, "4"), (13, 701, 2, True, "4"), (14, 701, 0, False, None)]
FRAMES = {"1": {"name": "layer_00 (work.py:3)"}, "2": {"name": "Attention.forward (work.py:9)", "parent": "1"},
          "3": {"name": "main"}, "4": {"name": "layer_01 (work.py:3)", "parent": "3"}}


def make_document():
    """As render_chrome_trace of daemon/view writes it."""
    events = [{"ph": "M", "name": "process_name", "pid": PID, "tid": 0, "args": {"name": "python3 (700)"}}]
    for number, (correlation, tid, _, is_graph, stack) in enumerate(LAUNCHES):
        launched_us, started_us = 100.001 + 50 * number, 120.5 + 50 * number
        launch = {"ph": "X", "cat": "launch", "name": "cudaLaunchKernel", "pid": PID, "tid": tid,
                  "ts": launched_us, "dur": 3.25, "args": {"correlation": correlation}}
        if stack:
            launch["sf"] = int(stack)
        work = {"ph": "X", "cat": "graph" if is_graph else "kernel", "name": "add", "pid": GPU_PID,
                "tid": STREAM, "ts": started_us, "dur": 10.125, "args": {"kernel": 0}}
        arrow = {"id": number + 1, "cat": "launch", "name": "launch"}
        events += [launch, work, arrow | {"ph": "s", "pid": PID, "tid": tid, "ts": launched_us},
                   arrow | {"ph": "f", "bp": "e", "pid": GPU_PID, "tid": STREAM, "ts": started_us}]
    return {"traceEvents": events, "stackFrames": copy.deepcopy(FRAMES),
            "otherData": {"ts0_mono_ns": str(TS0_NS), "kernels": [KERNEL]}}


def make_truth(folder, missed=0):
    """As truth_dump writes it: each runtime call with a driver's within, one call that failed."""
    hash_of_name, name = 77, b"_Z3addIfEvPT_"
    rows = []
    for number, (correlation, tid, marker, is_graph, _) in enumerate(LAUNCHES):
        start = TS0_NS + 100_000 + 50_000 * number
        named = 0 if is_graph else hash_of_name
        rows.append((start, named, correlation, 0, tid, marker, 211, 0, 2, is_graph))
        rows.append((start + 100, named, correlation, correlation, tid, marker, 307, 0, 1, is_graph))
    rows.append((TS0_NS + 400_000, hash_of_name, 15, 0, 701, 1, 211, 1, 2, 0))
    path = pathlib.Path(folder) / "truth"
    path.write_bytes(b"GPTRUTH1" + struct.pack("<QQQ", len(rows), missed, 1)
                     + b"".join(TRUTH_CALL.pack(*row) for row in rows)
                     + struct.pack("<QI", hash_of_name, len(name)) + name)
    return path


class CompareTest(unittest.TestCase):
    def setUp(self):
        with tempfile.TemporaryDirectory() as folder:
            self.calls, self.missed = read_truth(make_truth(folder, missed=3))
        self.document = make_document()

    def find(self, category, number=0):
        return [event for event in self.document["traceEvents"]
                if event.get("cat") == category and event["ph"] == "X"][number]

    def compare(self, begin=0, end=1 << 63):
        return compare_launches(self.calls, begin, end, MARKERS, read_chrome(self.document), PID)

    def assert_wrong(self, *what):
        findings = self.compare()
        self.assertFalse(findings.holds())
        self.assertEqual(set(findings.wrong), set(what))
        self.assertIn(what[0], findings.describe())

    def test_reads_the_truth(self):
        self.assertEqual(len(self.calls), 9)
        self.assertEqual(self.missed, 3)
        self.assertEqual(self.calls[0].name, "_Z3addIfEvPT_")
        self.assertEqual(self.calls[4].name, "")
        self.assertTrue(self.calls[4].is_graph)

    def test_accepts_what_is_right(self):
        findings = self.compare()
        self.assertTrue(findings.holds(), findings.describe())
        self.assertEqual((findings.launches, findings.matched, findings.nested, findings.failed), (4, 4, 4, 1))
        self.assertEqual((findings.with_stack, findings.named), (3, 3))
        self.assertEqual(findings.time_errors_ns, [1, 1, 1, 1])

    def test_nothing_to_compare_is_wrong(self):
        self.assertFalse(self.compare(begin=1, end=2).holds())

    def test_finds_a_launch_that_is_missing(self):
        events = self.document["traceEvents"]
        events.remove(self.find("launch", 1))
        self.assert_wrong("no launch", "unmatched work")

    def test_finds_work_that_is_missing(self):
        self.document["traceEvents"].remove(self.find("kernel", 1))
        self.assert_wrong("no work")

    def test_finds_work_without_an_arrow(self):
        self.document["traceEvents"] = [event for event in self.document["traceEvents"]
                                        if event["ph"] not in "sf" or event["id"] != 2]
        self.assert_wrong("no work", "unmatched work")

    def test_finds_work_that_is_there_twice(self):
        for event in list(self.document["traceEvents"]):
            if event["ph"] in "sf" and event["id"] == 1:
                self.document["traceEvents"].append(
                    event | {"id": 90} | ({"ts": 400.0} if event["ph"] == "f" else {}))
        self.document["traceEvents"].append(self.find("kernel") | {"ts": 400.0})
        self.assert_wrong("work more than once")

    def test_finds_work_of_a_call_that_was_not_made(self):
        del self.calls[0:2]
        self.assert_wrong("work of no call")

    def test_finds_another_thread(self):
        self.calls[0].tid = 799
        self.assert_wrong("launch of another thread")

    def test_finds_a_launch_that_is_ambiguous(self):
        self.find("launch", 1)["args"]["match"] = "ambiguous"
        self.assert_wrong("launch is ambiguous")

    def test_finds_a_launch_without_a_hit(self):
        self.find("launch", 1)["args"]["match"] = "no_hit"
        self.assert_wrong("launch is no_hit")

    def test_finds_another_path(self):
        self.find("launch", 0)["sf"] = 4
        self.assert_wrong("stack of another path")

    def test_finds_a_launch_without_a_stack(self):
        del self.find("launch", 0)["sf"]
        self.assert_wrong("launch without a stack")

    def test_finds_a_marker_that_nobody_named(self):
        self.calls[0].marker = 3
        self.assert_wrong("marker without a meaning")

    def test_stacks_must_have_been_compared(self):
        for call in self.calls:
            call.marker = 0
        self.assertFalse(self.compare().holds())

    def test_finds_a_kernel_of_another_name(self):
        self.find("kernel", 1)["args"]["kernel"] = "void add<double>(double*)"
        self.assert_wrong("work of another name")

    def test_finds_work_before_its_launch(self):
        self.find("launch", 1)["ts"] += 30
        for event in self.document["traceEvents"]:
            if event["ph"] == "s" and event["id"] == 2:
                event["ts"] += 30
        self.assert_wrong("work before its launch")

    def test_finds_a_launch_at_another_time(self):
        self.calls[0].start_mono_ns -= 30_000_000
        self.assert_wrong("launch at another time")

    def test_finds_a_gap(self):
        self.document["traceEvents"].append({"ph": "X", "cat": "missing", "name": "records lost", "pid": PID,
                                             "tid": 1, "ts": 1.0, "dur": 2.0, "args": {"cause": "records_lost"}})
        self.assert_wrong("gap")

    def test_leaves_other_processes_alone(self):
        for event in list(self.document["traceEvents"]):
            moved = {"pid": event["pid"] + 1} | ({"id": event["id"] + 100} if "id" in event else {})
            self.document["traceEvents"].append(event | moved)
        self.assertTrue(self.compare().holds(), self.compare().describe())

    def test_views_of_one_capture_are_the_same(self):
        trace = read_chrome(self.document)
        self.assertEqual(compare_views(trace, read_chrome(self.document)), "")
        self.find("kernel", 1)["dur"] += 0.001
        self.assertIn("work: 1 are missing, 1 too many", compare_views(trace, read_chrome(self.document)))


def encode_varint(value):
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7f | 0x80])
        value >>= 7
    return out + bytes([value])


def encode_bytes(number, content):
    return encode_varint(number << 3 | 2) + encode_varint(len(content)) + content


def encode_columns(columns):
    return b"".join(encode_bytes(number, b"".join(map(encode_varint, values)))
                    for number, values in columns.items())


def encode_differences(values):
    """As sint64 of protobuf, each less the one before."""
    steps = [value - before for value, before in zip(values, [0, *values])]
    return [step << 1 if step >= 0 else (-step << 1) - 1 for step in steps]


def make_stored():
    """As daemon/store writes it: two blocks of launches, one of work and one of launches that were captured."""
    texts = ["", "main", "layer_00", "cudaLaunchKernel", KERNEL, "/lib/a.so", "records_lost"]
    tables = {1: [PID], 10: [1, 1], 11: [701, 702], 14: [3], 15: [4], 17: [1, 2, 0], 18: [5, 5, 5],
              25: [2, 1], 27: [0, 1, 2], 34: [1]}
    blocks = [{1: encode_differences([1000, 5000]), 2: [3, 4], 3: [1, 2], 4: [1, 1], 5: [1, 0],
               7: encode_differences([11, 10]), 8: [0, 2]},
              {1: encode_differences([9000]), 2: [5], 3: [0], 4: [0], 5: [2], 7: encode_differences([12]), 8: [1]}]
    work = {1: encode_differences([1500, 9900, 9950]), 2: [100, 200, 300], 3: [0, 0, 512], 4: [0, 3, 1],
            6: [1, 0, 0], 7: [1, 1, 0], 8: encode_differences([1, 3, 0]), 9: [1, 0, 0], 11: [7, 7, 0], 12: [5, 0, 0]}
    sites = {1: encode_differences([400]), 2: [6], 3: [1], 4: [1], 5: [1], 7: encode_differences([0]), 8: [0]}
    return (encode_bytes(1, encode_bytes(4, b"host")) + encode_bytes(2, b"".join(
        encode_bytes(1, text.encode()) for text in texts)) + encode_bytes(3, encode_columns(tables))
        + b"".join(encode_bytes(5, encode_columns(block)) for block in blocks)
        + encode_bytes(6, encode_columns(work)) + encode_bytes(9, encode_columns(sites))
        + encode_bytes(8, encode_columns({4: [6]}))
        + encode_varint(15 << 3 | 5) + bytes(4))


class StoredTest(unittest.TestCase):
    def test_reads_launches_of_several_blocks(self):
        launches = read_stored(make_stored()).launches
        self.assertEqual(launches, [
            Launch(PID, 701, 1000, 3, "cudaLaunchKernel", 11, "exact", ("main", "layer_00")),
            Launch(PID, 702, 5000, 4, "cudaLaunchKernel", 10, "no_hit", None),
            Launch(0, 0, 9000, 5, "", 12, "ambiguous", ("/lib/a.so",))])

    def test_reads_work_with_its_launch(self):
        trace = read_stored(make_stored())
        site = Launch(PID, 701, 400, 6, "cudaLaunchKernel", 0, "exact", ("main", "layer_00"))
        self.assertEqual(trace.work, [
            Work("kernel", KERNEL, (1, 1), 1500, 100, trace.launches[0], 1, 0, 7, 5, site),
            Work("graph", "graph", (1, 1), 9900, 200, trace.launches[2], 1, 0, 7),
            Work("copy", "copy", (0, 0), 9950, 300, None, 0, 512)])
        self.assertEqual(trace.gaps, [{"cause": "records_lost"}])

    def test_refuses_what_is_cut_or_no_capture(self):
        for content in (b"", b"text, not a capture", make_stored()[:60]):
            with self.assertRaises((ValueError, IndexError)):
                read_stored(content)


def make_launch(at_ns, *stack):
    return Launch(PID, 701, at_ns, 3, "cudaLaunchKernel", 1, "exact", stack)


class SitesTest(unittest.TestCase):
    """A graph of a kernel, a copy and the kernel once more, replayed twice."""
    STEPS = [7, 20, 7]

    def setUp(self):
        self.nodes, sites = [], {step: make_launch(5, "main", f"site_{step:02}") for step in self.STEPS}
        for at_ns in (1000, 2000):
            replay = make_launch(at_ns, "main", "replay_site")
            for node, step in enumerate(self.STEPS):
                kind, name, size = ("kernel", "node_07(char*)", 0) if step == 7 else ("copy", "copy", 20 * 256)
                self.nodes.append(Work(kind, name, (1, 1), at_ns + 50 + node, 1, replay, 1, size, 9, node, sites[step]))

    def compare(self, prefix="site"):
        return compare_sites(self.nodes, self.STEPS, prefix)

    def assert_counts(self, findings, **counts):
        self.assertEqual({what: getattr(findings, what) for what in counts}, counts, findings.describe())

    def test_accepts_what_is_right(self):
        findings = self.compare()
        self.assert_counts(findings, right=6, wrong=0, bare=0, without=0, replays=2, whole=2)
        self.assertTrue(findings.is_whole())

    def test_finds_the_site_of_another_step(self):
        self.nodes[0].capture_site = make_launch(5, "main", "site_08")
        self.assert_counts(self.compare(), right=5, wrong=1)

    def test_finds_the_site_of_an_older_capture(self):
        self.assert_counts(self.compare("alt"), right=0, wrong=6)

    def test_finds_launches_that_became_no_nodes(self):
        self.nodes[0].capture_site = make_launch(5, "main", "bystander")
        self.assert_counts(self.compare(), right=5, wrong=1)

    def test_finds_sites_where_nobody_captured(self):
        self.assert_counts(self.compare(None), right=0, wrong=6, without=0)

    def test_tells_nodes_without_a_site_or_a_stack_from_wrong_ones(self):
        self.nodes[0].capture_site = None
        self.nodes[1].capture_site = make_launch(5)
        self.nodes[2].name = "another kernel"
        self.assert_counts(self.compare(), right=3, wrong=0, bare=2, without=1, whole=1)

    def test_finds_nodes_that_are_missing_or_launched_elsewhere(self):
        self.nodes[5].launch = make_launch(1500, "main")
        findings = self.compare()
        self.assert_counts(findings, elsewhere=1, replays=3, whole=1)
        self.assertFalse(findings.is_whole())

    def test_nothing_replayed_is_not_whole(self):
        self.assertFalse(compare_sites([], self.STEPS, "site").is_whole())

    def test_selects_by_the_launch(self):
        self.assertEqual(select_nodes(self.nodes, 1000, 1010), self.nodes[:3])
        self.nodes[0].launch = None
        self.assertEqual(select_nodes(self.nodes, 1000, 1010), self.nodes[1:3])
        self.nodes[1].kind = "graph"
        self.assertEqual(select_nodes(self.nodes, 1000, 1010), self.nodes[2:3])

    def test_describes_one_replay(self):
        self.nodes[2].capture_site = None
        self.assertEqual(describe_replay(self.nodes, self.STEPS)[1],
                         "by node: 0:07<site_07 1:20<site_20 2:07<none")
        self.assertEqual(len(describe_replay([], self.STEPS)), 3)


class FormsTest(unittest.TestCase):
    FOLDED = ("main;path_01;cudaLaunchKernel;[GPU_Kernel]spin 500.125\n"
              "main;a b;path_10;cudaLaunchKernel;[GPU_Kernel]spin 700\n"
              "main;path_01;cudaMemcpy;[GPU_Memcpy]host_to_device 9\n")
    PATH = re.compile(r"\bpath_\d\d\b")

    def test_sums_kernels_by_path(self):
        self.assertEqual(sum_paths(read_folded(self.FOLDED), self.PATH), {"path_01": 500.125, "path_10": 700})

    def test_compares_paths(self):
        folded = sum_paths(read_folded(self.FOLDED), self.PATH)
        self.assertEqual(compare_paths({"path_01": 500_000, "path_10": 700_000}, folded, 0.01)[1], [])
        worst, wrong = compare_paths({"path_01": 500_000, "path_10": 690_000}, folded, 0.01)
        self.assertAlmostEqual(worst, 0.01449, 4)
        self.assertEqual(len(wrong), 1)
        self.assertEqual(len(compare_paths({"path_01": 500_000, "path_02": 1}, folded, 0.01)[1]), 2)

    def test_counts_launches_by_path(self):
        counts = count_paths(read_chrome(make_document()), re.compile(r"layer_\d\d"))
        self.assertEqual(counts, {"layer_00": 1, "layer_01": 1, "": 1})

    def test_reads_frames_of_gpus(self):
        self.assertEqual(read_gpu_frame("[GPU1_Kernel]add<float, 2>"), (1, "Kernel", "add<float, 2>"))
        self.assertEqual(read_gpu_frame("[GPU_Memset]set"), (None, "Memset", "set"))
        self.assertIsNone(read_gpu_frame("main"))

    def test_knows_functions_from_those_of_longer_names(self):
        self.assertTrue(has_names(("main", "path_1(Order const&)"), ["path_1"]))
        self.assertFalse(has_names(("main", "path_10"), ["path_1"]))
        self.assertTrue(has_names(("Model.Attention.forward (a.py:3)",), ["Attention.forward"]))

    def test_refuses_other_files(self):
        with self.assertRaises(ValueError):
            read_extended_folded("main;path 12\n")
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"something else, longer than a header")
            file.flush()
            with self.assertRaises(ValueError):
                read_truth(file.name)

    def test_refuses_a_truth_that_is_cut(self):
        with tempfile.TemporaryDirectory() as folder:
            path = make_truth(folder)
            path.write_bytes(path.read_bytes()[:100])
            with self.assertRaises(ValueError):
                read_truth(path)

    def test_loads_a_file(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(make_document(), file)
            file.flush()
            trace = load_chrome(file.name)
        self.assertEqual((len(trace.launches), len(trace.work), trace.start_mono_ns), (4, 4, TS0_NS))


if __name__ == "__main__":
    unittest.main(verbosity=2)
