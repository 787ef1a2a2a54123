"""A process with the injected library, as the daemon sees it: injector/session_abi.h in Python, and what a liar
would send instead."""

import contextlib
import os
import socket
import struct
import time

MAGIC = 0x46525047
HELLO, WELCOME, CONTROL, BATCH, STATUS, REFUSE = range(1, 7)
NAME, SHAPE, PLACE, GAP, KERNEL = 1, 2, 3, 4, 5
API = 8
REFUSED_VERSION, REFUSED_FULL, REFUSED_IDENTITY = 1, 2, 3
COLLECTING = 2


def start_ticks(pid="self"):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
        return int(stat.read().rsplit(")", 1)[1].split()[19])


def message(kind, body, version=1, sequence=0, length=None, magic=MAGIC):
    return struct.pack("<IHHII", magic, version, kind, 16 + len(body) if length is None else length,
                       sequence) + body


def hello(pid=None, ticks=None, version=1, oldest=1, more=b""):
    body = struct.pack("<QQQQIIII16s16s", 0x1fe0, start_ticks() if ticks is None else ticks,
                       time.monotonic_ns(), time.time_ns(), os.getpid() if pid is None else pid, oldest, 0, 0,
                       b"0.1.0", b"python3")
    return message(HELLO, body + more, version)


def record(kind, number, body, more=b""):
    return struct.pack("<HHI", kind, 8 + len(body) + len(more), number) + body + more


def name(number, text):
    body = struct.pack("<HHI", len(text), 0, 0) + text
    return record(NAME, number, body + bytes(-len(body) % 8))


def shape(number, more=b""):
    return record(SHAPE, number, struct.pack("<12I", 64, 1, 1, 256, 1, 1, 0, 0, 0, 1024, 32, 0), more)


def place(number):
    return record(PLACE, number, struct.pack("<IIII16s", 0, 1, 7, 0, bytes(range(16))))


def kernel(start=None, duration=1000, ids=(1, 1, 1), flags=0, more=b""):
    start = time.time_ns() if start is None else start
    return record(KERNEL, 42, struct.pack("<QQ6I", start, duration, *ids, 0, 0, flags), more)


def api(tid):
    return record(API, 42, struct.pack("<QQIIIHH", time.time_ns(), 1000, tid, 211, 0, 1, 0))


def batch(records, count=None, size=None, more=b""):
    body = b"".join(records)
    return message(BATCH, struct.pack("<IIQ", len(records) if count is None else count,
                                      len(body) if size is None else size, time.time_ns()) + more + body)


def status(state=COLLECTING, records_sent=0):
    return message(STATUS, struct.pack("<4Q10Q4Q8I96s", 0x1fe0, time.monotonic_ns(), time.time_ns(), records_sent,
                                       *([0] * 10), 0, 0, 0, 0, state, 0, 0, 1, 130001, 13000, 0, 4, b"fine"))


DICTIONARY = [name(1, b"_Z6kernelv"), shape(1), place(1)]


class Peer:
    """One connection. Nothing waits longer than `seconds`."""

    def __init__(self, path, seconds=10.0):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(seconds)
        end = time.monotonic() + seconds
        while True:
            try:
                self.socket.connect(str(path))
                return
            except BlockingIOError:  # as many wait already as the kernel lets
                if time.monotonic() > end:
                    raise
                time.sleep(0.001)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, packet):
        self.socket.send(packet)

    def receive(self):
        """(kind, body), or None when the daemon has closed the connection."""
        try:
            packet = self.socket.recv(65536)
        except ConnectionResetError:
            return None
        return (struct.unpack_from("<H", packet, 6)[0], packet[16:]) if packet else None

    def greet(self, **claims):
        """The WELCOME's fields, or the reason of the refusal as a number; None when just closed."""
        with contextlib.suppress(BrokenPipeError):  # refused already: the refusal is still to be read
            self.send(hello(**claims))
        answer = self.receive()
        if answer is None:
            return None
        if answer[0] == REFUSE:
            return struct.unpack_from("<I", answer[1])[0]
        assert answer[0] == WELCOME, answer
        fields = struct.unpack("<QQ8I", answer[1])
        return dict(zip(("session_id", "enabled_kinds", "mode", "sample_every", "flush_interval_ms", "batch_bytes_max",
                         "burst_flags", "burst_ms", "heartbeat_ms", "abandon_ms"), fields))

    def is_closed(self):
        """Whether the daemon closes it; other messages are passed over."""
        try:
            while self.receive() is not None:
                pass
        except (socket.timeout, TimeoutError):
            return False
        return True
