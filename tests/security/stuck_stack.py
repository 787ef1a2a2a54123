#!/usr/bin/env python3
"""Processes that wait for pages which a FUSE server drops and never delivers again.

usage: stuck_stack.py serve FD SIZE FAILURES    serves a file system of one file, `stack`, over the descriptor
       stuck_stack.py sit LIBRARY FILE THREADS  has threads with stacks in that file sit in harm_call()
       stuck_stack.py hold LIBRARY FILE OTHER   loads OTHER as well, has a thread hold the lock of its memory, calls
                                                harm_call(), and waits for that lock

The server drops all pages on a line of standard input; from then on it fails so many reads, answers none after them,
and prints a line for each of these. The others say that they have loaded the library, wait for a line, and say so when
their threads sit, or are about to wait. A page fault waits a first time without the lock; when that fails, it holds the
lock from then on, and whoever wants to read waits behind the thread that wants to write. All of it ends with the server.
"""

import ctypes
import mmap
import os
import signal
import struct
import sys
import threading
import time

ROOT, STACK = 1, 2
LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ, WRITE, RELEASE, FLUSH = 1, 2, 3, 4, 14, 15, 16, 18, 25
INIT, OPENDIR, RELEASEDIR, INTERRUPT, BATCH_FORGET = 26, 27, 29, 36, 42
SILENT = (FORGET, INTERRUPT, BATCH_FORGET)
NOTIFY_INVALIDATE = 2
EIO, ENOSYS = 5, 38
STACK_BYTES = 1 << 20
VALID_S = 3600
LIFE_S = 90  # of each process, whatever becomes of the test: with the server end all waits


class Server:
    def __init__(self, fd, size, failures):
        self.fd = fd
        self.failures = failures
        self.content = bytearray(size)
        self.is_dropped = False

    def make_attributes(self, node):
        mode, size = (0o40755, 0) if node == ROOT else (0o100666, len(self.content))
        return struct.pack("<6Q10I", node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, os.getuid(), os.getgid(), 0, 4096, 0)

    def answer(self, operation, node, body):
        """The answer's bytes; None = there will be none."""
        if operation == INIT:
            return struct.pack("<4I2H2I2HI7I", 7, 31, 1 << 17, 0, 16, 12, 1 << 17, 1, 32, 0, 0, *[0] * 7)
        if operation == LOOKUP:
            return struct.pack("<4Q2I", STACK, 0, VALID_S, VALID_S, 0, 0) + self.make_attributes(STACK)
        if operation in (GETATTR, SETATTR):
            return struct.pack("<Q2I", VALID_S, 0, 0) + self.make_attributes(node)
        if operation in (OPEN, OPENDIR):
            return struct.pack("<Q2I", 0, 2, 0)
        if operation == READ:
            if self.is_dropped and self.failures > 0:
                self.failures -= 1
                return EIO
            if self.is_dropped:
                print("read", flush=True)
                return None
            _, offset, size = struct.unpack_from("<2QI", body)
            return bytes(self.content[offset:offset + size])
        if operation == WRITE:
            _, offset, size = struct.unpack_from("<2QI", body)
            self.content[offset:offset + size] = body[40:40 + size]
            return struct.pack("<2I", size, 0)
        return b"" if operation in (RELEASE, FLUSH, RELEASEDIR) else ENOSYS

    def serve(self):
        while True:
            try:
                request = os.read(self.fd, (1 << 17) + 4096)
            except OSError:  # aborted, or unmounted
                return
            _, operation, unique, node = struct.unpack_from("<2I2Q", request)
            answer = None if operation in SILENT else self.answer(operation, node, request[40:])
            if answer is None:
                continue
            error, bytes_ = (-answer, b"") if isinstance(answer, int) else (0, answer)
            os.write(self.fd, struct.pack("<IiQ", 16 + len(bytes_), error, unique) + bytes_)

    def drop_when_told(self):
        sys.stdin.readline()
        body = struct.pack("<Q2q", STACK, 0, 0)
        os.write(self.fd, struct.pack("<IiQ", 16 + len(body), NOTIFY_INVALIDATE, 0) + body)
        self.is_dropped = True  # not before: dropping a page that is being read waits for the read
        print("dropped", flush=True)


def serve(fd, size, failures):
    server = Server(int(fd), int(size), int(failures))
    threading.Thread(target=server.drop_when_told, daemon=True).start()
    server.serve()


def sit(library, path, threads):
    fd = os.open(path, os.O_RDWR)
    memory = mmap.mmap(fd, int(threads) * STACK_BYTES, mmap.MAP_SHARED)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None)
    target = ctypes.CDLL(library)
    inside = threading.Semaphore(0)
    print("loaded", flush=True)
    sys.stdin.readline()

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    def run(_):
        inside.release()
        target.harm_call(libc.sleep, LIFE_S)
        return None

    attributes = ctypes.create_string_buffer(64)
    for i in range(int(threads)):
        libc.pthread_attr_init(attributes)
        libc.pthread_attr_setstack(attributes, ctypes.c_void_p(begin + i * STACK_BYTES), ctypes.c_size_t(STACK_BYTES))
        if libc.pthread_create(ctypes.byref(ctypes.c_ulong()), attributes, run, None) != 0:
            sys.exit("pthread_create failed")
        inside.acquire()
    print("sits", flush=True)
    time.sleep(LIFE_S)


def hold(library, path, other):
    fd = os.open(path, os.O_RDWR)
    memory = mmap.mmap(fd, mmap.PAGESIZE, mmap.MAP_SHARED)
    memory.madvise(mmap.MADV_RANDOM)  # no reads ahead: the fault itself reads
    target = ctypes.CDLL(library)
    ctypes.CDLL(other)
    libc = ctypes.CDLL(None)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    print("loaded", flush=True)
    sys.stdin.readline()
    reader = threading.Thread(target=libc.strlen, args=(ctypes.c_void_p(begin),), daemon=True)  # without Python's lock
    reader.start()
    time.sleep(0.1)
    print("holds", flush=True)
    target.harm_call(libc.usleep, 0)  # from now on the daemon wants to know whose process it is
    libc.mmap(None, ctypes.c_size_t(mmap.PAGESIZE), mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, ctypes.c_long(0))


signal.alarm(LIFE_S)
{"serve": serve, "sit": sit, "hold": hold}[sys.argv[1]](*sys.argv[2:])
