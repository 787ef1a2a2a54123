#!/usr/bin/env python3
"""A real Prometheus scrapes the real daemon and answers queries; promtool finds nothing to say."""

import json
import shutil
import subprocess
import unittest
import urllib.parse
import urllib.request

from gpuperf_system import (WORKLOADS, Daemon, finish_workload, free_port, require_root,
                            start_workload, wait_until)

CONFIG = {"custom_sym": {"slow_sleep": {"symbol": "slow_sleep", "slow_threshold_ms": 5}},
          "libraries": {"custom_sym": [str(WORKLOADS / "slow_calls")]}}


def setUpModule():
    require_root()
    for program in ("prometheus", "promtool"):
        if shutil.which(program) is None:
            raise unittest.SkipTest(f"{program} is not installed (Debian package prometheus)")


def fetch(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


class PrometheusTest(unittest.TestCase):
    def test_metrics_are_clean_by_promtool(self):
        with Daemon(CONFIG) as daemon:
            daemon.wait_attached("slow_sleep")
            finish_workload(start_workload("slow_calls", "--requests", 2, "--duration-ms", 6))
            wait_until("calls in the metrics", lambda: "slow_sleep" in fetch(
                f"http://127.0.0.1:{daemon.port}/metrics"))
            text = fetch(f"http://127.0.0.1:{daemon.port}/metrics")

        result = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True,
                                text=True, check=False)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))

    def test_prometheus_answers_calls_p99_and_slow_calls(self):
        with Daemon(CONFIG) as daemon:
            daemon.wait_attached("slow_sleep")
            port = free_port()
            config = daemon.path / "prometheus.yml"
            config.write_text(json.dumps({  # JSON is YAML
                "global": {"scrape_interval": "1s"},
                "scrape_configs": [{"job_name": "gpuperf", "static_configs": [
                    {"targets": [f"127.0.0.1:{daemon.port}"]}]}]}))
            prometheus = subprocess.Popen(
                ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={daemon.path}/tsdb",
                 f"--web.listen-address=127.0.0.1:{port}"],
                stderr=subprocess.DEVNULL)
            linger = daemon.path / "linger"
            workload = start_workload("slow_calls", "--requests", 40, "--duration-ms", 20,
                                      "--linger-for-file", linger)

            def query(expression):
                try:
                    answer = json.loads(fetch(f"http://127.0.0.1:{port}/api/v1/query?" +
                                              urllib.parse.urlencode({"query": expression})))
                except OSError:
                    return None  # still starting
                result = answer["data"]["result"]
                return float(result[0]["value"][1]) if result else None

            try:
                labels = '{category="custom",function="slow_sleep",comm="slow_calls"}'
                wait_until("40 calls in Prometheus", lambda: query(
                    f"gpuperf_function_calls_total{labels}") == 40, 30)
                wait_until("40 slow calls in Prometheus", lambda: query(
                    f"gpuperf_function_slow_calls_total{labels}") == 40, 30)
                p99 = wait_until("a p99", lambda: query(
                    "histogram_quantile(0.99, sum by (le) (gpuperf_function_duration_seconds_bucket"
                    f"{labels}))"), 30)
                # 20 ms sleeps: in the bucket whose edges hold 20 ms; late wake-ups only move it up.
                self.assertGreater(p99, 0.016)
                self.assertLess(p99, 1)
                self.assertEqual(query("up"), 1)
                self.assertEqual(query('gpuperf_probes{state="attached"}'), 1)
            finally:
                linger.touch()
                finish_workload(workload)
                prometheus.terminate()
                prometheus.wait(timeout=30)


if __name__ == "__main__":
    unittest.main(verbosity=2)
