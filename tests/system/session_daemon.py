"""The daemon's end of injector/session_abi.h, for tests: a listener, its rulings, and a decoder.

Nothing here is shared with the daemon or the injector: the layouts are written down once more, from
the contract's text, so that a change of one side shows.
"""

import collections
import os
import pathlib
import select
import socket
import struct
import tempfile
import time

MAGIC = 0x46525047
HELLO, WELCOME, CONTROL, BATCH, STATUS, REFUSE = range(1, 7)
(NAME, SHAPE, PLACE, GAP, KERNEL, MEMCPY, MEMSET, API, GRAPH, SYNC, MEMORY, OVERHEAD, STALLS,
 SAMPLING, CUBIN) = range(1, 16)
KIND_NAMES = ("", "name", "shape", "place", "gap", "kernel", "memcpy", "memset", "api", "graph", "sync",
              "memory", "overhead", "stalls", "sampling", "cubin")
STALLS_NAMES = ("other", "barrier", "branch_resolving", "dispatch_stall", "drain", "imc_miss", "lg_throttle",
                "long_scoreboard", "math_pipe_throttle", "membar", "mio_throttle", "misc", "no_instructions",
                "not_selected", "selected", "short_scoreboard", "sleeping", "tex_throttle", "wait",
                "warpgroup_arrive")
LATER = 1 << 62
PROGRESS = 1 << 61
ALL_KINDS = sum(1 << kind for kind in (KERNEL, MEMCPY, MEMSET, API, GRAPH, SYNC, MEMORY, OVERHEAD))
RUN, PAUSE, OFF = 1, 2, 3
REFUSED_VERSION, REFUSED_FULL, REFUSED_IDENTITY, REFUSED_CONFIG = range(1, 5)
BURST_NODES, BURST_ALL_APIS, BURST_SAMPLES = 1, 2, 4
WAITING, COLLECTING, PAUSED, YIELDED, STATE_OFF, FAILED = range(1, 7)
(CAUSE_NONE, CAUSE_CONTROL, CAUSE_OTHER_CLIENT, CAUSE_NSIGHT, CAUSE_NO_CUPTI, CAUSE_CUPTI_VERSION,
 CAUSE_CUPTI_ERROR, CAUSE_DAEMON_GONE, CAUSE_DEVICE_BUFFERS, CAUSE_BURST, CAUSE_GRAPHS_UNSEEN) = range(11)
(LEVEL_KERNELS, LEVEL_GRAPHS, LEVEL_NODES, LEVEL_APIS, LEVEL_ALL_APIS, LEVEL_COPIES, LEVEL_SYNCS,
 LEVEL_MEMORY, LEVEL_HOOKED, LEVEL_CUPTI, LEVEL_SAMPLES) = (1 << bit for bit in range(11))
LOSSES = ("cupti_buffer", "device_buffer", "reversed", "queue_full", "no_daemon", "table_full", "sampled",
          "unknown_record", "pool_empty", "incomplete")

HEADER = struct.Struct("<IHHII")
BODY = {  # after the record's header of 8 bytes: kind, length, id
    "name": ("<HHI", "text_bytes cut pad"),
    "shape": ("<12I", "grid_x grid_y grid_z block_x block_y block_z cluster_x cluster_y cluster_z "
                      "shared_memory_bytes registers_per_thread local_memory_bytes"),
    "place": ("<4I16s6I", "device context stream pad device_uuid sm_count threads_per_sm blocks_per_sm "
                          "registers_per_sm shared_memory_per_sm_bytes shared_memory_reserved_bytes"),
    "gap": ("<2Q", "start_unix_ns duration_ns"),
    "kernel": ("<2Q6I", "start_unix_ns duration_ns name_id shape_id place_id graph_id node_id flags"),
    "memcpy": ("<3QI4B2I", "start_unix_ns duration_ns copied_bytes place_id direction source_memory "
                           "target_memory flags graph_id node_id"),
    "memset": ("<3QI2BH2I", "start_unix_ns duration_ns set_bytes place_id memory flags pad graph_id node_id"),
    "api": ("<2Q3I2H", "start_unix_ns duration_ns tid callback_id return_value domain pad"),
    "graph": ("<2Q2I", "start_unix_ns duration_ns graph_id place_id"),
    "sync": ("<2Q2I", "start_unix_ns duration_ns type place_id"),
    "memory": ("<3QIH2B", "unix_ns address size_bytes place_id operation memory from_pool"),
    "overhead": ("<2Q2I", "start_unix_ns duration_ns type pad"),
    "stalls": ("<Q2I", "cubin_crc pc_offset_bytes count"),
    "sampling": ("<5Q2I", "start_unix_ns duration_ns samples dropped_samples other_samples period flags"),
    "cubin": ("<Q4I", "cubin_crc size_bytes offset_bytes piece_bytes pad"),
}
Stalls = collections.namedtuple("Stalls", "name_id cubin_crc pc_offset_bytes samples idle_samples")
BODY = {name: (struct.Struct(form), collections.namedtuple(name.title(), "id " + fields))
        for name, (form, fields) in BODY.items()}
HELLO_FORM = struct.Struct("<4Q4I16s16s")
Hello = collections.namedtuple("Hello", "capabilities process_start_ticks mono_ns unix_ns pid "
                                        "oldest_version connection pad injector_version comm")
STATUS_FORM = struct.Struct("<4Q10Q4Q8I96s3Q")
Status = collections.namedtuple(
    "Status", "enabled_kinds mono_ns unix_ns records_sent losses cupti_overhead_ns injector_cpu_ns "
              "clock_error_ns yields state cause level sample_every cupti_version driver_version "
              "clock_foreign buffer_mib detail hooked_calls timed_hooks timed_hooks_ns")


def cut_text(raw):
    return raw.split(b"\0", 1)[0].decode()


def decode_hello(body):
    hello = Hello(*HELLO_FORM.unpack(body))
    return hello._replace(injector_version=cut_text(hello.injector_version), comm=cut_text(hello.comm))


def decode_status(body):
    values = STATUS_FORM.unpack(body)
    status = Status(*values[:4], dict(zip(LOSSES, values[4:14], strict=True)), *values[14:])
    return status._replace(detail=cut_text(status.detail))


def decode_batch(body):
    """The records of a batch: (kind's name, named tuple), names as (text, cut)."""
    count, records_bytes, _ = struct.unpack_from("<IIQ", body)
    assert len(body) == 16 + records_bytes, (len(body), records_bytes)
    at, records = 16, []
    while at < len(body):
        kind, length_bytes, record_id = struct.unpack_from("<HHI", body, at)
        name = KIND_NAMES[kind]
        form, layout = BODY[name]
        assert length_bytes % 8 == 0 and length_bytes >= 8 + form.size, (name, length_bytes)
        record = layout(record_id, *form.unpack_from(body, at + 8))
        if kind == NAME:
            start = at + 8 + form.size
            text = body[start:start + record.text_bytes].decode()
            padding = body[start + record.text_bytes:at + length_bytes]
            assert not any(padding) and len(padding) < 8, "a name's padding"
            record = (record_id, text, record.cut)
        elif kind == STALLS:
            assert length_bytes == 8 + form.size + 16 * record.count, (record, length_bytes)
            counts = list(struct.iter_unpack("<4I", body[at + 8 + form.size:at + length_bytes]))
            assert not any(pad for *_, pad in counts), "a stall's padding"
            record = Stalls(record_id, record.cubin_crc, record.pc_offset_bytes,
                            {STALLS_NAMES[stall]: samples for stall, samples, _, _ in counts},
                            {STALLS_NAMES[stall]: idle for stall, _, idle, _ in counts if idle})
        elif kind == CUBIN:
            assert length_bytes == 8 + form.size + (record.piece_bytes + 7) // 8 * 8, (record, length_bytes)
        else:
            assert length_bytes == 8 + form.size, (name, length_bytes)
            assert getattr(record, "pad", 0) == 0, record
        records.append((name, record))
        at += length_bytes
    assert len(records) == count, (len(records), count)
    return records


class Session:
    """One connection of an injector: what it said, decoded as it came."""

    def __init__(self, connection):
        self.socket = connection
        self.hello = None
        self.statuses = []
        self.names, self.shapes, self.places = {}, {}, {}
        self.records = collections.defaultdict(list)  # by kind's name, dictionaries apart
        self.is_open = True
        self.expected_sequence = 0
        self.sent = 0

    def send(self, kind, body, version=1):
        message = HEADER.pack(MAGIC, version, kind, HEADER.size + len(body), self.sent) + body
        self.sent += 1
        self.socket.send(message)

    def rule(self, kind=CONTROL, *, kinds=ALL_KINDS, mode=RUN, sample_every=1, flush_ms=20,
             batch_bytes=65536, burst=0, burst_ms=0, heartbeat_ms=200, abandon_ms=1500):
        self.send(kind, struct.pack("<2Q8I", 1, kinds, mode, sample_every, flush_ms, batch_bytes, burst,
                                    burst_ms, heartbeat_ms, abandon_ms))

    def refuse(self, reason, retry_ms):
        self.send(REFUSE, struct.pack("<2I", reason, retry_ms))

    def take(self, message):
        magic, version, kind, length_bytes, sequence = HEADER.unpack_from(message)
        assert (magic, version, length_bytes) == (MAGIC, 1, len(message)), "a message's header"
        assert sequence == self.expected_sequence, (sequence, self.expected_sequence)
        self.expected_sequence += 1
        body = message[HEADER.size:]
        if kind == HELLO:
            self.hello = decode_hello(body)
        elif kind == STATUS:
            self.statuses.append(decode_status(body))
        else:
            assert kind == BATCH, kind
            for name, record in decode_batch(body):
                self.take_record(name, record)
        return kind

    def take_record(self, name, record):
        """Notes a record. An id is announced before it is used, once, and without a gap."""
        known = {"name": self.names, "shape": self.shapes, "place": self.places}.get(name)
        if known is not None:
            assert record[0] == len(known) + 1, f"{name} {record[0]} after {len(known)}"
            known[record[0]] = record
            return
        for field, table in (("name_id", self.names), ("shape_id", self.shapes), ("place_id", self.places)):
            assert getattr(record, field, None) is None or getattr(record, field) in table, record
        self.records[name].append(record)

    @property
    def status(self):
        return self.statuses[-1] if self.statuses else None

    def name_of(self, kernel):
        return self.names[kernel.name_id][1]


class Peer:
    """A daemon that is only its socket. `on_hello(session)` answers; the default welcomes."""

    def __init__(self, path=None, on_hello=None):
        self.folder = tempfile.TemporaryDirectory(prefix="gpuperf-peer-") if path is None else None
        self.path = pathlib.Path(path or pathlib.Path(self.folder.name) / "ingest.sock")
        self.on_hello = on_hello or (lambda session: session.rule(WELCOME))
        self.sessions = []
        self.listener = None
        self.is_reading = True

    def start(self):
        if self.path.exists():
            self.path.unlink()
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(str(self.path))
        os.chmod(self.path, 0o666)
        self.listener.listen(64)
        return self

    def stop(self):
        for session in self.sessions:
            if session.is_open:
                session.socket.close()
                session.is_open = False
        if self.listener is not None:
            self.listener.close()
            self.path.unlink(missing_ok=True)
            self.listener = None

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()
        if self.folder is not None:
            self.folder.cleanup()

    @property
    def last(self):
        return self.sessions[-1] if self.sessions else None

    def pump(self, seconds):
        """Takes what comes within the time: one round at least."""
        open_sessions = [session for session in self.sessions if session.is_open]
        sockets = {session.socket: session for session in open_sessions} if self.is_reading else {}
        listeners = [self.listener] if self.listener is not None else []
        ready, _, _ = select.select([*listeners, *sockets], [], [], seconds)
        for source in ready:
            if source is self.listener:
                self.sessions.append(Session(source.accept()[0]))
                continue
            self.read_one(sockets[source])

    def read_one(self, session):
        try:
            message = session.socket.recv(65536)
        except ConnectionResetError:
            message = b""
        if not message:
            session.socket.close()
            session.is_open = False
        elif session.take(message) == HELLO:
            self.on_hello(session)

    def pump_for(self, seconds):
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.pump(left)

    def wait(self, what, condition, seconds=10.0):
        """Takes what comes until the condition holds; fails naming `what` when time is up."""
        deadline = time.monotonic() + seconds
        while True:
            answer = condition()
            if answer:
                return answer
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds} s: {what}; last status: "
                                     f"{self.last and self.last.status}")
            self.pump(0.02)

    def wait_for_state(self, state, **fields):
        """The last session's status once it is that, and has these fields."""
        def find():
            status = self.last and self.last.status
            matches = status and status.state == state and \
                all(getattr(status, name) == value for name, value in fields.items())
            return status if matches else None
        return self.wait(f"state {state} {fields}", find)
