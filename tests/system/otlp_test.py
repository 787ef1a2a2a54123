#!/usr/bin/env python3
"""The real daemon sends to a real receiver of OpenTelemetry data: metrics with the values that /metrics serves,
slow calls as spans, what the GPU did as their children, its time by stack as profiles; whether the receiver is there
yet or not."""

import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

from gpuperf_system import (SOURCE, WORKLOADS, Daemon, finish_workload, free_port, require_root, start_workload, wait_until)
from injector_workload import KERNEL
import slow_gpu_test
from slow_gpu_test import KERNEL_NAMES, MS

sys.path.append(str(SOURCE / "tests/gpu"))
from trace_compare import sum_profiles  # noqa: E402  pylint: disable=wrong-import-position

REQUESTS = 3
PATH = re.compile(r"path_\d\d")


def make_export(port, **more):
    return {"otlp": {"endpoint": f"http://127.0.0.1:{port}", "interval_seconds": 1, **more}}


def make_config(port):
    return {"custom_sym": {name: {"symbol": name, "slow_threshold_ms": 5} for name in ("slow_sleep", "slow_spin")},
            "libraries": {"custom_sym": [str(WORKLOADS / "slow_calls")]},
            "export": make_export(port, resource_attributes={"deployment.environment": "test"})}


def read_attributes(owner):
    """{key: value} of whatever has attributes; JSON writes 64-bit integers as texts."""
    values = {}
    for attribute in owner.get("attributes", []):
        [(kind, value)] = attribute["value"].items()
        values[attribute["key"]] = int(value) if kind == "int_value" else value
    return values


class Receiver:
    """tests/workloads/otlp_receiver; a context manager."""

    def __init__(self, port, *arguments):
        self.process = subprocess.Popen([WORKLOADS / "otlp_receiver", str(port), *arguments], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.requests = []
        json.loads(self.process.stdout.readline())  # it listens
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.requests.append(json.loads(line))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(timeout=30)
        self.reader.join()
        self.process.stdout.close()

    def list(self, signal):
        return [request["request"] for request in list(self.requests) if request["signal"] == signal]

    def spans(self):
        return [span for request in self.list("spans") for resource in request["resource_spans"]
                for scope in resource["scope_spans"] for span in scope["spans"]]

    def metrics(self):
        """The last value that came of each series: {(name, labels): data point}."""
        series = {}
        for request in self.list("metrics"):
            for metric in request["resource_metrics"][0]["scope_metrics"][0]["metrics"]:
                for kind in ("sum", "gauge", "histogram"):
                    for point in metric.get(kind, {}).get("data_points", []):
                        labels = frozenset(read_attributes(point).items())
                        series[metric["name"], labels] = {**point, "kind": kind}
        return series


def scrape(daemon):
    """{(name, labels): value} of /metrics; labels without a value are none."""
    with urllib.request.urlopen(f"http://127.0.0.1:{daemon.port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    values = {}
    for line in lines:
        if line.startswith("#"):
            continue
        series, value = line.rsplit(" ", 1)
        name, _, labels = series.rstrip("}").partition("{")
        pairs = [pair.partition("=") for pair in labels.split('",') if pair]
        values[name, frozenset((key, text.strip('"')) for key, _, text in pairs if text.strip('"'))] = float(value)
    return values


def find_value(points, name, labels):
    """The data point that was sent of a series of /metrics, and its value."""
    for suffix, field in (("", "as_double"), ("_sum", "sum"), ("_count", "count")):
        point = points.get((name.removesuffix(suffix), labels))
        if name.endswith(suffix) and point and field in point:
            return point, float(point[field])
    raise AssertionError(f"not sent: {name} {labels}")


class OtlpTest(unittest.TestCase):
    def setUp(self):
        require_root()

    def run_slow_calls(self, daemon):
        daemon.wait_attached("slow_sleep", "slow_spin")
        # It stays: of a process that has ended by the time its first stacks are examined, frames have no names.
        leave = daemon.path / "leave"
        process = start_workload("slow_calls", "--requests", REQUESTS, "--duration-ms", 20, "--linger-for-file", leave)
        wait_until("slow calls", lambda: len(daemon.query("slow", "list")) == 2 * REQUESTS)
        leave.touch()
        [truth] = finish_workload(process)
        return truth

    def test_a_receiver_that_comes_later_gets_every_span_and_the_values_of_the_metrics(self):
        port = free_port()
        with Daemon(make_config(port)) as daemon:
            truth = self.run_slow_calls(daemon)
            problem = wait_until("the status says that the receiver is away", lambda: [
                row for row in daemon.query("status")["problems"] if row["subject"] == "otlp"])[0]
            self.assertIn(f"127.0.0.1:{port}: code 14", problem["message"])
            with Receiver(port) as receiver:
                wait_until("all spans", lambda: len(receiver.spans()) >= 2 * REQUESTS, 60)
                wait_until("all is well again", lambda: not [
                    row for row in daemon.query("status")["problems"] if row["subject"] == "otlp"], 60)
                calls = {row["id"]: daemon.query("slow", "show", row["id"]) for row in daemon.query("slow", "list")}
                # What does not change any more is the same in both.
                expected = {key: value for key, value in scrape(daemon).items()
                            if key[0].startswith("gpuperf_function_") or key[0] == "gpuperf_build_info"}
                seen = len(receiver.list("metrics"))
                wait_until("metrics after that", lambda: len(receiver.list("metrics")) >= seen + 2, 60)

        spans = receiver.spans()
        self.assertEqual(len({span["trace_id"] for span in spans}), 2 * REQUESTS)
        self.assertEqual(len(spans), 2 * REQUESTS)  # each once, through all retries
        for span in spans:
            attributes = read_attributes(span)
            call = calls[attributes["gpuperf.slow_call.id"]]
            self.assertEqual((span["name"], int(span["start_time_unix_nano"]), int(span["end_time_unix_nano"])),
                             (call["function"], call["start_unix_ns"], call["start_unix_ns"] + call["duration_ns"]))
            self.assertEqual(attributes["process.pid"], truth["pid"])
            self.assertEqual(attributes["thread.id"], call["tid"])
            self.assertEqual(attributes["process.executable.name"], "slow_calls")
            self.assertEqual(attributes["gpuperf.explanation"], call["explanation"])
            self.assertIn("load_weights", attributes["code.stacktrace"])
            split = [value for key, value in attributes.items() if key.startswith("gpuperf.time.")]
            self.assertEqual(sum(split), call["duration_ns"])
        resource = read_attributes(receiver.list("spans")[0]["resource_spans"][0]["resource"])
        self.assertEqual((resource["service.name"], resource["deployment.environment"]), ("gpuperfd", "test"))

        points = receiver.metrics()
        compared = 0
        for (name, labels), value in expected.items():
            if name.endswith("_bucket"):
                continue  # below, from the other side
            point, sent = find_value(points, name, labels)
            self.assertEqual(sent, value, (name, labels))
            self.assertEqual("start_time_unix_nano" in point, point["kind"] != "gauge")
            compared += 1
        self.assertGreater(compared, 10)
        histogram = next(point for (name, _), point in points.items() if name == "gpuperf_function_duration_seconds")
        cumulative = 0
        for bound, count in zip([*histogram["explicit_bounds"], float("inf")], histogram["bucket_counts"]):
            cumulative += int(count)
            at_most = [value for (name, labels), value in expected.items()
                       if name.endswith("_bucket") and set(read_attributes(histogram).items()) <= labels
                       and float(dict(labels)["le"]) == bound]
            self.assertEqual(at_most, [cumulative], bound)

    def test_the_stop_sends_what_there_is(self):
        port = free_port()
        config = make_config(port)
        config["export"] = make_export(port, interval_seconds=3600)
        with Receiver(port) as receiver:
            with Daemon(config) as daemon:
                self.run_slow_calls(daemon)
                self.assertEqual(daemon.stop(), 0)
        self.assertEqual(len(receiver.spans()), 2 * REQUESTS)
        calls = [point["as_double"] for (name, labels), point in receiver.metrics().items()
                 if name == "gpuperf_function_calls_total" and ("function", "slow_sleep") in labels]
        self.assertEqual(calls, [REQUESTS])

    def test_a_stop_ends_without_a_receiver(self):
        with Daemon(make_config(free_port())) as daemon:
            self.run_slow_calls(daemon)
            self.assertEqual(daemon.stop(), 0)

    def test_a_certificate_that_is_none_is_told_and_the_daemon_runs(self):
        config = make_config(free_port())
        config["export"]["otlp"]["ca_file"] = "/nowhere/ca.pem"
        with Daemon(config) as daemon:
            [problem] = [row for row in daemon.query("status")["problems"] if row["subject"] == "otlp"]
        self.assertIn("/nowhere/ca.pem: read: No such file or directory", problem["message"])


class TlsTest(unittest.TestCase):
    """A receiver whose certificate is by an authority of its own, and who wants one of the daemon, too."""

    def setUp(self):
        require_root()
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="gpuperf-tls-")))
        self.openssl("req", "-x509", "-subj", "/CN=authority", "-days", "2", "-keyout", "ca.key", "-out", "ca.pem")
        for name, place in (("server", "IP:127.0.0.1"), ("daemon", "DNS:gpu-host")):
            self.openssl("req", "-subj", f"/CN={name}", "-addext", f"subjectAltName={place}", "-keyout", f"{name}.key",
                         "-out", f"{name}.csr")
            self.run_openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                             "-copy_extensions", "copy", "-days", "2", "-out", f"{name}.pem")

    def run_openssl(self, *arguments):
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)

    def openssl(self, *arguments):
        self.run_openssl(*arguments, "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")

    def make_config(self, port, **settings):
        config = make_config(port)
        config["export"]["otlp"] |= {"endpoint": f"https://127.0.0.1:{port}",
                                     **{key: str(self.folder / name) for key, name in settings.items()}}
        return config

    def test_both_show_a_certificate_and_the_data_comes(self):
        port = free_port()
        with Receiver(port, self.folder) as receiver, Daemon(self.make_config(
                port, ca_file="ca.pem", cert_file="daemon.pem", key_file="daemon.key")) as daemon:
            daemon.wait_attached("slow_sleep", "slow_spin")
            wait_until("metrics", lambda: receiver.list("metrics"), 30)
            self.assertEqual([row for row in daemon.query("status")["problems"] if row["subject"] == "otlp"], [])

    def test_an_unknown_authority_or_no_certificate_of_its_own_is_told_and_nothing_is_sent(self):
        for settings in ({"cert_file": "daemon.pem", "key_file": "daemon.key"}, {"ca_file": "ca.pem"}):
            port = free_port()
            with self.subTest(settings), Receiver(port, self.folder) as receiver, Daemon(
                    self.make_config(port, **settings)) as daemon:
                problem = wait_until("the problem", lambda: [
                    row for row in daemon.query("status")["problems"] if row["subject"] == "otlp"], 30)[0]
                self.assertRegex(problem["message"], "code 14.*(?i:handshake|certificate|ssl|closed)")
                self.assertEqual(receiver.requests, [])


class GpuSpansTest(slow_gpu_test.SlowGpuTest):
    """On the fake driver, whose truth is known."""

    def setUp(self):
        require_root()
        port = free_port()
        self.receiver = self.enterContext(Receiver(port))
        self.config = slow_gpu_test.make_config(export=make_export(port))
        super().setUp()

    def test_kernels_are_children_of_the_call_that_waited_for_them(self):
        for path, duration_ms in ((3, 200), (4, 100)):
            self.workload.do(f"path {path} {duration_ms * MS}")
        self.workload.do("sync")
        truths = [work for work in self.workload.truth()[1] if work.kind == KERNEL]
        [call] = self.wait_for_slow_sync(self.workload)

        def find():
            return [span for span in self.receiver.spans()
                    if read_attributes(span).get("gpuperf.slow_call.id") == call["id"]]
        [parent] = wait_until("the span", find, 30)
        children = [span for span in self.receiver.spans() if span.get("parent_span_id") == parent["span_id"]]
        found = [(read_attributes(span)["gpuperf.gpu.work"], int(span["start_time_unix_nano"]),
                  int(span["end_time_unix_nano"])) for span in children]

        self.assertEqual([name for name, _, _ in found], [KERNEL_NAMES[3 % 3], KERNEL_NAMES[4 % 3]])
        for (_, start_unix_ns, end_unix_ns), truth in zip(found, truths):
            self.assertEqual(end_unix_ns - start_unix_ns, truth.end_unix_ns - truth.start_unix_ns)
            self.assertAlmostEqual(start_unix_ns, truth.start_unix_ns, delta=MS)
        for span, truth in zip(children, truths):
            self.assertEqual(span["trace_id"], parent["trace_id"])
            self.assertEqual(read_attributes(span)["gpuperf.gpu.correlation_id"], truth.correlation_id)
        self.assertEqual(read_attributes(parent)["gpuperf.gpu.busy_ns"], call["gpu"]["busy_ns"])


class GpuProfilesTest(slow_gpu_test.SlowGpuTest):
    """On the fake driver, whose truth is known."""

    PERIOD_SECONDS = 5

    def setUp(self):
        require_root()
        port = free_port()
        self.receiver = self.enterContext(Receiver(port))
        self.config = slow_gpu_test.make_config(export=make_export(
            port, profiles=True, profile_interval_seconds=self.PERIOD_SECONDS, slow_calls=False, metrics=False))
        super().setUp()

    def list_profiles(self):
        """(resource's attributes, profile) of each."""
        for request in self.receiver.list("profiles"):
            for of_resource in request["resource_profiles"]:
                for profile in of_resource["scope_profiles"][0]["profiles"]:
                    yield read_attributes(of_resource["resource"]), profile

    def add_up(self):
        """GPU time of the workload by the path that launched it, over all profiles so far."""
        return sum_profiles(self.receiver.list("profiles"), "gpu_time", self.workload.process.pid, PATH)

    def test_profiles_follow_each_other_and_add_up_to_the_work_by_who_launched_it(self):
        # Until the rules of the code between it and main() are known; by a path that is not looked at.
        wait_until("a profile with stacks",
                   lambda: (self.workload.do(f"path 8 {MS}"), self.add_up()["path_08"])[1] >= MS, 60)
        before = self.add_up()
        self.workload.do("forget")
        for _ in range(2 * self.PERIOD_SECONDS):  # over more than one period
            self.workload.do(f"path 7 {100 * MS}")
            self.workload.do(f"path 3 {20 * MS}")
            time.sleep(0.7)
        self.workload.do("sync")
        truth = collections.Counter()
        for number, work in enumerate(work for work in self.workload.truth()[1] if work.kind == KERNEL):
            truth["path_03" if number % 2 else "path_07"] += work.end_unix_ns - work.start_unix_ns

        def find():
            return {path: self.add_up()[path] - before[path] for path in truth}
        try:
            wait_until("all of it", lambda: find() == dict(truth), 6 * self.PERIOD_SECONDS)
        except AssertionError:
            self.assertEqual(find(), truth)
        times = sorted({(int(profile["time_unix_nano"]), int(profile["duration_nano"]))
                        for _, profile in self.list_profiles()})
        self.assertGreater(len(times), 1)
        for (start_ns, duration_ns), (next_ns, _) in zip(times, times[1:]):
            # Whole periods lie between two profiles; of those where nothing happened there is none.
            periods = (next_ns - start_ns) / duration_ns
            self.assertAlmostEqual(periods, round(periods), delta=0.01)
        [resource] = {tuple(sorted(resource.items())) for resource, _ in self.list_profiles()
                      if resource["process.pid"] == self.workload.process.pid}
        self.assertEqual(dict(resource)["service.name"], dict(resource)["process.executable.name"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
