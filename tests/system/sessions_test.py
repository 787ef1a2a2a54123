#!/usr/bin/env python3
"""Processes that connect to the daemon's ingest socket: honest ones are served whatever the others do."""

import contextlib
import os
import re
import socket
import struct
import tempfile
import time
import unittest
import urllib.request

import session_peer as peers
from gpuperf_system import Daemon, require_root, wait_until
from session_peer import DICTIONARY, Peer, batch, hello, kernel, message, name, place, record, shape, status

# The sessions are looked at, not probes: none of these is anywhere.
NO_PROBES = {"none_func_sym": {"nothing_has_this": "gpuperf_no_such_symbol"}}


class SessionsTest(unittest.TestCase):
    ingest = {}
    log_pause = 0.0  # where many sessions end at once: the log takes 20 lines of them a second

    def setUp(self):
        require_root()
        self.daemon = self.enterContext(Daemon({**NO_PROBES, "ingest": self.ingest}))
        self.daemon.path.chmod(0o755)  # for other users
        self.path = self.daemon.path / "run/ingest.sock"

    def try_once(self):
        with Peer(self.path) as peer:
            return peer.greet()

    def connect(self, **options):
        return self.enterContext(Peer(self.path, **options))

    def open(self, **claims):
        peer = self.connect()
        self.assertIsInstance(peer.greet(**claims), dict)
        return peer

    def dropped(self, reason):
        """gpuperf_dropped_total of stage "session", as the metrics have it."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.daemon.port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        found = re.search(rf'^gpuperf_dropped\w*{{[^}}]*reason="{reason}",stage="session"[^}}]*}} (\S+)|'
                          rf'^gpuperf_dropped\w*{{[^}}]*stage="session",reason="{reason}"[^}}]*}} (\S+)', text, re.M)
        self.assertTrue(found, reason)
        return float(found[1] or found[2])

    def wait_dropped(self, reason, count):
        wait_until(f"{count} dropped for {reason}", lambda: self.dropped(reason) >= count)

    def closed_line(self, peer, records):
        """The daemon's account of a session that ends now."""
        time.sleep(self.log_pause)
        peer.socket.close()
        self.daemon.wait_for_log(f"records={records} ")

    def cpu_seconds(self):
        with open(f"/proc/{self.daemon.process.pid}/stat", encoding="utf-8") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mib(self):
        with open(f"/proc/{self.daemon.process.pid}/status", encoding="utf-8") as text:
            return int(re.search(r"VmRSS:\s+(\d+)", text.read())[1]) / 1024

    def assert_alive_and_serving(self):
        # Connections of this process that wait to be seen dead may still have its two places.
        wait_until("a place", lambda: isinstance(self.try_once(), dict))
        peer = self.open()
        peer.send(batch(DICTIONARY + [kernel()] * 7))
        self.closed_line(peer, 7)
        self.assertIsNone(self.daemon.process.poll())


class HonestSessionsTest(SessionsTest):
    ingest = {"sample_every": 5, "flush_interval_ms": 100}

    def test_a_session_is_welcomed_with_the_settings_and_counted(self):
        peer = self.connect()
        welcome = peer.greet()
        peer.send(batch(DICTIONARY + [kernel(), peers.api(os.getpid())]))
        peer.send(status())

        self.assertEqual((welcome["sample_every"], welcome["flush_interval_ms"], welcome["mode"]), (5, 100, 1))
        self.daemon.wait_for_log("state=collecting")
        self.closed_line(peer, 2)
        self.assertRegex(self.daemon.log(), rf"session open session=1 pid={os.getpid()} comm=\S+ injector=0.1.0")

    def test_later_versions_are_spoken_with(self):
        peer = self.open(version=9, more=bytes(range(64)))
        peer.send(batch(DICTIONARY + [kernel(more=b"\xff" * 16), record(99, 0, b"\xff" * 40)]))
        peer.send(message(77, b"?" * 100))
        peer.send(batch([kernel()] * 2, more=b"\xff" * 8))
        self.closed_line(peer, 3)
        self.assertEqual(self.dropped("unknown_kind"), 2)
        self.assertEqual(self.dropped("malformed"), 0)

    def test_a_peer_that_goes_on_after_a_stop_is_no_liar(self):
        peer = self.open()
        time.sleep(1.5)  # no STATUS for longer than the heartbeat
        peer.send(batch(DICTIONARY + [kernel()] * 4))
        self.closed_line(peer, 4)

    def test_the_socket_goes_with_the_daemon_and_comes_back(self):
        peer = self.open()
        self.assertEqual(self.daemon.stop(), 0)
        self.assertTrue(peer.is_closed())
        self.assertFalse(self.path.exists())
        self.daemon.start()
        self.assert_alive_and_serving()

    def test_a_killed_daemons_socket_is_taken_over(self):
        self.daemon.stop(9)
        self.assertTrue(self.path.exists())
        self.daemon.start()
        self.assert_alive_and_serving()


class HostileSessionsTest(SessionsTest):
    log_pause = 1.2

    def test_lies_about_the_process_are_refused(self):
        self.assertEqual(self.connect().greet(pid=1), peers.REFUSED_IDENTITY)
        self.assertEqual(self.connect().greet(ticks=12345), peers.REFUSED_IDENTITY)
        self.assertEqual(self.connect().greet(version=3, oldest=2), peers.REFUSED_VERSION)
        self.assertEqual(self.dropped("refused"), 3)

    def test_what_is_no_greeting_ends_the_connection(self):
        for greeting in (b"garbage", os.urandom(200), hello()[:50], hello()[:-8], status(), hello(version=0),
                         hello(oldest=0), hello(version=1, oldest=2), message(peers.HELLO, b"")):
            with Peer(self.path) as peer:
                peer.send(greeting)
                self.assertTrue(peer.is_closed(), greeting)
        self.assert_alive_and_serving()

    def test_silence_ends_the_connection(self):
        peer = self.connect()
        begin = time.monotonic()
        self.assertTrue(peer.is_closed())
        self.assertAlmostEqual(time.monotonic() - begin, 5, delta=1.5)
        self.assertEqual(self.dropped("silent"), 1)

    def test_each_lie_about_a_batch_ends_that_session_alone(self):
        honest = self.open()
        long_name = struct.pack("<HHI", 1032, 0, 0) + b"n" * 1032
        for lie in (batch(DICTIONARY, count=2), batch(DICTIONARY, count=4), batch(DICTIONARY, size=8),
                    batch(DICTIONARY, size=1 << 31), message(peers.BATCH, b"x" * 8),
                    message(peers.BATCH, b"\xff" * 1000), message(peers.BATCH, b"", length=4096),
                    batch([name(1, b"a"), name(1, b"b")]), batch([name(2, b"a")]), batch([shape(7)]),
                    batch([place(1), place(1)]), batch([name(1, b"a\0b")]), batch([record(peers.NAME, 1, long_name)]),
                    batch([struct.pack("<HHI", peers.KERNEL, 0, 0)]),
                    batch([struct.pack("<HHI", peers.KERNEL, 0xfff8, 0)]),
                    hello(), message(peers.STATUS, b"short"), os.urandom(60000), b""):
            with Peer(self.path) as peer:
                self.assertIsInstance(peer.greet(), dict)
                peer.send(lie)
                self.assertTrue(peer.is_closed(), lie[:60])
        honest.send(batch(DICTIONARY + [kernel()] * 3))
        self.closed_line(honest, 3)

    def test_records_without_sense_are_counted_and_the_rest_is_kept(self):
        peer = self.open()
        now = time.time_ns()
        hour = 3600 * 10**9
        peer.send(batch(DICTIONARY + [
            kernel(start=0), kernel(start=1), kernel(start=2**64 - 1), kernel(duration=2**64 - 1),
            kernel(start=now + 2 * hour), kernel(start=now - 25 * hour), kernel(ids=(2, 1, 1)), kernel(ids=(1, 0, 1)),
            kernel(ids=(1, 1, 2**32 - 1)), kernel(flags=2**31), kernel()]))
        peer.send(status(state=99))
        self.closed_line(peer, 1)
        self.assertEqual([self.dropped(reason) for reason in ("bad_time", "unknown_id", "bad_value")], [6, 3, 2])

    def test_a_name_of_ten_megabytes_does_not_fit_into_a_message(self):
        peer = self.open()
        peer.socket.setsockopt(socket.SOL_SOCKET, 32, 64 << 20)  # SO_SNDBUFFORCE
        with contextlib.suppress(OSError):  # beyond what the kernel sends at all
            peer.send(batch([record(peers.NAME, 1, b"\0" * 24)]) + b"n" * (10 << 20))
        with contextlib.suppress(OSError):
            peer.send(b"n" * 66000)
        self.assertTrue(peer.is_closed())
        self.assert_alive_and_serving()

    def test_names_beyond_the_bound_keep_their_ids(self):
        peer = self.open()
        before = self.resident_mib()
        number = 0
        for _ in range(400):  # 24 MB
            names = []
            for _ in range(60):
                number += 1
                names.append(name(number, b"%01000d" % number))
            peer.send(batch(names))
        peer.send(batch([shape(1), place(1), kernel(ids=(number, 1, 1))]))
        self.closed_line(peer, 1)
        self.assertEqual(self.dropped("names_full"), number - (16 << 20) // 1000)
        self.assertLess(self.resident_mib() - before, 80)

    def test_a_flood_of_garbage_connections_harms_nobody(self):
        for _ in range(2000):
            with Peer(self.path) as peer, contextlib.suppress(OSError):
                peer.send(os.urandom(64))
        self.assert_alive_and_serving()

    def test_descriptors_sent_along_are_closed(self):
        peer = self.open()
        secret = self.enterContext(tempfile.NamedTemporaryFile())
        for _ in range(50):
            socket.send_fds(peer.socket, [status()], [secret.fileno()] * 3)
        wait_until("all taken", lambda: "state=collecting" in self.daemon.log())
        time.sleep(0.2)
        folder = f"/proc/{self.daemon.process.pid}/fd"
        held = []
        for number in os.listdir(folder):
            with contextlib.suppress(OSError):
                held.append(os.readlink(f"{folder}/{number}"))
        self.assertNotIn(secret.name, held)
        self.assertGreater(len(held), 10)


class CrowdTest(SessionsTest):
    log_pause = 1.2
    ingest = {"max_sessions": 100, "max_sessions_per_user": 60, "max_records_per_second": 20000}

    def test_a_thousand_connections_find_their_bounds(self):
        mine = []
        for _ in range(1000):
            peer = self.connect(seconds=2)
            mine.append(peer)
        answers = []
        for peer in mine:
            answers.append(peer.greet())
        self.assertEqual(sum(isinstance(answer, dict) for answer in answers), 2)  # of one process
        self.wait_dropped("sessions_full", 998)
        for peer in mine:
            peer.socket.close()
        wait_until("places are free", lambda: isinstance(self.try_once(), dict))

    def test_one_user_leaves_places_to_others(self):
        children, welcomed = self.fork_peers(80, user=65534)
        try:
            self.assertEqual(welcomed, 60)
            self.assert_alive_and_serving()  # as root
        finally:
            self.end(children)

    def fork_peers(self, count, user):
        """Processes of that user with a session each, and how many got one."""
        read_end, write_end = os.pipe()
        hold_read, hold_write = os.pipe()
        children = []
        for _ in range(count):
            child = os.fork()
            if child == 0:
                os.close(hold_write)
                os.setgroups([])
                os.setresgid(user, user, user)
                os.setresuid(user, user, user)
                welcomed = False
                with contextlib.suppress(OSError):
                    peer = Peer(self.path, 5)
                    welcomed = isinstance(peer.greet(), dict)
                os.write(write_end, b"1" if welcomed else b"0")
                os.read(hold_read, 1)
                os._exit(0)
            children.append(child)
        os.close(hold_read)
        answers = b""
        while len(answers) < count:
            answers += os.read(read_end, count)
        os.close(read_end)
        os.close(write_end)
        return (children, hold_write), answers.count(b"1")

    @staticmethod
    def end(children):
        os.close(children[1])
        for child in children[0]:
            os.waitpid(child, 0)

    def test_a_flood_is_slowed_down_and_others_do_not_wait(self):
        seconds = 3
        time.sleep(3)  # the daemon has measured what its probes cost by then: its CPU is that of sessions
        flooder = os.fork()
        if flooder == 0:
            peer = Peer(self.path)
            peer.greet()
            peer.send(batch(DICTIONARY))
            packet = batch([kernel()] * 1300)
            end = time.monotonic() + seconds
            with contextlib.suppress(OSError):
                while time.monotonic() < end:
                    peer.socket.settimeout(max(end - time.monotonic(), 0.01))
                    peer.send(packet)
            os._exit(0)
        time.sleep(0.2)
        cpu = self.cpu_seconds()
        slowest = 0.0
        peer = self.open()
        peer.send(batch(DICTIONARY))
        end = time.monotonic() + seconds - 0.5
        sent = 0
        while time.monotonic() < end:
            begin = time.monotonic()
            peer.send(batch([kernel()]))
            with Peer(self.path) as other:  # WELCOME comes from the same thread
                self.assertIsInstance(other.greet(), dict)
            slowest = max(slowest, time.monotonic() - begin)
            sent += 1
            time.sleep(0.05)
        cpu = self.cpu_seconds() - cpu
        os.waitpid(flooder, 0)
        self.assertGreater(self.dropped("throttled"), 0)
        self.closed_line(peer, sent)
        print(f"\nbeside a flood: {sent} answers, the slowest after {slowest * 1000:.1f} ms; "
              f"the daemon used {cpu / (seconds - 0.5):.1%} of a CPU")
        self.assertLess(slowest, 0.5)
        self.assertLess(cpu, 0.3 * seconds)
        # What it had saved up, its share, and one turn.
        flooded = max(int(count) for count in re.findall(r" records=(\d+) ", self.daemon.log()))
        self.assertLess(flooded, 20000 * (seconds + 1) + 4 * 1300)

    def test_a_peer_that_stalls_mid_way_holds_up_nobody(self):
        stalled = os.fork()
        if stalled == 0:
            peer = Peer(self.path)
            peer.greet()
            peer.send(batch(DICTIONARY))
            os.kill(os.getpid(), 19)  # SIGSTOP
            os._exit(0)
        wait_until("stopped", lambda: os.waitpid(stalled, os.WUNTRACED)[0] == stalled)
        try:
            self.assert_alive_and_serving()
        finally:
            os.kill(stalled, 9)
            os.waitpid(stalled, 0)
        self.daemon.wait_for_log('names=1 open=0')


class NoSessionsTest(SessionsTest):
    ingest = {"enabled": False}

    def test_there_is_no_socket_where_none_is_wanted(self):
        self.assertFalse(self.path.exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
