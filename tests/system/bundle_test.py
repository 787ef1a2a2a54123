#!/usr/bin/env python3
"""What the daemon says of itself, and the support file that is made of it: nothing in it names the user."""

import contextlib
import json
import os
import pathlib
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest
import urllib.request

from containers_test import find_cgroup_root
from gpuperf_system import WORKLOADS, Daemon, finish_workload, require_root, start_workload, wait_until
from session_peer import Peer, batch, kernel, name, place, shape, status

TAG = secrets.token_hex(4)  # so that no other text has it by chance
COMM = f"comm{TAG}"
FOLDER = f"user{TAG}"
FUNCTION = f"step{TAG}"
ARGUMENT = f"argument{TAG}"
COMMAND_LINE = f"word{TAG}"
KERNEL = f"kernel{TAG}"
TOKENS = (f"token{TAG}", f"bearer{TAG}")
POD = "3b1f0c57-{}-4d2e-8f60-{}".format(secrets.token_hex(2), secrets.token_hex(6))
NAMES = (COMM, FOLDER, FUNCTION, KERNEL, POD)
HOST = [host for host in (socket.gethostname(),) if len(host) > 7]  # a short one may be in any word
NEVER = (ARGUMENT, COMMAND_LINE, *TOKENS)

# A process of that name, which calls a function of a library below a folder of a user's, with a text as argument.
CALLER = """
import ctypes, sys
ctypes.CDLL(None).prctl(15, sys.argv[2].encode(), 0, 0, 0)
library = ctypes.CDLL(sys.argv[1])
sys.stdout.write("loaded\\n")
sys.stdout.flush()
for line in sys.stdin:
    library.count_fast(ctypes.c_char_p(sys.argv[3].encode()), ctypes.c_uint64(1_000_000))
"""


def setUpModule():
    require_root()


class BundleTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="gpuperf-bundle-")))
        library = cls.folder / FOLDER / "libcount_target.so"
        library.parent.mkdir()
        shutil.copy(WORKLOADS / "libcount_target.so", library)
        os.environ["OTEL_EXPORTER_OTLP_HEADERS"] = f"x-tenant={TOKENS[1]}"
        cls.addClassCleanup(os.environ.pop, "OTEL_EXPORTER_OTLP_HEADERS")
        cls.daemon = cls.enterClassContext(Daemon({
            "custom_sym": {FUNCTION: {"symbol": "count_fast",
                                      "args": [{"name": "tag", "arg": 0, "type": "string"}]}},
            "libraries": {"custom_sym": [str(library)]},
            "slow": {"default_threshold_ms": 0.1, "log_per_second": 100},
            "export": {"otlp": {"endpoint": "http://127.0.0.1:1", "headers": {"authorization": TOKENS[0]}}}}))
        cls.call(library)
        cls.connect()

    @classmethod
    def call(cls, library):
        caller = cls.enterClassContext(subprocess.Popen(
            [sys.executable, "-c", CALLER, library, COMM, ARGUMENT, COMMAND_LINE], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE))
        cls.addClassCleanup(caller.kill)
        caller.stdout.readline()
        cls.is_in_pod = False
        with contextlib.suppress(unittest.SkipTest):
            cls.move_into_pod(caller.pid)
            cls.is_in_pod = True
        cls.daemon.wait_attached(FUNCTION)
        caller.stdin.write("go\n" * 3)
        caller.stdin.flush()
        wait_until("the slow calls are known", lambda: len(cls.daemon.query("slow", "list")) >= 3)
        wait_until("they are logged", lambda: COMM in cls.daemon.log())

    @classmethod
    def move_into_pod(cls, pid):
        cgroup = find_cgroup_root() / f"gpuperf-bundle-{os.getpid()}.slice"
        pod = f"kubepods-burstable-pod{POD.replace('-', '_')}.slice"
        own = cgroup / "kubepods.slice" / pod / f"cri-containerd-{secrets.token_hex(32)}.scope"
        own.mkdir(parents=True)
        for part in (cgroup, cgroup / "kubepods.slice", own.parent, own):
            cls.addClassCleanup(wait_until, f"{part} is empty", lambda part=part: cls.remove(part))
        (own / "cgroup.procs").write_text(str(pid), encoding="ascii")
        # The last cleanup runs first: the group is empty by then.
        cls.addClassCleanup(lambda: (find_cgroup_root() / "cgroup.procs").write_text(str(pid), encoding="ascii"))

    @staticmethod
    def remove(folder):
        with contextlib.suppress(OSError):
            folder.rmdir()
        return not folder.exists()

    @classmethod
    def connect(cls):
        """An injected process that ran a kernel of that name."""
        peer = cls.enterClassContext(Peer(cls.daemon.path / "run/ingest.sock"))
        peer.greet()
        peer.send(status())
        peer.send(batch([name(1, KERNEL.encode()), shape(1), place(1), kernel()]))
        wait_until("the kernel is known", lambda: any(KERNEL in row["kernel"] for row in cls.daemon.query("kernels")))

    def make(self, *arguments):
        """The texts of a bundle by name, and what gpuperfctl said."""
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(dir=self.folder)))
        result = self.daemon.ctl("bundle", "--file", folder / "bundle.tar.gz", "--log", self.daemon.log_path, *arguments)
        listed = subprocess.run(["tar", "tzf", folder / "bundle.tar.gz"], capture_output=True, text=True, check=True)
        subprocess.run(["tar", "xzf", folder / "bundle.tar.gz", "-C", folder], check=True)
        files = {path.name: path for path in (folder / "gpuperf-bundle").iterdir()}
        self.assertEqual({line.split("/")[1] for line in listed.stdout.split()}, set(files))
        for path in files.values():
            if path.suffix == ".json":
                subprocess.run([sys.executable, "-m", "json.tool", path], stdout=subprocess.DEVNULL, check=True)
        return {key: path.read_text(encoding="utf-8") for key, path in files.items()}, result.stdout

    def test_1_what_is_looked_for_is_there(self):
        shown = self.daemon.ctl("slow", "list", "-o", "json").stdout
        for text in (COMM, FUNCTION, ARGUMENT):
            self.assertIn(text, shown)
        def list_missing():
            with urllib.request.urlopen(f"http://127.0.0.1:{self.daemon.port}/metrics", timeout=30) as answer:
                metrics = answer.read().decode()
            return [text for text in (COMM, FUNCTION, KERNEL, *([POD] if self.is_in_pod else [])) if text not in metrics]
        # A new process's calls wait for the name of its pod, for three readings at most.
        wait_until("all names are in the metrics", lambda: not list_missing())
        self.assertIn(FOLDER, self.daemon.ctl("probes", "-o", "json").stdout)
        self.assertIn(TOKENS[0], self.daemon.ctl("config", "show", "-o", "json").stdout)

    def test_2_no_file_has_a_name_or_a_secret(self):
        files, said = self.make()

        self.assertEqual(sorted(files), [
            "config.json", "doctor.json", "doctor.txt", "functions.json", "gpus.json", "host.json", "log.txt",
            "manifest.json", "metrics.txt", "overhead.json", "probes.json", "process.json", "sessions.json",
            "slow_calls.json", "status.json", "versions.json"])
        for key, text in files.items():
            for secret in (*NAMES, *NEVER, TAG, str(self.daemon.path), *HOST):
                self.assertNotIn(secret, text, key)
        self.assertIn("Read it before you send it", said)
        self.assertEqual(json.loads(files["manifest.json"])["missing"], [])

    def test_3_the_same_name_has_the_same_pseudonym_in_one_bundle_only(self):
        def find(files):
            (row,) = (row for row in json.loads(files["functions.json"]) if row["calls"] > 0)
            return row["comm"]
        first, second = self.make()[0], self.make()[0]

        self.assertRegex(find(first), r"^comm-[0-9a-f]{8}$")
        self.assertIn(f'comm="{find(first)}"', first["metrics.txt"])
        self.assertIn(f'comm="{find(first)}"', first["log.txt"])
        self.assertNotEqual(find(first), find(second))

    def test_4_slow_calls_say_where_time_went_and_not_with_what(self):
        slow_calls = json.loads(self.make()[0]["slow_calls.json"])

        self.assertGreaterEqual(len(slow_calls), 3)
        for row in slow_calls:
            self.assertGreater(row["duration_ns"], 100_000)
            self.assertGreater(row["time_split"]["on_cpu_user_ns"], 0)
            self.assertEqual((row["arguments"], row["user_stack"], row["return_value"], row["explanation"]), ([], [], "", ""))

    def test_5_names_are_kept_where_asked_and_secrets_are_not(self):
        files, _ = self.make("--include-names")

        everything = "".join(files.values())
        for text in (COMM, FOLDER, FUNCTION, KERNEL):
            self.assertIn(text, everything)
        for text in NEVER:
            self.assertNotIn(text, everything)
        self.assertTrue(json.loads(files["manifest.json"])["includes_names"])

    def test_6_without_a_daemon_it_says_what_is_missing(self):
        self.daemon.stop()
        files, said = self.make()

        self.assertIn("host.json", files)
        self.assertIn("log.txt", files)
        self.assertIn("missing: status.json", said)
        for key, text in files.items():
            for secret in (*NAMES, *NEVER, TAG):
                self.assertNotIn(secret, text, key)


class SelfReportTest(unittest.TestCase):
    def test_limits_memory_and_times_are_reported_and_doctor_reads_them(self):
        functions = ("count_fast", "count_status", "count_nested")
        # 64 pairs: the least that may be set. Each process has three.
        with Daemon({"custom_sym": {key: key for key in functions}, "stats": {"max_cells": 64},
                     "libraries": {"custom_sym": [str(WORKLOADS / "libcount_target.so")]},
                     "slow": {"default_threshold_ms": 0.1}}) as daemon:
            go, stop = daemon.path / "go", daemon.path / "stop"
            processes = [start_workload("count_calls", "--calls", 10, "--spin-ns", 200_000, "--wait-for-file", go, "--linger-for-file", stop)
                         for _ in range(18)]
            daemon.wait_attached(*functions)
            go.touch()

            def find_cells():
                bounds = {row["bound"]: row for row in daemon.query("status")["bounds"]}
                return bounds["cells"] if bounds["cells"]["used"] == 54 else None
            cells = wait_until("54 pairs are used", find_cells)
            doctor = daemon.ctl("doctor", check=False).stdout
            shown = daemon.ctl("status").stdout

            def find_written():
                answer = daemon.query("status")
                return answer if any(row["step"] == "store_write" and row["count"] for row in answer["steps"]) else None
            answer = wait_until("slow calls are written", find_written)
            with urllib.request.urlopen(f"http://127.0.0.1:{daemon.port}/metrics", timeout=30) as answered:
                metrics = answered.read().decode()
            stop.touch()
            for process in processes:
                finish_workload(process)

        self.assertEqual((cells["highest"], cells["limit"], cells["setting"]), (54, 64, "stats.max_cells"))
        self.assertIn("cells was 84.4 % full", doctor)
        self.assertIn("raise stats.max_cells", doctor)
        self.assertRegex(shown, r"Limits +\d+ of \d+ were half full")
        self.assertIn('gpuperf_bound_used{bound="cells"} 54', metrics)
        self.assertIn('gpuperf_bound_limit{bound="cells"} 64', metrics)
        steps = {row["step"]: row for row in answer["steps"]}
        for step in ("loop_delay", "loop", "drain", "store_write"):
            self.assertGreater(steps[step]["count"], 0, step)
            self.assertGreaterEqual(steps[step]["longest_ns"], steps[step]["p50_ns"], step)
        parts = {row["part"]: row for row in answer["memory"]}
        self.assertGreater(parts["bpf_maps"]["bytes"], 1 << 20)
        self.assertFalse(parts["bpf_maps"]["resident"])
        resident = sum(row["bytes"] for row in parts.values() if row["resident"])
        # What is allocated is at most 2 s older than what is resident.
        self.assertAlmostEqual(resident / answer["resident_bytes"], 1, delta=0.1)
        self.assertGreater({row["bound"]: row for row in answer["bounds"]}["descriptors"]["used"], 10)


if __name__ == "__main__":
    unittest.main(verbosity=2)
