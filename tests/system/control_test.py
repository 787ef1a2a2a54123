#!/usr/bin/env python3
"""Changing the daemon while it runs: reload, probes added, removed, disabled and enabled, and who may."""

import json
import shutil
import signal
import unittest

from gpuperf_system import (AS_NOBODY, COUNT_LIBRARY, Daemon, SharedDaemonTest, finish_workload, get_calls,
                            require_root, run_ctl, start_workload, wait_until)

CONFIG = {"custom_sym": {"count_fast": "count_fast", "count_status": "count_status"},
          "libraries": COUNT_LIBRARY}


def setUpModule():
    require_root()


def run_as_nobody(daemon, *arguments):
    """gpuperfctl by someone who may open the socket and is not root."""
    daemon.path.chmod(0o711)
    daemon.socket.chmod(0o666)
    return run_ctl("--address", f"unix:{daemon.socket}", *arguments, check=False, prefix=AS_NOBODY)


def write_config(daemon, config):
    """Replaces the daemon's file, keeping where it listens."""
    settings = {key: value for key, value in daemon.settings.items()
                if key in ("grpc", "metrics", "stats", "storage", "slow", "overhead")}
    daemon.config.write_text(json.dumps(settings | config), encoding="utf-8")


def count(test, daemon, *functions):
    """Runs the workload once the functions are probed and compares what was counted with its truth."""
    go = daemon.path / "go"
    go.unlink(missing_ok=True)
    process = start_workload("count_calls", "--calls", 100, "--wait-for-file", go)
    daemon.wait_attached(*functions)
    go.touch()
    (truth,) = finish_workload(process)
    expected = {name: calls for name, calls in get_calls(truth).items() if name in functions}
    rows = daemon.wait_for_counts(truth["pid"], expected)
    test.assertEqual({name: row["calls"] for name, row in rows.items()}, expected)


class ControlTest(unittest.TestCase):
    def test_a_reload_adds_and_removes_functions(self):
        with Daemon(CONFIG) as daemon:
            count(self, daemon, "count_fast", "count_status")
            write_config(daemon, {"custom_sym": {"count_fast": "count_fast",
                                                 "count_nested": "count_nested"},
                                  "libraries": COUNT_LIBRARY})

            change = daemon.query("config", "reload")

            self.assertEqual((change["added"], change["removed"], change["unchanged"]), (1, 1, 1))
            count(self, daemon, "count_fast", "count_nested")

    def test_a_hangup_reloads_too(self):
        with Daemon(CONFIG) as daemon:
            write_config(daemon, {"custom_sym": {"count_nested": "count_nested"},
                                  "libraries": COUNT_LIBRARY})

            daemon.process.send_signal(signal.SIGHUP)

            wait_until("only count_nested configured",
                       lambda: {row["function"] for row in daemon.query("probes")} == {"count_nested"})
            count(self, daemon, "count_nested")

    def test_unchanged_probes_miss_no_call_while_others_come_and_go(self):
        with Daemon(CONFIG) as daemon:
            go = daemon.path / "go"
            process = start_workload("count_calls", "--calls", 300_000, "--wait-for-file", go)
            daemon.wait_attached("count_fast", "count_status")
            go.touch()
            reloads = 0
            while process.poll() is None or reloads < 4:
                extra = {"count_nested": "count_nested"} if reloads % 2 == 0 else {}
                write_config(daemon, {"custom_sym": CONFIG["custom_sym"] | extra,
                                      "libraries": COUNT_LIBRARY})
                daemon.ctl("config", "reload")
                reloads += 1

            (truth,) = finish_workload(process)

            expected = {name: get_calls(truth)[name] for name in CONFIG["custom_sym"]}
            counted = wait_until("every call counted", lambda: (
                lambda rows: all(name in rows and rows[name]["calls"] == calls
                                 for name, calls in expected.items()) and rows
            )(daemon.functions("--pid", truth["pid"])))
            self.assertTrue(counted)
            self.assertEqual({counted[name]["coverage"] for name in expected}, {1})

    def test_probes_are_added_taken_out_and_put_in_again(self):
        with Daemon(CONFIG) as daemon:
            change = daemon.query("probes", "add", "custom_sym", "nested", "count_nested")
            self.assertEqual((change["added"], change["unchanged"]), (1, 2))
            daemon.wait_for_probe("nested", "attached")
            self.assertEqual(daemon.query("probes", "remove", "custom_sym", "nested")["removed"], 1)
            self.assertNotIn("nested", {row["function"] for row in daemon.query("probes")})
            self.assertEqual(daemon.query("probes", "add", "custom_sym", "nested", "count_nested")["added"], 1)

            change = daemon.query("probes", "disable", "count_*")
            self.assertEqual(change["removed"], 2)
            daemon.wait_for_probe("count_fast", "disabled")
            daemon.query("probes", "disable", "nested", "--category", "custom")

            change = daemon.query("probes", "enable", "count_f*")
            self.assertEqual(change["added"], 1)
            count(self, daemon, "count_fast")

    def test_doctor_finds_nothing_wrong_and_then_everything(self):
        with Daemon(CONFIG) as daemon:
            count(self, daemon, "count_fast", "count_status")
            healthy = daemon.ctl("doctor", "-o", "json", check=False)
            problems = [check for check in json.loads(healthy.stdout)
                        if check["state"] == "problem"]
            self.assertEqual((problems, healthy.returncode), ([], 0))

            daemon.stop()

            dead = daemon.ctl("doctor", "-o", "json", check=False)
            states = {check["check"]: check["state"] for check in json.loads(dead.stdout)}
            self.assertEqual((dead.returncode, states["btf"]), (1, "ok"))
            # The cause is named once: the socket where another test's gpuperfd runs on this host.
            self.assertEqual([states[name] for name in ("daemon", "socket") if name in states], ["problem"])


class SharedTest(SharedDaemonTest):
    """Refusals, and what people type when they wonder what is going on."""
    CONFIG = CONFIG

    def setUp(self):
        write_config(self.daemon, CONFIG)
        self.daemon.ctl("config", "reload")

    def test_requests_that_make_no_sense_are_refused(self):
        taken = self.daemon.ctl("probes", "add", "custom_sym", "count_fast", "f", check=False)
        section = self.daemon.ctl("probes", "add", "no section", "f", "f", check=False)
        value = self.daemon.ctl("probes", "add", "custom_sym", "f", '{"symbl": "f"}', check=False)
        nobody = self.daemon.ctl("probes", "enable", "no_such_*", check=False)

        self.assertEqual([result.returncode for result in (taken, section, value, nobody)],
                         [1, 2, 2, 1])
        self.assertIn("symbl", value.stderr)
        self.assertIn("no_such_*", nobody.stderr)

    def test_only_root_may_change_anything(self):
        for words in (["config", "reload"], ["probes", "add", "custom_sym", "f", "f"],
                      ["probes", "disable", "*"], ["probes", "enable", "*"]):
            with self.subTest(words):
                result = run_as_nobody(self.daemon, *words)
                self.assertEqual(result.returncode, 4, result.stderr)
                self.assertIn("sudo", result.stderr)

        self.assertEqual(run_as_nobody(self.daemon, "status").returncode, 0)
        count(self, self.daemon, "count_fast", "count_status")

    def test_top_shows_who_takes_the_time(self):
        process = start_workload("count_calls", "--calls", 100_000_000)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.daemon.wait_attached("count_fast")

        def busy():
            rows = self.daemon.query("top", "--once", "--watch", "1")["functions"]
            return rows and rows[0]["calls_per_second"] > 1000 and rows[0]
        top = wait_until("a busy function in top", busy)

        self.assertIn(top["function"], CONFIG["custom_sym"])
        self.assertGreater(top["time_ratio"], 0)
        self.assertLessEqual(top["time_ratio"], 1.5)  # one thread

    def test_doctor_notices_a_file_that_was_not_reloaded(self):
        with open(self.daemon.config, "a", encoding="utf-8") as file:
            file.write("\n")

        checks = {check["check"]: check for check in
                  json.loads(self.daemon.ctl("doctor", "-o", "json", check=False).stdout)}

        self.assertEqual(checks["config"]["state"], "hint")
        self.assertIn("config reload", checks["config"]["hint"])

    def test_names_are_completed(self):
        count(self, self.daemon, "count_fast", "count_status")

        words = self.daemon.ctl("completion", "words", "--", "--address", f"unix:{self.daemon.socket}",
                                "functions", "--function", "count_s")

        self.assertEqual(words.stdout, "count_status\tcustom\n")

    def test_a_bad_file_changes_nothing_and_says_why(self):
        write_config(self.daemon, {"slow": {"recent": -1}, "unknown": 1})

        result = self.daemon.ctl("config", "reload", check=False)

        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("$.slow.recent", result.stderr)
        self.assertIn("$.unknown", result.stderr)
        count(self, self.daemon, "count_fast", "count_status")

    def test_an_added_probe_shows_what_became_of_it(self):
        added = self.daemon.ctl("probes", "add", "nosuch_section", "f", "no_such_function").stdout

        self.assertIn("1 added", added)
        self.assertIn("Warning: probe: $.nosuch_section: unknown section", added)
        self.assertRegex(added, r"nosuch_section +f +no_such_function +(waiting|symbol_missing)")
        self.daemon.ctl("probes", "remove", "nosuch_section", "f")

    def test_a_drop_in_changes_one_setting(self):
        folder = self.daemon.path / "conf.d"
        folder.mkdir()
        (folder / "10-slow.json").write_text('{"slow": {"default_threshold_ms": 7}}', encoding="utf-8")
        (folder / "20-slow.json").write_text('{"slow": {"default_threshold_ms": 8}}', encoding="utf-8")
        self.addCleanup(shutil.rmtree, folder)

        change = self.daemon.query("config", "reload")

        self.assertIn("is 8 here and 7 in", change["warnings"][-1])
        shown = self.daemon.query("config", "show")
        self.assertEqual(json.loads(shown["effective_json"])["slow"]["default_threshold_ms"], 8)
        self.assertEqual([path.split("/")[-1] for path in shown["drop_ins"]], ["10-slow.json", "20-slow.json"])

    def test_settings_that_need_a_restart_are_named(self):
        write_config(self.daemon, CONFIG | {"metrics": {"listen": ""}})

        change = self.daemon.query("config", "reload")

        self.assertEqual(change["restart_needed"], ["metrics.listen"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
