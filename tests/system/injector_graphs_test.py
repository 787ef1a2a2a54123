#!/usr/bin/env python3
"""Graphs and the injected library: one record per launch where that is safe, single kernels in bursts, and
never the crash that CUPTI has for graphs made while it did not look."""

import unittest

import session_daemon as abi
from injector_workload import GRAPH, KERNEL, NODE, FAKES, Workload, require_fakes
from session_daemon import Peer

CONCURRENT_KERNEL, GRAPH_TRACE = 10, 51  # CUpti_ActivityKind


def setUpModule():
    require_fakes()


def graphs_of(session):
    return sorted((graph.id, graph.start_unix_ns, graph.start_unix_ns + graph.duration_ns, graph.graph_id)
                  for graph in session.records["graph"])


def true_graphs(works):
    return sorted((work.correlation_id, work.start_unix_ns, work.end_unix_ns, work.graph_id)
                  for work in works if work.kind == GRAPH)


class GraphsTest(unittest.TestCase):
    maxDiff = 2000
    allows_nodes = True

    def has_level(self, peer, level, seconds=10):
        return peer.wait(f"level {level}", lambda: peer.last.status and peer.last.status.level & level,
                         seconds)

    def lacks_level(self, peer, level, seconds=10):
        return peer.wait(f"no level {level}", lambda: not peer.last.status.level & level, seconds)

    def start(self, peer, *lines):
        program = Workload(peer.path, environment={"GPUPERF_NODE_BURSTS": "1" if self.allows_nodes else "0"})
        for line in ("init", "graph make one 12", "graph launch one 3", *lines):
            program.do(line, peer)
        return program

    def test_a_launch_of_a_graph_is_one_record(self):
        with Peer() as peer, self.start(peer, "launch 20 1", "graph launch one 30") as program:
            _, works = program.truth()
            self.assertEqual(program.end(peer=peer), 0)
            peer.wait("the end", lambda: not peer.last.is_open)

            self.assertEqual(graphs_of(peer.last), true_graphs(works))
            self.assertEqual(sorted(kernel.id for kernel in peer.last.records["kernel"]),
                             sorted(work.correlation_id for work in works if work.kind == KERNEL))
            self.assertEqual(program.noise(), "")

    def test_graph_records_are_on_from_the_first_graph_and_not_before(self):
        for how in ("make", "capture"):
            with self.subTest(how), Peer() as peer, Workload(peer.path) as program:
                for line in ("init", "launch 20 1"):
                    program.do(line, peer)
                peer.wait_for_state(abi.COLLECTING)
                self.assertTrue(peer.last.status.level & abi.LEVEL_GRAPHS)  # it would be seen
                self.assertFalse(program.state(peer)["kinds"] >> GRAPH_TRACE & 1)
                program.do(f"graph {how} first 5", peer)
                self.assertTrue(program.state(peer)["kinds"] >> GRAPH_TRACE & 1)
                program.do("forget", peer)
                program.do("graph launch first 8", peer)
                _, works = program.truth()
                peer.wait("graphs", lambda peer=peer: len(peer.last.records["graph"]) == 8)
                self.assertEqual(graphs_of(peer.last), true_graphs(works))
                self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_without_hooks_graph_records_are_on_from_cuinit(self):
        with Peer() as peer, Workload(peer.path, environment={"GPUPERF_LAUNCH_HOOKS": "0"}) as program:
            program.do("init", peer)
            peer.wait_for_state(abi.COLLECTING)
            self.assertTrue(program.state(peer)["kinds"] >> GRAPH_TRACE & 1)
            self.assertTrue(peer.last.status.level & abi.LEVEL_GRAPHS)
            self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_the_first_graphs_of_many_threads_are_all_covered(self):
        for mode in (abi.RUN, abi.PAUSE):
            with self.subTest(mode), Peer() as peer, Workload(peer.path) as program:
                for line in ("init", "launch 5 1", "steady 4"):
                    program.do(line, peer)
                peer.wait("kernels", lambda peer=peer: peer.last.records["kernel"])
                peer.last.rule(mode=mode)  # paused, CUPTI is ended at the same time
                program.do("graph race g 8", peer)
                peer.last.rule()
                peer.wait_for_state(abi.COLLECTING)
                for number in range(8):
                    program.do(f"graph launch g{number} 3", peer)
                peer.wait("graphs", lambda peer=peer: len(peer.last.records["graph"]) == 24)
                program.do("halt", peer)
                self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def burst(self, peer, program, during=()):
        """A burst by node, graphs launched all along; works that lie well inside it."""
        peer.last.rule(burst=abi.BURST_NODES, burst_ms=900)
        self.has_level(peer, abi.LEVEL_NODES)
        program.do("forget", peer)
        for line in ("graph launch one 5", *during):
            program.do(line, peer)
        _, works = program.truth()
        return works

    def test_a_burst_by_node_is_refused_where_the_process_does_not_allow_it(self):
        self.allows_nodes = False
        with Peer() as peer, self.start(peer) as program:
            peer.last.rule(burst=abi.BURST_NODES, burst_ms=900)
            peer.wait("the refusal", lambda: peer.last.status.cause == abi.CAUSE_BURST)
            program.do("graph launch one 5", peer)
            peer.pump_for(1.2)

            self.assertIn("GPUPERF_NODE_BURSTS", peer.last.status.detail)
            self.assertTrue(peer.last.status.level & abi.LEVEL_GRAPHS)
            self.assertFalse([kernel for kernel in peer.last.records["kernel"] if kernel.flags & 1])
            self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_kernels_inside_graphs_are_seen_in_a_burst_which_costs_graph_level(self):
        with Peer() as peer, self.start(peer) as program:
            works = self.burst(peer, program)
            program.keep_at("graph launch one 1",
                            lambda: peer.last.status.cause == abi.CAUSE_GRAPHS_UNSEEN, peer)
            nodes = sorted((work.correlation_id, work.graph_id, work.node_id & 0xffffffff,
                            work.start_unix_ns, work.end_unix_ns) for work in works if work.kind == NODE)
            self.assertEqual(len(nodes), 5 * 12)
            seen = sorted((kernel.id, kernel.graph_id, kernel.node_id, kernel.start_unix_ns,
                           kernel.start_unix_ns + kernel.duration_ns)
                          for kernel in peer.last.records["kernel"] if kernel.flags & 1)
            self.assertLessEqual(set(nodes), set(seen))

            self.assertFalse(peer.last.status.level & abi.LEVEL_NODES)
            self.assertIn(abi.CAUSE_BURST, [gap.id for gap in peer.last.records["gap"]])
            for line in ("graph launch one 9", "graph make two 3", "graph launch two 4"):
                program.do(line, peer)
            self.assertFalse(peer.last.status.level & (abi.LEVEL_GRAPHS | abi.LEVEL_KERNELS))
            state = program.state(peer)
            self.assertEqual((state["subscriptions"], state["slowed_launches"]), (0, 0))
            self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_graphs_made_during_a_burst_cost_graph_level_and_no_life(self):
        with Peer() as peer, self.start(peer) as program:
            self.burst(peer, program, ["graph make two 4", "graph launch two 2"])
            self.lacks_level(peer, abi.LEVEL_NODES)
            program.keep_at("graph launch two 1",
                            lambda: peer.last.status.cause == abi.CAUSE_GRAPHS_UNSEEN, peer)
            for line in ("graph launch one 20", "graph launch two 20", "launch 5 1"):
                program.do(line, peer)
            peer.pump_for(3.5)  # past the time when kernels would be tried again

            self.assertFalse(peer.last.status.level & (abi.LEVEL_GRAPHS | abi.LEVEL_KERNELS))
            # Bursts still show all there is.
            works = self.burst(peer, program, ["graph launch two 3"])
            nodes = {work.correlation_id for work in works if work.kind == NODE}
            peer.wait("nodes", lambda: nodes <= {each.id for each in peer.last.records["kernel"]})
            self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_a_burst_ends_by_itself_when_the_daemon_is_dead(self):
        with Peer() as peer, self.start(peer) as program:
            self.burst(peer, program)
            peer.stop()

            def is_over():
                kinds = program.state()["kinds"]
                return not kinds >> GRAPH_TRACE & 1 and not kinds >> CONCURRENT_KERNEL & 1
            program.keep_at("graph launch one 1", is_over, peer, 5)
            self.assertEqual((program.end(), program.noise()), (0, ""))

    def test_a_burst_ends_when_it_is_told_to(self):
        with Peer() as peer, self.start(peer) as program:
            peer.last.rule(burst=abi.BURST_NODES, burst_ms=60_000)
            self.has_level(peer, abi.LEVEL_NODES)
            peer.last.rule()
            self.lacks_level(peer, abi.LEVEL_NODES)

            program.do("graph launch one 3", peer)
            self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_after_another_client_graphs_that_it_did_not_see_crash_nothing(self):
        with Peer() as peer, self.start(peer) as program:
            program.do(f"profiler start {FAKES}/libfake_kineto_now.so", peer)
            program.do("profiler stop", peer)
            peer.wait_for_state(abi.YIELDED)
            peer.wait_for_state(abi.COLLECTING)
            # Graphs that were made meanwhile were not seen: graph level is not taken up again.
            program.keep_at("graph launch one 1",
                            lambda: peer.last.status.cause == abi.CAUSE_GRAPHS_UNSEEN, peer)
            for line in ("graph launch one 9", "graph make two 4", "graph launch two 9"):
                program.do(line, peer)
            self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))

    def test_graphs_made_in_every_moment_of_bursts_crash_nothing(self):
        with Peer() as peer, self.start(peer) as program:
            for number in range(3):
                peer.last.rule(burst=abi.BURST_NODES, burst_ms=150)
                for step in range(12):
                    for line in (f"graph make g{number}{step} 3", f"graph launch g{number}{step} 2",
                                 "graph launch one 1", "launch 3 1"):
                        program.do(line, peer)
                    peer.pump_for(0.05)
            self.assertEqual((program.end(peer=peer), program.noise()), (0, ""))


if __name__ == "__main__":
    unittest.main(verbosity=2)
