#!/usr/bin/env python3
"""Rules and alerts: by promtool and amtool, and end to end: a workload with slow calls, the daemon, Prometheus and
Alertmanager, until a receiver has the alert and the daemon has frozen its flight recorder."""

import http.server
import json
import queue
import re
import shutil
import subprocess
import threading
import unittest

from gpuperf_system import SOURCE, WORKLOADS, Daemon, free_port, require_root, start_workload, wait_until

PROMETHEUS = SOURCE / "deploy/prometheus"
CASES = sorted(PROMETHEUS.glob("*.test.yaml"))
CONFIG = {"custom_sym": {"slow_sleep": {"symbol": "slow_sleep", "slow_threshold_ms": 5}},
          "libraries": {"custom_sym": [str(WORKLOADS / "slow_calls")]},
          "trace": {"freeze_on_alert": True}}


def setUpModule():
    for program in ("prometheus", "promtool", "prometheus-alertmanager", "amtool"):
        if shutil.which(program) is None:
            raise unittest.SkipTest(f"{program} is not installed (Debian packages prometheus, prometheus-alertmanager)")


class Receiver(http.server.ThreadingHTTPServer):
    """Takes what Alertmanager posts: bodies in `posted`."""

    def __init__(self):
        self.posted = queue.Queue()
        posted = self.posted

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                posted.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class FilesTest(unittest.TestCase):
    def run_tool(self, *command):
        result = subprocess.run(command, cwd=PROMETHEUS, capture_output=True, text=True, timeout=600, check=False)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout

    def test_rules_and_examples_are_valid(self):
        self.assertRegex(self.run_tool("promtool", "check", "rules", "--lint=all", "--lint-fatal", "gpuperf-rules.yaml",
                                       "gpuperf-alerts.yaml"), r"(?s)SUCCESS: \d+ rules.*SUCCESS: \d+ rules")
        self.run_tool("promtool", "check", "config", "--lint-fatal", "prometheus.yml")
        self.assertIn("SUCCESS", self.run_tool("amtool", "check-config", "alertmanager.yml"))

    def test_every_rule_does_what_its_cases_say(self):
        self.assertEqual(len(CASES), 2)
        for path in CASES:
            self.assertIn("SUCCESS", self.run_tool("promtool", "test", "rules", path.name))

    def test_every_alert_has_a_case_that_fires_and_one_that_does_not_and_every_record_a_value(self):
        cases = "".join(path.read_text(encoding="utf-8") for path in CASES)
        alerts = re.findall(r"- alert: (\w+)", (PROMETHEUS / "gpuperf-alerts.yaml").read_text(encoding="utf-8"))
        records = re.findall(r"- record: (\S+)", (PROMETHEUS / "gpuperf-rules.yaml").read_text(encoding="utf-8"))
        self.assertTrue(alerts and records)
        for alert in alerts:
            for outcome in (r"\n          - exp_labels", r" \[\]"):
                self.assertRegex(cases, rf"alertname: {alert}\n +eval_time: \w+\n +exp_alerts:{outcome}")
        for record in records:
            self.assertRegex(cases, rf"- expr: {re.escape(record)}\b")

    def test_every_alert_has_what_people_need(self):
        text = (PROMETHEUS / "gpuperf-alerts.yaml").read_text(encoding="utf-8")
        for rule in text.split("- alert: ")[1:]:
            name = rule.split("\n")[0]
            self.assertRegex(rule, r"severity: (critical|warning|info)\}", name)
            for annotation in ("summary", "description", "runbook_url"):
                self.assertIn(f"{annotation}: ", rule, name)


class EndToEndTest(unittest.TestCase):
    def start(self, *command):
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)

    def start_alertmanager(self, daemon, receiver):
        """Alertmanager with the shipped example, at these addresses and without its pauses; its port."""
        text = (PROMETHEUS / "alertmanager.yml").read_text(encoding="utf-8")
        for shipped, here in (("http://localhost:8080", f"http://127.0.0.1:{receiver.server_port}"),
                              ("localhost:9465", f"127.0.0.1:{daemon.port}"), ("group_wait: 10s", "group_wait: 1s")):
            self.assertIn(shipped, text)
            text = text.replace(shipped, here)
        config, port = daemon.path / "alertmanager.yml", free_port()
        config.write_text(text, encoding="utf-8")
        self.start("prometheus-alertmanager", f"--config.file={config}", f"--storage.path={daemon.path}/alerts",
                   f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=")
        return port

    def start_prometheus(self, daemon, alertmanager_port):
        """Prometheus with the shipped rules, whose alerts wait for seconds instead of minutes."""
        rules = []
        for name in ("gpuperf-rules.yaml", "gpuperf-alerts.yaml"):
            text = (PROMETHEUS / name).read_text(encoding="utf-8")
            rules.append(str(daemon.path / name))
            (daemon.path / name).write_text(re.sub(r"for: \d+m", "for: 2s", text), encoding="utf-8")
        config = daemon.path / "prometheus.yml"
        config.write_text(json.dumps({  # JSON is YAML
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": rules,
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{alertmanager_port}"]}]}]},
            "scrape_configs": [{"job_name": "gpuperf", "static_configs": [{"targets": [f"127.0.0.1:{daemon.port}"]}]}]}))
        self.start("prometheus", f"--config.file={config}", f"--storage.tsdb.path={daemon.path}/tsdb",
                   f"--web.listen-address=127.0.0.1:{free_port()}")

    def test_slow_calls_of_a_workload_reach_people_and_freeze_the_flight_recorder(self):
        require_root()
        receiver = self.enterContext(Receiver())
        self.addCleanup(receiver.shutdown)
        with Daemon(CONFIG) as daemon:
            daemon.wait_attached("slow_sleep", seconds=60)
            self.start_prometheus(daemon, self.start_alertmanager(daemon, receiver))
            workload = start_workload("slow_calls", "--requests", 1_000_000, "--duration-ms", 20)
            self.addCleanup(workload.communicate)
            self.addCleanup(workload.kill)

            alert = None
            while alert is None:
                posted = receiver.posted.get(timeout=120)
                alert = next((row for row in posted["alerts"] if row["labels"]["alertname"] == "GpuperfSlowCalls"), None)
            self.assertEqual((alert["status"], alert["labels"]["severity"], alert["labels"]["function"], alert["labels"]["instance"]),
                             ("firing", "warning", "slow_sleep", f"127.0.0.1:{daemon.port}"))
            self.assertEqual(alert["annotations"]["summary"], f"slow_sleep is slow on 127.0.0.1:{daemon.port}")
            self.assertRegex(alert["annotations"]["runbook_url"], r"^https://\S+/docs/runbooks/GpuperfSlowCalls\.md$")
            wait_until("the frozen flight recorder", lambda: [
                row for row in daemon.query("trace", "list") if row["trigger"] == "alert" and row["state"] == "stored"], 60)


if __name__ == "__main__":
    unittest.main(verbosity=2)
