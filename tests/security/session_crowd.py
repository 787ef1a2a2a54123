"""Processes of a user without rights that speak injector/session_abi.h, forked from the test: `work(path)` runs in each."""

import contextlib
import os
import signal
import struct
import time

from bed import put_last
from gpuperf_system import NOBODY
from session_peer import API, Peer, batch, place, record, shape

MEMORY = 11
MESSAGE_BYTES = 60_000


class Forked:
    """A child as bed.AttackTest handles attackers. It has nothing open of its parent's but `kept`: a pipe that it held
    open would keep whoever reads it from seeing its end."""
    stdin = stdout = stderr = None

    def __init__(self, work, uid=NOBODY, kept=()):
        self.pid = os.fork()
        if self.pid != 0:
            return
        status = 1
        try:
            for descriptor in map(int, os.listdir("/proc/self/fd")):
                if descriptor > 2 and descriptor not in kept:
                    with contextlib.suppress(OSError):
                        os.close(descriptor)
            os.setsid()
            put_last(os.getpid())
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            with contextlib.suppress(OSError):
                work()
            status = 0
        finally:
            os._exit(status)

    def wait(self):
        """Ends it, also where it had not come to leading a group of its own."""
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


def crowd(count, work):
    """For Forked: so many processes at that work, all but one forked by the first. What the test's own process forks stops
    it for a while, and what it measures with it."""
    def begin():
        for _ in range(count - 1):
            if os.fork() == 0:
                break
        work()
    return begin


def name(number, text):
    return record(1, number, struct.pack("<HHI", len(text), 0, 0) + text + bytes(-len(text) % 8))


def make_batches(records):
    """Messages of the records, in order."""
    messages, waiting, size = [], [], 0
    for one in records:
        if size + len(one) > MESSAGE_BYTES:
            messages.append(batch(waiting))
            waiting, size = [], 0
        waiting.append(one)
        size += len(one)
    return messages + [batch(waiting)]


def make_flood(names, calls):
    """All that a session may announce, each kernel launched once, calls without work and memory never released."""
    now_ns = time.time_ns()
    text = b"kernel_%05d_" + b"x" * 228

    def records():
        yield place(1)
        for number in range(1, names + 1):
            yield name(number, text % number)
            yield shape(number)
        for number in range(1, names + 1):
            yield record(5, number, struct.pack("<QQ6I", now_ns, 1000, number, number, 1, 0, 0, 0))
        for number in range(calls):
            yield record(API, 100_000 + number, struct.pack("<QQIIIHH", now_ns, 1000, 1, 211, 0, 1, 0))
            yield record(MEMORY, number, struct.pack("<QQQIHBB", now_ns, 4096 * number, 4096, 1, 1, 3, 0))
    return make_batches(records())


def hold_sessions(path, count, messages=(), on_welcome=lambda: None):
    """Opens so many sessions, sends each of them all messages, and stays."""
    peers = []
    for _ in range(count):
        peer = Peer(path, 60)
        if isinstance(peer.greet(), dict):
            on_welcome()
        peers.append(peer)
    for message in messages:
        for peer in peers:
            with contextlib.suppress(OSError):
                peer.send(message)
    time.sleep(600)
