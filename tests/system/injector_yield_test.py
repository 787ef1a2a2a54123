#!/usr/bin/env python3
"""Other clients of CUPTI in a process with the injected library: their traces are whole, ours says what it
did not see, and it comes back when they are done."""

import contextlib
import unittest

import session_daemon as abi
from gpuperf_system import LONG
from injector_workload import FAKES, Workload, kernels_of, require_fakes, true_kernels
from session_daemon import Peer

KINETO = {binding: FAKES / f"libfake_kineto_{binding}.so" for binding in ("lazy", "now")}
PROTON = FAKES / "libfake_proton.so"
CUPTI = FAKES / "cupti_13/libcupti.so.13"
CLOCK_ERROR_NS = 20_000  # of a converted clock, on a machine that is busy


def setUpModule():
    require_fakes()


class YieldTest(unittest.TestCase):
    maxDiff = 2000

    def start(self, peer, *lines):
        program = Workload(peer.path, environment={"GPUPERF_NODE_BURSTS": "1"})
        for line in ("init", "launch 50 2", *lines):
            program.do(line, peer)
        peer.wait("kernels", lambda: len(peer.last.records["kernel"]) >= 100)
        return program

    def profile(self, peer, program, library, argument=""):
        """What the other client got of 300 launches."""
        program.do(f"profiler start {library} {argument}", peer)
        program.do("launch 100 3", peer)
        program.do("sync", peer)
        peer.pump_for(0.3)
        return program.do("profiler stop", peer)

    def wait_until_back(self, peer, yields):
        peer.wait_for_state(abi.YIELDED, yields=yields)
        peer.wait_for_state(abi.COLLECTING, yields=yields)
        return peer.wait("kernels are on", lambda: peer.last.status.level & abi.LEVEL_KERNELS)

    def profile_again_and_again(self, peer, program, library, times):
        peer.last.records.clear()
        for yields in range(1, times + 1):
            counts = self.profile(peer, program, library)
            self.assertEqual((counts["kernels"], counts["error"]), (300, 0))
            self.assertGreaterEqual(counts["calls"], 300)
            status = peer.wait_for_state(abi.YIELDED, yields=yields)
            self.assertEqual((status.cause, status.detail), (abi.CAUSE_OTHER_CLIENT, library.name))
            self.wait_until_back(peer, yields)
            self.assertEqual([gap.id for gap in peer.last.records["gap"]],
                             [abi.CAUSE_OTHER_CLIENT] * yields)
        # None of theirs came to us.
        self.assertEqual(peer.last.records["kernel"], [])

    def check_foreign_clock(self, peer, program):
        """Times are right though CUPTI counts the CPU's cycles now."""
        peer.wait("the clock is known", lambda: peer.last.status.clock_foreign == 1)
        program.do("forget", peer)
        program.do("launch 40 2", peer)
        _, works = program.truth()
        peer.wait("kernels", lambda: len(peer.last.records["kernel"]) >= 80)
        ours, true = kernels_of(peer.last), true_kernels(works)
        self.assertEqual([row[3:] for row in ours], [row[3:] for row in true])
        worst = max(abs(mine[side] - real[side]) for mine, real in zip(ours, true, strict=True)
                    for side in (1, 2))
        self.assertLess(worst, CLOCK_ERROR_NS)

    def test_torchs_profiler_gets_all_its_records_and_ours_come_back(self):
        for binding, library in KINETO.items():
            with self.subTest(binding), Peer() as peer, self.start(peer) as program:
                # Bound lazily, an import is found by another way the first time only.
                self.profile_again_and_again(peer, program, library, 3 if LONG or binding == "now" else 1)
                self.check_foreign_clock(peer, program)
                self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_a_profiler_that_looks_its_functions_up_gets_all_its_records(self):
        with Peer() as peer, self.start(peer) as program:
            peer.last.records.clear()
            counts = self.profile(peer, program, PROTON, CUPTI)
            self.assertEqual((counts["kernels"], counts["error"]), (300, 0))
            self.assertEqual(peer.wait_for_state(abi.YIELDED).detail, PROTON.name)
            self.wait_until_back(peer, 1)
            program.do("forget", peer)
            program.do("launch 20 2", peer)
            _, works = program.truth()
            peer.wait("kernels", lambda: len(peer.last.records["kernel"]) == 40)

            self.assertEqual(kernels_of(peer.last), true_kernels(works))
            self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_a_profiler_that_runs_while_threads_launch_loses_nothing_and_aborts_nothing(self):
        with Peer() as peer, self.start(peer, "steady 3") as program:
            for _ in range(3):
                counts = self.profile(peer, program, KINETO["now"])
                self.assertGreaterEqual(counts["kernels"], 300)
                self.assertEqual(counts["error"], 0)
            program.do("halt", peer)
            self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_a_profiler_during_a_burst_gets_the_subscriber(self):
        with Peer() as peer, self.start(peer) as program:
            peer.last.rule(burst=abi.BURST_NODES, burst_ms=5000)
            peer.wait("a burst", lambda: peer.last.status.level & abi.LEVEL_NODES)
            counts = self.profile(peer, program, KINETO["now"])

            self.assertEqual((counts["kernels"], counts["error"]), (300, 0))
            self.wait_until_back(peer, 1)
            self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_a_profiler_after_we_were_told_to_be_off_gets_the_subscriber(self):
        with Peer() as peer, self.start(peer) as program:
            peer.last.rule(mode=abi.OFF)
            peer.wait_for_state(abi.STATE_OFF)
            counts = self.profile(peer, program, KINETO["lazy"])

            self.assertEqual((counts["kernels"], counts["error"]), (300, 0))
            self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_a_profiler_that_runs_when_the_daemon_comes_is_left_alone(self):
        peer = Peer()
        with contextlib.ExitStack() as stack:
            program = stack.enter_context(Workload(peer.path))
            program.do(f"open {KINETO['now']}")  # as `import torch` does
            program.do("init")
            program.do(f"profiler start {KINETO['now']}")
            stack.enter_context(peer)
            program.do("launch 100 3")
            peer.wait("a session", lambda: peer.last and peer.last.status)
            peer.pump_for(1.0)
            program.do("launch 100 3", peer)
            program.do("sync", peer)
            counts = program.do("profiler stop", peer)

            self.assertEqual((counts["kernels"], counts["error"]), (600, 0))
            peer.wait_for_state(abi.COLLECTING)
            self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_a_profiler_that_nobody_saw_begin_costs_nobodys_life(self):
        peer = Peer()
        with contextlib.ExitStack() as stack:
            program = stack.enter_context(Workload(peer.path))
            program.do("init")
            # It brings libcupti and starts at once; a daemon comes before we have seen either.
            program.do(f"profiler start {PROTON} {CUPTI}")
            program.do("launch 100 3")
            stack.enter_context(peer)
            peer.wait("a session", lambda: peer.last and peer.last.status)
            peer.wait("kernels are on", lambda: peer.last.status.level & abi.LEVEL_KERNELS
                      or peer.last.status.state == abi.YIELDED)
            program.do("launch 100 3", peer)
            program.do("profiler stop", peer)
            peer.pump_for(0.5)

            self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_a_profiler_without_a_daemon_is_never_touched(self):
        with Workload("/nonexistent") as program:
            program.do("init")
            program.do(f"profiler start {KINETO['lazy']}")
            program.do("launch 100 3")
            program.do("sync")
            counts = program.do("profiler stop")

            self.assertEqual((counts["kernels"], counts["error"]), (300, 0))
            self.assertEqual((program.end(), program.noise()), (0, ""))


if __name__ == "__main__":
    unittest.main(verbosity=2)
