#!/usr/bin/env python3
"""The daemon's end of a session misbehaves in every way it can: late, deaf, dead, refusing, talking
nonsense. The program with the injected library goes on, and what was lost is counted."""

import os
import unittest

import session_daemon as abi
from injector_workload import Workload, kernels_of, require_fakes, true_kernels
from session_daemon import Peer

GRAPH_TRACE = 51  # CUpti_ActivityKind
BLOCKED_NS = 5_000_000_000  # fifty launches that took so long were held up, however busy the machine


def setUpModule():
    require_fakes()


def count_descriptors(program):
    return len(os.listdir(f"/proc/{program.process.pid}/fd"))


class LateTest(unittest.TestCase):
    def test_a_daemon_that_comes_later_sees_launches_first_and_kernels_when_no_graphs_run(self):
        peer = Peer()
        with Workload(peer.path) as program:
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
            program.do("init", peer)
            program.do("launch 20 1", peer)
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

    def test_told_to_be_off_it_has_nothing_on_and_gives_its_memory_back(self):
        with Peer() as peer, Workload(peer.path) as program:
            program.do("init", peer)
            program.do("steady 4", peer)
            for _ in range(2):
                peer.wait("launches", lambda: len(peer.last.records["api"]) > 1000)
                peer.last.rule(mode=abi.OFF)
                peer.wait_for_state(abi.STATE_OFF, cause=abi.CAUSE_CONTROL, level=0, buffer_mib=0)
                state = program.state(peer)
                self.assertEqual((state["kinds"], state["buffers_out"]), (0, 0))
                peer.last.records.clear()
                peer.last.rule()
                peer.wait_for_state(abi.COLLECTING)
            peer.wait("kernels are back", lambda: peer.last.records["kernel"])
            self.assertFalse(peer.last.status.level & abi.LEVEL_GRAPHS)
            program.do("halt", peer)
            state = program.state(peer)
            # Both crash other threads of a process.
            self.assertEqual((state["subscriptions"], state["finalised"]), (0, 0))
            self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_every_call_is_recorded_in_a_burst_and_only_there(self):
        with Peer() as peer, Workload(peer.path) as program:
            program.do("init", peer)
            program.do("device 20", peer)
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


if __name__ == "__main__":
    unittest.main(verbosity=2)
