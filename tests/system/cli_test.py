#!/usr/bin/env python3
"""gpuperfctl as scripts and people use it: forms of output, filters, exit codes."""

import csv
import io
import json
import signal
import subprocess
import unittest

from gpuperf_system import (AS_NOBODY, COUNT_LIBRARY, GPUPERFCTL, Daemon, finish_workload, get_calls,
                            require_root, run_ctl, start_workload)

FUNCTIONS = ("count_fast", "count_status", "count_nested")
CONFIG = {"custom_sym": {name: name for name in FUNCTIONS},
          "libraries": COUNT_LIBRARY}
# The contract with scripts.
FUNCTION_KEYS = set("category function pid comm calls errors total_ns self_ns min_ns avg_ns p50_ns "
                    "p90_ns p99_ns p999_ns max_ns slow_calls in_flight abandoned coverage".split())


def setUpModule():
    require_root()


class AnswersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(CONFIG).start()
        cls.addClassCleanup(cls.daemon.folder.cleanup)
        cls.addClassCleanup(cls.daemon.stop)
        go = cls.daemon.path / "go"
        process = start_workload("count_calls", "--calls", 100, "--wait-for-file", go)
        cls.daemon.wait_attached(*FUNCTIONS)
        go.touch()
        (cls.truth,) = finish_workload(process)
        cls.calls = get_calls(cls.truth)
        cls.daemon.wait_for_counts(cls.truth["pid"], cls.calls)

    def test_functions_say_the_same_in_every_form(self):
        rows = self.daemon.query("functions")
        table = self.daemon.ctl("functions").stdout
        text = self.daemon.ctl("functions", "-o", "csv").stdout

        self.assertLessEqual(FUNCTION_KEYS, set(rows[0]))
        self.assertEqual({row["function"]: row["calls"] for row in rows}, self.calls)
        self.assertEqual({row["function"]: int(row["calls"])
                          for row in csv.DictReader(io.StringIO(text))}, self.calls)
        for name in self.calls:
            self.assertIn(name, table)

    def test_rows_per_process_name_the_process(self):
        rows = self.daemon.query("functions", "--per-process")

        self.assertEqual({(row["pid"], row["comm"]) for row in rows},
                         {(self.truth["pid"], "count_calls")})

    def test_filters_sort_and_limit(self):
        by_calls = self.daemon.query("functions", "--sort", "calls")
        one = self.daemon.query("functions", "--function", "count_n*")
        none = self.daemon.query("functions", "--pid", "1")
        limited = self.daemon.query("functions", "--limit", "2")

        self.assertEqual(by_calls[0]["function"], "count_fast")
        self.assertEqual([row["function"] for row in one], ["count_nested"])
        self.assertEqual((none, len(limited)), ([], 2))

    def test_processes_status_probes_config_and_version(self):
        (process,) = self.daemon.query("processes", "--pid", self.truth["pid"])
        status = self.daemon.query("status")

        self.assertEqual((process["comm"], process["functions"], process["calls"]),
                         ("count_calls", 3, sum(self.calls.values())))
        self.assertEqual((status["pid"], status["problems"], status["calls"]),
                         (self.daemon.process.pid, [], sum(self.calls.values())))
        self.assertEqual({row["function"] for row in self.daemon.query("probes")}, set(FUNCTIONS))
        self.assertIn("slow.worst_per_function", self.daemon.ctl("config", "show").stdout)
        self.assertEqual(json.loads(self.daemon.query("config", "show")["json"])["custom_sym"],
                         CONFIG["custom_sym"])
        self.assertIn("gpuperfd", self.daemon.ctl("version").stdout)

    def test_config_check_names_every_error(self):
        path = self.daemon.path / "bad.json"
        path.write_text(json.dumps({"slow": {"recent": -1}, "unknown": 1}), encoding="utf-8")

        result = self.daemon.ctl("config", "check", path, check=False)

        self.assertEqual(result.returncode, 2)
        self.assertIn("$.slow.recent", result.stdout + result.stderr)
        self.assertIn("$.unknown", result.stdout + result.stderr)

    def test_watch_answers_again_until_interrupted(self):
        watch = subprocess.Popen(
            [GPUPERFCTL, "--address", f"unix:{self.daemon.socket}", "functions", "--watch", "0.1",
             "-o", "json"], stdout=subprocess.PIPE, text=True)
        documents = [json.loads(watch.stdout.readline()) for _ in range(3)]
        watch.send_signal(signal.SIGINT)
        watch.communicate(timeout=30)

        self.assertEqual([len(document) for document in documents], [3, 3, 3])
        self.assertEqual(watch.returncode, 0)

    def test_no_escape_sequences_off_a_terminal(self):
        for words in (["status"], ["functions"], ["probes"], ["processes"], ["slow", "list"]):
            with self.subTest(words):
                self.assertNotIn("\x1b", self.daemon.ctl(*words).stdout)

    def test_someone_without_permission_is_told_so(self):
        self.daemon.path.chmod(0o755)
        result = run_ctl("--address", f"unix:{self.daemon.socket}", "status", check=False, prefix=AS_NOBODY)

        self.assertEqual(result.returncode, 4, result.stderr)
        self.assertIn(str(self.daemon.socket), result.stderr)


class EndsTest(unittest.TestCase):
    def test_a_watch_ends_with_its_daemon(self):
        with Daemon(CONFIG) as daemon:
            watch = subprocess.Popen(
                [GPUPERFCTL, "--address", f"unix:{daemon.socket}", "slow", "watch"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            watch.stdout.readline()  # the header: it has begun

            daemon.stop()

            _, errors = watch.communicate(timeout=30)
            self.assertEqual(watch.returncode, 3, errors)

    def test_usage_errors_end_with_two_and_help_with_zero(self):
        self.assertEqual(run_ctl("functionz", check=False).returncode, 2)
        self.assertEqual(run_ctl("functions", "--limit", "many", check=False).returncode, 2)
        self.assertEqual(run_ctl("--help").returncode, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
