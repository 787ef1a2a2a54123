#!/usr/bin/env python3
"""Attaching to programs that run already, with the daemon: the library enters, records and leaves again, and the program goes
on as before, whoever dies meanwhile. On the fake driver and the fake CUPTI."""

import concurrent.futures
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import unittest

from attach_programs import (attach, attach_when_free, detach, held_by, launches_of, pid_of, python_program, session_of,
                             wait_for_kernels, wait_for_state, workload)
from gpuperf_system import LONG, Daemon, SharedDaemonTest, require_root, wait_until
from injector_workload import FAKES, require_fakes

CYCLES = 1000 if LONG else 50
KILLS = 200 if LONG else 30
KINETO = FAKES / "libfake_kineto_now.so"


def setUpModule():
    require_root()
    require_fakes()


def find_worker(daemon):
    """The process of the daemon's that attaches, once it takes requests; None where there is none."""
    for task in pathlib.Path(f"/proc/{daemon.process.pid}/task").iterdir():
        try:
            children = (task / "children").read_text(encoding="ascii").split()
            for pid in children:
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                comm = pathlib.Path(f"/proc/{pid}/comm").read_text(encoding="ascii").strip()
                if words[0] == b"gpuperf-attach" and comm == "gpuperf-attach":
                    return int(pid)
        except OSError:
            continue
    return None


def check_attaches_and_ends(test, daemon, program):
    """Whatever was killed before."""
    row, late = attach_when_free(daemon, program, tries=3)
    # What was begun last may have come to its end by itself.
    test.assertIn("attached", (row["state"], row["reason"]), (row, late))
    wait_for_kernels(daemon, program)
    test.assertGreater(program.do("halt")["launches"], 0)
    test.assertEqual((program.end(), program.noise()), (0, ""))


class AttachTest(SharedDaemonTest):
    def check_quiet_end(self, program):
        self.assertEqual((program.end(), program.noise()), (0, ""))

    def test_a_running_program_has_kernels_within_two_seconds_and_none_after_detach(self):
        with workload() as program:
            program.do("init")
            program.do("steady 2")
            began = time.monotonic()
            row = attach(self.daemon, program)
            self.assertEqual((row["state"], row["reason"]), ("attached", ""))
            wait_for_kernels(self.daemon, program)
            took = time.monotonic() - began
            session = session_of(self.daemon, program)
            self.assertEqual(session["attach_held_ns"], row["held_ns"])
            self.assertIn("gpuperf", program.threads())

            left = detach(self.daemon, program)
            self.assertEqual(left["state"], "can")
            # On a busy machine CUPTI may have recorded calls, and then stays.
            self.assertIn("CUPTI", left["detail"])
            self.assertNotIn("gpuperf", program.threads())
            self.assertEqual(program.state()["kinds"], 0)
            print(f"{left['detail']}; first kernel after {took:.2f} s; held {int(row['held_ns']) / 1e6:.2f} ms, "
                  f"{int(row['longest_hold_ns']) / 1e6:.2f} at a time; {left['kept_kib']} KiB stay", file=sys.stderr)
            self.assertLess(took, 2 * (1 if LONG else 5))
            program.do("halt")
            self.check_quiet_end(program)

    def test_no_kernel_is_missed_once_it_records_but_where_the_session_says_so(self):
        for threads in (1, 4):
            with self.subTest(threads=threads):
                self.check_nothing_is_missed_silently(threads)

    def check_nothing_is_missed_silently(self, threads):
        with workload() as program:
            program.do("init")
            program.do("launch 100 1")
            attach(self.daemon, program)
            def is_recording():
                program.do("launch 10 1")
                return launches_of(self.daemon, program)
            wait_until("it records", is_recording)
            def are_still():
                before = launches_of(self.daemon, program)
                time.sleep(0.7)
                return before == launches_of(self.daemon, program) and before
            def find_missed():
                session = session_of(self.daemon, program)
                return session["gaps"], session["losses"], session["state"]

            # Where the hooks cannot tell whose work is whose, recording begins anew, once: it is said.
            for _ in range(5):
                launches, missed = wait_until("nothing is under way", are_still), find_missed()
                program.do(f"launch {4000 // threads} {threads}")
                found = wait_until("nothing is under way", are_still) - launches
                time.sleep(1.5)  # the library says once a second what it missed
                if missed == find_missed() and missed[2] == "collecting":
                    break
                print(f"{4000 - found} missed, and said: {find_missed()}")
                time.sleep(3)
            self.assertEqual(found, 4000)
            detach(self.daemon, program)
            self.check_quiet_end(program)

    def test_cupti_is_finalised_where_it_was_loaded_but_not_used_before(self):
        with workload() as program:
            for line in ("init", f"open {FAKES / 'cupti_13/libcupti.so.13'}", "steady 1"):
                program.do(line)
            for _ in range(3):
                self.assertEqual(attach(self.daemon, program)["state"], "attached")
                wait_for_kernels(self.daemon, program)
                self.assertEqual(detach(self.daemon, program)["detail"], "CUPTI is finalised")
            program.do(f"profiler start {KINETO} 1")
            program.do("profiler stop")
            self.check_other_client_is_awaited(program)

    def test_launches_that_went_on_before_cupti_was_set_up_cost_no_more_than_a_second_try(self):
        with workload(FAKE_CUPTI_SETUP_MS="150") as program:
            program.do("init")
            program.do("steady 4")  # they wait for 40 ms, then go on
            self.assertEqual(attach(self.daemon, program)["state"], "attached")
            wait_for_state(self.daemon, program, "collecting")
            self.assertIn("hooked_calls", session_of(self.daemon, program)["level"])
            wait_for_kernels(self.daemon, program)
            self.assertEqual(detach(self.daemon, program)["detail"], "CUPTI is finalised")
            program.do("halt")
            self.check_quiet_end(program)

    def test_who_used_cupti_before_is_awaited(self):
        with workload() as program:
            for line in ("init", f"profiler start {KINETO} 1", "profiler stop", "steady 1"):
                program.do(line)
            self.check_other_client_is_awaited(program)

    def check_other_client_is_awaited(self, program):
        attach(self.daemon, program)
        wait_for_state(self.daemon, program, "yielded")
        self.assertEqual(session_of(self.daemon, program)["detail"], "CUPTI was used before")
        wait_for_state(self.daemon, program, "collecting")
        self.assertIn("another client has used it", detach(self.daemon, program)["detail"])
        program.do("halt")
        self.check_quiet_end(program)

    def test_graphs_from_before_are_never_traced_and_the_program_lives(self):
        with workload() as program:
            for line in ("init", "graph make early 20", "graph launch early 5"):
                program.do(line)
            attach(self.daemon, program)
            wait_for_state(self.daemon, program, "collecting")
            def is_said():
                program.do("graph launch early 2")
                return session_of(self.daemon, program)["cause"] == "graphs_unseen"
            wait_until("graphs are noticed", is_said)
            self.assertEqual(program.state()["kinds"] >> 51 & 1, 0)  # GRAPH_TRACE
            left = detach(self.daemon, program)
            self.assertIn("there are CUDA graphs", left["detail"])
            program.do("graph launch early 50")
            self.check_quiet_end(program)

    def test_many_cycles_leave_nothing_behind(self):
        with workload() as program:
            program.do("init")
            program.do("steady 2 5")
            held, late = [], []
            for number in range(CYCLES):
                row, refusals = attach_when_free(self.daemon, program, tries=CYCLES // 50 + 1 - len(late))
                late += refusals
                self.assertEqual(row["state"], "attached", row)
                held.append(int(row["held_ns"]))
                left = detach(self.daemon, program)
                self.assertEqual(left["state"], "can", left)
                if number == 4:
                    before = held_by(program)
            after = held_by(program)
            done = program.do("halt")
            self.assertGreater(done["launches"], 0)
            held.sort()
            print(f"{CYCLES} cycles, repeated after {late}: held {held[len(held) // 2] / 1e6:.2f} ms in the middle, {held[-1] / 1e6:.2f} at most; "
                  f"from {before} to {after}; slowest 50 launches {done['slowest_ns'] / 1e6:.1f} ms", file=sys.stderr)
            self.assertEqual((after["fds"], after["threads"]), (before["fds"], before["threads"]))
            # The program's own heap grows meanwhile. A mapping a cycle would be dozens.
            self.assertLess(after["maps"], before["maps"] + 8)
            # The program keeps what it launched, some 300 bytes each.
            self.assertLess(after["private_kib"], before["private_kib"] + 2048 + done["launches"] // 2)
            self.check_quiet_end(program)

    def test_a_worker_killed_at_any_moment_leaves_the_program_alone(self):
        random_source = random.Random(7)
        attached = 0
        with workload() as program:
            program.do("init")
            program.do("steady 2")
            launches = program.state()["steady_launches"]
            for _ in range(KILLS):
                # So that the next one is new, and its whole way can be cut off.
                if (old := find_worker(self.daemon)) is not None:
                    os.kill(old, signal.SIGKILL)
                asked = subprocess.Popen(self.daemon.ctl_words("attach", "--pid", pid_of(program)),
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                deadline = time.monotonic() + 5
                worker = None
                while worker in (None, old) and time.monotonic() < deadline:
                    worker = find_worker(self.daemon)
                time.sleep(0.002 + random_source.uniform(0, 0.02))
                if worker is not None:
                    try:
                        os.kill(worker, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                asked.wait(60)
                now = wait_until("the program launches on", lambda: program.state()["steady_launches"] > launches
                                 and program.state()["steady_launches"])
                launches = now
                if "gpuperf" in program.threads():
                    attached += 1
                    wait_until("a worker is started again",
                               lambda: self.daemon.ctl("attach", "--list", check=False).returncode == 0)
                    row = detach(self.daemon, program)
                    self.assertEqual(row["state"], "can", row)
            print(f"{KILLS} workers killed, {attached} after the library had entered", file=sys.stderr)
            # Workers are not started for a moment after one has died before it could begin.
            wait_until("a worker is started again", lambda: self.daemon.ctl("attach", "--list", check=False).returncode == 0)
            check_attaches_and_ends(self, self.daemon, program)

    def test_a_program_killed_meanwhile_is_reported_as_gone(self):
        for wait_s in (0, 0.005, 0.02, 0.05):
            with workload() as program:
                program.do("init")
                program.do("steady 2")
                asked = subprocess.Popen(self.daemon.ctl_words("attach", "--pid", pid_of(program)),
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                time.sleep(wait_s)
                program.process.kill()
                asked.wait(60)
        self.assertEqual(self.daemon.query("status")["version"] != "", True)

    def test_waiting_calls_are_not_disturbed(self):
        """Every thread of it waits in another call; none notices that it was stopped."""
        script = ("import ctypes, select, socket, threading, time, os, signal, sys\n"
                  "ctypes.CDLL('libcuda.so.1')\n"
                  "results = []\n"
                  "def sleep():\n"
                  "    began = time.monotonic(); time.sleep(2); results.append(2 <= time.monotonic() - began < 3)\n"
                  "def poll():\n"
                  "    began = time.monotonic(); results.append(select.poll().poll(2000) == [] and time.monotonic() - began >= 2)\n"
                  "def receive():\n"
                  "    a, b = socket.socketpair(); threading.Timer(2, lambda: b.send(b'x')).start(); results.append(a.recv(1) == b'x')\n"
                  "def wait():\n"
                  "    event = threading.Event(); results.append(event.wait(2) is False)\n"
                  "threads = [threading.Thread(target=f) for f in (sleep, poll, receive, wait)]\n"
                  "[t.start() for t in threads]\n"
                  "print('ready', flush=True)\n"
                  "[t.join() for t in threads]\n"
                  "print(results, flush=True)\n"
                  "sys.stdin.readline()\n")
        with python_program(script) as program:
            for _ in range(5):
                self.assertEqual(attach(self.daemon, program.pid)["state"], "attached")
                self.assertEqual(attach(self.daemon, program.pid, verb="detach")["state"], "can")
            self.assertEqual(program.stdout.readline(), "[True, True, True, True]\n")

    def test_a_loader_that_is_busy_for_long_is_waited_for_by_one_thread(self):
        if shutil.which("gcc") is None:
            self.skipTest("needs gcc")
        slow = self.daemon.path / "libslow.so"
        subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-o", slow, "-"], check=True, text=True,
                       input="#include <unistd.h>\n__attribute__((constructor)) void load() { sleep(12); }\n")
        with workload() as program:
            program.do("init")
            program.do("steady 2")
            program.post(f"open {slow}")
            wait_until("it is being loaded", lambda: slow.name in program.mapped())
            rows = [attach(self.daemon, program) for _ in range(2)]
            self.assertEqual([row["reason"] for row in rows], ["failed"] * 2)
            self.assertIn("has not begun within 10 s", rows[0]["detail"])
            self.assertIn("an earlier attach has not ended", rows[1]["detail"])
            program.answer()
            wait_for_kernels(self.daemon, program)
            self.assertEqual(program.threads().count("gpuperf"), 1)
            self.assertEqual(detach(self.daemon, program)["state"], "can")
            program.do("halt")
            self.check_quiet_end(program)

    def change_during(self, program, line, verb):
        """Attaches or detaches while the program does the line again and again; how often a second it was done."""
        is_changed = threading.Event()
        def go_on():
            times, began = 0, time.monotonic()
            while not is_changed.is_set():
                program.do(line)
                times += 1
            return times / (time.monotonic() - began)
        with concurrent.futures.ThreadPoolExecutor() as beside:
            rate = beside.submit(go_on)
            time.sleep(0.1)
            try:
                row = attach(self.daemon, program, verb=verb)
            finally:
                is_changed.set()
            self.assertEqual(row["state"], {"attach": "attached", "detach": "can"}[verb], row)
            return rate.result()

    def test_it_goes_on_through_forks(self):
        with workload() as program:
            program.do("init")
            program.do("steady 2")
            for _ in range(3):
                for verb in ("attach", "detach"):
                    # A child that launches could find the driver's lock held by another thread, here as on a GPU.
                    rate = self.change_during(program, "fork quiet 2", verb)
            print(f"{rate:.0f} forks a second", file=sys.stderr)
            program.do("halt")
            self.check_quiet_end(program)

    def test_it_goes_on_through_a_storm_of_threads(self):
        with workload() as program:
            program.do("init")
            program.do("steady 2")
            rates = [100 * self.change_during(program, "launch 1 100", verb)
                     for _ in range(3) for verb in ("attach", "detach")]
            print(f"{min(rates):.0f} to {max(rates):.0f} threads a second, each launches", file=sys.stderr)
            self.assertGreater(min(rates), 1000)
            program.do("halt")
            self.check_quiet_end(program)


class TwoDaemonsTest(unittest.TestCase):
    def test_one_of_two_that_are_asked_at_once_attaches_and_either_detaches(self):
        with Daemon({}) as one, Daemon({}) as other, workload() as program:
            program.do("init")
            program.do("steady 2")
            daemons = [one, other]
            for turn in range(6):
                asked = [subprocess.Popen(daemon.ctl_words("attach", "--pid", pid_of(program), "-o", "json"),
                                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
                         for daemon in daemons]
                rows = [json.loads(each.communicate(timeout=60)[0])[0] for each in asked]
                self.assertEqual(sorted(row["reason"] for row in rows), ["", "attached"], rows)
                daemon = daemons[turn % 2]
                wait_for_kernels(daemons[[row["reason"] for row in rows].index("")], program)
                self.assertEqual(detach(daemon, program)["state"], "can")
            self.assertEqual(program.threads().count("gpuperf"), 0)
            self.assertGreater(program.do("halt")["launches"], 0)
            self.assertEqual((program.end(), program.noise()), (0, ""))


class RestartTest(unittest.TestCase):
    def test_a_new_daemon_finds_attached_programs_again_without_stopping_a_thread(self):
        with Daemon({}) as daemon, workload() as program:
            program.do("init")
            program.do("steady 2")
            row = attach(daemon, program)
            for how in (signal.SIGKILL, signal.SIGTERM):
                wait_for_kernels(daemon, program)
                daemon.stop(how)
                daemon.start()
                session = wait_until("the session", lambda: session_of(daemon, program))
                self.assertEqual(session["attach_held_ns"], row["held_ns"])
            wait_for_kernels(daemon, program)
            self.assertEqual(detach(daemon, program)["state"], "can")
            program.do("halt")
            self.assertEqual((program.end(), program.noise()), (0, ""))

    def test_a_daemon_killed_at_any_moment_leaves_the_program_alone(self):
        random_source = random.Random(11)
        attached = 0
        with Daemon({}) as daemon, workload() as program:
            program.do("init")
            program.do("steady 2")
            for _ in range(KILLS // 5):
                asked = subprocess.Popen(daemon.ctl_words("attach", "--pid", pid_of(program)),
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                wait_until("its worker", lambda: find_worker(daemon))
                time.sleep(random_source.uniform(0, 0.15))
                daemon.stop(signal.SIGKILL)
                asked.wait(60)
                launches = program.state()["steady_launches"]
                wait_until("the program launches on", lambda: program.state()["steady_launches"] > launches)
                daemon.start()
                if "gpuperf" in program.threads():
                    attached += 1
                    wait_until("the session", lambda: session_of(daemon, program))
                    self.assertEqual(detach(daemon, program)["state"], "can")
            print(f"{KILLS // 5} daemons killed, {attached} after the library had entered", file=sys.stderr)
            check_attaches_and_ends(self, daemon, program)


if __name__ == "__main__":
    unittest.main()
