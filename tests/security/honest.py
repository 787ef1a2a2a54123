#!/usr/bin/env python3
"""What honest users see of a daemon: a process whose calls are slow, one who watches them, a scraper and root. In a process of
its own, so that nothing its parent does delays what is measured here.

usage: honest.py SOCKET PORT PID       PID: of the daemon

Prints a line for each thing seen until it is killed: what, when (CLOCK_MONOTONIC, seconds) and how long it took or how much it
was, or why it failed: {"kind":"scrape","at":71.5,"value":0.012}
"""

import http.client
import json
import os
import subprocess
import sys
import threading
import time

from bed import read_resident_mib
from gpuperf_system import GPUPERFCTL, WORKLOADS, wait_until
from http2_attacker import DATA, END_HEADERS, END_STREAM, HEADERS, Connection, make_frame, make_headers, make_message

CALL_MS = 10
CONTROL = b"/gpuperf.v1.Control/"
THRESHOLD = b"\x12\x0aslow_sleep" + b"\x18\xc0\x96\xb1\x02"  # SetSlowThresholdRequest: function, threshold_ns 5,000,000


def tell(kind, value, **more):
    line = json.dumps({"kind": kind, "at": time.monotonic(), "value": value} | more) + "\n"
    os.write(1, line.encode())  # at once, whatever other threads write


def repeat(kind, work):
    while True:
        time.sleep(0.1)
        begin = time.monotonic()
        try:
            work()
        except (OSError, http.client.HTTPException, AssertionError) as error:
            tell("failure", 0, why=f"{kind}: {error!r}")
        tell(kind, time.monotonic() - begin)


def scrape(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/metrics")
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    if answer.status != 200 or b"gpuperf_function_calls_total" not in text:
        raise AssertionError(f"status {answer.status}, {len(text)} bytes")


def has_calls(port):
    try:
        scrape(port)
        return True
    except AssertionError:
        return False


def read_bytes(connection, count):
    data = b""
    while len(data) < count:
        piece = connection.socket.recv(count - len(data))
        if not piece:
            raise ConnectionResetError("closed")
        data += piece
    return data


def control(path):
    """As gpuperfctl does it, without the time that a program takes to start."""
    connection = Connection(path)
    with connection.socket:
        connection.socket.settimeout(10)
        connection.send(make_frame(HEADERS, END_HEADERS, 1, make_headers(b"SetSlowThreshold", CONTROL)) +
                        make_frame(DATA, END_STREAM, 1, make_message(THRESHOLD)))
        has_answer = False
        while True:
            head = read_bytes(connection, 9)
            read_bytes(connection, int.from_bytes(head[:3], "big"))
            if head[5:] != b"\0\0\0\1":
                continue  # of the connection, not of the call
            has_answer = has_answer or head[3] == DATA
            if head[3] == HEADERS and head[4] & END_STREAM:
                break
    if not has_answer:
        raise AssertionError("the threshold was not set")


def watch(watcher):
    for line in watcher.stdout:
        call = json.loads(line)
        tell("call", time.time() - (call["start_unix_ns"] + call["duration_ns"]) / 1e9)


def look_at_memory(pid):
    while True:
        time.sleep(0.05)
        tell("resident", read_resident_mib(pid))


def main():
    socket, port, daemon_pid = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    workload = subprocess.Popen([WORKLOADS / "slow_calls", "--requests", "1000000", "--duration-ms", str(CALL_MS)],
                                stdout=subprocess.DEVNULL)
    watcher = subprocess.Popen([GPUPERFCTL, "--address", f"unix:{socket}", "slow", "watch", "--pid", str(workload.pid),
                                "-o", "json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    wait_until("calls in the metrics", lambda: has_calls(port))
    control(socket)  # waits for the calibration at the daemon's start
    for work in (lambda: watch(watcher), lambda: repeat("scrape", lambda: scrape(port)),
                 lambda: repeat("control", lambda: control(socket)), lambda: look_at_memory(daemon_pid)):
        threading.Thread(target=work, daemon=True).start()
    tell("begun", 0)
    workload.wait()


if __name__ == "__main__":
    main()
