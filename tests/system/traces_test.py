#!/usr/bin/env python3
"""Captures of injected processes on the fake driver: every launch finds its work and its call path, as the
workload itself says it was."""

import collections
import json
import re
import sys
import time
import unittest
import urllib.error
import urllib.request

from gpuperf_system import SOURCE, Daemon, require_root, wait_until
from injector_workload import FAKES, GRAPH, KERNEL, NODE, Workload, require_fakes

sys.path.append(str(SOURCE / "tests/gpu"))
from trace_raw import read_stored  # noqa: E402  pylint: disable=wrong-import-position

LAUNCHES = {"cuda_func_sym": {name: name for name in (
                "cuLaunchKernel", "cuGraphLaunch", "cuMemcpyAsync", "cuMemsetD8Async", "cuStreamBeginCapture_v2",
                "cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphDestroy")},
            "libraries": {"cuda_func_sym": [str(FAKES / "libcuda.so*")]}}


class TracedTest(unittest.TestCase):
    config = LAUNCHES
    settle_ms = ""  # as shipped
    warm_up = "paths 400 8"

    def setUp(self):
        require_root()
        require_fakes()
        self.daemon = self.enterContext(Daemon(self.config))
        self.workload = self.start_workload()

    def start_workload(self, **environment):
        environment = {"GPUPERF_SETTLE_MS": self.settle_ms} | environment
        workload = self.enterContext(Workload(self.daemon.path / "run/ingest.sock", environment=environment))
        workload.do("init")
        workload.do("launch 10 1")  # so that the library is found, and its stacks are known
        for function in LAUNCHES["cuda_func_sym"]:
            self.daemon.wait_for_probe(function)
        pid = workload.process.pid
        wait_until("the session", lambda: [row for row in self.daemon.query("sessions", "list") if row["pid"] == pid
                                           and (row["state"] == "collecting" or row["in_windows"])])
        # Until the rules of its code are known, stacks end where they are met first.
        self.capture(pid, lambda: workload.do(self.warm_up))
        workload.do("forget")
        return workload

    def session(self):
        return next(row for row in self.daemon.query("sessions", "list") if row["pid"] == self.workload.process.pid)

    def capture(self, pid, work, *arguments):
        """Runs `work` within a capture; the capture's row."""
        row = self.daemon.query("trace", "start", "--pid", pid, *arguments)
        work()
        time.sleep(0.1)
        self.daemon.ctl("trace", "stop", row["id"])
        return self.wait_stored(row["id"])

    def wait_stored(self, capture):
        def find():
            row = next(row for row in self.daemon.query("trace", "list") if row["id"] == capture)
            self.assertNotEqual(row["state"], "failed", row)
            return row if row["state"] == "stored" else None
        return wait_until(f"capture {capture} stored", find, 30)

    def read_raw(self, capture):
        path = self.daemon.path / "raw"
        self.daemon.ctl("trace", "fetch", capture, "--format", "raw", "--file", path)
        return read_stored(path.read_bytes())

    def fetch(self, capture, form, *arguments):
        path = self.daemon.path / "fetched"
        self.daemon.ctl("trace", "fetch", capture, "--format", form, "--file", path, *arguments)
        return path.read_text(encoding="utf-8")


class HookedCallsTest(TracedTest):
    """Calls are recorded by the launch hooks: CUPTI records none, and is ended when the session pauses."""
    config = LAUNCHES | {"ingest": {"hooked_calls": True}}
    settle_ms = "0"
    warm_up = "paths 400 1"

    def capture_paths(self, line="paths 500 1"):
        """(work, matched, ambiguous) of a capture of launches."""
        row = self.capture(self.workload.process.pid, lambda: self.workload.do(line))
        return row["work"], row["work_matched"], row["ambiguous"]

    def test_every_launch_finds_its_work_and_cupti_is_ended_with_a_pause(self):
        self.assertIn("hooked_calls", self.session()["level"])
        self.assertEqual(self.capture_paths(), (500, 500, 0))
        self.assertIn("hooked_calls", self.session()["level"])

        self.daemon.ctl("sessions", "pause", self.workload.process.pid)
        wait_until("CUPTI is ended", lambda: self.workload.do("launch 1 1") is not None
                   and self.workload.state()["finalised"] == 1)
        self.daemon.ctl("sessions", "run", self.workload.process.pid)
        wait_until("the session goes on", lambda: self.session()["state"] == "collecting")
        self.assertIn("hooked_calls", self.session()["level"])
        self.assertEqual(self.capture_paths(), (500, 500, 0))
        self.assertEqual((self.workload.end(), self.workload.noise()), (0, ""))

    def test_every_launch_finds_its_work_in_many_windows_while_threads_launch(self):
        pid, finalised = self.workload.process.pid, self.workload.state()["finalised"]
        for number in range(8):
            self.daemon.ctl("sessions", "pause", pid)
            wait_until("CUPTI is ended", lambda: self.workload.do("paths 5 1") is not None
                       and self.workload.state()["finalised"] == finalised + number + 1)
            self.daemon.ctl("sessions", "run", pid)
            wait_until("the session goes on", lambda: self.workload.do("paths 5 1") is not None
                       and self.session()["state"] == "collecting")
            self.assertIn("hooked_calls", self.session()["level"])
        self.assertEqual(self.capture_paths(), (500, 500, 0))
        self.assertEqual((self.workload.end(), self.workload.noise()), (0, ""))

    def test_cupti_records_calls_once_the_hooks_cannot_tell_whose_work_is_whose(self):
        wait_until("calls are CUPTI's", lambda: self.workload.do("paths 500 8") is not None  # on one stream
                   and "hooked_calls" not in self.session()["level"] and "apis" in self.session()["level"])
        self.assertEqual(self.capture_paths("paths 500 8"), (4000, 4000, 0))
        self.assertEqual((self.workload.end(), self.workload.noise()), (0, ""))


class WindowsTest(TracedTest):
    """A process whose launches would cost more than the budget is recorded in windows; captures open one."""
    config = LAUNCHES | {"overhead": {"budget_percent": 0.0002}}
    settle_ms = "0"
    warm_up = "paths 400 1"

    def wait_for_rest(self):
        wait_until("it rests, CUPTI is ended", lambda: self.workload.do("paths 50 1") is not None
                   and self.session()["state"] == "paused" and self.session()["detail"] == "CUPTI is finalised")

    def test_it_rests_and_a_capture_has_every_launch(self):
        for _ in range(3):
            self.wait_for_rest()
            session = self.session()
            self.assertTrue(session["in_windows"])
            self.assertLess(int(session["collected_ns"]), int(session["age_ns"]))
            self.assertIn("in windows", self.daemon.ctl("sessions").stdout)
            row = self.capture(self.workload.process.pid, lambda: self.workload.do("paths 500 1"))
            self.assertEqual((row["work"], row["work_matched"], row["ambiguous"]), (500, 500, 0))
        self.assertEqual((self.workload.end(), self.workload.noise()), (0, ""))

    def test_in_a_process_that_may_make_graphs_yet_cupti_stays_and_every_launch_is_told(self):
        self.workload = self.start_workload(GPUPERF_SETTLE_MS="")
        for _ in range(3):
            wait_until("it rests", lambda: self.workload.do("paths 50 1") is not None
                       and self.session()["state"] == "paused")
            self.assertIn("CUPTI stays attached at first", self.session()["detail"])
            row = self.capture(self.workload.process.pid, lambda: self.workload.do("paths 500 1"))
            self.assertEqual((row["work"], row["work_matched"], row["ambiguous"]), (500, 500, 0))
        self.assertEqual(self.workload.state()["finalised"], 0)
        # What CUPTI would say had it recorded calls.
        self.assertNotIn("calls of the API", self.session()["detail"])
        self.workload.do("graph make g 5")  # after windows
        row = self.capture(self.workload.process.pid, lambda: self.workload.do("graph launch g 7"))
        self.assertEqual((row["work"], row["work_matched"], row["ambiguous"]), (7, 7, 0))
        self.assertIn("graphs", self.session()["level"])
        self.assertEqual((self.workload.end(), self.workload.noise()), (0, ""))

    def start_young(self):
        young = self.enterContext(Workload(self.daemon.path / "run/ingest.sock", environment={"GPUPERF_SETTLE_MS": ""}))
        young.do("init")
        return young

    def test_a_young_process_waits(self):
        young = self.start_young()
        def is_waiting():
            young.do("paths 50 1")
            rows = [row for row in self.daemon.query("sessions", "list") if row["pid"] == young.process.pid]
            return rows and rows[0]["state"] == "paused" and rows[0]["detail"].startswith("records begin")
        wait_until("it waits", is_waiting)
        self.assertEqual(young.state()["kinds"], 0)
        row = self.capture(young.process.pid, lambda: young.do("paths 500 1"))
        self.assertEqual((row["work"], row["work_matched"], row["ambiguous"]), (500, 500, 0))
        self.assertEqual((young.end(), young.noise()), (0, ""))

    def test_what_begins_while_a_capture_runs_is_recorded_from_its_first_launch_on(self):
        number = self.daemon.query("trace", "start")["id"]
        wait_until("it runs", lambda: next(row for row in self.daemon.query("trace", "list") if row["id"] == number)["state"] == "running")
        young = self.start_young()
        young.do("paths 500 1")
        time.sleep(0.1)
        self.daemon.ctl("trace", "stop", number)
        self.assertEqual(self.wait_stored(number)["work"], 500)
        self.assertEqual((young.end(), young.noise()), (0, ""))

    def test_once_a_process_has_settled_cupti_is_ended_in_the_middle_of_a_rest(self):
        self.workload = self.start_workload(GPUPERF_SETTLE_MS="25000")
        for what, detail in (("it rests", "CUPTI stays attached at first: CUDA graphs may follow"),
                             ("CUPTI is ended", "CUPTI is finalised")):
            wait_until(what, lambda detail=detail: self.workload.do("paths 50 1") is not None
                       and self.session()["detail"] == detail, 30)
        self.assertEqual((self.workload.end(), self.workload.noise()), (0, ""))

    def test_kernels_say_how_much_of_them_was_seen(self):
        self.wait_for_rest()
        time.sleep(3)
        self.capture(self.workload.process.pid, lambda: self.workload.do("paths 500 1"))
        rows = self.daemon.query("kernels")
        self.assertTrue(any(row["coverage"] < 1 for row in rows), rows)
        self.assertTrue(all(int(row["estimated_launches"]) >= int(row["launches"]) for row in rows), rows)

    def test_who_pauses_it_has_it_paused(self):
        self.wait_for_rest()
        self.daemon.ctl("sessions", "run", self.workload.process.pid)
        wait_until("it collects", lambda: self.workload.do("paths 5 1") is not None
                   and self.session()["state"] == "collecting")
        self.assertFalse(self.session()["in_windows"])
        self.daemon.ctl("sessions", "pause", self.workload.process.pid)
        wait_until("it is paused", lambda: self.session()["state"] == "paused")
        self.capture(self.workload.process.pid, lambda: self.workload.do("paths 50 1"))
        self.assertEqual(self.session()["state"], "paused")


class TracesTest(TracedTest):
    def test_every_launch_finds_its_work_and_its_path(self):
        launched = []
        row = self.capture(self.workload.process.pid,
                           lambda: launched.extend(self.workload.do("paths 1000 8")["launches"]))
        truth = {work.correlation_id: work for work in self.workload.truth()[1] if work.kind == KERNEL}

        self.assertEqual(len(launched), 8000)
        self.assertEqual((row["work"], row["work_matched"], row["ambiguous"]), (8000, 8000, 0))
        seconds = collections.Counter()
        for line in self.fetch(row["id"], "folded").splitlines():
            frames, microseconds = line.rsplit(" ", 1)
            path = [frame for frame in frames.split(";") if frame.startswith("path_")]
            self.assertEqual(len(path), 1, line)
            seconds[int(path[0][5:7])] += round(float(microseconds) * 1000)
        expected = collections.Counter()
        for path, correlation in launched:
            expected[path] += truth[correlation].end_unix_ns - truth[correlation].start_unix_ns
        self.assertEqual(seconds, expected)

    def test_every_piece_of_work_has_its_own_launch(self):
        row = self.capture(self.workload.process.pid, lambda: self.workload.do("paths 300 4"))
        truth = {work.correlation_id: work for work in self.workload.truth()[1] if work.kind == KERNEL}

        stored = self.read_raw(row["id"])
        found = {work.launch.correlation_id: work.duration_ns for work in stored.work}
        self.assertEqual(found, {correlation: work.end_unix_ns - work.start_unix_ns
                                 for correlation, work in truth.items()})
        print(row["work"], row["work_matched"], self.workload.noise()[-3000:])
        self.assertTrue(all(work.launch.match == "exact" for work in stored.work))
        trace = json.loads(self.fetch(row["id"], "chrome"))["traceEvents"]
        arrows = [sum(event["ph"] == phase for event in trace) for phase in "sf"]
        self.assertEqual(arrows, [1200, 1200])

    def test_copies_sets_and_graphs_have_their_launches_too(self):
        self.workload.do("graph make g 5")
        row = self.capture(self.workload.process.pid,
                           lambda: [self.workload.do("memory 10"), self.workload.do("graph launch g 7")])

        truth = collections.Counter(work.kind for work in self.workload.truth()[1])
        folded = self.fetch(row["id"], "folded")
        self.assertEqual(truth[GRAPH], 7)
        self.assertEqual(row["work_matched"], row["work"])
        self.assertEqual(row["work"], 10 * 3 + 7)
        self.assertIn("[GPU_Graph]", folded)
        self.assertIn("[GPU_Memcpy]", folded)
        self.assertIn("[GPU_Memset]", folded)
        self.assertNotIn(NODE, truth)

    def test_a_graphs_nodes_belong_to_who_captured_them_and_who_replays_them(self):
        workload = self.start_workload(GPUPERF_NODE_BURSTS="1")
        paths = workload.do("graph capture g 90")["paths"]  # long before anybody asks for a capture
        workload.do("graph make other 4")
        workload.do("graph launch g 1")
        row = self.capture(workload.process.pid, lambda: self.replay_in_burst(workload), "--nodes")

        trace = json.loads(self.fetch(row["id"], "chrome"))["traceEvents"]
        nodes = [event["args"] for event in trace if event["ph"] == "X" and "node" in event.get("args", {})]
        captured = [node for node in nodes if "captured_by" in node]
        self.assertEqual(len(nodes), 7 * 92 + 3 * 4)
        self.assertEqual(len(captured), 7 * 92)
        by_site = collections.Counter(re.findall(r"path_(\d\d)", self.fetch(
            row["id"], "folded", "--by-capture-site")))
        self.assertEqual(set(by_site), {f"{path:02}" for path in paths})
        self.assertNotRegex(self.fetch(row["id"], "folded"), "path_")
        stored = self.read_raw(row["id"])
        order = sorted((node for node in stored.work if node.kind == "kernel" and node.capture_site),
                       key=lambda node: (node.launch.start_ns, node.node_id))
        self.assertEqual([int(re.search(r"path_(\d\d)", " ".join(node.capture_site.stack))[1]) for node in order],
                         paths * 7)
        others = collections.Counter((node.kind, "fake_memcpy" in node.capture_site.stack, "fake_memset" in node.capture_site.stack)
                                     for node in stored.work if node.kind != "kernel" and node.capture_site)
        self.assertEqual(others, {("copy", True, False): 7, ("set", False, True): 7})
        rows = self.daemon.functions("--pid", workload.process.pid)
        for function in ("cuLaunchKernel", "cuMemcpyAsync", "cuMemsetD8Async"):
            self.assertEqual(rows[function]["calls_hooked"], rows[function]["calls"], function)

    def replay_in_burst(self, workload):
        """Graph launches while nodes are recorded one by one, which begins a little after the capture."""
        session = wait_until("nodes", lambda: [
            row for row in self.daemon.query("sessions", "list")
            if row["pid"] == workload.process.pid and "nodes" in row["level"]])
        self.assertTrue(session)
        workload.do("graph launch g 7")
        workload.do("graph launch other 3")

    def test_the_recorder_has_what_was_before(self):
        self.workload.do("paths 500 2")
        time.sleep(1)

        row = self.daemon.query("trace", "freeze", "--last", "2s")
        row = self.wait_stored(row["id"])

        self.assertEqual(row["trigger"], "recorder")
        self.assertGreaterEqual(row["work"], 1000)
        self.assertEqual(row["work_matched"], row["work"])

    def test_two_processes_are_told_apart(self):
        other = self.start_workload()
        row = self.daemon.query("trace", "start")
        self.workload.do("paths 400 2")
        other.do("paths 300 2")
        time.sleep(0.1)
        self.daemon.ctl("trace", "stop", row["id"])
        row = self.wait_stored(row["id"])

        self.assertEqual((row["work"], row["work_matched"]), (1400, 1400), (row, self.daemon.query("sessions", "list")))
        alone = self.capture(other.process.pid, lambda: [self.workload.do("paths 40 1"),
                                                         other.do("paths 30 1")])
        self.assertEqual((alone["work"], alone["work_matched"]), (30, 30))


class SlowFreezeTest(TracedTest):
    """A slow call makes a capture of what was before it."""

    config = {**LAUNCHES, "trace": {"freeze_on_slow_ms": 1},
              "slow": {"default_threshold_ms": 0.000001, "adaptive_factor": 0}}

    def test_a_slow_call_freezes_the_recorder(self):
        # Launches are over in microseconds; one that is held up by the machine for a millisecond will come.
        def find():
            self.workload.do("paths 5000 2")
            return [row for row in self.daemon.query("trace", "list") if row["trigger"] == "slow_call"]
        row = wait_until("a slow call that freezes", find, 60)[0]

        self.assertEqual(self.wait_stored(row["id"])["trigger"], "slow_call")


class AlertFreezeTest(TracedTest):
    """An Alertmanager's webhook makes a capture, once a minute."""

    config = {**LAUNCHES, "trace": {"freeze_on_alert": True}}

    def post(self, body):
        request = urllib.request.Request(f"http://127.0.0.1:{self.daemon.port}/freeze?name=SlowSteps",
                                         data=body.encode(), method="POST")
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    def test_a_firing_alert_freezes_the_recorder(self):
        self.workload.do("paths 100 1")
        time.sleep(1)

        over = self.post('{"status": "resolved", "alerts": [{"status": "resolved"}]}')
        firing = self.post('{"status": "firing", "alerts": [{"status": "firing"}]}')
        again = self.post('{"status": "firing", "alerts": []}')
        row = wait_until("the capture", lambda: [row for row in self.daemon.query("trace", "list")
                                                 if row["trigger"] == "alert"])[0]

        self.assertEqual((over, firing, again), (200, 202, 429))
        self.assertEqual(row["name"], "SlowSteps")
        self.assertGreaterEqual(self.wait_stored(row["id"])["work"], 100)


if __name__ == "__main__":
    unittest.main(verbosity=2)
