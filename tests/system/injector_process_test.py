#!/usr/bin/env python3
"""What a program feels of the injected library: nothing while no daemon is there, and no harm at its start,
its forks and its end."""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time
import unittest

import session_daemon as abi
from gpuperf_system import wait_until
from injector_workload import INJECTOR, Workload, kernels_of, require_fakes, true_kernels
from session_daemon import Peer

NOWHERE = "/nonexistent/gpuperf/ingest.sock"
INIT_NS = 20_000_000  # promised at most
SLACK_NS = 2_000_000_000  # a busy test machine; a wait for the daemon would take 5 s


def setUpModule():
    require_fakes()


class DormantTest(unittest.TestCase):
    def test_without_a_daemon_only_a_sleeping_thread_is_there(self):
        with Workload(NOWHERE) as program:
            program.do("init")
            program.do("launch 100 4")
            time.sleep(0.7)  # past the first attempt to connect again

            self.assertEqual(sorted(program.threads()), ["gpuperf", "injected"])
            self.assertFalse([name for name in program.mapped() if "libcupti" in name])
            state = program.state()
            self.assertEqual((state["mapped"], state["attached"]), (0, 0))
            self.assertLess(state["injection_ns"], SLACK_NS)
            self.assertEqual((program.end(), program.noise()), (0, ""))

    def test_the_thread_takes_no_signals_and_hardly_any_time(self):
        with Workload(NOWHERE) as program:
            program.do("init")
            # It names itself when it first runs.
            wait_until("the thread", lambda: "gpuperf" in program.threads())
            task = next(path for path in pathlib.Path(f"/proc/{program.process.pid}/task").iterdir()
                        if (path / "comm").read_text() == "gpuperf\n")
            status = (task / "status").read_text()
            blocked = int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigBlk")), 16)
            time.sleep(1.5)
            spent = sum(int(field) for field in (task / "stat").read_text().rsplit(")", 1)[1].split()[11:13])

            # Not to be blocked, and glibc's own two for cancelling threads and changing users.
            never = sum(1 << number - 1 for number in (signal.SIGKILL, signal.SIGSTOP, 32, 33))
            self.assertEqual(blocked | never, (1 << 64) - 1)
            self.assertLessEqual(spent, 2)  # ticks of 10 ms

    def test_switched_off_by_the_environment_nothing_is_there(self):
        with Peer() as peer, Workload(peer.path, environment={"GPUPERF_DISABLE": "1"}) as program:
            program.do("init", peer)
            program.do("launch 10 2", peer)
            peer.pump_for(0.3)

            self.assertEqual((peer.sessions, program.threads()), ([], ["injected"]))
            self.assertEqual((program.end(), program.noise()), (0, ""))

    def test_a_daemon_that_does_not_answer_holds_cuinit_for_a_moment_only(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as deaf, Peer() as peer:
            deaf.bind(str(peer.path.with_name("deaf")))
            deaf.listen(1)
            with Workload(peer.path.with_name("deaf"), environment={"GPUPERF_INIT_WAIT_MS": ""}) as program:
                program.do("init")
                state = program.state()

                self.assertGreaterEqual(state["injection_ns"], INIT_NS)
                self.assertLess(state["injection_ns"], INIT_NS + SLACK_NS)
                self.assertEqual((state["mapped"], program.end(), program.noise()), (0, 0, ""))

    def test_a_daemon_that_answers_is_obeyed_from_the_start(self):
        with Peer() as peer, Workload(peer.path) as program:
            program.do("init", peer)
            program.do("launch 3 1", peer)
            peer.wait("kernels", lambda: len(peer.last.records["kernel"]) == 3)

            hello = peer.last.hello
            stat = pathlib.Path(f"/proc/{program.process.pid}/stat").read_text(encoding="utf-8")
            self.assertEqual((hello.pid, hello.process_start_ticks, hello.comm, hello.connection),
                             (program.process.pid, int(stat.rsplit(")", 1)[1].split()[19]), "injected", 0))
            self.assertEqual(hello.capabilities, abi.ALL_KINDS)


class EndTest(unittest.TestCase):
    def start(self, peer):
        program = Workload(peer.path)
        program.do("init", peer)
        program.do("steady 4", peer)
        peer.wait("kernels", lambda: len(peer.last.records["kernel"]) > 1000)
        return program

    def test_records_of_the_last_moment_are_sent_at_exit(self):
        with Peer() as peer, Workload(peer.path) as program:
            for line in ("init", "launch 200 4", "sync"):
                program.do(line, peer)
            _, works = program.truth()
            self.assertEqual(program.end(peer=peer), 0)
            peer.wait("the end", lambda: not peer.last.is_open)

            self.assertEqual(kernels_of(peer.last), true_kernels(works))

    def test_no_way_to_end_is_hindered(self):
        for how, expected in (("exit", 0), ("_exit", 0), ("abort", -signal.SIGABRT)):
            with self.subTest(how), Peer() as peer, self.start(peer) as program:
                begin = time.monotonic()
                self.assertEqual(program.end(how, peer), expected)
                self.assertLess(time.monotonic() - begin, 1.5)
                peer.wait("the end", lambda peer=peer: not peer.last.is_open)
                self.assertEqual(program.noise(), "")

    def test_a_killed_process_ends_its_session(self):
        with Peer() as peer, self.start(peer) as program:
            program.process.kill()

            peer.wait("the end", lambda: not peer.last.is_open)
            self.assertEqual(program.process.wait(5), -signal.SIGKILL)

    def test_a_daemon_that_reads_nothing_holds_the_end_for_a_fifth_of_a_second(self):
        with Peer() as peer, self.start(peer) as program:
            begin = time.monotonic()
            self.assertEqual(program.end(), 0)

            self.assertLess(time.monotonic() - begin, 0.2 + 0.5)


class ForkTest(unittest.TestCase):
    def test_a_forked_child_is_left_alone_and_its_parent_goes_on(self):
        with Peer() as peer, Workload(peer.path) as program:
            program.do("init", peer)
            program.do("launch 50 1", peer)
            self.assertEqual(program.do("fork", peer)["status"], 7)
            program.do("launch 50 1", peer)
            _, works = program.truth()
            self.assertEqual(program.end(peer=peer), 0)
            peer.wait("the end", lambda: not peer.last.is_open)

            self.assertEqual(len(peer.sessions), 1)
            self.assertEqual(kernels_of(peer.last), true_kernels(works))
            self.assertEqual(program.noise(), "")

    def test_a_fork_while_threads_launch_does_not_hang(self):
        with Peer() as peer, Workload(peer.path) as program:
            program.do("init", peer)
            program.do("steady 2", peer)
            for _ in range(5):
                # The child of a program with threads may not launch; it only leaves.
                self.assertEqual(program.do("fork quiet", peer)["status"], 7)
            program.do("halt", peer)

            self.assertEqual((len(peer.sessions), program.end(peer=peer)), (1, 0))

    def test_another_program_in_the_process_has_a_session_of_its_own(self):
        with Peer() as peer, Workload(peer.path) as program:
            program.do("init", peer)
            program.do("launch 5 1", peer)
            peer.wait("kernels", lambda: len(peer.last.records["kernel"]) == 5)
            program.post("exec")
            peer.wait("the end of the first", lambda: not peer.sessions[0].is_open)
            program.do("init", peer)
            program.do("launch 9 1", peer)
            peer.wait("kernels of the second", lambda: len(peer.last.records["kernel"]) == 9)

            self.assertEqual([(session.hello.pid, session.hello.connection) for session in peer.sessions],
                             [(program.process.pid, 0)] * 2)


class NamespaceTest(unittest.TestCase):
    def test_a_process_in_namespaces_of_its_own_has_a_session(self):
        if os.geteuid() != 0 or shutil.which("unshare") is None:
            self.skipTest("needs root and unshare: namespaces are made")
        with Peer() as peer, Workload(peer.path, prefix=["unshare", "--pid", "--fork", "--mount",
                                                         "--mount-proc"]) as program:
            program.do("init", peer)
            program.do("launch 30 2", peer)
            _, works = program.truth()
            peer.wait("kernels", lambda: len(peer.last.records["kernel"]) == 60)

            self.assertEqual(kernels_of(peer.last), true_kernels(works))
            self.assertEqual(peer.last.hello.pid, program.state()["pid"])
            self.assertEqual(program.end(peer=peer), 0)


class LibraryTest(unittest.TestCase):
    """The library must load into every process, and give it nothing to collide with."""

    def read(self, *arguments):
        if shutil.which("readelf") is None:
            self.skipTest("readelf is not installed")
        return subprocess.run(["readelf", "--wide", *arguments, INJECTOR], capture_output=True, text=True,
                              check=True).stdout

    def test_it_exports_its_entries_only(self):
        rows = [line.split() for line in self.read("--dyn-syms").splitlines()]
        exported = [row[7] for row in rows if len(row) >= 8 and row[0].endswith(":") and row[0] != "Num:"
                    and row[6] != "UND"]
        self.assertEqual(sorted(exported), ["InitializeInjection", "gpuperf_attach", "gpuperf_attach_stub"])

    def test_it_needs_the_c_library_only(self):
        needed = {line.split("[")[1].rstrip("]") for line in self.read("--dynamic").splitlines()
                  if "(NEEDED)" in line}
        self.assertLessEqual(needed, {"libc.so.6", "libpthread.so.0", "libdl.so.2"})

    def test_it_loads_with_a_glibc_of_2014(self):
        versions = {word.split("@")[-1].strip("()") for line in self.read("--dyn-syms").splitlines()
                    for word in line.split() if "@GLIBC_" in word}
        numbers = {tuple(int(part) for part in version.removeprefix("GLIBC_").split("."))
                   for version in versions}
        self.assertTrue(numbers)
        self.assertLessEqual(max(numbers), (2, 17))

    def test_it_asks_for_no_executable_stack_and_binds_at_once(self):
        self.assertIn("NOW", self.read("--dynamic"))
        (stack,) = [line for line in self.read("--segments").splitlines() if "GNU_STACK" in line]
        self.assertIn(" RW ", stack)


if __name__ == "__main__":
    unittest.main(verbosity=2)
