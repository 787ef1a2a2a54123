#!/usr/bin/env python3
"""Finding functions where they hide: inside executables, under odd names, in files that change."""

import os
import pathlib
import shutil
import tempfile
import unittest

from gpuperf_system import (WORKLOADS, Daemon, finish_workload, get_calls, require_root,
                            start_workload, wait_until)

STANDIN = WORKLOADS / "standin"
DRIVER = STANDIN / "libcuda.so.1"
CUDA = {"cuda_func_sym": {"cudaMalloc": "cudaMalloc", "cudaFree": "cudaFree"},
        "slow": {"default_threshold_ms": 0}}
COUNT = ("count_fast", "count_status", "count_nested")


def setUpModule():
    require_root()


class DiscoveryTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gpuperf-discovery-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def start(self, *command, **options):
        process = start_workload(*command, **options)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def compare(self, daemon, truth):
        expected = get_calls(truth)
        rows = daemon.wait_for_counts(truth["pid"], expected)
        self.assertEqual({name: row["calls"] for name, row in rows.items()}, expected)
        return rows

    def copy_program(self, name, needs="a CUDA toolkit with libcudart_static.a"):
        """A copy of our own: other tests may run the same program."""
        if not (WORKLOADS / name).exists():
            self.skipTest(f"{name} is not built: it needs {needs}")
        return shutil.copy(WORKLOADS / name, self.folder)

    def check_linked_runtime(self, name):
        program = self.copy_program(name)
        with Daemon(CUDA) as daemon:
            process = self.start(program, "--calls", 200, "--driver", DRIVER,
                                 "--wait-for-file", daemon.path / "go")
            for function in ("cudaMalloc", "cudaFree"):
                daemon.wait_for_probe(function, library=program)
            (daemon.path / "go").touch()

            (truth,) = finish_workload(process)

            self.compare(daemon, truth)

    def test_a_runtime_linked_into_the_program_is_probed(self):
        self.check_linked_runtime("linked_runtime_standin")

    def test_the_real_runtime_linked_into_a_program_is_probed(self):
        self.check_linked_runtime("linked_runtime")

    def test_a_program_running_before_the_daemon_is_looked_into_as_well(self):
        program = self.copy_program("linked_runtime_standin")
        go = self.folder / "go"
        process = self.start(program, "--driver", DRIVER, "--wait-for-file", go)
        with Daemon(CUDA) as daemon:
            daemon.wait_for_probe("cudaMalloc", library=program)
            go.touch()

            (truth,) = finish_workload(process)

            self.compare(daemon, truth)

    def test_versions_side_by_side_and_names_of_wheels_are_probed(self):
        """Each process with a runtime of its own, named as auditwheel, conda and NVIDIA do."""
        names = ("libcudart.so.13", "libcudart-d0da41ae.so.11.0", "libcudart.so.12.4.127")
        processes = []
        with Daemon(CUDA) as daemon:
            for number, name in enumerate(names):
                folder = self.folder / f"env{number}/lib/python3/site-packages/nvidia"
                folder.mkdir(parents=True)
                shutil.copy(STANDIN / "libcudart.so.13", folder / name)
                shutil.copy(STANDIN / "libcublas.so.13", folder)
                if name != "libcudart.so.13":
                    (folder / "libcudart.so.13").symlink_to(name)
                processes.append(self.start(
                    "cuda_calls_standin", "--rounds", 20, "--seconds", 0,
                    "--wait-for-file", daemon.path / "go",
                    env=os.environ | {"LD_LIBRARY_PATH": str(folder)}))
                daemon.wait_for_probe("cudaMalloc", library=str(folder / name))
            (daemon.path / "go").touch()

            for process in processes:
                (truth,) = finish_workload(process)
                made = {name: truth["calls"][name]["calls"] for name in ("cudaMalloc", "cudaFree")}
                rows = daemon.wait_for_counts(truth["pid"], made)
                self.assertEqual({name: row["calls"] for name, row in rows.items()}, made)
            # Each once, whatever other programs of this host have.
            probed = [row["library"] for row in daemon.query("probes") if row["function"] == "cudaMalloc"]
            self.assertEqual(sorted(path for path in probed if path.startswith(str(self.folder))),
                             sorted(str(self.folder / f"env{number}/lib/python3/site-packages/nvidia" / name)
                                    for number, name in enumerate(names)))

    def test_static_probes_are_hit_each_time_they_are_passed(self):
        program = self.copy_program("static_probes", "systemtap-sdt-dev")
        with Daemon({"custom_sym": {name: f"gpuperf_demo:{name}" for name in ("begin", "step")},
                     "libraries": {"custom_sym": [program]}}) as daemon:
            process = self.start(program, "--calls", 1000, "--wait-for-file", daemon.path / "go")
            for name in ("begin", "step"):
                daemon.wait_for_probe(name, "entry_only")
            (daemon.path / "go").touch()

            (truth,) = finish_workload(process)

            self.assertEqual(get_calls(truth), {"begin": 1000, "step": 1000})  # it was listened to
            self.compare(daemon, truth)

    def test_static_probes_of_the_real_libstdcxx_see_every_exception(self):
        with Daemon({"custom_sym": {name: {"symbol": f"libstdcxx:{name}",
                                           "library": "libstdc++.so*"}
                                    for name in ("throw", "catch")}}) as daemon:
            process = self.start("no_harm", "--case", "throw", "--language", "cpp", "--times", 50,
                                 env=os.environ | {"LD_LIBRARY_PATH": str(WORKLOADS)})
            (truth,) = finish_workload(process)
            daemon.wait_attached("throw", "catch")
            process = self.start("no_harm", "--case", "throw", "--language", "cpp", "--times", 50,
                                 env=os.environ | {"LD_LIBRARY_PATH": str(WORKLOADS)})
            (truth,) = finish_workload(process)

            rows = daemon.wait_for_counts(truth["pid"], {"throw": 50, "catch": 50})
            self.assertEqual({name: row["calls"] for name, row in rows.items()},
                             {"throw": 50, "catch": 50})

    def test_a_library_opened_late_is_probed(self):
        library = shutil.copy(WORKLOADS / "libcount_target.so", self.folder)
        opener = ("import ctypes, json, os, pathlib, sys, time\n"
                  "def wait(path):\n"
                  "    while not pathlib.Path(path).exists(): time.sleep(0.01)\n"
                  "wait(sys.argv[2])\n"
                  "library = ctypes.CDLL(sys.argv[1])\n"
                  "wait(sys.argv[3])\n"
                  "for index in range(50): library.count_status(index)\n"
                  "print(json.dumps({'pid': os.getpid()}))\n")
        config = {"custom_sym": {"count_status": "count_status"},
                  "libraries": {"custom_sym": [library]}}
        with Daemon(config) as daemon:
            process = self.start("/usr/bin/python3", "-c", opener, library,
                                 self.folder / "open", self.folder / "call")
            (self.folder / "open").touch()
            daemon.wait_for_probe("count_status", library=library)
            (self.folder / "call").touch()

            (answer,) = finish_workload(process)

            rows = daemon.wait_for_counts(answer["pid"], {"count_status": 50})
            self.assertEqual(rows["count_status"]["calls"], 50)

    def test_a_library_renamed_over_while_mapped_goes_on_counting_and_so_does_the_new_one(self):
        library = pathlib.Path(shutil.copy(WORKLOADS / "libcount_target.so", self.folder))
        config = {"custom_sym": {name: name for name in COUNT},
                  "libraries": {"custom_sym": [f"{self.folder}/libcount_target.so"]}}
        environment = os.environ | {"LD_LIBRARY_PATH": str(self.folder)}
        with Daemon(config) as daemon:
            old = self.start("count_calls", "--calls", 100, "--wait-for-file", daemon.path / "go",
                             env=environment)
            daemon.wait_attached(*COUNT)
            fresh = self.folder / "fresh"
            shutil.copy(library, fresh)
            os.rename(fresh, library)
            new = self.start("count_calls", "--calls", 70, "--wait-for-file", daemon.path / "go",
                             env=environment)
            wait_until("both files are probed", lambda: daemon.query("status")["files"] == 2)
            (daemon.path / "go").touch()

            for process in (old, new):
                (truth,) = finish_workload(process)
                self.compare(daemon, truth)


if __name__ == "__main__":
    unittest.main(verbosity=2)
