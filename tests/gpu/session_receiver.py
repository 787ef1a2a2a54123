#!/usr/bin/env python3
"""A stand-in for the daemon at the far end of a session: injector/session_abi.h in Python.

Takes the connections of injected processes, rules them, counts what they send and can keep it byte by
byte. It can also be what no daemon should be: one that stops reading. As a program it only serves until
it is killed, so that it can be stopped and killed like a daemon:

usage: session_receiver.py SOCKET
"""

import collections
import ctypes
import functools
import os
import signal
import socket
import struct
import sys
import threading
import time

MAGIC = 0x46525047
HELLO, WELCOME, CONTROL, BATCH, STATUS, REFUSE = range(1, 7)
(NAME, SHAPE, PLACE, GAP, KERNEL, MEMCPY, MEMSET, API, GRAPH, SYNC, MEMORY,
 OVERHEAD) = range(1, 13)
WINDOW = 9  # GPUPERF_OVERHEAD_WINDOW
ALL_KINDS = sum(1 << kind for kind in range(KERNEL, OVERHEAD + 1))
RUN, PAUSE, OFF = 1, 2, 3
BURST_NODES = 1
LEVEL_NODES = 4
STATES = ["", "waiting", "collecting", "paused", "yielded", "off", "failed"]
CAUSES = ["none", "control", "other_client", "nsight", "no_cupti", "cupti_version", "cupti_error",
          "daemon_gone", "device_buffers", "burst", "graphs_unseen"]
LOSSES = ["cupti_buffer", "device_buffer", "reversed", "queue_full", "no_daemon", "table_full",
          "sampled", "unknown_record", "pool_empty", "incomplete"]
# Not of these: how often a buffer was missing, and what was left out as told.
NOT_RECORDS = ("pool_empty", "sampled")
DIRECTIONS = ["unknown", "host_to_device", "device_to_host", "host_to_array", "array_to_host",
              "array_to_array", "array_to_device", "device_to_array", "device_to_device",
              "host_to_host", "peer_to_peer"]
MEMORIES = ["unknown", "pageable", "pinned", "device", "array", "managed", "device_static",
            "managed_static"]
SYNCS = ["unknown", "event", "stream_event", "stream", "context"]
KERNEL_BYTES = 48


@functools.lru_cache(maxsize=None)
def demangle(name):
    """As the C++ library does; the name itself where it is no C++ name, or is not whole."""
    if len(name) > 1024:
        return name
    library = ctypes.CDLL("libstdc++.so.6")
    library.__cxa_demangle.restype = ctypes.c_void_p
    status = ctypes.c_int()
    text = library.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
    if not text:
        return name
    plain = ctypes.string_at(text).decode(errors="replace")
    ctypes.CDLL(None).free(ctypes.c_void_p(text))
    return plain


class Totals:
    """What ran, added up: the form in which every source of records is compared."""

    def __init__(self):
        self.kernels = collections.defaultdict(lambda: [0, 0])  # name -> launches, ns; not of graphs
        self.nodes = collections.defaultdict(lambda: [0, 0])    # likewise, of graphs
        self.copies = collections.defaultdict(lambda: [0, 0])   # "direction source target" -> count, bytes
        self.sets = collections.defaultdict(lambda: [0, 0])     # memory -> count, bytes
        self.syncs = collections.Counter()                      # type -> count
        self.graph_launches = 0
        self.holds_ns = []                                      # launches held for a window

    def as_json(self):
        return {"kernels": dict(self.kernels), "nodes": dict(self.nodes),
                "copies": dict(self.copies), "sets": dict(self.sets), "syncs": dict(self.syncs),
                "graph_launches": self.graph_launches}


def add(table, key, amount):
    entry = table[key]
    entry[0] += 1
    entry[1] += amount


class Session:
    """One connection. Written by its own thread; a reader sees numbers a moment old."""

    def __init__(self, connection):
        self.connection = connection
        self.pid = 0
        self.comm = ""
        self.messages = []  # as received, when recording
        self.totals = Totals()
        self.records = collections.Counter()  # by kind
        self.names = {}
        self.gaps = []  # (cause, nanoseconds)
        self.statuses = []
        self.last_kernel_unix_ns = 0
        self.is_open = True
        self.error = ""
        self._sequence = 0
        self._send = threading.Lock()

    @property
    def status(self):
        return self.statuses[-1] if self.statuses else {}

    @property
    def kernel_count(self):
        return self.records[KERNEL]

    def counted(self):
        """Records without dictionaries and gaps, as STATUS counts them."""
        return sum(count for kind, count in self.records.items() if kind >= KERNEL)

    def lost(self):
        return sum(count for name, count in self.status.get("losses", {}).items()
                   if name not in NOT_RECORDS)

    def order(self, kind=CONTROL, mode=RUN, kinds=ALL_KINDS, flush_ms=250, burst=0, burst_ms=0,
              abandon_ms=30_000):
        with self._send:
            message = struct.pack("<IHHII QQ IIII IIII", MAGIC, 1, kind, 64, self._sequence, 7, kinds,
                                  mode, 1, flush_ms, 65536, burst, burst_ms, 1000, abandon_ms)
            self._sequence += 1
            try:
                self.connection.send(message)
            except OSError:
                pass  # it has gone; its thread says so

    def take(self, message):
        """The message's kind."""
        magic, _, kind, length, _ = struct.unpack_from("<IHHII", message)
        if magic != MAGIC or length != len(message):
            raise ValueError(f"magic {magic:#x}, length {length} of {len(message)} bytes")
        if kind == HELLO:
            self.pid = struct.unpack_from("<I", message, 48)[0]
            self.comm = message[80:96].split(b"\0")[0].decode()
        elif kind == STATUS:
            self._take_status(message)
        elif kind == BATCH:
            self._take_batch(message)
        return kind

    def _take_status(self, message):
        fields = struct.unpack_from("<4Q10Q4Q8I96s", message, 16)
        self.statuses.append({
            "kinds": fields[0], "records_sent": fields[3],
            "losses": {name: count for name, count in zip(LOSSES, fields[4:14]) if count},
            "cupti_overhead_ns": fields[14], "injector_cpu_ns": fields[15],
            "clock_error_ns": fields[16], "yields": fields[17], "state": STATES[fields[18]],
            "cause": CAUSES[fields[19]], "level": fields[20], "cupti_version": fields[22],
            "clock_foreign": fields[24], "buffer_mib": fields[25],
            "detail": fields[26].split(b"\0")[0].decode(), "mono_s": time.monotonic()})

    def _take_batch(self, message):
        count, size = struct.unpack_from("<II", message, 16)
        if size != len(message) - 32:
            raise ValueError(f"batch of {len(message)} bytes says it holds {size}")
        if count * KERNEL_BYTES == size and message[32::KERNEL_BYTES] == bytes([KERNEL]) * count:
            # Nothing but kernels: the bulk of it, taken at once.
            fields = struct.iter_unpack("<HHIQQ6I", memoryview(message)[32:])
            for _, _, _, start, duration, name, _, _, _, _, flags in fields:
                add(self.totals.nodes if flags & 1 else self.totals.kernels, self.names[name], duration)
            self.last_kernel_unix_ns = start
            self.records[KERNEL] += count
            return
        at = 32
        for _ in range(count):
            kind, length, number = struct.unpack_from("<HHI", message, at)
            if length < 8 or at + length > len(message):
                raise ValueError(f"record of kind {kind} and {length} bytes at {at}")
            self._take_record(kind, number, message, at)
            self.records[kind] += 1
            at += length
        if at != len(message):
            raise ValueError(f"{count} records end at {at} of {len(message)}")

    def _take_record(self, kind, number, message, at):
        totals = self.totals
        if kind == NAME:
            size = struct.unpack_from("<H", message, at + 8)[0]
            self.names[number] = message[at + 16:at + 16 + size].decode(errors="replace")
        elif kind == GAP:
            self.gaps.append((CAUSES[number], struct.unpack_from("<Q", message, at + 16)[0]))
        elif kind == KERNEL:
            start, duration, name, _, _, _, _, flags = struct.unpack_from("<QQ6I", message, at + 8)
            add(totals.nodes if flags & 1 else totals.kernels, self.names[name], duration)
            self.last_kernel_unix_ns = start
        elif kind == MEMCPY:
            _, _, size, _, direction, source, target, _, graph = struct.unpack_from(
                "<QQQIBBBBI", message, at + 8)
            if not graph:
                add(totals.copies,
                    f"{DIRECTIONS[direction]} {MEMORIES[source]} {MEMORIES[target]}", size)
        elif kind == MEMSET:
            _, _, size, _, memory, _, _, graph = struct.unpack_from("<QQQIBBHI", message, at + 8)
            if not graph:
                add(totals.sets, MEMORIES[memory], size)
        elif kind == GRAPH:
            totals.graph_launches += 1
        elif kind == OVERHEAD:
            length_ns, what = struct.unpack_from("<QI", message, at + 16)
            if what == WINDOW:
                totals.holds_ns.append(length_ns)
        elif kind == SYNC:
            totals.syncs[SYNCS[struct.unpack_from("<I", message, at + 24)[0]]] += 1


class Receiver:
    """Listens at `path`. `welcome`: what a session is told first; None = it is never answered.
    `reads` False: after the welcome nothing is read any more."""

    def __init__(self, path, welcome=(), record=False, reads=True):
        self.path = str(path)
        self.sessions = []
        self._welcome = None if welcome is None else dict(welcome)
        self._record, self._reads = record, reads
        if os.path.exists(self.path):
            os.unlink(self.path)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(self.path)
        os.chmod(self.path, 0o666)
        self._listener.listen(256)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        # A thread waits in accept(); only this wakes it.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        if os.path.exists(self.path):
            os.unlink(self.path)
        for session in self.sessions:
            try:
                session.connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has gone already

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def find(self, pid):
        """The process's sessions, the newest last."""
        return [session for session in self.sessions if session.pid == pid]

    def wait(self, pid, condition=lambda session: True, seconds=20.0):
        """The process's newest session, once it meets the condition; None when time is up."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = self.find(pid)
            if found and condition(found[-1]):
                return found[-1]
            time.sleep(0.02)
        return None

    def wait_closed(self, pid, seconds=20.0):
        return self.wait(pid, lambda session: not session.is_open, seconds)

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
            session = Session(connection)
            threading.Thread(target=self._serve, args=(session,), daemon=True).start()

    def _serve(self, session):
        listed = False
        while True:
            try:
                message = session.connection.recv(70_000)
            except OSError:
                break
            if not message:
                break
            if self._record:
                session.messages.append(message)
            try:
                kind = session.take(message)
            except (ValueError, KeyError, IndexError, struct.error) as error:
                session.error = f"{type(error).__name__}: {error}"
                break
            if kind == HELLO and not listed:
                listed = True
                self.sessions.append(session)
                if self._welcome is not None:
                    session.order(WELCOME, **self._welcome)
                if not self._reads:
                    return  # the connection stays open, and fills
        session.is_open = False
        session.connection.close()


def main():
    receiver = Receiver(sys.argv[1])
    print("ready", flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    receiver.close()


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main()
