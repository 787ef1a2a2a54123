#!/usr/bin/env python3
"""Rules and a file by which gpuperf observes more or less: in force within two seconds, visible, released again."""

import http.server
import json
import os
import pathlib
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

from gpuperf_system import PATIENCE, WORKLOADS, Daemon, require_root, wait_until
from injector_workload import FAKES, Workload, require_fakes

SWITCH_SECONDS = 2 * PATIENCE
STEPS = {"custom_sym": {"turn": {"symbol": "cause_sleep", "role": "step"}},
         "libraries": {"custom_sym": [str(WORKLOADS / "known_causes")]}, "slow": {"default_threshold_ms": 0}}
RULES = {"turn": "p99 gpuperf_step_seconds{function=turn} > 0.015: freeze, detail",
         "blind": "mean gpuperf_step_seconds{function=turn} > 0.1: stand-down",
         "calls": "rate gpuperf_function_calls_total{comm=known_*} > 1e9: freeze"}


LAUNCHES = {"cuda_func_sym": {name: {"symbol": name, "may_throw": False} for name in ("cuLaunchKernel", "fake_launch")},
            "libraries": {"cuda_func_sym": [str(FAKES / "libcuda.so*")]}, "slow": {"default_threshold_ms": 0}}


class Engine:
    """Serves metrics as an engine does: requests whose first token takes `seconds`, one more for each time that they are read."""

    def __init__(self):
        self.seconds, self.answers, self.counts = 0.2, True, {0.1: 0, 0.25: 0, 1: 0}
        engine = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200 if engine.answers else 503)
                self.end_headers()
                self.wfile.write(engine.render().encode())

            def log_message(self, *_):
                pass
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/metrics"

    def render(self):
        for bound in self.counts:
            self.counts[bound] += 10 * (self.seconds <= bound)
        rows = [f'vllm:ttft_seconds_bucket{{model_name="m",le="{bound}"}} {count}.0' for bound, count in self.counts.items()]
        total = self.counts[1]
        return "\n".join(["# TYPE vllm:ttft_seconds histogram", *rows, f'vllm:ttft_seconds_bucket{{model_name="m",le="+Inf"}} {total}.0',
                          f'vllm:ttft_seconds_count{{model_name="m"}} {total}', "# TYPE vllm:waiting gauge", "vllm:waiting 5", ""])

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def setUpModule():
    require_root()
    require_fakes()


class QosTest(unittest.TestCase):
    maxDiff = None

    def start_daemon(self, qos, config=STEPS, **more):
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="gpuperf-qos-"))
        self.file = pathlib.Path(folder) / "demand"
        self.daemon = self.enterContext(Daemon(config | {"qos": {"release_seconds": 2, "file": str(self.file)} | qos} | more))

    def start_steps(self, ms):
        process = subprocess.Popen([WORKLOADS / "known_causes", "--cause", "sleep", "--runs", "100000000", "--ms", str(ms)],
                                   stdout=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def start_launching(self, *words):
        program = self.enterContext(Workload(self.daemon.path / "run/ingest.sock"))
        for word in ("init", "launch 10 1", *words):
            program.do(word)
        return program

    def read_demand(self):
        status = self.daemon.query("status")
        return status["overhead_demand"], status["overhead_demand_reason"], status["overhead_demand_percent"]

    def wait_for_demand(self, *wanted, seconds=20):
        """How long it took."""
        begin = time.monotonic()
        wait_until(f"demand {wanted}", lambda: self.read_demand() == wanted, seconds)
        return time.monotonic() - begin

    def read_rules(self):
        return {rule["name"]: rule for rule in self.daemon.query("overhead", "rules")}

    def read_metric(self, line):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.daemon.port}/metrics", timeout=10) as page:
            return line in page.read().decode()

    def test_a_limit_on_own_steps_raises_detail_within_two_seconds_and_releases_it(self):
        self.start_daemon({"rules": RULES, "detail_percent": 7})
        self.start_steps(2)
        self.daemon.wait_attached("turn")
        wait_until("it is read", lambda: self.read_rules()["turn"]["value"])
        rule = self.read_rules()["turn"]
        self.assertEqual((rule["text"], rule["breached"], rule["breaches"]), (RULES["turn"], False, 0))
        self.assertTrue(0.002 <= rule["value"] < 0.015, rule)
        wait_until("calls are read", lambda: self.read_rules()["calls"]["value"])
        self.assertLess(self.read_rules()["calls"]["value"], 501)

        slow = self.start_steps(25)
        took = self.wait_for_demand("detail", "rule turn", 7)
        print(f"in force after {took:.2f} s")
        self.assertLess(took, SWITCH_SECONDS)
        rule = self.read_rules()["turn"]
        self.assertTrue(rule["breached"] and rule["breaches"] == 1, rule)
        self.assertTrue(self.read_metric('gpuperf_qos_rule_breached{rule="turn"} 1'))
        self.assertIn("overhead budgets are raised to 7.00 %: rule turn", self.daemon.ctl("status").stdout)
        wait_until("the recorder is frozen", lambda: [row for row in self.daemon.query("trace", "list")
                                                      if (row["name"], row["trigger"]) == ("rule turn", "qos_rule")])

        slow.kill()
        self.wait_for_demand("none", "", 0)
        self.assertTrue(self.read_metric('gpuperf_qos_rule_breaches_total{rule="turn"} 1'))
        self.assertIn('rule released rule=turn', self.daemon.log())

    def test_a_rule_that_blinds_itself_is_held_ever_longer(self):
        self.start_daemon({"rules": RULES, "release_seconds": 1})
        self.start_steps(150)
        self.wait_for_demand("stand_down", "rule blind", 0)
        self.daemon.wait_for_probe("turn", "disabled")
        wait_until("it was released and breached again", lambda: self.read_rules()["blind"]["breaches"] == 2, 30)
        begin = time.monotonic()
        wait_until("it is released again", lambda: not self.read_rules()["blind"]["breached"], 30)
        self.assertGreater(time.monotonic() - begin, 1.5, "for twice a second")

    def test_a_file_demands_for_as_long_as_it_is_there_and_a_person_comes_first(self):
        self.start_daemon({"detail_percent": 0})
        self.start_steps(2)
        self.daemon.wait_attached("turn")

        self.file.write_text("stand-down night of the benchmark\nmore\n")
        took = self.wait_for_demand("stand_down", f"{self.file}: night of the benchmark", 0)
        self.assertLess(took, SWITCH_SECONDS)
        self.daemon.wait_for_probe("turn", "disabled")
        said = self.daemon.ctl("doctor", check=False).stdout
        self.assertIn("nothing is probed or recorded, because it was demanded", said)
        self.assertIn("gpuperfctl overhead rules", said)
        self.daemon.ctl("overhead", "detail", "--for", "1h", "--reason", "incident")
        self.assertEqual(self.read_demand(), ("detail", "incident", 0))
        self.daemon.wait_for_probe("turn", "attached")
        self.daemon.ctl("overhead", "release")
        self.assertEqual(self.read_demand()[0], "stand_down")

        for wrong in ("everything please", "\0" * 600):
            self.file.write_text(wrong)
            (problem,) = wait_until("it is refused", lambda: [row for row in self.daemon.query("status")["problems"]
                                                              if row["subject"] == "qos.file"])
            self.assertIn("does not begin with detail or stand-down", problem["message"])
            self.assertEqual(self.read_demand()[0], "none")
        self.file.write_text(" detail\n")
        self.wait_for_demand("detail", str(self.file), 0)
        self.file.write_text("")
        self.wait_for_demand("none", "", 0)
        self.file.unlink()
        os.mkfifo(self.file)
        wait_until("a pipe is refused", lambda: [row for row in self.daemon.query("status")["problems"] if row["subject"] == "qos.file"])
        self.file.unlink()
        wait_until("nothing is wrong", lambda: not self.daemon.query("status")["problems"])

    def test_a_reload_changes_rules_and_leaves_those_that_stay_as_they_stand(self):
        self.start_daemon({"rules": RULES})
        self.start_steps(25)
        self.wait_for_demand("detail", "rule turn", 5)
        config = json.loads(self.daemon.config.read_text())
        config["qos"]["rules"] = {"turn": RULES["turn"], "other": "gpuperf_processes > 0: stand-down"}
        self.daemon.config.write_text(json.dumps(config))
        self.daemon.ctl("config", "reload")
        rules = self.read_rules()
        self.assertEqual(list(rules), ["other", "turn"])
        self.assertEqual(rules["turn"]["breaches"], 1)
        self.wait_for_demand("stand_down", "rule other", 0)
        config["qos"]["rules"] = {"turn": "gpuperf_processors > 1: shout"}
        self.daemon.config.write_text(json.dumps(config))
        refused = self.daemon.ctl("config", "reload", check=False)
        self.assertEqual(refused.returncode, 2)
        self.assertIn('did you mean "gpuperf_processes"?', refused.stderr)
        self.assertEqual(list(self.read_rules()), ["other", "turn"])

    def test_others_demand_it_over_http_with_the_administrators_token(self):
        self.start_daemon({})
        self.daemon.wait_for_log("gpuperfd ready")
        body = json.dumps({"demand": "OVERHEAD_DEMAND_STAND_DOWN", "duration_ns": 3_600_000_000_000, "reason": "autoscaler"}).encode()

        def post(token):
            address = f"http://127.0.0.1:{self.daemon.port}/api/v1/set_overhead_demand"
            request = urllib.request.Request(address, body, {"Authorization": f"Bearer {token}", "Content-Type": "application/json"})
            return urllib.request.urlopen(request, timeout=20)
        runtime = self.daemon.path / "run"
        with self.assertRaises(urllib.error.HTTPError) as refused:
            post((runtime / "page.token").read_text().strip())
        self.assertEqual(refused.exception.code, 403)
        with post((runtime / "page-admin.token").read_text().strip()) as answer:
            self.assertEqual(answer.status, 200)
        self.assertEqual(self.read_demand(), ("stand_down", "autoscaler", 0))

    def test_the_engines_own_metrics_are_limited(self):
        engine = self.enterContext(Engine())
        rules = {"ttft": f"p90 vllm:ttft_seconds{{model_name=m*}} of {engine.url} > 0.4: freeze, detail",
                 "queue": f"vllm:waiting of {engine.url} > 50: freeze", "typo": f"vllm:wait of {engine.url} > 50: freeze",
                 "wrong": f"rate vllm:waiting of {engine.url} > 50: freeze"}
        self.start_daemon({"rules": rules, "detail_percent": 7})
        engine.seconds = 0.2
        wait_until("it is read", lambda: self.read_rules()["ttft"]["value"])
        rules = self.read_rules()
        self.assertAlmostEqual(rules["ttft"]["value"], 0.235, delta=0.001, msg="0.1 + 0.9 * (0.25 - 0.1)")
        self.assertEqual((rules["queue"]["value"], rules["ttft"]["breached"]), (5, False))
        self.assertEqual(rules["typo"]["fault"], "there is no metric vllm:wait")
        self.assertIn({"subject": "qos.rules.wrong", "message": f"{engine.url}: vllm:waiting is a gauge: write no word before it"},
                      [{key: row[key] for key in ("subject", "message")} for row in self.daemon.query("status")["problems"]])

        engine.seconds = 0.5
        took = self.wait_for_demand("detail", "rule ttft", 7)
        print(f"in force after {took:.2f} s")
        self.assertLess(took, 2 * SWITCH_SECONDS)
        wait_until("the recorder is frozen", lambda: [row for row in self.daemon.query("trace", "list") if row["name"] == "rule ttft"])
        engine.answers = False
        wait_until("that is said", lambda: "503" in self.read_rules()["ttft"]["fault"])
        self.wait_for_demand("none", "", 0)
        self.assertIn("\nttft is not read: the answer is HTTP/1.0 503 ", self.daemon.ctl("overhead", "rules").stdout)

    def test_a_new_demand_ends_a_measurement(self):
        self.start_daemon({}, LAUNCHES)
        program = self.start_launching("steady 1")
        wait_until("its calls are counted", lambda: self.daemon.functions("--pid", program.process.pid))
        measuring = subprocess.Popen(self.daemon.ctl_words("overhead", "measure", "--for", "10m", "-o", "json"), text=True,
                                     stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(measuring.kill)
        wait_until("it measures", lambda: (self.daemon.query("status")["overhead_trial"] or {}).get("running"))
        self.file.write_text("stand-down a benchmark")
        self.assertEqual(json.loads(measuring.communicate(timeout=20)[0])["stopped_by"], f"a demand: {self.file}: a benchmark")
        for words in (("overhead", "measure"), ("trace", "start", "--duration", "1s")):
            refused = self.daemon.ctl(*words, check=False)
            self.assertEqual(refused.returncode, 1)
            self.assertIn("override it with gpuperfctl overhead detail --for 10m", refused.stderr)

    def test_it_stands_down_where_it_is_the_cause_itself(self):
        self.start_daemon({"rules": {"launches": "gpuperf_processes > 0: detail, check"}, "detail_percent": 0, "release_seconds": 600},
                          LAUNCHES, overhead={"budget_percent": 0.0001})
        self.start_launching("steady 1 200")  # each launch is probed within, where no hook is
        self.wait_for_demand("detail", "rule launches", 0)
        wait_until("its cost is measured", lambda: (self.daemon.query("status")["overhead_trial"] or {}).get("running"), 30)
        wait_until("it was measured", lambda: not self.daemon.query("status")["overhead_trial"]["running"], 60)
        trial = self.daemon.query("status")["overhead_trial"]
        print(trial)
        (measured,) = trial["measurements"]
        self.assertGreater(measured["low_ratio"], 0.01, "probes cost it nothing?")
        self.wait_for_demand("stand_down", "rule launches, caused by gpuperf", 0)
        self.assertTrue(self.read_rules()["launches"]["caused_by_gpuperf"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
