#!/usr/bin/env python3
"""The injected library in a real process, on a fake driver and a fake CUPTI: what it records is what was
done, and where it may not record it says why and leaves CUPTI alone."""

import unittest

import session_daemon as abi
from injector_workload import (COPY, FAKES, MEMORY, PEER_COPY, SET, Workload, kernels_of, require_fakes,
                               true_kernels)
from session_daemon import Peer

DEVICE_SYNCHRONISE = 165  # its callback id
MARKERS = FAKES / "markers"


def setUpModule():
    require_fakes()


def is_launch(call):
    """By callback id: cudaLaunchKernel, cuLaunchKernel."""
    return call.callback_id in (211, 307)


class RecordsTest(unittest.TestCase):
    maxDiff = 2000

    def record(self, *lines, kinds=abi.ALL_KINDS, before=(), **workload):
        """What a session holds after these lines and the process's end, and the truth."""
        with Peer(on_hello=lambda session: session.rule(abi.WELCOME, kinds=kinds)) as peer, \
                Workload(peer.path, **workload) as program:
            for line in (*before, "init", *lines):
                program.do(line, peer)
            program.do("sync", peer)
            calls, works = program.truth()
            peer.pump_for(0.1)
            self.assertEqual(program.end(peer=peer), 0)
            peer.wait("the end", lambda: not peer.last.is_open)
            self.assertEqual(program.noise(), "")
            return peer.last, calls, works

    def test_every_kernel_and_launch_is_recorded_as_it_was(self):
        session, calls, works = self.record("launch 500 8")

        self.assertEqual(kernels_of(session), true_kernels(works))
        recorded = [(api.id, api.tid, api.callback_id, api.domain, api.start_unix_ns,
                     api.start_unix_ns + api.duration_ns) for api in session.records["api"]]
        self.assertEqual(sorted(recorded), sorted(
            (call.correlation_id, call.tid, call.callback_id, 2 if call.is_driver else 1,
             call.start_unix_ns, call.end_unix_ns) for call in calls))
        self.assertEqual(len({text for _, text, _ in session.names.values()}), len(session.names))
        self.assertEqual(set(session.status.losses.values()), {0})

    def test_64_threads_lose_nothing(self):
        session, _, works = self.record("launch 300 64")

        self.assertEqual(kernels_of(session), true_kernels(works))
        self.assertEqual(len(session.places), 64 + 1)  # and where a wait says no place
        self.assertEqual(set(session.status.losses.values()), {0})

    def test_copies_sets_and_memory_are_recorded_as_they_were(self):
        session, _, works = self.record("memory 20")

        def true(kind):
            return sorted((work.correlation_id, work.start_unix_ns, work.end_unix_ns, work.bytes)
                          for work in works if work.kind == kind)
        copies = [(copy.id, copy.start_unix_ns, copy.start_unix_ns + copy.duration_ns, copy.copied_bytes)
                  for copy in session.records["memcpy"] if copy.direction == 1]
        peers = [(copy.id, copy.start_unix_ns, copy.start_unix_ns + copy.duration_ns, copy.copied_bytes)
                 for copy in session.records["memcpy"] if copy.direction == 10]
        sets = [(each.id, each.start_unix_ns, each.start_unix_ns + each.duration_ns, each.set_bytes)
                for each in session.records["memset"]]
        self.assertEqual([sorted(copies), sorted(peers), sorted(sets)],
                         [true(COPY), true(PEER_COPY), true(SET)])
        self.assertEqual(
            [(each.id, each.unix_ns, each.address, each.size_bytes, each.operation, each.memory)
             for each in session.records["memory"]],
            [(work.correlation_id, work.start_unix_ns, work.address, work.bytes, work.detail, 3)
             for work in works if work.kind == MEMORY])

    def test_waits_for_the_gpu_are_recorded_from_their_calls(self):
        session, calls, _ = self.record("launch 10 1")

        (wait,) = [call for call in calls if call.callback_id == DEVICE_SYNCHRONISE]
        self.assertEqual([(sync.id, sync.start_unix_ns, sync.start_unix_ns + sync.duration_ns, sync.type)
                          for sync in session.records["sync"]],
                         [(wait.correlation_id, wait.start_unix_ns, wait.end_unix_ns, 4)])

    def test_only_the_kinds_that_are_asked_for_come(self):
        session, _, works = self.record("launch 50 1", "memory 5", "device 20",
                                        kinds=1 << abi.KERNEL | 1 << abi.MEMSET)

        self.assertEqual({kind: len(records) for kind, records in session.records.items()},
                         {"kernel": 50, "memset": 5})
        self.assertEqual(kernels_of(session), true_kernels(works))

    def test_calls_that_are_not_about_launches_are_not_recorded(self):
        session, calls, _ = self.record("launch 5 1", "device 50")

        self.assertEqual({api.id for api in session.records["api"]},
                         {call.correlation_id for call in calls if is_launch(call)
                          or call.callback_id == DEVICE_SYNCHRONISE})

    def test_a_sample_keeps_launches_whole(self):
        with Peer(on_hello=lambda session: session.rule(abi.WELCOME, sample_every=5)) as peer, \
                Workload(peer.path) as program:
            for line in ("init", "launch 1000 4"):
                program.do(line, peer)
            calls, _ = program.truth()
            self.assertEqual(program.end(peer=peer), 0)
            peer.wait("the end", lambda: not peer.last.is_open)

            kernels = {kernel.id for kernel in peer.last.records["kernel"]}
            self.assertEqual(kernels, {api.id for api in peer.last.records["api"]})
            self.assertLess(kernels, {call.correlation_id for call in calls})
            self.assertAlmostEqual(len(kernels), 800, delta=200)
            self.assertEqual(peer.last.status.losses["sampled"], 2 * (4000 - len(kernels)))
            self.assertEqual(peer.last.status.sample_every, 5)

    def test_records_without_sound_times_are_counted_by_cause(self):
        session, _, works = self.record("untimed 7", "launch 7 1", "reversed 4", "launch 14 1",
                                        kinds=1 << abi.KERNEL)

        self.assertEqual(session.status.losses, {**dict.fromkeys(abi.LOSSES, 0),
                                                 "device_buffer": 7, "reversed": 4})
        self.assertEqual(kernels_of(session), true_kernels(works)[11:])

    def test_records_of_cuda_12_are_read_by_their_own_length(self):
        session, _, works = self.record("launch 100 4", "memory 5", cupti=12,
                                        before=[f"open {MARKERS}/libcudart.so.12"])

        self.assertEqual(kernels_of(session), true_kernels(works))
        self.assertEqual(len(session.records["memory"]), 10)
        self.assertEqual(session.records["api"], [])  # 12.4 knows only all calls or none
        self.assertEqual(session.status.cupti_version, 22)


class RefusedTest(unittest.TestCase):
    """Where CUPTI may not be used, the session says why, and the program goes on."""

    def fail(self, cause, *lines, before=(), **workload):  # pylint: disable=arguments-differ
        with Peer() as peer, Workload(peer.path, **workload) as program:
            for line in (*before, "init", *lines):
                program.do(line, peer)
            status = peer.wait_for_state(abi.FAILED, cause=cause)
            program.do("launch 20 2", peer)
            peer.pump_for(0.3)
            self.assertEqual(sum(len(records) for records in peer.last.records.values()), 0)
            state = program.state(peer)
            self.assertEqual((state["attached"], state["kinds"]), (0, 0))
            mapped = program.mapped()
            self.assertEqual(program.end(peer=peer), 0)
            self.assertEqual(program.noise(), "")
            return status, mapped

    def test_an_nsight_tool_in_the_process_has_it_alone(self):
        status, mapped = self.fail(abi.CAUSE_NSIGHT, before=[f"open {MARKERS}/libToolsInjection64.so"])

        self.assertEqual(status.detail, "libToolsInjection64.so")
        self.assertNotIn("libcupti.so.13", mapped)

    def test_no_cupti_of_the_runtimes_version(self):
        status, mapped = self.fail(abi.CAUSE_NO_CUPTI, before=[f"open {MARKERS}/libcudart.so.12"])

        self.assertIn("libcupti.so.12", status.detail)
        self.assertNotIn("libcupti.so.13", mapped)

    def test_a_cupti_of_another_version_than_the_runtime(self):
        status, _ = self.fail(abi.CAUSE_CUPTI_VERSION,
                              before=[f"open {MARKERS}/libcudart.so.12", "open libcupti.so.13"])

        self.assertIn("CUDA 13", status.detail)
        self.assertIn("CUDA 12", status.detail)

    def test_a_cupti_that_is_too_old(self):
        status, _ = self.fail(abi.CAUSE_CUPTI_VERSION, environment={"FAKE_CUPTI_VERSION": "18"})

        self.assertIn("18", status.detail)

    def test_a_cupti_that_fails(self):
        status, _ = self.fail(abi.CAUSE_CUPTI_ERROR,
                              environment={"FAKE_CUPTI_FAIL": "cuptiActivityRegisterCallbacks"})

        self.assertIn("cuptiActivityRegisterCallbacks", status.detail)


if __name__ == "__main__":
    unittest.main(verbosity=2)
