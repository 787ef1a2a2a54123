#!/usr/bin/env python3
"""The daemon's end of a session misbehaves in every way it can: late, deaf, dead, refusing, talking
nonsense. The program with the injected library goes on, and what was lost is counted."""

import bisect
import os
import shutil
import subprocess
import time
import unittest

import session_daemon as abi
from injector_workload import FAKES, Workload, kernels_of, require_fakes, true_kernels
from session_daemon import Peer

GRAPH_TRACE = 51  # CUpti_ActivityKind
NO_HOOKS = {"GPUPERF_LAUNCH_HOOKS": "0"}
YOUNG = {"GPUPERF_SETTLE_MS": "60000"}
# All kinds but records of calls, after which CUPTI is not ended.
NO_CALLS = (1 << abi.KERNEL) | (1 << abi.MEMCPY) | (1 << abi.MEMSET) | (1 << abi.GRAPH) | (1 << abi.OVERHEAD)  # nor allocations
ATTACHED, FINALISED, NEXT = "stays attached", "CUPTI is finalised", "finalised at the next launch"
BLOCKED_NS = 5_000_000_000  # fifty launches that took so long were held up, however busy the machine


def setUpModule():
    require_fakes()


def count_descriptors(program):
    return len(os.listdir(f"/proc/{program.process.pid}/fd"))


def later_peer():
    return Peer(on_hello=lambda session: session.rule(abi.WELCOME, kinds=abi.ALL_KINDS | abi.LATER))


def quiet_peer():
    return Peer(on_hello=lambda session: session.rule(abi.WELCOME, kinds=NO_CALLS))


class LateTest(unittest.TestCase):
    def test_a_daemon_that_comes_later_sees_kernels_at_once_and_graphs_that_are_made_then(self):
        peer = Peer()
        with Workload(peer.path) as program:
            program.do("init")
            program.do("launch 100 1")
            with peer:
                peer.wait_for_state(abi.COLLECTING)
                self.assertTrue(peer.last.status.level & abi.LEVEL_KERNELS)
                program.do("forget", peer)
                for line in ("launch 40 2", "graph make late 5", "graph launch late 7"):
                    program.do(line, peer)
                _, works = program.truth()
                peer.wait("kernels", lambda: len(peer.last.records["kernel"]) == 80)
                peer.wait("graphs", lambda: len(peer.last.records["graph"]) == 7)
                self.assertEqual(kernels_of(peer.last), true_kernels(works))
                self.assertTrue(peer.last.status.level & abi.LEVEL_GRAPHS)
                self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_without_hooks_it_sees_launches_first_and_kernels_when_no_graphs_run(self):
        peer = Peer()
        with Workload(peer.path, environment=NO_HOOKS) as program:
            program.do("init")
            program.do("launch 100 1")
            with peer:
                peer.wait_for_state(abi.COLLECTING)
                program.do("forget", peer)
                program.do("launch 40 2", peer)
                peer.wait("launches", lambda: len(peer.last.records["api"]) == 80)
                self.assertEqual(peer.last.records["kernel"], [])
                self.assertFalse(peer.last.status.level & (abi.LEVEL_KERNELS | abi.LEVEL_GRAPHS))

                peer.wait("kernels are on", lambda: peer.last.status.level & abi.LEVEL_KERNELS)
                program.do("forget", peer)
                program.do("launch 40 2", peer)
                _, works = program.truth()
                peer.wait("kernels", lambda: len(peer.last.records["kernel"]) == 80)
                self.assertEqual(kernels_of(peer.last), true_kernels(works))
                self.assertFalse(peer.last.status.level & abi.LEVEL_GRAPHS)
                self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_a_program_that_was_launching_graphs_keeps_its_speed_and_its_life(self):
        peer = Peer()
        with Workload(peer.path) as program:
            for line in ("init", "graph make early 20", "graph launch early 5"):
                program.do(line)
            with peer:
                peer.wait_for_state(abi.COLLECTING)
                program.keep_at("graph launch early 2",
                                lambda: peer.last.status.cause == abi.CAUSE_GRAPHS_UNSEEN, peer)
                for line in ("graph launch early 50", "graph make late 5", "graph launch late 9",
                             "launch 30 1"):
                    program.do(line, peer)
                peer.pump_for(3.5)  # past the time when kernels would be switched on

                self.assertIn("graphs", peer.last.status.detail.lower())
                self.assertEqual((peer.last.records["kernel"], peer.last.records["graph"]), ([], []))
                self.assertFalse(peer.last.status.level & abi.LEVEL_KERNELS)
                self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))


class DeafTest(unittest.TestCase):
    def rule(self, abandon_ms):
        return Peer(on_hello=lambda session: session.rule(abi.WELCOME, abandon_ms=abandon_ms))

    def test_a_stopped_daemon_costs_records_and_no_time(self):
        with self.rule(60_000) as peer, Workload(peer.path) as program:
            program.do("init", peer)
            program.do("steady 4", peer)
            peer.wait("kernels", lambda: len(peer.last.records["kernel"]) > 500)
            peer.is_reading = False
            # Until the queue of 8 MiB is full, at some 90 bytes a launch.
            launches = program.state(peer)["steady_launches"]
            program.keep_at("state", lambda: program.state(peer)["steady_launches"] - launches > 250_000,
                            peer, 30)
            slow = program.do("halt", peer)
            self.assertLess(slow["slowest_ns"], BLOCKED_NS)

            peer.is_reading = True
            lost = peer.wait("losses are told", lambda: peer.last.status.losses["queue_full"])
            program.do("forget", peer)
            program.do("launch 20 1", peer)
            _, works = program.truth()
            peer.wait("kernels of afterwards", lambda: kernels_of(peer.last)[-20:] == true_kernels(works))
            status = peer.wait("a last status", lambda: peer.last.status)
            self.assertEqual(program.end(peer=peer), 0)
            peer.wait("the end", lambda: not peer.last.is_open)
            taken = sum(len(peer.last.records[kind]) for kind in ("kernel", "api"))
            told = peer.last.status.losses
            self.assertGreater(lost, 1000)
            self.assertEqual(taken + sum(told.values()), 2 * (slow["launches"] + 20), status)
            self.assertLessEqual(peer.last.status.buffer_mib, 64)

    def test_a_daemon_that_took_nothing_for_long_is_left_and_found_again(self):
        with self.rule(400) as peer, Workload(peer.path) as program:
            program.do("init", peer)
            program.do("steady 4", peer)
            peer.wait("kernels", lambda: len(peer.last.records["kernel"]) > 500)
            deaf = peer.last
            peer.is_reading = False
            peer.wait("another connection", lambda: peer.last is not deaf, 15)
            peer.is_reading = True
            peer.wait_for_state(abi.COLLECTING)

            slow = program.do("halt", peer)
            self.assertLess(slow["slowest_ns"], BLOCKED_NS)
            self.assertGreater(peer.last.status.losses["no_daemon"]
                               + peer.last.status.losses["queue_full"], 0)
            self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))


class DeadTest(unittest.TestCase):
    def test_ten_daemons_one_after_another(self):
        with Peer() as peer, Workload(peer.path) as program:
            program.do("init", peer)
            program.do("steady 2", peer)
            for number in range(10):
                peer.wait("a session", lambda number=number: len(peer.sessions) == number + 1)
                peer.wait("kernels", lambda: len(peer.last.records["kernel"]) > 100)
                if number == 0:
                    descriptors = count_descriptors(program)
                if number < 9:
                    peer.stop()
                    peer.start()

            self.assertEqual(count_descriptors(program), descriptors)
            self.assertEqual([session.hello.connection for session in peer.sessions], list(range(10)))
            self.assertTrue(all(session.records["gap"][0].id == abi.CAUSE_DAEMON_GONE
                                for session in peer.sessions[1:]))
            self.assertLess(program.do("halt", peer)["slowest_ns"], BLOCKED_NS)
            # Graphs are covered still: CUPTI was never let go.
            peer.wait("a status", lambda: peer.last.status is not None)
            self.assertTrue(peer.last.status.level & abi.LEVEL_GRAPHS)
            self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_a_daemon_that_stays_away_leaves_on_what_could_not_be_taken_up_again(self):
        peer = Peer(on_hello=lambda session: session.rule(abi.WELCOME, abandon_ms=300))
        with peer, Workload(peer.path) as program:
            for line in ("init", "graph make early 3", "launch 20 1"):
                program.do(line, peer)
            peer.wait("kernels", lambda: len(peer.last.records["kernel"]) == 20)
            peer.stop()
            program.keep_at("launch 1 1", lambda: program.state()["kinds"] == 1 << GRAPH_TRACE, peer)
            program.do("graph make meanwhile 3")

            peer.start()
            peer.wait("another session", lambda: len(peer.sessions) == 2)
            peer.wait_for_state(abi.COLLECTING)
            program.do("graph launch meanwhile 4", peer)
            program.do("launch 10 1", peer)
            peer.wait("graphs", lambda: len(peer.last.records["graph"]) == 4)
            peer.wait("kernels", lambda: len(peer.last.records["kernel"]) >= 10)
            self.assertEqual([gap.id for gap in peer.last.records["gap"]], [abi.CAUSE_DAEMON_GONE])
            self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))


    def test_a_daemon_that_stays_away_leaves_no_cupti_where_there_are_no_graphs(self):
        peer = Peer(on_hello=lambda session: session.rule(abi.WELCOME, abandon_ms=300, kinds=NO_CALLS))
        with peer, Workload(peer.path) as program:
            program.do("init", peer)
            program.do("launch 20 1", peer)
            peer.wait("kernels", lambda: len(peer.last.records["kernel"]) == 20)
            peer.stop()
            program.keep_at("launch 1 1", lambda: program.state()["finalised"] == 1, peer)
            program.do("graph make meanwhile 3")  # for nobody
            self.assertEqual(program.state()["attached"], 0)

            peer.start()
            peer.wait("another session", lambda: len(peer.sessions) == 2)
            peer.wait_for_state(abi.COLLECTING)
            program.keep_at("graph launch meanwhile 1",
                            lambda: peer.last.status.cause == abi.CAUSE_GRAPHS_UNSEEN, peer)
            self.assertEqual(peer.last.records["graph"], [])
            self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))


class RefusalTest(unittest.TestCase):
    def test_a_refusal_is_obeyed_for_as_long_as_it_says(self):
        refused_at = []

        def refuse_once(session):
            refused_at.append(session.hello.mono_ns)
            if len(refused_at) == 1:
                session.refuse(abi.REFUSED_FULL, 800)
            else:
                session.rule(abi.WELCOME)
        with Peer(on_hello=refuse_once) as peer, Workload(peer.path) as program:
            program.do("init", peer)
            program.do("launch 10 1", peer)
            self.assertEqual(program.state(peer)["mapped"], 0)
            peer.wait_for_state(abi.COLLECTING)

            self.assertGreaterEqual(refused_at[1] - refused_at[0], 800_000_000)
            self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_never_again_is_never_again(self):
        for reason in (abi.REFUSED_VERSION, abi.REFUSED_CONFIG):
            with self.subTest(reason), \
                    Peer(on_hello=lambda session, reason=reason: session.refuse(reason, 0)) as peer, \
                    Workload(peer.path) as program:
                program.do("init", peer)
                program.do("launch 10 1", peer)
                peer.pump_for(1.8)  # two attempts would have been due

                self.assertEqual(len(peer.sessions), 1)
                self.assertEqual(program.state(peer)["mapped"], 0)
                self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_nonsense_ends_the_connection_only(self):
        with Peer(on_hello=lambda session: session.socket.send(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 3)) \
                as peer, Workload(peer.path) as program:
            program.do("init", peer)
            program.do("launch 10 1", peer)
            peer.wait("another attempt", lambda: len(peer.sessions) >= 2)

            self.assertEqual(program.state(peer)["mapped"], 0)
            self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_messages_and_fields_of_the_future_are_passed_over(self):
        def welcome(session):
            session.send(77, b"x" * 40)
            session.send(abi.CONTROL, b"\0" * 8)
            session.rule(abi.WELCOME)
        with Peer(on_hello=welcome) as peer, Workload(peer.path) as program:
            program.do("init", peer)
            program.do("launch 10 1", peer)

            peer.wait("kernels", lambda: len(peer.last.records["kernel"]) == 10)


class ToldTest(unittest.TestCase):
    def test_paused_it_keeps_graph_level_and_goes_on_with_a_gap(self):
        with Peer() as peer, Workload(peer.path) as program:
            program.do("init", peer)
            program.do("launch 10 1", peer)
            peer.wait("kernels", lambda: len(peer.last.records["kernel"]) == 10)
            peer.last.rule(mode=abi.PAUSE)
            peer.wait_for_state(abi.PAUSED, cause=abi.CAUSE_CONTROL)
            for line in ("graph make meanwhile 4", "launch 30 1"):
                program.do(line, peer)
            peer.last.rule()
            peer.wait_for_state(abi.COLLECTING, cause=abi.CAUSE_NONE)
            for line in ("graph launch meanwhile 6", "launch 10 1"):
                program.do(line, peer)
            peer.wait("kernels again", lambda: len(peer.last.records["kernel"]) == 20)

            peer.wait("graphs", lambda: len(peer.last.records["graph"]) == 6)
            self.assertEqual([gap.id for gap in peer.last.records["gap"]], [abi.CAUSE_CONTROL])
            self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_told_to_record_later_it_leaves_cupti_alone_until_a_graph_is_made(self):
        with later_peer() as peer, Workload(peer.path, environment=YOUNG) as program:
            program.do("init", peer)
            peer.wait_for_state(abi.PAUSED, cause=abi.CAUSE_CONTROL, level=0)
            self.assertIn("records begin", peer.last.status.detail)
            program.do("launch 30 1", peer)
            self.assertEqual(program.state(peer)["kinds"], 0)
            program.do("graph make early 4", peer)
            peer.wait_for_state(abi.PAUSED, level=abi.LEVEL_GRAPHS | abi.LEVEL_CUPTI)
            peer.last.rule()
            peer.wait_for_state(abi.COLLECTING, cause=abi.CAUSE_NONE)
            for line in ("graph launch early 6", "launch 10 1"):
                program.do(line, peer)
            peer.wait("graphs and kernels", lambda: len(peer.last.records["graph"]) == 6 and len(peer.last.records["kernel"]) == 10)
            self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_where_no_hook_sees_graphs_it_records_at_once(self):
        with later_peer() as peer, Workload(peer.path, environment=YOUNG | NO_HOOKS) as program:
            program.do("init", peer)
            peer.wait_for_state(abi.COLLECTING)
            self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_told_to_be_off_it_has_nothing_on_and_gives_its_memory_back(self):
        with quiet_peer() as peer, Workload(peer.path) as program:
            program.do("init", peer)
            program.do("steady 4", peer)
            for _ in range(2):
                peer.wait("launches", lambda: len(peer.last.records["kernel"]) > 1000)
                peer.last.rule(mode=abi.OFF)
                peer.wait_for_state(abi.STATE_OFF, cause=abi.CAUSE_CONTROL, level=0, buffer_mib=0)
                peer.wait_for_state(abi.STATE_OFF, detail=FINALISED)
                state = program.state(peer)
                self.assertEqual((state["kinds"], state["buffers_out"], state["attached"]), (0, 0, 0))
                peer.last.records.clear()
                peer.last.rule(kinds=NO_CALLS)
                peer.wait_for_state(abi.COLLECTING)
            peer.wait("kernels are back", lambda: peer.last.records["kernel"])
            program.do("halt", peer)
            state = program.state(peer)
            self.assertEqual((state["subscriptions"], state["finalised"]), (0, 2))
            self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_every_call_is_recorded_in_a_burst_and_only_there(self):
        with Peer() as peer, Workload(peer.path) as program:
            program.do("init", peer)
            program.do("device 20", peer)
            peer.pump_for(0.5)  # kinds are switched once launches have been followed for a while
            peer.last.rule(burst=abi.BURST_ALL_APIS, burst_ms=700)
            peer.wait("all calls are on", lambda: peer.last.status
                      and peer.last.status.level & abi.LEVEL_ALL_APIS)
            program.do("forget", peer)
            program.do("device 30", peer)
            calls, _ = program.truth()
            peer.wait("the burst's end", lambda: not peer.last.status.level & abi.LEVEL_ALL_APIS)
            program.do("device 40", peer)
            peer.pump_for(0.2)

            self.assertEqual([api.id for api in peer.last.records["api"]],
                             [call.correlation_id for call in calls])


class SamplingTest(unittest.TestCase):
    """PC sampling in a burst. The fake CUPTI aborts where the real one hangs: if it begins or ends while another
    thread launches or maps memory."""

    def sample(self, peer, program, during=(), burst_ms=900):
        """A burst of samples; what came of it: {kernel: {(offset, state): samples}}."""
        peer.last.rule(burst=abi.BURST_SAMPLES, burst_ms=burst_ms)
        peer.wait("samples are on", lambda: peer.last.status.level & abi.LEVEL_SAMPLES)
        for line in during:
            program.do(line, peer)
        peer.wait("the burst's end", lambda: not peer.last.status.level & abi.LEVEL_SAMPLES)
        found = {}
        for record in peer.last.records["stalls"]:
            kernel = found.setdefault(peer.last.names[record.name_id][1], {})
            for state, samples in record.samples.items():
                at = (record.pc_offset_bytes, state)
                kernel[at] = kernel.get(at, 0) + samples
        return found

    def test_samples_come_beside_kernels_and_add_up(self):
        with Peer() as peer, Workload(peer.path) as program:
            program.do("init", peer)
            program.do("launch 10 1", peer)
            peer.pump_for(1.5)  # launches have been followed for a second
            found = self.sample(peer, program, ["forget", "launch 4000 1 20000"])
            _, works = program.truth(peer)
            peer.wait("kernels", lambda: len(peer.last.records["kernel"]) == 10 + 4000)
            true_us = {}
            for work in works:
                true_us[work.name] = true_us.get(work.name, 0) + (work.end_unix_ns - work.start_unix_ns) // 1000
            for name, us in true_us.items():
                self.assertEqual(sum(found[name].values()), us, name)
                waits = found[name][0xe0, "long_scoreboard"]
                self.assertAlmostEqual(waits / us, 0.75, delta=0.01)
                self.assertEqual(waits + found[name][0x130, "selected"], us)
            self.assertEqual(sum(total.samples for total in peer.last.records["sampling"]), sum(true_us.values()))
            idle = sum(record.idle_samples.get("long_scoreboard", 0) for record in peer.last.records["stalls"])
            self.assertAlmostEqual(idle / sum(true_us.values()), 0.375, delta=0.01)
            place = peer.last.places[peer.last.records["sampling"][0].id]
            self.assertEqual((place.sm_count, place.threads_per_sm, place.registers_per_sm), (132, 2048, 65536))
            self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_it_begins_and_ends_while_threads_launch_and_allocate(self):
        with Peer() as peer, Workload(peer.path) as program:
            program.do("init", peer)
            program.do("steady 3 5 memory", peer)
            peer.pump_for(1.5)
            for _ in range(5):
                self.sample(peer, program, burst_ms=400)
            state = program.state(peer)
            self.assertEqual((state["samplings"], state["is_sampling"]), (5, False))
            program.do("halt", peer)
            self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_graphs_made_while_it_samples_are_covered(self):
        with Peer() as peer, Workload(peer.path) as program:
            program.do("init", peer)
            program.do("launch 10 1", peer)
            peer.pump_for(1.5)
            peer.last.rule(burst=abi.BURST_SAMPLES, burst_ms=3_000)
            peer.wait("samples are on", lambda: peer.last.status.level & abi.LEVEL_SAMPLES)
            program.do("graph make late 5", peer)
            program.do("graph launch late 7", peer)
            peer.wait("graphs", lambda: len(peer.last.records["graph"]) == 7)
            peer.wait("samples are on again", lambda: program.state(peer)["samplings"] == 2)
            peer.wait("the burst's end", lambda: not program.state(peer)["is_sampling"])
            self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_a_program_ends_while_it_samples(self):
        for how in ("exit", "_exit"):
            with Peer() as peer, Workload(peer.path) as program:
                program.do("init", peer)
                program.do("steady 2 5 memory", peer)
                peer.pump_for(1.5)
                peer.last.rule(burst=abi.BURST_SAMPLES, burst_ms=30_000)
                peer.wait("samples are on", lambda: peer.last.status.level & abi.LEVEL_SAMPLES)
                self.assertEqual((program.end(how, peer=peer), program.noise()), (0, ""))

    def test_another_client_gets_cupti_without_it(self):
        with Peer() as peer, Workload(peer.path) as program:
            program.do("init", peer)
            program.do("launch 10 1", peer)
            peer.pump_for(1.5)
            peer.last.rule(burst=abi.BURST_SAMPLES, burst_ms=30_000)
            peer.wait("samples are on", lambda: peer.last.status.level & abi.LEVEL_SAMPLES)
            program.do(f"profiler start {FAKES / 'libfake_kineto_now.so'} 1", peer)
            self.assertFalse(program.state(peer)["is_sampling"])
            program.do("launch 10 1", peer)
            self.assertEqual(program.do("profiler stop", peer)["kernels"], 10)
            self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_where_it_cannot_be_had_the_status_says_why(self):
        for failing, why in (("cuptiPCSamplingEnable", "the driver allows it to root only"),
                             ("cuptiPCSamplingStart", "another program samples or profiles this GPU")):
            with Peer() as peer, Workload(peer.path, environment={"FAKE_CUPTI_FAIL": failing}) as program:
                program.do("init", peer)
                program.do("launch 10 1", peer)
                peer.pump_for(1.5)
                peer.last.rule(burst=abi.BURST_SAMPLES, burst_ms=900)
                peer.wait("the reason", lambda reason=why: reason in peer.last.status.detail)
                self.assertEqual(peer.last.status.cause, abi.CAUSE_BURST)
                peer.wait("the burst's end", lambda: peer.last.status.cause == abi.CAUSE_NONE)
                self.assertEqual(peer.last.records["stalls"], [])
                self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))
        for environment, cupti, why in (({}, 12, "it needs CUPTI of CUDA 13"), (NO_HOOKS, 13, "not hooked")):
            with Peer() as peer, Workload(peer.path, cupti=cupti, environment=environment) as program:
                program.do(f"open {FAKES}/markers/libcudart.so.{cupti}", peer)
                program.do("init", peer)
                program.do("launch 10 1", peer)
                peer.pump_for(1.5)
                peer.last.rule(burst=abi.BURST_SAMPLES, burst_ms=900)
                peer.wait("the reason", lambda reason=why: reason in peer.last.status.detail)
                self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))


def without_ids(kernels):
    """CUPTI counts from 1 again after its end, so ids are no longer those of the truth."""
    return sorted(row[1:] for row in kernels)


class FinaliseTest(unittest.TestCase):
    """CUPTI is ended on a thread that launches, where that harms nobody; else it stays and the session says why."""

    def start(self, peer, *lines, **workload):
        program = Workload(peer.path, **workload)
        for line in ("init", *lines):
            program.do(line, peer)
        peer.wait("kernels", lambda: peer.last.records["kernel"])
        return program

    def pause(self, peer, detail):
        peer.last.rule(mode=abi.PAUSE, kinds=NO_CALLS)
        return peer.wait("the state of CUPTI", lambda: peer.last.status.state == abi.PAUSED
                         and detail in peer.last.status.detail)

    def test_it_waits_for_a_launch_and_comes_back_when_it_is_told_to(self):
        with quiet_peer() as peer, self.start(peer, "launch 10 1") as program:
            self.pause(peer, NEXT)
            program.do("device 5", peer)
            state = program.state(peer)
            self.assertEqual((state["attached"], state["finalised"], state["kinds"]), (1, 0, 0))
            program.do("launch 1 1", peer)
            state = program.state(peer)
            self.assertEqual((state["attached"], state["finalised"]), (0, 1))
            self.pause(peer, FINALISED)

            peer.last.rule(kinds=NO_CALLS)
            peer.wait_for_state(abi.COLLECTING)
            peer.last.records.clear()
            program.do("forget", peer)
            program.do("launch 30 2", peer)
            _, works = program.truth()
            peer.wait("kernels", lambda: len(peer.last.records["kernel"]) == 60)
            self.assertEqual(without_ids(kernels_of(peer.last)), without_ids(true_kernels(works)))
            # Told to go on before a launch came, it never was ended.
            self.pause(peer, NEXT)
            peer.last.rule(kinds=NO_CALLS)
            peer.wait_for_state(abi.COLLECTING)
            program.do("launch 5 1", peer)
            self.assertEqual(program.state(peer)["finalised"], 1)
            self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_it_stays_once_allocations_were_recorded(self):
        kinds = NO_CALLS | 1 << abi.MEMORY
        with Peer(on_hello=lambda session: session.rule(abi.WELCOME, kinds=kinds)) as peer, \
                self.start(peer, "launch 10 1", "memory 3") as program:
            self.pause(peer, "allocations were recorded")
            program.do("launch 5 1", peer)
            self.assertEqual(program.state(peer)["finalised"], 0)
            self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_it_stays_once_calls_were_recorded(self):
        with Peer() as peer, self.start(peer, "launch 10 1") as program:
            peer.last.rule(mode=abi.PAUSE)
            program.keep_at("launch 5 1", lambda: "calls of the API" in peer.last.status.detail, peer)
            self.assertEqual(program.state(peer)["finalised"], 0)
            self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_it_stays_where_it_cannot_be_ended(self):
        kineto = FAKES / "libfake_kineto_now.so"
        for cause, lines, workload in (
                ("graphs", ["graph make one 3"], {}), ("not hooked", [], {"environment": NO_HOOKS}),
                ("client", [f"profiler start {kineto}", "profiler stop"], {}),
                ("cannot be", ["fail cuptiFinalize"], {})):
            with self.subTest(cause), quiet_peer() as peer, \
                    self.start(peer, "launch 10 1", *lines, **workload) as program:
                peer.wait_for_state(abi.COLLECTING)
                peer.last.rule(mode=abi.PAUSE, kinds=NO_CALLS)
                program.keep_at("launch 5 2", lambda cause=cause, peer=peer:
                                ATTACHED in peer.last.status.detail and cause in peer.last.status.detail, peer)
                self.assertEqual(program.state(peer)["finalised"], 0)
                peer.last.rule(kinds=NO_CALLS)
                peer.wait_for_state(abi.COLLECTING)
                peer.wait("kernels are on", lambda peer=peer: peer.last.status.level & abi.LEVEL_KERNELS)
                peer.last.records.clear()
                program.do("launch 10 1", peer)
                peer.wait("kernels", lambda peer=peer: len(peer.last.records["kernel"]) == 10)
                self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_it_stays_where_a_graph_is_launched_that_no_hook_saw_being_made(self):
        with quiet_peer() as peer, self.start(peer, "launch 10 1") as program:
            self.pause(peer, NEXT)
            for line in ("graph hide unseen 3", "graph launch unseen 2", "launch 5 1"):
                program.do(line, peer)
            peer.wait("the state of CUPTI", lambda: "graphs" in peer.last.status.detail)
            peer.last.rule(kinds=NO_CALLS)
            peer.wait_for_state(abi.COLLECTING)
            for line in ("graph make later 3", "graph launch later 2", "graph launch unseen 2"):
                program.do(line, peer)
            self.assertEqual(program.state(peer)["finalised"], 0)
            self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_a_forked_child_ends_nothing_and_its_parent_does(self):
        with quiet_peer() as peer, self.start(peer, "launch 10 1") as program:
            self.pause(peer, NEXT)
            self.assertEqual(program.do("fork", peer)["status"], 7)
            self.assertEqual(program.state(peer)["finalised"], 0)
            program.do("launch 1 1", peer)
            self.assertEqual(program.state(peer)["finalised"], 1)
            self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_the_end_of_the_process_is_as_ever_while_it_is_asked_for(self):
        for threads in (0, 4):
            with self.subTest(threads), quiet_peer() as peer, self.start(peer, "launch 10 1") as program:
                if threads:
                    program.do(f"steady {threads}", peer)
                peer.last.rule(mode=abi.PAUSE, kinds=NO_CALLS)
                self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_again_and_again_while_eight_threads_launch(self):
        times, ended_each, phases = 100, 5, []  # no hook counts here: it takes a second to know who launches
        welcome = {"kinds": 1 << abi.KERNEL, "flush_ms": 10}
        with Peer(on_hello=lambda session: session.rule(abi.WELCOME, **welcome)) as peer, \
                self.start(peer, "launch 10 1", "sync") as program:
            program.do("steady 8 2", peer)
            for number in range(times):
                begun = peer.wait_for_state(abi.COLLECTING).unix_ns
                kernels = len(peer.last.records["kernel"])
                peer.wait("kernels", lambda kernels=kernels: len(peer.last.records["kernel"]) > kernels)
                phases.append((begun, time.time_ns()))
                peer.last.rule(mode=abi.PAUSE, **welcome)
                peer.wait_for_state(abi.PAUSED, **({"detail": FINALISED} if number % ended_each == 0 else {}))
                peer.last.rule(**welcome)
            peer.wait_for_state(abi.COLLECTING)
            program.do("halt", peer)
            finalised = program.state(peer)["finalised"]
            calls, works = program.truth(peer)
            self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))
            peer.wait("the end", lambda: not peer.last.is_open)

        kernels, true = kernels_of(peer.last), true_kernels(works)
        recorded = set(without_ids(kernels))
        self.assertGreaterEqual(finalised, times // ended_each)
        self.assertLessEqual(recorded, set(without_ids(true)))
        self.assertEqual(len({row[0] for row in kernels}), len(kernels), "each has an id of its own")
        # What was launched, and over, within a phase. A thread may lose its CPU within its call.
        starts = [begun for begun, _ in phases]
        calls_by_id = {call.correlation_id: call for call in calls}

        def is_inside(number, end):
            call = calls_by_id[number]
            phase = bisect.bisect_right(starts, call.start_unix_ns) - 1
            return phase >= 0 and max(end, call.end_unix_ns) < phases[phase][1]
        self.assertEqual([row for row in true if is_inside(row[0], row[2]) and row[1:] not in recorded], [])
        # What was running when a phase ended is counted, and nothing else was lost.
        losses = peer.last.status.losses
        self.assertEqual({cause for cause, count in losses.items() if count} - {"incomplete"}, set())

    def test_a_debugger_stops_a_launch_and_detaches_meanwhile(self):
        if shutil.which("gdb") is None:
            self.skipTest("gdb is not installed")
        welcome = {"kinds": 1 << abi.KERNEL, "flush_ms": 10}
        with Peer(on_hello=lambda session: session.rule(abi.WELCOME, **welcome)) as peer, \
                self.start(peer, "launch 10 1", "sync") as program:
            program.do("steady 4 2", peer)
            commands = ("break cuLaunchKernel", "continue", "backtrace 6", "delete", "detach")
            with subprocess.Popen(["gdb", "--batch", "--nx", *(word for command in commands for word in ("-ex", command)),
                                   "-p", str(program.process.pid)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True) as debugger:
                deadline = time.monotonic() + 60
                while debugger.poll() is None and time.monotonic() < deadline:
                    for mode in (abi.PAUSE, abi.RUN):
                        peer.last.rule(mode=mode, **welcome)
                        peer.pump_for(0.02)
                debugger.kill()
                said = debugger.stdout.read()
            self.assertIn("hit Breakpoint", said)
            self.assertIn("detached", said)
            peer.last.rule(**welcome)
            peer.wait_for_state(abi.COLLECTING)
            kernels = len(peer.last.records["kernel"])
            peer.wait("kernels", lambda: len(peer.last.records["kernel"]) > kernels)
            self.assertGreater(program.do("halt", peer)["launches"], 0)
            self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))


if __name__ == "__main__":
    unittest.main(verbosity=2)
