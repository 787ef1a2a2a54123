#!/usr/bin/env python3
"""A real Prometheus scrapes by the chart's rules: series keep their workload's labels and get their node's."""

import functools
import http.server
import json
import re
import shutil
import subprocess
import tempfile
import threading
import unittest
import urllib.parse
import urllib.request

import yaml

from fleet_chart import EXAMPLES, find, render, require_helm
from gpuperf_system import free_port, wait_until

# As gpuperfd writes them: of a pod's process, of a process of the host, of nobody.
METRICS = b"""\
gpuperf_function_calls_total{function="a",container="train",pod="train-0",namespace="team"} 1
gpuperf_function_calls_total{function="b",container="",pod="",namespace=""} 2
gpuperf_processes 3
"""
# What Kubernetes' service discovery says of the daemon's own pod, and what the operator makes of it.
DISCOVERED = {"__meta_kubernetes_pod_node_name": "node7",
              "__meta_kubernetes_pod_label_app_kubernetes_io_name": "gpuperf",
              "__meta_kubernetes_pod_container_port_name": "metrics",
              "namespace": "gpuperf", "pod": "gpuperf-x7k2p", "container": "gpuperfd", "endpoint": "metrics"}


class Metrics(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(METRICS)

    def log_message(self, *_):
        pass


def setUpModule():
    require_helm()
    if shutil.which("prometheus") is None:
        raise unittest.SkipTest("prometheus is not installed (Debian package prometheus)")


def to_prometheus(relabelings):
    """Rules of a PodMonitor as its operator writes them: sourceLabels becomes source_labels."""
    return [{re.sub(r"[A-Z]", lambda match: "_" + match[0].lower(), key): value for key, value in rule.items()}
            for rule in relabelings]


class RelabelingTest(unittest.TestCase):
    def scrape(self, job, discovered):
        """Labels by function of the series that Prometheus stored, and those of gpuperf_processes under None."""
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metrics)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        holder = tempfile.TemporaryDirectory(prefix="gpuperf-test-")
        self.addCleanup(holder.cleanup)
        port = free_port()
        targets = f"{holder.name}/targets.json"
        with open(targets, "w", encoding="utf-8") as file:
            json.dump([{"targets": [f"127.0.0.1:{server.server_port}"], "labels": discovered}], file)
        with open(f"{holder.name}/prometheus.yml", "w", encoding="utf-8") as file:
            json.dump({"scrape_configs": [{"job_name": "gpuperf", "scrape_interval": "1s",
                                           "file_sd_configs": [{"files": [targets]}], **job}]}, file)
        prometheus = subprocess.Popen(
            ["prometheus", f"--config.file={holder.name}/prometheus.yml", f"--storage.tsdb.path={holder.name}/tsdb",
             f"--web.listen-address=127.0.0.1:{port}"], stderr=subprocess.DEVNULL)
        self.addCleanup(functools.partial(prometheus.wait, timeout=30))
        self.addCleanup(prometheus.terminate)

        def query():
            selector = urllib.parse.urlencode({"match[]": '{__name__=~"gpuperf_.*"}'})
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/series?{selector}", timeout=10) as answer:
                    return json.load(answer)["data"]
            except OSError:
                return None  # still starting
        series = wait_until("series in Prometheus", query, 90)
        return {labels.pop("function", None): {key: value for key, value in labels.items() if key != "__name__"}
                for labels in series}

    def test_series_by_pod_monitor_have_workload_and_node(self):
        endpoint = find(render("--set", "monitoring.kind=PodMonitor"), "PodMonitor")["spec"]["podMetricsEndpoints"][0]

        series = self.scrape({"honor_labels": endpoint["honorLabels"],
                              "relabel_configs": to_prometheus(endpoint["relabelings"])}, DISCOVERED)

        node = {"job": "gpuperf", "node": "node7", "instance": "node7"}
        self.assertEqual(series, {
            "a": {**node, "container": "train", "pod": "train-0", "namespace": "team"}, "b": node, None: node})

    def test_series_by_the_example_have_workload_and_node(self):
        job = yaml.safe_load((EXAMPLES / "prometheus-scrape.yaml").read_text(encoding="utf-8"))["scrape_configs"][0]
        rules = {key: job[key] for key in ("honor_labels", "relabel_configs")}

        series = self.scrape(rules, {key: value for key, value in DISCOVERED.items() if key.startswith("__")})

        node = {"job": "gpuperf", "node": "node7", "instance": "node7"}
        self.assertEqual(series, {
            "a": {**node, "container": "train", "pod": "train-0", "namespace": "team"}, "b": node, None: node})


if __name__ == "__main__":
    unittest.main(verbosity=2)
