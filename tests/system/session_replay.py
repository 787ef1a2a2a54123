#!/usr/bin/env python3
"""Sends a recording of a session (tests/recordings/README.md) to a daemon, as if it were that process.

usage: session_replay.py RECORDING SOCKET [SECONDS]     prints "sent"; closes the connection when its stdin ends

With SECONDS it goes on with the recording's last so many seconds, again and again, each message at its time.
"""

import os
import select
import socket
import struct
import sys
import time

HELLO, WELCOME, BATCH = 1, 2, 4
HEADER_BYTES, BATCH_BYTES = 16, 32
# From this kind on every record begins with a time: gaps, kernels, copies and so on.
FIRST_TIMED_KIND = 4
TIME_OFFSET = 8
LENGTH_OFFSET, SEQUENCE_OFFSET = 8, 12


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


def get_sent_ns(batch):
    """By the wall clock."""
    return struct.unpack_from("<Q", batch, HEADER_BYTES + 8)[0]


def make_current(messages):
    """As if the last batch had been sent just now."""
    sent = [get_sent_ns(message) for kind, message in messages if kind == BATCH]
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


def drop_names(batch):
    """The batch without what can be announced once only."""
    records, at, count = bytearray(), BATCH_BYTES, 0
    while at < len(batch):
        kind, length = struct.unpack_from("<HH", batch, at)
        if kind >= FIRST_TIMED_KIND:
            records += batch[at:at + length]
            count += 1
        at += length
    head = batch[:BATCH_BYTES]
    struct.pack_into("<I", head, LENGTH_OFFSET, BATCH_BYTES + len(records))
    struct.pack_into("<II", head, HEADER_BYTES, count, len(records))
    return head + records


def repeat(content, connection, span_ns):
    """Until stdin ends; records of one time follow those of the time before without a gap."""
    messages = split_messages(content)
    sequence = len(messages)  # of the next message
    batches = [drop_names(message) for kind, message in messages if kind == BATCH]
    last_ns = get_sent_ns(batches[-1])
    batches = [batch for batch in batches if get_sent_ns(batch) > last_ns - span_ns]
    shift_ns = time.time_ns() - (last_ns - span_ns)
    while True:
        for batch in batches:
            wait_s = (get_sent_ns(batch) + shift_ns - time.time_ns()) / 1e9
            if select.select([sys.stdin], [], [], max(wait_s, 0))[0]:
                return
            current = bytearray(batch)
            shift_batch(current, shift_ns)
            struct.pack_into("<I", current, SEQUENCE_OFFSET, sequence)
            connection.send(current)
            sequence += 1
        shift_ns += span_ns


def main():
    with open(sys.argv[1], "rb") as file:
        content = file.read()
    with replay(content, sys.argv[2]) as connection:
        print("sent", flush=True)
        if len(sys.argv) > 3:
            repeat(content, connection, round(float(sys.argv[3]) * 1e9))
        else:
            sys.stdin.read()


if __name__ == "__main__":
    main()
