#!/usr/bin/env python3
"""The real libraries here: CUDA's, without a GPU too, and PyTorch's, also when it throws."""

import unittest

from gpuperf_system import (LONG, WORKLOADS, Daemon, finish_workload, get_calls, require_root,
                            start_workload)

ROUNDS = 10_000 if LONG else 500
CALLS = 10_000 if LONG else 1000
LINEAR = "_ZN5torch2nn10LinearImpl7forwardERKN2at6TensorE"


def setUpModule():
    require_root()


def get_section(symbol):
    for prefix in ("cublas", "cudnn", "nccl"):
        if symbol.startswith(prefix):
            return f"{prefix}_func_sym"
    return "cuda_func_sym"


def make_config(symbols):
    config = {"slow": {"default_threshold_ms": 0}}
    for symbol in symbols:
        config.setdefault(get_section(symbol), {})[symbol] = symbol
    return config


class CudaLibrariesTest(unittest.TestCase):
    maxDiff = None

    def test_every_call_of_more_than_forty_functions_is_counted_once_with_its_status(self):
        (trial,) = finish_workload(start_workload("real_calls", "--rounds", 1))
        if len(trial["calls"]) < 40:
            self.skipTest(f"only {trial['libraries']} of the CUDA libraries are here")
        symbols = list(trial["calls"])
        with Daemon(make_config(symbols)) as daemon:
            go = daemon.path / "go"
            process = start_workload("real_calls", "--rounds", ROUNDS, "--wait-for-file", go)
            daemon.wait_attached(*symbols, seconds=30)
            go.touch()

            (truth,) = finish_workload(process)

            rows = daemon.wait_for_counts(truth["pid"], get_calls(truth))
            self.assertEqual({name: row["calls"] for name, row in rows.items()}, get_calls(truth))
            self.assertEqual({name: (row["in_flight"], row["abandoned"], row["untimed"])
                              for name, row in rows.items()}, dict.fromkeys(symbols, (0, 0, 0)))
            self.compare_errors(rows, truth)
            # Copies of new stacks have a bounded rate, which a busy machine reaches; another test has them.
            self.assertEqual(daemon.drops().keys() - {"stack_copy"}, set())
            print(f"{len(symbols)} functions of {', '.join(truth['libraries'])}")

    def compare_errors(self, rows, truth):
        """What the program saw returned, unless it means "not ready"."""
        for name, row in rows.items():
            errors = {int(code): count for code, count in truth["calls"][name]["errors"].items()}
            errors.pop(600, None)  # cudaErrorNotReady
            with self.subTest(function=name):
                self.assertEqual({error["code"]: error["count"] for error in row["error_counts"]},
                                 errors)


class TorchTest(unittest.TestCase):
    def test_linear_forward_is_counted_also_when_it_throws(self):
        if not (WORKLOADS / "torch_linear").exists():
            self.skipTest("torch_linear is not built: no libtorch-dev")
        with Daemon({"libtorch_func_sym": {"linear_forward": LINEAR},
                     "slow": {"default_threshold_ms": 0}}) as daemon:
            go = daemon.path / "go"
            process = start_workload("torch_linear", "--calls", CALLS, "--wait-for-file", go)
            daemon.wait_attached("linear_forward", seconds=30)
            go.touch()

            (truth,) = finish_workload(process)  # it ended with 0: no throw killed it

            self.assertEqual(truth["caught"], CALLS // 10)
            rows = daemon.wait_for_counts(truth["pid"], get_calls(truth))
            self.assertEqual({name: row["calls"] for name, row in rows.items()}, get_calls(truth))
            row = rows["linear_forward"]
            probe = next(row for row in daemon.query("probes")
                         if row["function"] == "linear_forward" and row["library"])
            if probe["state"] == "entry_only":
                self.assertEqual((row["untimed"], row["total_ns"]), (CALLS, 0))
                print(f"linear_forward is counted at entry only: {probe['reason']}")
                return
            self.assertEqual((row["abandoned"], row["untimed"], row["in_flight"]),
                             (truth["caught"], 0, 0))
            self.assertGreater(row["min_ns"], 0)
            self.assertLessEqual(row["total_ns"], truth["elapsed_ns"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
