#!/usr/bin/env python3
"""Finding libraries wherever they lie, each once, and leaving alone what is none."""

import os
import pathlib
import shutil
import tempfile
import time
import unittest

from gpuperf_system import (PATIENCE, WORKLOADS, Daemon, finish_workload, get_calls, require_root,
                            start_workload, wait_until)

LIBRARY = WORKLOADS / "libcount_target.so"
FUNCTIONS = ("count_fast", "count_status", "count_nested")
CONFIG = {"custom_sym": {name: name for name in FUNCTIONS},
          "libraries": {"custom_sym": ["libcount_target.so"]}}


def setUpModule():
    require_root()


class ProbesTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gpuperf libraries "))
        self.addCleanup(shutil.rmtree, self.folder)

    def start_with_library_in(self, folder, go):
        """count_calls with the library of that folder; ended with the test."""
        process = start_workload("count_calls", "--calls", 100, "--wait-for-file", go,
                                 env=os.environ | {"LD_LIBRARY_PATH": str(folder)})
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def copy_library(self, name):
        """Another file with the same content, as in a container or a wheel."""
        folder = self.folder / name
        folder.mkdir()
        shutil.copy(LIBRARY, folder)
        return folder

    def finish_and_compare(self, daemon, *processes):
        for process in processes:
            (truth,) = finish_workload(process)
            rows = daemon.wait_for_counts(truth["pid"], get_calls(truth))
            self.assertEqual({name: row["calls"] for name, row in rows.items()}, get_calls(truth))

    def test_a_new_file_is_probed_soon_wherever_it_lies(self):
        with Daemon(CONFIG) as daemon:
            daemon.wait_for_probe("count_fast", "waiting")
            folder = self.copy_library("somewhere")

            started = time.monotonic()
            process = self.start_with_library_in(folder, daemon.path / "go")
            for name in FUNCTIONS:
                daemon.wait_for_probe(name, library=str(folder))
            seconds = time.monotonic() - started
            (daemon.path / "go").touch()

            self.finish_and_compare(daemon, process)
            # The promise is one second; asking takes its time, too.
            self.assertLess(seconds, 3 * PATIENCE)

    def test_two_copies_of_a_library_are_both_probed(self):
        with Daemon(CONFIG) as daemon:
            folders = [self.copy_library(name) for name in ("one", "two")]
            processes = [self.start_with_library_in(folder, daemon.path / "go")
                         for folder in folders]
            for folder in folders:
                for name in FUNCTIONS:
                    daemon.wait_for_probe(name, library=str(folder))
            (daemon.path / "go").touch()

            self.finish_and_compare(daemon, *processes)
            self.assertEqual(daemon.query("status")["files"], 2)

    def test_one_file_with_two_names_is_probed_once(self):
        other = pathlib.Path(tempfile.mkdtemp(dir=WORKLOADS))  # hard links stay on a file system
        self.addCleanup(shutil.rmtree, other)
        os.link(LIBRARY, other / LIBRARY.name)
        with Daemon(CONFIG) as daemon:
            processes = [self.start_with_library_in(folder, daemon.path / "go")
                         for folder in (WORKLOADS, other)]
            daemon.wait_attached(*FUNCTIONS)
            (daemon.path / "go").touch()

            self.finish_and_compare(daemon, *processes)
            self.assertEqual(daemon.query("status")["files"], 1)

    def test_a_library_deleted_while_mapped_is_probed(self):
        folder = self.copy_library("gone")
        process = self.start_with_library_in(folder, self.folder / "go")
        maps = pathlib.Path(f"/proc/{process.pid}/maps")
        wait_until("the library is mapped", lambda: str(folder.name) in maps.read_text())
        shutil.rmtree(folder)
        with Daemon(CONFIG) as daemon:
            daemon.wait_attached(*FUNCTIONS)
            (self.folder / "go").touch()

            self.finish_and_compare(daemon, process)

    def test_a_library_overwritten_in_place_loses_its_probes_at_once(self):
        folder = self.copy_library("overwritten")
        with Daemon(CONFIG) as daemon:
            process = self.start_with_library_in(folder, daemon.path / "go")
            for name in FUNCTIONS:
                daemon.wait_for_probe(name, library=str(folder))
            content = (folder / LIBRARY.name).read_bytes()
            with open(folder / LIBRARY.name, "r+b") as file:  # the same inode, as `cp` over it
                file.write(content)
            written = daemon.wait_for_probe("count_fast", "failed")
            self.assertIn("modified while probed", written["reason"])
            self.assertIn("library modified while probed", daemon.log())
            # Left alone since, and still mapped: probed anew, and counted exactly again.
            for name in FUNCTIONS:
                daemon.wait_for_probe(name, "attached", library=str(folder))
            (daemon.path / "go").touch()

            self.finish_and_compare(daemon, process)
            self.assertEqual(daemon.query("status")["files"], 1)

    def test_a_library_touched_or_linked_is_not_probed_twice(self):
        folder = self.copy_library("touched")
        with Daemon(CONFIG) as daemon:
            process = self.start_with_library_in(folder, daemon.path / "go")
            for name in FUNCTIONS:
                daemon.wait_for_probe(name, library=str(folder))
            os.utime(folder / LIBRARY.name)
            os.chmod(folder / LIBRARY.name, 0o755)
            os.link(folder / LIBRARY.name, folder / "another name")
            other = self.start_with_library_in(folder, daemon.path / "go")  # makes it look again
            maps = pathlib.Path(f"/proc/{other.pid}/maps")
            wait_until("the library is mapped", lambda: LIBRARY.name in maps.read_text())
            time.sleep(1)  # a notice takes milliseconds; nothing tells that none will come
            (daemon.path / "go").touch()

            self.finish_and_compare(daemon, process, other)
            self.assertEqual(daemon.query("status")["files"], 1)
            self.assertEqual(len(daemon.query("probes")), len(FUNCTIONS))

    def test_a_probe_switched_off_stays_off(self):
        config = CONFIG | {"custom_sym": {"count_fast": "count_fast",
                                          "off": {"symbol": "count_status", "probe": False}}}
        with Daemon(config) as daemon:
            process = self.start_with_library_in(WORKLOADS, daemon.path / "go")
            daemon.wait_attached("count_fast")
            (daemon.path / "go").touch()

            (truth,) = finish_workload(process)

            expected = {"count_fast": truth["calls"]["count_fast"]["calls"]}
            rows = daemon.wait_for_counts(truth["pid"], expected)
            self.assertEqual({name: row["calls"] for name, row in rows.items()}, expected)
            self.assertEqual(daemon.wait_for_probe("off", "disabled")["library"], "")

    def test_a_symbol_is_missing_only_where_its_own_library_was_seen(self):
        # By its path: other tests' processes load a libcuda meanwhile.
        runtime = WORKLOADS / "standin/libcudart.so.13"
        config = {"cuda_func_sym": {"cudaMalloc": "cudaMalloc", "cudaMallok": "cudaMallok",
                                    "cuInit": "cuInit"},
                  "libraries": {"cuda_func_sym": [str(runtime)]}}
        with Daemon(config) as daemon:
            process = start_workload("cuda_calls_standin", "--seconds", 0,
                                     "--wait-for-file", daemon.path / "go")
            self.addCleanup(process.stdout.close)
            daemon.wait_attached("cudaMalloc")
            (daemon.path / "go").touch()
            finish_workload(process)

            self.assertIn("not in libcudart",
                          daemon.wait_for_probe("cudaMallok", "symbol_missing")["reason"])
            self.assertIn("no process has loaded libcuda yet",
                          daemon.wait_for_probe("cuInit", "waiting")["reason"])

    def test_a_file_that_is_no_library_is_said_and_keeps_nothing_out(self):
        bad = self.folder / LIBRARY.name
        bad.write_text("not an ELF file " * 1000, encoding="utf-8")
        ready = self.folder / "mapped"
        mapper = start_workload(
            "/usr/bin/python3", "-c",
            "import mmap, pathlib, sys, time\n"
            "file = open(sys.argv[1], 'rb')\n"
            "held = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | 4)  # 4: run\n"
            "pathlib.Path(sys.argv[2]).touch()\n"
            "time.sleep(300)\n", bad, ready)
        self.addCleanup(mapper.stdout.close)
        self.addCleanup(mapper.wait)
        self.addCleanup(mapper.kill)
        wait_until("the file is mapped", ready.exists)
        with Daemon(CONFIG) as daemon:
            process = self.start_with_library_in(WORKLOADS, daemon.path / "go")
            daemon.wait_attached(*FUNCTIONS)
            (daemon.path / "go").touch()

            self.finish_and_compare(daemon, process)
            text = json_text(daemon.query("status")["problems"]) + daemon.log()
            self.assertIn(str(bad), text)


def json_text(problems):
    return "\n".join(f"{problem['subject']} {problem['message']}" for problem in problems)


if __name__ == "__main__":
    unittest.main(verbosity=2)
