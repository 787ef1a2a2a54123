#!/usr/bin/env python3
"""No call is lost and none is counted twice: gpuperf's counts against the workloads' own."""

import os
import shutil
import tempfile
import unittest

from gpuperf_system import (LONG, WORKLOADS, Daemon, SharedDaemonTest, finish_workload, get_calls, require_root,
                            start_workload)

CALLS = 1_000_000 if LONG else 20_000  # per thread and function
FUNCTIONS = ("count_fast", "count_status", "count_nested", "count_recurse")
RECURSE = 10  # deep, every tenth round
# A copy of our own: probes act on the file, so whoever else runs these workloads would be counted.
FOLDER = tempfile.TemporaryDirectory(prefix="gpuperf-counts-")
# Stepping the exits of 120 million calls takes half an hour on a slow host: there return probes.
CONFIG = {"custom_sym": {name: {"symbol": name, "may_throw": not LONG} for name in FUNCTIONS},
          "libraries": {"custom_sym": [f"{FOLDER.name}/libcount_target.so"]},
          # Many threads on few CPUs: a call that is not run for a while is not what is tested here.
          "slow": {"default_threshold_ms": 0}}
STANDIN = ("cudaMalloc", "cudaFree", "cudaMemcpy", "cudaEventQuery", "cudaDeviceSynchronize")
STANDIN_ERRORS = {"cudaMalloc": {"cudaErrorMemoryAllocation": "2"},
                  "cudaMemcpy": {"cudaErrorInvalidValue": "1"},
                  "cublasSgemm": {"CUBLAS_STATUS_INVALID_VALUE": "7"}}


def setUpModule():
    require_root()
    unittest.addModuleCleanup(FOLDER.cleanup)
    shutil.copy(WORKLOADS / "libcount_target.so", FOLDER.name)


def start_count_calls(*arguments):
    return start_workload("count_calls", "--recurse", RECURSE, *arguments,
                          env=os.environ | {"LD_LIBRARY_PATH": FOLDER.name})


class Comparison(unittest.TestCase):
    maxDiff = None

    def compare(self, daemon, truth):
        expected = get_calls(truth)
        rows = daemon.wait_for_counts(truth["pid"], expected)
        self.assertEqual({name: row["calls"] for name, row in rows.items()}, expected)
        for name, row in rows.items():
            with self.subTest(function=name):
                self.assertEqual((row["in_flight"], row["abandoned"], row["untimed"]), (0, 0, 0))
                self.assertEqual(row["total_ns"] // row["calls"], row["avg_ns"])
                self.assertLessEqual(row["min_ns"], row["avg_ns"])
                self.assertLessEqual(row["avg_ns"], row["max_ns"])
                self.assertLessEqual(row["p50_ns"], row["p99_ns"])
        self.assertLess(rows["count_nested"]["self_ns"], rows["count_nested"]["total_ns"])
        self.assertEqual(rows["count_fast"]["self_ns"], rows["count_fast"]["total_ns"])
        # Each level's time is part of the level above: the outermost ones alone are all self time.
        self.assertLess(rows["count_recurse"]["self_ns"], rows["count_recurse"]["total_ns"])

    def run_and_compare(self, daemon, *arguments):
        """count_calls with probes in place before its first call."""
        go = daemon.path / "go"
        process = start_count_calls(*arguments, "--wait-for-file", go)
        daemon.wait_attached(*FUNCTIONS)
        go.touch()
        for truth in finish_workload(process):
            self.compare(daemon, truth)


class SharedCountsTest(Comparison, SharedDaemonTest):
    CONFIG = CONFIG

    def test_a_file_probed_already_is_counted_from_the_first_call(self):
        self.run_and_compare(self.daemon, "--calls", 10)

        (truth,) = finish_workload(start_count_calls("--calls", 1000))

        self.compare(self.daemon, truth)

    def test_short_lived_processes_are_each_counted(self):
        self.run_and_compare(self.daemon, "--calls", 10)

        truths = [finish_workload(start_count_calls("--calls", 7))[0]
                  for _ in range(30)]

        for truth in truths:
            self.compare(self.daemon, truth)


class CountsTest(Comparison):
    def test_eight_threads_in_two_programs_at_once_one_of_them_forked(self):
        with Daemon(CONFIG) as daemon:
            go = daemon.path / "go"
            arguments = ("--threads", 8, "--calls", CALLS, "--wait-for-file", go)
            programs = [start_count_calls(*arguments, "--fork"), start_count_calls(*arguments)]
            daemon.wait_attached(*FUNCTIONS)
            go.touch()

            truths = [truth for program in programs for truth in finish_workload(program)]

            self.assertEqual(len({truth["pid"] for truth in truths}), 3)
            for truth in truths:
                self.compare(daemon, truth)
            self.assertEqual({name: row["calls"] for name, row in daemon.functions().items()},
                             {"count_fast": 3 * 16 * CALLS, "count_status": 3 * 8 * CALLS,
                              "count_nested": 3 * 8 * CALLS,
                              "count_recurse": 3 * 8 * CALLS // 10 * RECURSE},
                             daemon.query("processes"))
            # Calls that a busy machine made slow have stacks, and their parts are another test's subject.
            self.assertEqual(daemon.drops().keys() - {"stack_copy"}, set())

    def test_every_mechanism_counts_the_same(self):
        for mechanism in ("session", "multi", "perf"):
            with self.subTest(mechanism), Daemon(CONFIG, "--mechanism", mechanism) as daemon:
                self.assertEqual(daemon.query("status")["mechanism"], mechanism)

                self.run_and_compare(daemon, "--threads", 4, "--calls", 5000, "--fork")

    def test_processes_that_were_there_first_are_counted(self):
        with Daemon(CONFIG) as daemon:
            daemon.stop()
            process = start_count_calls("--wait-for-file", daemon.path / "go")
            daemon.log_path.write_text("")
            daemon.start()
            daemon.wait_attached(*FUNCTIONS)
            (daemon.path / "go").touch()

            (truth,) = finish_workload(process)

            self.compare(daemon, truth)

    def test_errors_are_counted_by_name_and_not_ready_is_none(self):
        config = {"cuda_func_sym": {name: name for name in STANDIN},
                  "cublas_func_sym": {"cublasSgemm": "cublasSgemm_v2"},
                  "libraries": {"cuda_func_sym": [str(WORKLOADS / "standin/libcudart.so*")],
                                "cublas_func_sym": [str(WORKLOADS / "standin/libcublas.so*")]}}
        with Daemon(config) as daemon:
            go = daemon.path / "go"
            process = start_workload("cuda_calls_standin", "--rounds", 100, "--seconds", 0,
                                     "--wait-for-file", go)
            daemon.wait_attached(*STANDIN, "cublasSgemm")
            go.touch()

            (truth,) = finish_workload(process)

            made = truth["calls"] | {"cublasSgemm": truth["calls"]["cublasSgemm_v2"]}
            expected = {name: made[name]["calls"] for name in (*STANDIN, "cublasSgemm")}
            rows = daemon.wait_for_counts(truth["pid"], expected)
            self.assertEqual({name: row["calls"] for name, row in rows.items()}, expected)
            self.assertEqual(
                {name: {e["error"]: e["count"] for e in row["error_counts"]}
                 for name, row in rows.items() if row["errors"]},
                {name: {error: made[name]["errors"][code] for error, code in errors.items()}
                 for name, errors in STANDIN_ERRORS.items()})


if __name__ == "__main__":
    unittest.main(verbosity=2)
