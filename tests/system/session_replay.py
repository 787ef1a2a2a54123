#!/usr/bin/env python3
"""Sends a recording of a session (tests/recordings/README.md) to a daemon, as if it were that process.

usage: session_replay.py RECORDING SOCKET     prints "sent"; closes the connection when its stdin ends
"""

import os
import socket
import struct
import sys
import time

HELLO, WELCOME, BATCH = 1, 2, 4
HEADER_BYTES, BATCH_BYTES = 16, 32
# From this kind on every record begins with a time: gaps, kernels, copies and so on.
FIRST_TIMED_KIND = 4
TIME_OFFSET = 8


def split_messages(content):
    """(kind, bytes) of each."""
    messages, at = [], 0
    while at < len(content):
        kind, length = struct.unpack_from("<HI", content, at + 6)
        if length < HEADER_BYTES or at + length > len(content):
            raise ValueError(f"a message of {length} bytes at {at} of {len(content)}")
        messages.append((kind, bytearray(content[at:at + length])))
        at += length
    if not messages or messages[0][0] != HELLO:
        raise ValueError("a recording begins with HELLO")
    return messages


def read_start_ticks():
    with open("/proc/self/stat", encoding="utf-8") as stat:
        return int(stat.read().rsplit(")", 1)[1].split()[19])


def claim(hello):
    """The recorded process's HELLO with this one's identity and clocks."""
    struct.pack_into("<QQQI", hello, 24, read_start_ticks(), time.monotonic_ns(), time.time_ns(), os.getpid())


def shift_batch(batch, shift_ns):
    count = struct.unpack_from("<I", batch, HEADER_BYTES)[0]
    shift_time(batch, HEADER_BYTES + 8, shift_ns)  # sent_unix_ns
    at = BATCH_BYTES
    for _ in range(count):
        kind, length = struct.unpack_from("<HH", batch, at)
        if kind >= FIRST_TIMED_KIND:
            shift_time(batch, at + TIME_OFFSET, shift_ns)
        at += length
    if at != len(batch):
        raise ValueError(f"{count} records end at {at} of {len(batch)}")


def shift_time(message, at, shift_ns):
    struct.pack_into("<Q", message, at, struct.unpack_from("<Q", message, at)[0] + shift_ns)


def make_current(messages):
    """As if the last batch had been sent just now."""
    sent = [struct.unpack_from("<Q", message, HEADER_BYTES + 8)[0]
            for kind, message in messages if kind == BATCH]
    shift_ns = time.time_ns() - max(sent, default=0)
    for kind, message in messages:
        if kind == HELLO:
            claim(message)
        elif kind == BATCH:
            shift_batch(message, shift_ns)
    return messages


def replay(content, path):
    """The connection, still open; everything was sent."""
    (_, hello), *others = make_current(split_messages(content))
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(20)
    connection.connect(path)
    connection.send(hello)
    answer = connection.recv(65536)
    if struct.unpack_from("<H", answer, 6)[0] != WELCOME:
        raise ValueError(f"not welcome: {answer!r}")
    for _, message in others:
        connection.send(message)
    return connection


def main():
    with open(sys.argv[1], "rb") as file, replay(file.read(), sys.argv[2]):
        print("sent", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
